"""What every family does at a point, in phases that are timed apart.

A job is a list of (phase, call); its input is made before, when the job is prepared, and is not measured.
Searches make a fixed number of proposed moves a layer, so that a point is the same work on every machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .point import Point

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...hardware.topology import Topology
    from ...placement.problem import Problem
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from ...workload.trace import RoutingTrace

#: Slots of a layer on a cluster, whatever the number of ranks.
SLOTS = 1024
_MODEL, _SEED = "qwen3-30b-a3b", 0
_RANKS_PER_NODE = 8


@dataclass(frozen=True)
class Job:
    """`begin` makes the list that phases hand on to each other; a phase reads and fills it."""

    phases: Sequence[tuple[str, Callable[[list[Any]], None]]]


def prepare(point: Point, trace: Path | None = None) -> Job:
    """Make the input of a point, and return what is to be measured. A count reads the file `trace`."""
    if point.family == "count":
        assert trace is not None
        return _count(trace)
    return {
        "channels": _channels,
        "cores": _cores,
        "replicas": _replicas,
        "partition": _partition,
        "ring": _ring,
    }[point.family](point)


def tiny(point: Point) -> Point:
    """Return a small point that runs the same kernels: they load and compile on it."""
    return dataclasses.replace(
        point, layers=1, steps=4, batch=8, tokens=min(point.tokens, 10_000), moves=min(point.moves, 512)
    )


def model_of(point: Point) -> MoEModel:
    """Return a model of so many layers, experts and choices, otherwise Qwen3-30B."""
    from ...workload.model import load_model

    return dataclasses.replace(
        load_model(_MODEL),
        name=f"{point.experts} experts, {point.layers} layers",
        layers=point.layers,
        moe_layers=tuple(range(point.layers)),
        experts=point.experts,
        top_k=point.top_k,
    )


def load_of(point: Point) -> Load:
    """Return synthetic decode steps of the point's sizes."""
    from ...workload.synthetic import SyntheticRouting, synthesize_load

    return synthesize_load(
        model_of(point),
        batch=point.batch,
        steps=point.steps,
        seed=_SEED,
        routing=SyntheticRouting(sampler="draws"),
    )


def write_tokens(point: Point, path: Path) -> None:
    """Write a trace of `point.tokens` tokens whose choices are distinct, skewed, and quick to draw."""
    from ...workload.trace_writer import write_blocks

    write_blocks(_blocks(point), path)


def _blocks(point: Point) -> Iterator[RoutingTrace]:
    from ...workload.trace import RoutingTrace
    from ...workload.trace_format import ROW_GROUP_ROWS

    rng = np.random.default_rng(_SEED)
    for first_row in range(0, point.tokens, ROW_GROUP_ROWS):
        token = np.arange(first_row, min(first_row + ROW_GROUP_ROWS, point.tokens), dtype=np.int32)
        shape = (len(token), point.layers, 1)
        # Choice k is `first + k * stride`: an odd stride meets no expert twice where E is a power of two.
        first = (point.experts * rng.random(shape) ** 2).astype(np.int32)
        stride = 2 * rng.integers(0, point.experts // 2, shape, dtype=np.int32) + 1
        choices = (first + np.arange(point.top_k, dtype=np.int32) * stride) % point.experts
        yield RoutingTrace(
            experts=choices.astype(np.int16),
            request=token // 256,
            position=token % 256,
            step=token // 64,
            model="scale",
            layers=tuple(range(point.layers)),
            num_experts=point.experts,
            top_k=point.top_k,
            source=f"skewed choices (seed {_SEED})",
        )


def grid(sites: int) -> tuple[int, int]:
    """Return rows and columns of the squarest grid of so many sites, wider than high."""
    rows = max(r for r in range(1, int(sites**0.5) + 1) if sites % r == 0)
    return rows, sites // rows


def pim_machine(point: Point) -> Platform:
    """Return the channels of SPIMOE on a mesh of another size, with as much memory as the model takes."""
    from ...hardware.platform import load_platform

    base, model = load_platform("spimoe-4x8"), model_of(point)
    weights = model.expert_bytes * model.experts * model.layers + model.other_bytes
    # Twice the weights, and room for the largest expert whole on any site.
    memory = 2.0 * weights / point.sites + model.layers * model.expert_bytes
    return dataclasses.replace(base, topology=_mesh(point.sites), site_memory_bytes=memory)


def _mesh(sites: int) -> Topology:
    from ...hardware.topology import mesh

    return mesh(*grid(sites), link_bandwidth_bytes_per_s=25.6e9, hop_latency_s=3.75e-9)


def _channels(point: Point) -> Job:
    from ...placement.channels.problem import channel_problem

    model, machine, load = model_of(point), pim_machine(point), load_of(point)
    return _search(point, lambda layer: channel_problem(model, machine, load, layer), solver="annealing")


def _cores(point: Point) -> Job:
    from ...hardware.nearmem import rexpert
    from ...placement.cores.layout import die_layout
    from ...placement.cores.problem import core_problem

    model, load = model_of(point), load_of(point)
    layout = die_layout(model, rexpert().package.die, cores=point.sites)
    return _search(point, lambda layer: core_problem(model, layout, load, layer), solver="annealing")


def _replicas(point: Point) -> Job:
    from ...placement.replicas.planning import baselines as published
    from ...placement.replicas.problem import replica_problem
    from ...placement.replicas.ranks import Ranks

    counts = load_of(point).counts().astype(np.float64)
    nodes = max(1, point.sites // _RANKS_PER_NODE)
    ranks = Ranks(nodes, (max(1, -(-_slots(point) // point.sites)),) * point.sites)

    def pose(problems: list[Any]) -> None:
        problems += [replica_problem(counts[:, row], ranks, layer=row) for row in range(point.layers)]

    def baselines(problems: list[Any]) -> None:
        for problem in problems:
            published(problem, _SEED)

    return Job(
        [
            ("pose", pose),
            ("baselines", baselines),
            ("joint", lambda problems: _solve_all(point, problems, "joint")),
            ("search", lambda problems: _solve_all(point, problems, "annealing")),
        ]
    )


def _slots(point: Point) -> int:
    return max(SLOTS, point.experts + point.experts // 8)


def _partition(point: Point) -> Job:
    from ...hardware.platform import load_platform
    from ...placement.partition.layer import partition_layer

    model, machine, counts = model_of(point), load_platform("b200-hbmpim"), load_of(point).counts()

    def pose(problems: list[Any]) -> None:
        for layer in range(point.layers):
            posed = partition_layer(model, machine, layer=layer)
            problems += [posed.problem(step, batch=point.batch) for step in counts[:, layer]]

    return Job(
        [
            ("pose", pose),
            ("baselines", lambda problems: _solve_all(point, problems, "sieve")),
            ("search", lambda problems: _solve_all(point, problems, "exact")),
        ]
    )


def _ring(point: Point) -> Job:
    from ...placement.ring.problem import RingProblem

    def pose(problems: list[Any]) -> None:
        problems.append(RingProblem(_mesh(point.sites), tuple(range(point.sites))))

    return _phases(point, pose, "annealing")


def _count(trace: Path) -> Job:
    import pyarrow.parquet  # noqa: F401 - what the library itself takes is not the trace's

    from ...workload.scan import scan
    from ...workload.stream import open_trace

    def count(_: list[Any]) -> None:
        scan(open_trace(trace), pairs=False, overlap=False, threads=1)

    def statistics(_: list[Any]) -> None:
        scan(open_trace(trace), threads=1)

    return Job([("count", count), ("statistics", statistics)])


def _search(point: Point, question: Callable[[int], Problem[Any]], solver: str) -> Job:
    def pose(problems: list[Any]) -> None:
        problems += [question(layer) for layer in range(point.layers)]

    return _phases(point, pose, solver)


def _phases(point: Point, pose: Callable[[list[Any]], None], solver: str) -> Job:
    from ...placement.planning import run_baselines

    def baselines(problems: list[Any]) -> None:
        for problem in problems:
            run_baselines(problem, _SEED)

    return Job(
        [
            ("pose", pose),
            ("baselines", baselines),
            ("search", lambda problems: _solve_all(point, problems, solver)),
        ]
    )


def _solve_all(point: Point, problems: list[Any], solver: str) -> None:
    from ...placement.result import Budget
    from ...placement.solve import solve

    for problem in problems:
        solve(problem, solver, budget=Budget(time_s=None, iterations=point.moves), seed=_SEED)
