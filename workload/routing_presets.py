"""Routing of published models: fitted parameters, the targets they were fitted to, and the files of both."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from ..common.errors import BadInput, UsageError, did_you_mean
from ..common.files import write_text
from ..common.spec import Spec, parse, read_mapping
from .moments import Target
from .synthetic import SyntheticRouting

_PRESETS: Final = Path(__file__).parent / "routing"
_TARGETS: Final = ".targets"

Positive = Annotated[int, Field(gt=0)]


class MomentSpec(Spec):
    """One published moment; the fields are those of `Target`."""

    name: str
    value: Annotated[float, Field(gt=0)]
    batch: Positive
    tolerance: Annotated[float, Field(gt=0, le=10)]
    tokens: Positive | None = None
    source: str = ""


class TargetsSpec(Spec):
    """A targets file: the model, where the moments were published, the steps of a run, and the moments."""

    model: str
    source: str
    steps: Positive = 64
    moments: Annotated[tuple[MomentSpec, ...], Field(min_length=1), BeforeValidator(tuple)]

    def targets(self, where: str) -> tuple[Target, ...]:
        """The moments. Raises BadInput naming the one that is unknown or out of range."""
        found = []
        for number, moment in enumerate(self.moments, start=1):
            try:
                found.append(Target(**{"source": self.source} | _given(moment)))
            except UsageError as error:
                raise BadInput(
                    f"{where}: {error.what}", where=f"moment {number}", allowed=error.allowed, fix=error.fix
                ) from error
        return tuple(found)


class RoutingSpec(Spec):
    """The `routing:` section of a preset; the fields are those of `SyntheticRouting`."""

    tokens_per_request: Positive = 256
    concurrency: Positive
    skew: float
    skew_spread: float
    cold_tail: float
    cold_depth: float
    drift: float
    drift_memory: float
    persistence: float
    coactivation: float
    group_size: Positive = 8
    head: float = 1.0
    cold_spread: float = 0.0
    ceiling: float = 0.0
    even: bool = False
    sampler: Literal["race", "draws"] = "draws"


class PresetSpec(Spec):
    """A preset file: the model, how the parameters were found, and the parameters."""

    model: str
    source: str
    routing: RoutingSpec


def routing_preset_names() -> tuple[str, ...]:
    """Models with fitted routing, in alphabetical order."""
    names = (path.stem for path in _PRESETS.glob("*.yaml"))
    return tuple(sorted(name for name in names if not name.endswith(_TARGETS)))


def routing_preset(model: str) -> SyntheticRouting:
    """Fitted routing of a model, by its name (any case, with or without its organisation).

    Its `concurrency` is the batch at which the model's default trace was recorded. Raises UsageError for a
    model without a preset.
    """
    return read_routing(_PRESETS / f"{_preset(model)}.yaml")


def preset_targets(model: str) -> TargetsSpec:
    """The targets that a preset was fitted to. Raises UsageError for a model without a preset."""
    return read_targets(_PRESETS / f"{_preset(model)}{_TARGETS}.yaml")


def read_routing(path: str | Path) -> SyntheticRouting:
    """Read a preset file, such as `moeplan trace calibrate` writes. Raises BadInput on a faulty one."""
    spec = parse(PresetSpec, read_mapping(path, "routing file"), f"routing file {str(path)!r}")
    try:
        return SyntheticRouting(**spec.routing.model_dump())
    except UsageError as error:
        raise BadInput(f"routing file {str(path)!r}: {error.what}", fix=error.fix) from error


def find_routing(name_or_path: str) -> SyntheticRouting:
    """A preset by its model's name, or a routing file (.yaml). Raises UsageError or BadInput."""
    if name_or_path.lower().endswith((".yaml", ".yml")):
        return read_routing(name_or_path)
    return routing_preset(name_or_path)


def find_targets(name_or_path: str) -> TargetsSpec:
    """Targets of a preset by its model's name, or a targets file (.yaml). Raises UsageError or BadInput."""
    if name_or_path.lower().endswith((".yaml", ".yml")):
        return read_targets(name_or_path)
    return preset_targets(name_or_path)


def write_routing(routing: SyntheticRouting, path: str | Path, *, model: str, source: str) -> None:
    """Write a preset file that `read_routing` reads. Raises BadInput where it cannot be written."""
    import json

    lines = [f"model: {json.dumps(model)}", f"source: {json.dumps(source)}", "routing:"]
    for field in fields(routing):
        value = getattr(routing, field.name)
        shown = f"{value:.4f}" if isinstance(value, float) else json.dumps(value)
        lines.append(f"  {field.name}: {shown}")
    write_text(path, "\n".join(lines) + "\n")


def read_targets(path: str | Path) -> TargetsSpec:
    """Read and check a targets file. Raises BadInput that names the faulty moment or key."""
    where = f"targets file {str(path)!r}"
    spec = parse(TargetsSpec, read_mapping(path, "targets file"), where)
    spec.targets(where)
    return spec


def _given(moment: MomentSpec) -> dict[str, Any]:
    return {name: value for name, value in moment.model_dump().items() if name != "source" or value}


def _preset(model: str) -> str:
    name = model.lower().rsplit("/", 1)[-1]
    names = routing_preset_names()
    if name not in names:
        raise UsageError(f"there is no fitted routing for {model!r}", fix=did_you_mean(name, names))
    return name
