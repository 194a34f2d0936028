"""Tables on adaptive routing: what each variant saves at a given share of routing mass (SPIMOE 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..hardware.platform import load_platform
from ..schedule.calibration import VARIANTS, Measure, calibrate, choose, grid
from ..schedule.moe_time import lpt_timers
from ..workload.cognitive import TokenRule, cognitive_experts
from ..workload.model import load_model
from ..workload.pruning import PruningSettings
from ..workload.replay import split
from ..workload.rows import replay_rows
from ..workload.trace import PHASES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..schedule.calibration import Variant
    from ..workload.load import Load
    from ..workload.trace import RoutingTrace

PLATFORM = "spimoe-4x8"
KEEPS = (0.95, 0.9, 0.8)
#: SPIMOE figure 16 (b): end to end at batch 128, sequence length 64, where experts dominate.
PUBLISHED = 1.53
_STEPS = 16


@dataclass(frozen=True)
class PruningRow:
    """The fastest settings of a variant's grid that keep `keep` of the mass on the profile, held out.

    `speed_up` is J without pruning over J with it; `kept_mass` and `experts_per_token` are of the held-out
    steps too. `cognitive_kept` is the share of activations of cognitive experts in the think phase that stay.
    """

    variant: Variant
    keep: float
    kept_mass: float
    experts_per_token: float
    speed_up: float
    cognitive_kept: float
    settings: PruningSettings


def pruning_rows(
    trace: RoutingTrace, model_name: str, batch: int, *, seed: int = 0, steps: int = _STEPS
) -> Iterator[PruningRow]:
    """All variants on a trace with weights and phases: calibrated on one half of the requests, then held out.

    Experts live where uniform LPT puts them on the profile. Cognitive experts are found on the profile's
    think tokens; those that `cognitive_kept` speaks of are an eighth of a layer's.
    """
    model, platform = load_model(model_name), load_platform(PLATFORM)
    parts = split(trace, 0.5, seed=seed)
    profile, held_out = (replay_rows(part, batch=batch, steps=steps, seed=seed) for part in parts)
    timers = lpt_timers(model, platform, profile.load, trace.layers)
    marked = TokenRule("think").marks(parts[0])

    def favoured(count: int) -> NDArray[np.bool_]:
        return cognitive_experts(parts[0], count, marked)

    tried, measured = (Measure(part, timers, favoured, model.layers) for part in (profile, held_out))
    before = measured.point(PruningSettings()).j_s
    for variant in VARIANTS:
        front = calibrate(tried, grid(variant, trace.top_k, trace.num_experts))
        for keep in KEEPS:
            settings = choose(front, keep).settings
            point, left = measured.pruned(settings)
            yield PruningRow(
                variant,
                keep,
                point.kept_mass,
                point.experts_per_token,
                before / point.j_s,
                _cognitive_kept(measured, left, favoured(trace.num_experts // 8)),
                settings,
            )


def pruning_table(traces: Sequence[tuple[str, str, RoutingTrace]], batches: Sequence[int] = (32, 128)) -> str:
    """Markdown table of (label, model name, trace with weights and phases) at every batch size."""
    lines = [
        "| trace | batch | variant | asked | held-out mass | experts | cognitive kept | J before / after |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for label, name, trace in traces:
        for batch in batches:
            for row in pruning_rows(trace, name, batch):
                cells = [label, str(batch), row.variant, f"{row.keep:.0%}", f"{row.kept_mass:.1%}"]
                cells += [f"{row.experts_per_token:.2f}", f"{row.cognitive_kept:.1%}", f"{row.speed_up:.2f}"]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cognitive_kept(measured: Measure, left: Load, cognitive: NDArray[np.bool_]) -> float:
    replayed = measured.replayed
    assert replayed.trace.phase is not None
    think = replayed.trace.phase[replayed.rows] == PHASES.index("think")
    before = replayed.load.experts
    layer = np.arange(before.shape[2])[:, None]
    marked = cognitive[layer, before] & (before >= 0) & think[:, :, None, None]
    return float((marked & (left.experts >= 0)).sum() / marked.sum())
