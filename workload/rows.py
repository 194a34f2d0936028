"""Replays that remember which tokens they ran: what weights, phases and request changes need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .load import Load
from .pruning import Pruned, PruningSettings, prune
from .replay import replay
from .trace import RoutingTrace

_BASE = 32_767  # as many ids as a trace can hold


@dataclass(frozen=True, eq=False)
class Replayed:
    """Decode steps of a trace, and where they come from.

    - `load`: as `replay` gives it; `rows` int64 [S, B]: the row of the trace that slot b runs at step s.
    - `fresh` bool [S, B]: True where the slot's token does not follow its token of the step before (the
      first step, or another request), so that nothing is known of its past.
    """

    trace: RoutingTrace
    load: Load
    rows: NDArray[np.int64]
    fresh: NDArray[np.bool_]

    def taken(self) -> RoutingTrace:
        """The tokens as they run, slot by slot and step by step: a trace of S * B rows with its `step`."""
        return self._taken

    @cached_property
    def _taken(self) -> RoutingTrace:
        # Calibration asks once for every setting.
        steps, batch = self.rows.shape
        taken = self.trace.take(self.rows.ravel())
        return replace(taken, step=np.repeat(np.arange(steps, dtype=np.int32), batch))


def replay_rows(trace: RoutingTrace, *, batch: int, steps: int, seed: int) -> Replayed:
    """`replay` with the rows it took; the same steps for the same arguments, and the same errors."""
    numbers = np.arange(trace.tokens)
    digits = np.stack([numbers // _BASE, numbers % _BASE], axis=1)
    numbered = RoutingTrace(
        experts=digits[:, :, None].astype(np.int16),
        request=trace.request,
        position=trace.position,
        model=trace.model,
        layers=(0, 1),
        num_experts=_BASE,
        top_k=1,
        source="row numbers",
    )
    shown = replay(numbered, batch=batch, steps=steps, seed=seed)
    high, low = shown.experts[..., 0, 0].astype(np.int64), shown.experts[..., 1, 0].astype(np.int64)
    rows = high * _BASE + low
    request, position = trace.request[rows], trace.position[rows]
    fresh = np.ones(rows.shape, dtype=np.bool_)
    fresh[1:] = (request[1:] != request[:-1]) | (position[1:] != position[:-1] + 1)
    load = replace(shown, experts=trace.experts[rows], layers=trace.layers, num_experts=trace.num_experts)
    for array in (rows, fresh):
        array.flags.writeable = False
    return Replayed(trace, load, rows, fresh)


def prune_replayed(
    replayed: Replayed,
    settings: PruningSettings,
    *,
    cognitive: NDArray[np.bool_] | None = None,
    lives: NDArray[np.bool_] | None = None,
    model_layers: int | None = None,
) -> tuple[Load, Pruned]:
    """Prune decode steps, where the tokens of a step meet on the channels; see `workload.pruning.prune`.

    The `Pruned` holds the tokens in the order of `Replayed.taken`.
    """
    done = prune(replayed.taken(), settings, cognitive=cognitive, lives=lives, model_layers=model_layers)
    kept = done.kept.reshape(replayed.load.experts.shape)
    share = float(kept.sum() / (replayed.load.experts >= 0).sum())
    return replayed.load.pruned(kept, f"{1.0 - share:.1%} of the choices are pruned."), done
