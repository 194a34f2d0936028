"""Plans as the files that serving engines load."""
