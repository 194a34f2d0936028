"""In which cyclic order the cores of a network on chip pass blocks on, for all-gather and all-reduce."""
