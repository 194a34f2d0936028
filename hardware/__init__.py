"""Machines: bytes, FLOPs, links, clocks, joules. Has never heard of an expert."""
