"""Fitted parameters of synthetic routing, by model."""
