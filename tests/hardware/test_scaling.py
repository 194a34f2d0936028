"""Units: a device on which everything takes twice as long needs twice the time, to the last bit."""

from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.hardware.noc import ring_all_reduce_s, transfers_s
from moeplan.hardware.pim import Pim
from moeplan.hardware.platform import load_platform
from moeplan.hardware.refresh import REFRESH_RULES, Refresh
from moeplan.hardware.topology import mesh

PRESETS = ("b200-hbmpim", "gddr6-aim", "h100-attacc", "newton-hbm2", "samsung-hbmpim", "spimoe-4x8")
DEVICES = [pim for name in PRESETS if (pim := load_platform(name).pim)]

exactly = settings(deadline=None, derandomize=True)
factors = st.sampled_from([2.0**-10, 0.5, 2.0, 2.0**30])
sizes = st.integers(1, 5000)


def slower(device: Pim | Refresh, factor: float) -> dict[str, float]:
    return {
        field.name: factor * getattr(device, field.name)
        for field in fields(device)
        if field.name.endswith("_s")
    }


@exactly
@given(
    st.sampled_from(DEVICES),
    sizes,
    sizes,
    factors,
    st.sampled_from(REFRESH_RULES),
)
def test_time_of_a_gemv_scales(pim: Pim, outputs: int, inputs: int, factor: float, rule: str) -> None:
    refresh = Refresh(rule=rule, interval_s=2e-6, cycle_s=0.25e-6, guard_s=0.1e-6)
    one = replace(pim, refresh=refresh)
    refresh = replace(refresh, **slower(refresh, factor))
    other = replace(one, pu_clock_hz=one.pu_clock_hz / factor, refresh=refresh, **slower(one, factor))
    for tokens, idle in ((1, True), (7, False)):
        times = [
            device.gemv(outputs, inputs, groups=3, weight_bytes=2.0, activation_bytes=2.0).seconds(
                tokens, idle=idle
            )
            for device in (one, other)
        ]
        assert times[1] == factor * times[0]


@exactly
@given(st.permutations(range(12)), st.integers(2, 12), st.integers(1, 10_000), factors)
def test_time_of_transfers_scales(order: list[int], members: int, amount: int, factor: float) -> None:
    ring = order[:members]
    one, other = (
        mesh(3, 4, link_bandwidth_bytes_per_s=64e9 / scale, hop_latency_s=2e-9 * scale)
        for scale in (1.0, factor)
    )
    times = [transfers_s(grid, ring, np.roll(ring, -1), amount).total_s for grid in (one, other)]
    assert times[1] == factor * times[0]
    assert ring_all_reduce_s(other, ring, amount) == factor * ring_all_reduce_s(one, ring, amount)
