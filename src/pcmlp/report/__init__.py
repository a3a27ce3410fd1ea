"""Pictures, tables and the page of run folders: from run files alone, to files that open without a network."""
