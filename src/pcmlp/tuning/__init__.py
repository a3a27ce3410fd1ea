"""`pcmlp tune`: the searched settings, and the study, whose trials are ordinary runs."""
