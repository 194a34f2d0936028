"""Meshes, and random transfers on them, for tests of the network."""

from hypothesis import settings
from hypothesis import strategies as st

from moeplan.hardware.topology import mesh

BANDWIDTH = 64e9
LATENCY = 2e-9
LINK = {"link_bandwidth_bytes_per_s": BANDWIDTH, "hop_latency_s": LATENCY}
MESH = mesh(4, 8, **LINK)
HALF = mesh(4, 8, duplex="half", **LINK)

checked = settings(deadline=None, derandomize=True, max_examples=60)
transfer_lists = st.lists(
    st.tuples(st.integers(0, 31), st.integers(0, 31), st.integers(0, 5000)), min_size=1, max_size=24
)
