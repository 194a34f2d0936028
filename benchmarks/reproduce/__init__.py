"""Every published table and figure that can be made again, ours beside theirs."""
