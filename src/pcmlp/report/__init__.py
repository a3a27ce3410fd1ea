"""Pictures, tables and the page about run folders, made only from run files; they open without a network."""
