"""Timings of hot paths, as rates and ratios measured in one run."""
