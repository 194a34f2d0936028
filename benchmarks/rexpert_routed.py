"""What ReXpert's traces decide, on routing fitted to their published moments: unions, traffic, fetch.

Everything is drawn anew, with a seed that is given. The published figures belong to traces that are not
public, and to choices that the text leaves open (the ports of a die, the placement), so that these rows are
comparisons and no bars.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..hardware.platform import load_platform
from ..schedule import disaggregation, reduction
from ..schedule.decode_step import decode_step
from ..schedule.provision import demands_of, even_cores, union_of
from ..workload.model import load_model
from ..workload.routing_presets import routing_preset
from ..workload.synthetic import synthesize_load
from .rexpert_row import Row

if TYPE_CHECKING:
    from ..workload.load import Load

SEED: Final = 2027
STEPS: Final = 64
"""Decode steps of a run (section III-B)."""
_QWEN_35B, _QWEN_397B, _GLM = "qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "glm-5.2"
_POOLS: Final = {_QWEN_35B: "rexpert-pool-35b", _QWEN_397B: "rexpert-pool-397b", _GLM: "rexpert-pool-glm"}
_TRAFFIC_STEPS: Final = 16


def routed_rows(seed: int = SEED) -> list[Row]:
    """Return unions and pool times of all models, and demands of Table IV that tokens decide."""
    return [*_unions(seed), *_traffic(seed)]


def _unions(seed: int) -> Iterator[Row]:
    """Yield U and t_FFN at 8 and 64 requests; the unions are among the moments that were fitted."""
    printed = {
        (_QWEN_35B, 8): (50.1, 1.93),
        (_QWEN_35B, 64): (168.6, 0.81),
        (_QWEN_397B, 8): (65.1, 1.30),
        (_QWEN_397B, 64): (250.7, 0.63),
        (_GLM, 8): (None, 2.07),
        (_GLM, 64): (None, 0.87),
    }
    for (name, batch), (union, us) in printed.items():
        model, platform = load_model(name), load_platform(_POOLS[name])
        assert platform.nearmem is not None
        ours = union_of(_load(name, batch, _TRAFFIC_STEPS, seed))
        step = decode_step(model, batch=batch, context=1, union=ours)
        seconds = disaggregation.ffn_s(step, platform.nearmem.die, platform.nearmem.dies)
        yield Row("Fitted routing", f"{name}, B {batch}: U", ours, union)
        yield Row("Fitted routing", f"{name}, B {batch}: t_FFN", seconds / batch * 1e6, us, "us/token")


def _traffic(seed: int) -> Iterator[Row]:
    """Yield multicasts of Qwen3.5-35B and the busiest link of GLM-5.2, at their tile-fill batches."""
    for name, order, printed in (
        (_QWEN_35B, "ep-first", {"core mesh, p99": 204.8, "core mesh, peak": 307.2}),
        (_GLM, "ep-first", {"die NoC, busiest link": 24.68}),
        (_GLM, "tp-first", {"die NoC, busiest link": 24.81}),
    ):
        platform = load_platform(_POOLS[name])
        assert platform.nearmem is not None
        model, node = load_model(name), platform.nearmem.node
        batch = reduction.tile_fill_batch(model, node)
        load = _load(name, batch, _TRAFFIC_STEPS, seed)
        levels = demands_of(model, node, batch, "ep-first" if order == "ep-first" else "tp-first", load)
        for demand in levels.routed:
            if demand.level in printed:
                label = f"{name}, {order}: {demand.level}"
                note = "every core a port" if "NoC" in demand.level else "experts in order"
                ours = demand.bytes_per_s / 1e9
                yield Row("Fitted routing", label, ours, printed[demand.level], "GB/s", note)


def fetch_table(seed: int = SEED) -> str:
    """Return Markdown: the exchange of waiting for occupancy at Qwen3.5-35B's tile-fill batch.

    Experts lie on the cores in order, as in the rows above. ReXpert's row (Table IX, two groups per core, a
    depth of 16): occupancy 0.422 and ideal MFU 1.000 in fifo order, 0.552 and 0.778 load-aware. Full tiles
    are the closest to the former. It does not say how many cores of two groups there are, and its 2.45
    rounds are fewer than a hottest expert of 6.77 times the mean, 27 tokens, needs on two groups: 3.5.
    """
    from ..schedule.fetch import latency_curve

    load = _load(_QWEN_35B, 128, STEPS, seed)
    counts = load.counts()
    lines = [
        "",
        "## Load-aware fetch, Qwen3.5-35B, fitted routing",
        "",
        "| cores x groups | tiles | depth | policy | ideal MFU | occupancy | actual MFU | rounds "
        "| mean wait | longest wait |",
        "|---|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for cores, groups in ((160, 2), (20, 16)):
        core_of = even_cores(load.num_experts, 1, cores)
        for narrow in (True, False):
            tiles = "any" if narrow else "full"
            for point in latency_curve(counts, core_of, cores=cores, groups=groups, width=4, narrow=narrow):
                if point.policy == "fifo" and (point.depth or not narrow):
                    continue
                cells = [f"{cores} x {groups}", tiles, str(point.depth), point.policy]
                cells += [f"{value:.3f}" for value in (point.ideal_mfu, point.occupancy, point.actual_mfu)]
                cells += [f"{point.rounds:.2f}", f"{point.mean_wait:.2f}", str(point.longest_wait)]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _load(name: str, batch: int, steps: int, seed: int) -> Load:
    return synthesize_load(
        load_model(name), batch=batch, steps=steps, seed=seed, routing=routing_preset(name)
    )
