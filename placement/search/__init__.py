"""Kernels and schedules that the families share."""
