"""A small model on the published machine, placed by LPT on synthetic routing."""

from __future__ import annotations

import dataclasses
from functools import cache

from moeplan.hardware.platform import load_platform
from moeplan.placement.channels.problem import Settings
from moeplan.schedule.moe_side import Channels
from moeplan.schedule.spimoe import spimoe
from moeplan.schedule.spimoe_run import place, prepare
from moeplan.workload.model import load_model
from moeplan.workload.synthetic import SyntheticRouting, synthesize

PLATFORM = load_platform("spimoe-4x8")
MODEL = dataclasses.replace(
    load_model("qwen3-30b-a3b"),
    name="small",
    layers=3,
    moe_layers=(1, 2),
    dense_intermediate_size=1000,
    experts=16,
    top_k=2,
    hidden_size=256,
    expert_intermediate_size=128,
    vocab_size=1000,
)
ROUTING = SyntheticRouting(tokens_per_request=32, concurrency=16)


@cache
def traffic(batch: int = 8, steps: int = 3):
    """Requests of 32 tokens, half of them to plan on."""
    trace = synthesize(MODEL, tokens=2048, seed=1, routing=ROUTING)
    return prepare(trace, batch=batch, steps=steps, profile_steps=8)


@cache
def placement(batch: int = 8, solver: str = "lpt"):
    """Of both layers."""
    settings = Settings(layout="rows", resample=0)
    return place(MODEL, PLATFORM, traffic(batch).planned.load, solver, settings=settings)


def machine(batch: int = 8, *, ring: bool = True, solver: str = "lpt"):
    """The model in place."""
    placed = placement(batch, solver)
    return spimoe(Channels(MODEL, PLATFORM, placed.settings, ring), placed.problems, placed.decisions)
