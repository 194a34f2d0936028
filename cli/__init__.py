"""The command line: one module per verb; thin: parse, call, print."""
