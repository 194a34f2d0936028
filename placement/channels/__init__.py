"""Experts of one MoE layer on the channel sites of a PIM machine."""
