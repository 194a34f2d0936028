"""Solvers beside each other: a grid of frozen instances, solvers and seeds, each cell in its own process."""
