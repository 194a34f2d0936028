"""The artifact: a plan as one JSON file that can be read, checked, drawn and handed on.

What every family's plan says stands here; what it decides, in the document of the family.
`plan.schema.json` beside this module is the JSON Schema of the file, for readers in other languages.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ..common.errors import BadInput
from ..common.files import write_text
from ..common.spec import Spec, parse, read_mapping
from ..workload.readers.kinds import require_plan

FORMAT = "moeplan.plan"
VERSION = 1
Split = Literal["whole", "request", "time"]
SCHEMA = Path(__file__).parent / "plan.schema.json"


class Scores(Spec):
    """Seconds of a decode step, summed over the planned MoE layers where it stands for a whole plan."""

    total_s: float = Field(ge=0, description="mean over decode steps")
    objective_s: float = Field(
        ge=0, description="what was minimised: the mean, plus risk standard deviations"
    )
    parts: dict[str, float] = Field(description="total_s by part; names end in _s")


class Point(Spec):
    """A point of the anytime curve."""

    iterations: int = Field(ge=0)
    elapsed_s: float = Field(ge=0)
    best_s: float = Field(gt=0)


class ModelEntry(Spec):
    """The planned model."""

    name: str
    fingerprint: str
    experts: int = Field(ge=1)
    top_k: int = Field(ge=1)
    expert_bytes: float = Field(gt=0)


class TrafficEntry(Spec):
    """The decode steps that a score was measured on."""

    fingerprint: str
    source: str
    split: Split = Field(description="which part of its source: the whole, or a share of requests or of time")
    share: float = Field(ge=0, lt=1, description="held-out share of the source that was split; 0 for whole")
    batch: int = Field(ge=1, description="tokens of a decode step")
    steps: int = Field(ge=1, description="decode steps, or windows of counted traffic")
    requests: int = Field(ge=0, description="0 where counts do not tell")
    repeated: bool = Field(description="requests had to repeat from other starting positions")
    note: str


class BaselineEntry(Spec):
    """What a published heuristic gets on the same steps."""

    profile: Scores | None = Field(description="null where it finds no feasible placement")
    held_out: Scores | None


class LayerEntry(Spec):
    """One MoE layer: how its search went. A family adds what was decided."""

    layer: int = Field(description="absolute layer id of the model")
    stop: str
    iterations: int
    profile: Scores
    held_out: Scores | None
    bound_s: float = Field(description="no placement has a smaller objective on the profile")
    bound_by: str
    gap: float = Field(description="(objective - bound) / objective")
    baselines: Mapping[str, BaselineEntry]
    anytime: tuple[Point, ...]


class Totals(Spec):
    """Sums over the planned layers."""

    profile: Scores
    held_out: Scores | None
    bound_s: float
    gap: float
    stop: str
    baselines: Mapping[str, BaselineEntry]


class PlatformEntry(Spec):
    """The planned machine."""

    name: str
    fingerprint: str


class Link(Spec):
    """A directed link of the machine."""

    source: int
    target: int
    bandwidth_bytes_per_s: float


class Machine(PlatformEntry):
    """A machine whose topology is drawn."""

    kind: str
    rows: int = Field(ge=0)
    cols: int = Field(ge=0)
    sites: int = Field(ge=1, le=2**20)
    links: tuple[Link, ...]
    site_capacity_bytes: float = Field(description="memory of a site that one layer may use")


class PlanFile(Spec):
    """What the plan of every family says; a family's document adds its layers and its machine."""

    format: Literal["moeplan.plan"] = "moeplan.plan"
    version: Literal[1] = 1
    family: str
    solver: str
    seed: int = Field(ge=0)
    budget: dict[str, float | int | None]
    settings: dict[str, float | int | str | None]
    options: dict[str, Any]
    model: ModelEntry | None = Field(description="null where only counts were given")
    platform: PlatformEntry
    profile: TrafficEntry
    held_out: TrafficEntry | None
    totals: Totals
    layers: tuple[LayerEntry, ...]
    warnings: tuple[str, ...]
    versions: dict[str, str]
    elapsed_s: float


#: The document of every family: module and class, imported when a file of the family is read.
_DOCUMENTS = {
    "channels": (".channels.document", "ChannelPlan"),
    "cores": (".cores.document", "CorePlan"),
    "replicas": (".replicas.document", "ReplicaPlan"),
}


def write_plan(plan: PlanFile, path: str | Path) -> None:
    """Write a plan atomically. Raises BadInput where `path` cannot be written."""
    write_text(path, json.dumps(plan.model_dump(mode="json"), indent=1) + "\n")


def read_plan(path: str | Path) -> PlanFile:
    """Read and validate a plan. Raises BadInput that names file and key."""
    require_plan(path)
    data = read_mapping(path, "plan")
    if data.get("format") != FORMAT:
        raise BadInput(
            f"{str(path)!r} is not a plan of moeplan",
            where="key 'format'",
            allowed=FORMAT,
            fix="name a plan; moeplan plan makes one",
        )
    if data.get("version") != VERSION:
        raise BadInput(
            f"plan {str(path)!r} has version {data.get('version')!r}",
            allowed=f"version {VERSION}",
            fix="plan again with this release",
        )
    family = data.get("family")
    if family not in _DOCUMENTS:
        raise BadInput(
            f"plan {str(path)!r} is of the unknown family {family!r}",
            where="key 'family'",
            allowed=", ".join(_DOCUMENTS),
        )
    return parse(_document(family), data, f"plan {str(path)!r}")


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan file: one document a family, told apart by `family`."""
    documents = {family: _document(family).model_json_schema() for family in _DOCUMENTS}
    return {
        "title": "Plan",
        "oneOf": [{"$ref": f"#/families/{family}"} for family in documents],
        "families": {
            family: json.loads(json.dumps(schema).replace('"#/$defs/', f'"#/families/{family}/$defs/'))
            for family, schema in documents.items()
        },
    }


def _document(family: str) -> type[PlanFile]:
    module, name = _DOCUMENTS[family]
    document: type[PlanFile] = getattr(importlib.import_module(module, __package__), name)
    return document
