"""One expert of Qwen3-30B-A3B on PIM devices and GPUs: gate and up [768, 2048], down [2048, 768], bf16.

References: times that AttAcc's simulator (scale-snu/attacc_simulator, HBM3_5.2Gbps, power-limited, inputs
split four ways inside a channel) measured for this expert; times worked out by hand from each device's
commands, refresh being its mean loss of 350 ns in 3.9 us; and on GPUs the bytes at 85 % of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

from ...hardware.gemv import Gemv
from ...hardware.pim import Pim
from ...hardware.platform import load_platform
from .case import Case

SIMULATED, BY_HAND = "PIM worked example, simulated", "PIM worked example, by hand"
"""Names of the models."""
HIDDEN, INNER, BF16 = 2048, 768, 2.0

SIMULATED_US = {
    ("one stack", 16, "off"): (0.904, 0.657, 2.46, 9.86),
    ("one stack, mean refresh", 16, "average"): (None, None, 2.68, 10.7),
    ("one channel", 1, "off"): (8.93, 8.69, 26.5, 106.0),
    ("one channel, refreshed", 1, "interrupt"): (9.606, 9.359, 28.6, 115.0),
    ("eight stacks", 128, "off"): (0.547, 0.208, 1.30, 5.22),
}
"""Gate, down, the expert for one token and for four; by place, channels and refresh rule. Mean refresh is
the run without, times 1.086, the stretch of long runs."""

BY_HAND_US = {
    "AttAcc timing": (2.68, 10.7, 28.9, 115.7, 57.3, 229.0),
    "AttAcc timing, no power limit": (2.11, 8.43, 21.4, 85.5, 42.3, 169.0),
    "HBM3-6400": (1.86, 7.45, 19.4, 77.4, 38.3, 153.0),
    "HBM3-6400, power-limited": (2.57, 10.3, 28.6, 114.0, 56.7, 227.0),
    "HBM3-6400, four banks per tFAW": (3.13, 12.5, 36.0, 144.0, 71.5, 286.0),
    "SPIMOE": (2.80, 11.2, 31.6, 126.0, 62.8, 251.0),
}
"""The expert for one and four tokens on a stack (32 pseudo-channels), a channel and a pseudo-channel, every
output in one bank."""
PLACES = tuple(
    (place, groups, tokens)
    for place, groups in (("a stack", 32), ("a channel", 2), ("a pseudo-channel", 1))
    for tokens in (1, 4)
)

LAYOUTS_NS = {
    ("gate, one stack, whole inputs", INNER, HIDDEN, 32, 1): 700.0,
    ("gate, one stack, inputs split 8 ways", INNER, HIDDEN, 32, 8): 430.0,
    ("down, one stack, whole inputs", HIDDEN, INNER, 32, 1): 463.0,
    ("down, one stack, inputs split 4 ways", HIDDEN, INNER, 32, 4): 430.0,
    ("gate, eight stacks, whole inputs", INNER, HIDDEN, 256, 1): 700.0,
    ("gate, eight stacks, inputs split 32 ways", INNER, HIDDEN, 256, 32): 89.0,
    ("down, eight stacks, whole inputs", HIDDEN, INNER, 256, 1): 286.0,
    ("down, eight stacks, inputs split 8 ways", HIDDEN, INNER, 256, 8): 89.0,
}
"""One vector on HBM3-6400; by place, outputs, inputs, pseudo-channels and split over them."""


def worked_example_cases() -> Iterator[Case]:
    """Yield the example line by line, in seconds."""
    return chain(_simulated(), _by_hand(), _layouts(), _gpus())


def _simulated() -> Iterator[Case]:
    """Yield runs that start on an idle device, matrix by matrix; with mean refresh, back-to-back work."""
    for (where, channels, rule), published in SIMULATED_US.items():
        pim = _pim("h100-attacc")
        pim = replace(pim, refresh=replace(pim.refresh, rule=rule))
        gemv = partial(pim.gemv, weight_bytes=BF16, activation_bytes=BF16, groups=channels, k_banks=4)
        gate, down = gemv(INNER, HIDDEN), gemv(HIDDEN, INNER)
        seconds = partial(_expert_s, gate, down, idle=rule != "average")
        predicted = (gate.seconds(idle=True), down.seconds(idle=True), seconds(1), seconds(4))
        names = ("gate", "down", "expert", "expert, 4 tokens")
        for name, predicted_s, us in zip(names, predicted, published, strict=True):
            if us is not None:
                yield Case(
                    SIMULATED, f"{where}: {name}", predicted_s, us * 1e-6, "attacc_simulator, measured"
                )


def _by_hand() -> Iterator[Case]:
    hbm3, attacc = _pim("b200-hbmpim"), _pim("h100-attacc")
    # Pseudo-channels as in HBM3-6400, but AttAcc's timing; inputs are written every nCCDS, 2 cycles.
    slow = replace(
        hbm3,
        pu_clock_hz=attacc.pu_clock_hz,
        mac_power_s=attacc.mac_power_s,
        t_ccd_s=attacc.t_ccd_s,
        t_rcd_s=attacc.t_rcd_s,
        t_rp_s=attacc.t_rp_s,
        t_ras_s=attacc.t_ras_s,
        t_rtp_s=attacc.t_rtp_s,
        input_write_s=attacc.t_ccd_s / 2,
        result_read_s=attacc.result_read_s,
    )
    devices = (
        slow,
        replace(slow, mac_power_s=0.0),
        hbm3,
        replace(hbm3, mac_power_s=7 * 0.625e-9),
        replace(hbm3, activation="four_per_faw", faw_banks=32),
        _pim("spimoe-4x8"),
    )
    for (name, published), pim in zip(BY_HAND_US.items(), devices, strict=True):
        for (place, groups, tokens), us in zip(PLACES, published, strict=True):
            seconds = pim.expert_s(
                HIDDEN,
                INNER,
                matrices=3,
                weight_bytes=BF16,
                activation_bytes=BF16,
                groups=groups,
                tokens=tokens,
            )
            yield Case(BY_HAND, f"{name}: {place}, tokens {tokens}", seconds, us * 1e-6, "by hand")


def _layouts() -> Iterator[Case]:
    pim = _pim("b200-hbmpim")
    for (name, outputs, inputs, groups, k_groups), ns in LAYOUTS_NS.items():
        gemv = pim.gemv(
            outputs, inputs, weight_bytes=BF16, activation_bytes=BF16, groups=groups, k_groups=k_groups
        )
        yield Case(BY_HAND, name, gemv.seconds(), ns * 1e-9, "by hand")


def _gpus() -> Iterator[Case]:
    for name, us in (("b200", 1.39), ("a100-80g", 5.4)):
        gpu = load_platform(name).gpu
        assert gpu is not None
        seconds = gpu.roofline_s(3 * HIDDEN * INNER * BF16, 0.0, "bf16")
        yield Case(BY_HAND, f"{name}: weights of the expert", seconds, us * 1e-6, "by hand")


def _expert_s(gate: Gemv, down: Gemv, tokens: int, *, idle: bool) -> float:
    return 2 * gate.seconds(tokens, idle=idle) + down.seconds(tokens, idle=idle)


def _pim(name: str) -> Pim:
    pim = load_platform(name).pim
    assert pim is not None
    return pim
