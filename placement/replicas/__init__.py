"""Logical experts in the physical slots of GPU ranks: the family `replicas`."""
