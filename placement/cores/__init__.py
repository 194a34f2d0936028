"""Expert shards on the cores of near-memory dies: the family `cores`."""
