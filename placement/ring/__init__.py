"""The order in which the cores of a network on chip pass blocks around: a ring for all-gather and all-reduce."""
