"""Small channel plans for tests of the report, made from times alone."""

from __future__ import annotations

import math
import random

from moeplan.placement.channels.document import (
    ChannelBaseline,
    ChannelLayer,
    ChannelPlan,
    ChannelTotals,
    ExpertPlace,
)
from moeplan.placement.plan import Link, Machine, ModelEntry, Point, Scores, TrafficEntry

PARTS = {"dram_s": 0.8, "dispatch_s": 0.05, "collective_s": 0.07, "gather_s": 0.05, "scatter_s": 0.03}


def scores(total_us: float) -> Scores:
    total_s = total_us * 1e-6
    return Scores(total_s=total_s, objective_s=total_s, parts={k: v * total_s for k, v in PARTS.items()})


def grid(rows: int, cols: int, *, wrap: bool = False) -> Machine:
    at = [(r, c) for r in range(rows) for c in range(cols)]
    ends = [((r, c), (r, c + 1)) for r, c in at if c + 1 < cols] + [
        ((r, c), (r + 1, c)) for r, c in at if r + 1 < rows
    ]
    if wrap:
        ends += [((r, 0), (r, cols - 1)) for r in range(rows)] + [
            ((0, c), (rows - 1, c)) for c in range(cols)
        ]
    pairs = [(a[0] * cols + a[1], b[0] * cols + b[1]) for a, b in ends]
    return machine("torus" if wrap else "mesh", rows * cols, pairs, rows, cols)


def star(sites: int) -> Machine:
    return machine("star", sites, [(site, sites) for site in range(sites)])


def machine(kind: str, sites: int, wires: list[tuple[int, int]], rows: int = 0, cols: int = 0) -> Machine:
    both = wires + [(b, a) for a, b in wires]
    links = tuple(Link(source=a, target=b, bandwidth_bytes_per_s=32e9) for a, b in sorted(both))
    return Machine(
        name="hand-made",
        fingerprint="sha256:0123456789abcdef",
        kind=kind,
        rows=rows,
        cols=cols,
        sites=sites,
        links=links,
        site_capacity_bytes=64 * 2**20,
    )


def layer_entry(
    layer: int,
    sites: int,
    experts: int,
    *,
    plan_us: tuple[float, float | None],
    baselines_us: dict[str, tuple[float, float | None] | None],
    bound_us: float,
) -> ChannelLayer:
    """One layer of invented site loads; the search halves its way from the best baseline to the plan."""
    rng = random.Random(layer)
    profile_us, held_out_us = plan_us

    def loads(total_us: float, lowest: float) -> tuple[float, ...]:
        return tuple(0.75e-6 * total_us * rng.uniform(lowest, 1.0) for _ in range(sites))

    start_us = min((pair[0] for pair in baselines_us.values() if pair), default=profile_us * 1.2)
    curve = [
        Point(
            iterations=10**power,
            elapsed_s=1e-6 * 10**power,
            best_s=1e-6 * (profile_us + (start_us - profile_us) * (4 - power) / 5),
        )
        for power in range(5)
    ]
    return ChannelLayer(
        layer=layer,
        stop="iteration_limit",
        iterations=50_000,
        profile=scores(profile_us),
        held_out=scores(held_out_us) if held_out_us is not None else None,
        bound_s=bound_us * 1e-6,
        bound_by="average load",
        gap=1.0 - bound_us / profile_us,
        experts=tuple(
            ExpertPlace(tp=1 + e % 2, sites=tuple((e + i) % sites for i in range(1 + e % 2)))
            for e in range(experts)
        ),
        site_load_s=loads(profile_us, 0.8),
        held_out_site_load_s=loads(held_out_us, 0.7) if held_out_us is not None else (),
        baselines={
            name: ChannelBaseline(
                profile=scores(pair[0]) if pair else None,
                held_out=scores(pair[1]) if pair and pair[1] is not None else None,
                held_out_site_load_s=loads(pair[1], 0.3) if pair and pair[1] is not None else (),
            )
            for name, pair in baselines_us.items()
        },
        anytime=(Point(iterations=0, elapsed_s=0.0, best_s=start_us * 1e-6), *curve),
    )


def total(found: list[Scores | None]) -> Scores | None:
    known = [s for s in found if s]
    if len(known) < len(found):
        return None
    return scores(1e6 * math.fsum(s.total_s for s in known))


def plan_file(layers: list[ChannelLayer], platform: Machine, **changes: object) -> ChannelPlan:
    profile = total([layer.profile for layer in layers])
    bound_s = math.fsum(layer.bound_s for layer in layers)
    traffic = TrafficEntry(
        fingerprint="sha256:aaaa",
        source="trace.parquet",
        split="request",
        share=0.5,
        batch=32,
        steps=128,
        requests=17,
        repeated=True,
        note="17 requests replayed in 32 slots; 15 slots repeat a request from another position",
    )
    held_out = total([layer.held_out for layer in layers])
    plan = ChannelPlan(
        family="channels",
        solver="annealing",
        seed=7,
        budget={"time_s": None, "iterations": 50_000, "gap": 0.0},
        settings={"risk": 0.0, "mode": "auto", "layout": "rows"},
        options={},
        model=ModelEntry(
            name="tiny-moe", fingerprint="sha256:bbbb", experts=8, top_k=2, expert_bytes=17301504.0
        ),
        platform=platform,
        profile=traffic,
        held_out=traffic if held_out else None,
        totals=ChannelTotals(
            profile=profile,
            held_out=held_out,
            bound_s=bound_s,
            gap=1.0 - bound_s / profile.total_s,
            stop="iteration_limit",
            baselines={
                name: ChannelBaseline(
                    profile=total([layer.baselines[name].profile for layer in layers]),
                    held_out=total([layer.baselines[name].held_out for layer in layers]),
                    held_out_site_load_s=(),
                )
                for name in layers[0].baselines
            },
        ),
        layers=tuple(layers),
        warnings=("17 requests replayed in 32 slots; 15 slots repeat a request from another position",),
        versions={"moeplan": "0.1.0", "numpy": "2.4.6"},
        elapsed_s=1.25,
    )
    return plan.model_copy(update=changes)


def small_plan(**changes: object) -> ChannelPlan:
    """Two layers, 2 x 4 mesh, eight experts.

    Held-out totals in us: plan 90 + 110 = 200, ep 150 + 170 = 320, round_robin 140 + 160 = 300,
    lpt 95 + 115 = 210. Profile: plan 80 + 100 = 180, lpt 100 + 110 = 210; bound 70 + 80 = 150.
    """
    first = layer_entry(
        1,
        8,
        8,
        plan_us=(80.0, 90.0),
        baselines_us={"ep": (160.0, 150.0), "round_robin": (150.0, 140.0), "lpt": (100.0, 95.0)},
        bound_us=70.0,
    )
    second = layer_entry(
        2,
        8,
        8,
        plan_us=(100.0, 110.0),
        baselines_us={"ep": (180.0, 170.0), "round_robin": (170.0, 160.0), "lpt": (110.0, 115.0)},
        bound_us=80.0,
    )
    return plan_file([first, second], grid(2, 4), **changes)
