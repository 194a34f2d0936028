"""Tables on dynamic scheduling: partitions of a decode step into sub-batches, and the predictor behind them.

SPIMOE figure 14 (b) reports 1.80x (pipeline efficiency 77.7 %) for a static partition and 1.99x (87.3 %) for
a dynamic one over no pipeline. Neither attention's share nor the number of sub-batches is given, so that
attention is dialled here: proportional to the tokens of a sub-batch, and in total a given multiple of J.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..hardware.platform import load_platform
from ..schedule.moe_time import lpt_timers
from ..schedule.pipeline import (
    attention_table,
    best_partition,
    fixed_partition,
    greedy_partition,
    partition_times,
)
from ..schedule.predictor import calibrate_predictor, cost_bias, hit_rates, step_zero_table
from ..workload.model import load_model
from ..workload.replay import split
from ..workload.rows import replay_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..schedule.moe_time import MoeTimer
    from ..schedule.pipeline import PipelineTimes
    from ..schedule.predictor import HitRates
    from ..workload.trace import RoutingTrace

PLATFORM = "spimoe-4x8"
#: Attention over experts, of a whole decode step.
RATIOS = (0.5, 1.0, 2.0)
#: Sub-batches that the static partition may have; the best one on the step-0 table is taken.
SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
POLICIES = {
    "static": "equal sub-batches, their number by the step-0 table",
    "dynamic": "greedy on predictions, threshold of the static size",
    "dynamic, own size": "greedy on predictions, threshold of the sub-batch itself",
    "oracle": "greedy on the true routing, threshold of the static size",
    "optimal on predictions": "dynamic programming on predictions, corrected for their bias",
    "optimal": "dynamic programming on the true routing",
}
_STEPS = 16


@dataclass(frozen=True)
class PipelineRow:
    """One policy at one attention share, means over held-out steps; `speed_up` over no pipeline."""

    ratio: float
    policy: str
    speed_up: float
    efficiency: float
    sub_batches: float


@dataclass(frozen=True, eq=False)
class Foretold:
    """What is known of held-out steps: `true` and `predicted` J of sub-batches, [S, L, B + 1, B + 1] each.

    `zero_s` [B + 1] is the step-0 table, `bias` [L] the predictions' on the profile; the first step is left
    out, since nothing is predicted for it.
    """

    true: NDArray[np.float64]
    predicted: NDArray[np.float64]
    zero_s: NDArray[np.float64]
    bias: NDArray[np.float64]
    rates: HitRates


def foretell(
    trace: RoutingTrace, model_name: str, batch: int, *, seed: int = 0, steps: int = _STEPS
) -> Foretold:
    """Calibrate on one half of the requests, and predict the other; experts live where LPT puts them."""
    model, platform = load_model(model_name), load_platform(PLATFORM)
    parts = split(trace, 0.5, seed=seed)
    predictor = calibrate_predictor(parts[0])
    profile, held_out = (replay_rows(part, batch=batch, steps=steps, seed=seed) for part in parts)
    timers = list(lpt_timers(model, platform, profile.load, trace.layers).values())
    told = predictor.predict(held_out.load, held_out.fresh)
    return Foretold(
        true=_tables(timers, held_out.load.experts[1:]),
        predicted=_tables(timers, told[1:]),
        zero_s=step_zero_table(timers, profile.load),
        bias=cost_bias(timers, profile.load, predictor.predict(profile.load, profile.fresh)),
        rates=hit_rates(predictor, held_out.load, told, held_out.fresh),
    )


def pipeline_rows(known: Foretold, ratios: Sequence[float] = RATIOS) -> Iterator[PipelineRow]:
    """Time every policy at every attention share."""
    layers, batch = known.true.shape[1], known.true.shape[2] - 1
    for ratio in ratios:
        attention = attention_table(np.arange(batch + 1) / batch * ratio * known.zero_s[batch] / layers)
        usual = np.broadcast_to(attention_table(known.zero_s / layers), known.true.shape[1:])
        parts = min(
            (n for n in SIZES if n <= batch),
            key=lambda n: partition_times(usual, attention, fixed_partition(batch, n)).total_s,
        )
        times: dict[str, list[PipelineTimes]] = {name: [] for name in ("serial", *POLICIES)}
        for true, predicted in zip(known.true, known.predicted, strict=True):
            for name, starts in _partitions(true, predicted, attention, parts, known.bias).items():
                times[name].append(partition_times(true, attention, starts))
        serial_s = sum(done.total_s for done in times.pop("serial"))
        for name, each in times.items():
            yield PipelineRow(
                ratio,
                name,
                serial_s / sum(done.total_s for done in each),
                float(np.mean([done.efficiency for done in each])),
                float(np.mean([done.sub_batches for done in each])),
            )


def pipeline_table(traces: Sequence[tuple[str, str, RoutingTrace]], batches: Sequence[int] = (32,)) -> str:
    """Markdown: hit rates, then policies by attention share, for (label, model name, trace)."""
    rates = [
        "| trace | batch | of a token's experts | chance | of active experts | by tokens |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines = [
        "| trace | batch | attention / experts | policy | sub-batches | efficiency | speed-up |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    for label, name, trace in traces:
        for batch in batches:
            known = foretell(trace, name, batch)
            hit = known.rates.means()
            cells = [f"{hit[key]:.1%}" for key in ("token", "chance", "active", "choices")]
            rates.append("| " + " | ".join([label, str(batch), *cells]) + " |")
            for row in pipeline_rows(known):
                cells = [label, str(batch), f"{row.ratio:g}", row.policy, f"{row.sub_batches:.1f}"]
                lines.append(
                    "| " + " | ".join([*cells, f"{row.efficiency:.1%}", f"{row.speed_up:.2f}"]) + " |"
                )
    return "\n".join([*rates, "", *lines])


def _partitions(
    true: NDArray[np.float64],
    predicted: NDArray[np.float64],
    attention: NDArray[np.float64],
    parts: int,
    bias: NDArray[np.float64],
) -> dict[str, NDArray[np.int64]]:
    batch = true.shape[1] - 1
    nominal = -(-batch // parts)
    return {
        "serial": np.array([0, batch]),
        "static": fixed_partition(batch, parts),
        "dynamic": greedy_partition(predicted, attention, nominal),
        "dynamic, own size": greedy_partition(predicted, attention),
        "oracle": greedy_partition(true, attention, nominal),
        "optimal on predictions": best_partition(predicted * bias[:, None, None], attention)[0],
        "optimal": best_partition(true, attention)[0],
    }


def _tables(timers: Sequence[MoeTimer], experts: NDArray[np.int16]) -> NDArray[np.float64]:
    return np.array(
        [[timer.table_s(step[:, index]) for index, timer in enumerate(timers)] for step in experts]
    )
