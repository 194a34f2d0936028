"""Named moments of routing: what a paper publishes of traces that it does not, and how each is worked out.

A recording of S decode steps of B requests is looked at in two ways. Moments of the *window* add a layer's
tokens up over all steps, work the figure out, and average over layers: that is how tables II and VI of
ReXpert must be read (its Gini of 0.583 at B = 8, where a step activates 50.1 of 256 experts, is below the
1 - 50.1 / 256 that any single step has; its hottest expert has 39.3 tokens per step, no whole number).
Moments of the *step* work the figure out for every layer and step, and average over both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import UsageError, did_you_mean
from .load import Load
from .model import MoEModel
from .stats import gini, hottest_share, union
from .synthetic import SyntheticRouting, synthesize_load


@dataclass(frozen=True)
class Target:
    """A published moment.

    - `name`: one of `MOMENT_NAMES`; `value`: what was published; `batch`: B of the recorded steps.
    - `tolerance`: the relative miss that is accepted.
    - `tokens`: for "union" the tokens whose experts are united (all B of a step: None); fewer than B are
      an average over all subsets of a step, as in a "sliced" union.
    - `source`: where it was published.

    Raises UsageError on an unknown name or a number out of range.
    """

    name: str
    value: float
    batch: int
    tolerance: float
    tokens: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.name not in MOMENT_NAMES:
            raise UsageError(f"there is no moment {self.name!r}", fix=did_you_mean(self.name, MOMENT_NAMES))
        for name in ("value", "tolerance"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{self.name}: {name} must be above 0, not {getattr(self, name)}")
        if self.batch < 1:
            raise UsageError(f"{self.name}: batch must be at least 1, not {self.batch}")
        if self.tokens is not None and (self.name != "union" or not 1 <= self.tokens <= self.batch):
            raise UsageError(
                f"{self.name}: {self.tokens} tokens of a batch of {self.batch}",
                allowed="tokens go with a union, at least 1 and at most the batch",
            )

    @property
    def label(self) -> str:
        """What people call it: "U(8)", "gini"."""
        return f"U({self.tokens or self.batch})" if self.name == "union" else self.name


@dataclass(frozen=True, eq=False)
class Sample:
    """Decode steps that moments are taken of."""

    load: Load

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """Tokens per step, layer and expert, [S, L, E]."""
        return self.load.counts()

    @cached_property
    def window(self) -> NDArray[np.int64]:
        """Tokens of all steps together, ascending, [L, E]."""
        return np.sort(self.counts.sum(axis=0, dtype=np.int64), axis=-1)

    @cached_property
    def chosen(self) -> NDArray[np.float64]:
        """Tokens of all steps together over all tokens, [L, E]: how likely a token chooses an expert."""
        total: NDArray[np.float64] = self.counts.sum(axis=0) / (self.load.steps * self.load.batch)
        return total

    def measure(self, target: Target) -> float:
        """The value here of the moment that `target` names."""
        if target.name == "union":
            tokens = target.tokens or self.load.batch
            return float(union(self.counts, self.load.batch, tokens).mean())
        return float(_MOMENTS[target.name](self))


def _top_share(ordered: NDArray[Any], count: int) -> Any:
    return (ordered[..., -count:].sum(axis=-1) / ordered.sum(axis=-1)).mean()


def _over_mean(ordered: NDArray[Any]) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = ordered[..., -1] / ordered.mean(axis=-1)
    return ratio


def _overlap_lift(sample: Sample) -> float:
    """Experts that a request's consecutive tokens share, over what two tokens share by chance."""
    now, later = sample.load.experts[:-1], sample.load.experts[1:]
    if not now.size:
        raise UsageError("overlap_lift needs at least two steps")
    shared = sum(int((now == np.roll(later, place, axis=-1)).sum()) for place in range(sample.load.top_k))
    return shared / now[..., 0].size / float((sample.chosen**2).sum(axis=-1).mean())


def _pair_distance(sample: Sample) -> float:
    """Total variation distance between pairs in a token and independent pairs, the mean over layers."""
    experts = sample.load.num_experts
    choices = np.sort(sample.load.experts, axis=-1).astype(np.int64)
    one, other = np.triu_indices(sample.load.top_k, 1)
    upper = np.triu_indices(experts, 1)
    distances = []
    for index, chosen in enumerate(sample.chosen):
        layer = choices[:, :, index]
        pairs = (layer[..., one] * experts + layer[..., other]).ravel()
        joint = np.bincount(pairs, minlength=experts**2).reshape(experts, experts)[upper] / pairs.size
        alone = np.outer(chosen, chosen)[upper]
        distances.append(0.5 * np.abs(joint - alone / alone.sum()).sum())
    return float(np.mean(distances))


_MOMENTS: Final[Mapping[str, Callable[[Sample], Any]]] = MappingProxyType(
    {
        "gini": lambda sample: gini(sample.window).mean(),
        "hottest_over_mean": lambda sample: _over_mean(sample.window).mean(),
        "gini_spread": lambda sample: gini(sample.window).std() / gini(sample.window).mean(),
        "peak_over_mean": lambda sample: _over_mean(sample.window).max(),
        "top8_share": lambda sample: _top_share(sample.window, 8),
        "top16_share": lambda sample: _top_share(sample.window, 16),
        "hot_persistence": lambda sample: hottest_share(sample.counts).mean(),
        "step_gini": lambda sample: gini(np.sort(sample.counts, axis=-1)).mean(),
        "step_hottest_over_mean": lambda sample: (
            sample.counts.max(axis=-1) / sample.counts.mean(axis=-1)
        ).mean(),
        "overlap_lift": _overlap_lift,
        "pair_distance": _pair_distance,
    }
)

MOMENT_NAMES: Final = (*_MOMENTS, "union")


def measure(
    model: MoEModel, routing: SyntheticRouting, targets: Iterable[Target], *, steps: int, seed: int
) -> tuple[float, ...]:
    """The targets' moments in `steps` decode steps of synthetic routing, drawn anew for every batch.

    Runs of different batches share a seed: the same experts are popular in all of them, and other
    requests run. Raises UsageError on a moment that cannot be taken of so few steps.
    """
    targets = tuple(targets)
    samples = {
        batch: Sample(synthesize_load(model, batch=batch, steps=steps, seed=seed, routing=routing))
        for batch in sorted({target.batch for target in targets})
    }
    return tuple(samples[target.batch].measure(target) for target in targets)
