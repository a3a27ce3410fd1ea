"""`pcmlp tune`: the settings that are searched, and the study, whose trials are ordinary runs."""
