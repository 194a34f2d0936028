"""Files that other projects write, read into our nouns: one module per origin."""
