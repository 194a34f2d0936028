"""The frozen instances of a comparison: questions that stay the same from release to release.

An instance is named `family/what-size` and posed from seeds and presets alone, or from a trace in the folder
that the environment variable MOEPLAN_TRACES names. A change of what an instance asks shows in its
fingerprint, which `best_known.json` records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ...common.errors import BadInput, UsageError, did_you_mean

if TYPE_CHECKING:
    from ...placement.problem import Problem
    from ...workload.load import Load

Size = Literal["small", "medium", "large"]
SUITES = ("quick", "full")
_TRACES = "MOEPLAN_TRACES"


@dataclass(frozen=True)
class Instance:
    """One question.

    `pose` builds it; `trace` names the recorded trace that it needs; `skips` gives for a solver the reason
    why it is not run; `quick` puts it into the suite `quick` (all are in `full`).
    """

    name: str
    size: Size
    pose: Callable[[], Problem[Any]]
    trace: str = ""
    skips: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    quick: bool = False

    @property
    def family(self) -> str:
        """Family of problems, the first part of the name."""
        return self.name.partition("/")[0]

    def unavailable(self) -> str | None:
        """Return why it cannot be posed here, or None."""
        if not self.trace or _trace_path(self.trace).is_file():
            return None
        if _TRACES not in os.environ:
            return f"needs the recorded trace {self.trace}: {_TRACES} is not set"
        return f"needs the recorded trace {self.trace}, which is not in the folder of {_TRACES}"


def suite(name: str) -> tuple[Instance, ...]:
    """Return the instances of a suite. Raises UsageError on an unknown name."""
    if name not in SUITES:
        raise UsageError(f"unknown suite {name!r}", allowed=", ".join(SUITES))
    return tuple(instance for instance in instances().values() if name == "full" or instance.quick)


def find(name: str) -> Instance:
    """Return an instance by name. Raises UsageError with the closest name where there is none."""
    known = instances()
    if name not in known:
        raise UsageError(f"unknown instance {name!r}", fix=did_you_mean(name, known))
    return known[name]


def instances() -> dict[str, Instance]:
    """Return all instances by name."""
    from . import posed

    return {instance.name: instance for instance in posed.INSTANCES}


def recorded(trace: str, model: str, batch: int, steps: int) -> tuple[Load, Load]:
    """Return profile and held-out steps of a recorded trace, split by request.

    Raises BadInput where the trace is missing or too short.
    """
    from ...workload.model import load_model
    from ...workload.readers.arrays import read_arrays
    from ...workload.replay import replay, split

    path = _trace_path(trace)
    if not path.is_file():
        raise BadInput(f"the trace {trace} is missing", where=f"environment variable {_TRACES}")
    whole = read_arrays(path, load_model(model))
    profile, held_out = split(whole, 0.5, by="request", seed=0)
    return (
        replay(profile, batch=batch, steps=steps, seed=0),
        replay(held_out, batch=batch, steps=steps, seed=1),
    )


def synthetic(model: str, batch: int, steps: int) -> tuple[Load, Load]:
    """Return profile and held-out steps of the first MoE layer of a synthetic trace, split by request."""
    import dataclasses

    from ...workload.model import load_model
    from ...workload.replay import replay, split
    from ...workload.synthetic import SyntheticRouting, synthesize

    shapes = load_model(model)
    shapes = dataclasses.replace(shapes, moe_layers=shapes.moe_layers[:1])
    routing = SyntheticRouting(concurrency=4 * batch, tokens_per_request=64)
    trace = synthesize(shapes, tokens=4 * batch * 64, seed=0, routing=routing)
    profile, held_out = split(trace, 0.5, by="request", seed=0)
    return (
        replay(profile, batch=batch, steps=steps, seed=0),
        replay(held_out, batch=batch, steps=steps, seed=1),
    )


def _trace_path(trace: str) -> Path:
    return Path(os.environ.get(_TRACES, "")) / trace
