"""A plan for people: one self-contained page (`page.render`), and a table for the terminal (`terminal`)."""
