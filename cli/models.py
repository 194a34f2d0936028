"""`moeplan models`: the shapes that ship, or one in full."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import parameters
from .console import show, show_json, table
from .options import preset_for_yaml, show_layers

if TYPE_CHECKING:
    from ..workload.model import MoEModel

_GIB, _MIB = 2.0**30, 2.0**20
_DERIVED = ("expert_params", "expert_bytes", "routed_params", "routed_bytes", "other_params", "other_bytes")


_Name = Annotated[str | None, typer.Argument(help="A preset, YAML file or config.json, in full.")]


def models(
    name: _Name = None,
    json: parameters.Json = False,
    yaml: parameters.Yaml = False,
) -> None:
    """List the models that ship with moeplan, or show one with its source."""
    from ..workload.model import load_model, model_names, model_yaml

    if yaml:
        show(model_yaml(preset_for_yaml(name, "a model", json=json)).rstrip())
        return
    if name is not None:
        values = _describe(load_model(name))
        if json:
            show_json(values)
        else:
            show(table((values["name"], ""), ((key, _text(value)) for key, value in _flat(values)), left=2))
        return
    known = [load_model(preset) for preset in model_names()]
    if json:
        show_json({"models": [_describe(model) for model in known]})
        return
    columns = ("model", "MoE layers", "hidden", "expert", "experts", "top-k", "one expert", "routed", "other")
    show(table(columns, (_row(model) for model in known)))


def _describe(model: MoEModel) -> dict[str, Any]:
    return asdict(model) | {key: getattr(model, key) for key in _DERIVED} | {"fingerprint": model.fingerprint}


def _row(model: MoEModel) -> tuple[object, ...]:
    return (
        model.name,
        f"{len(model.moe_layers)} of {model.layers}",
        model.hidden_size,
        model.expert_intermediate_size,
        model.experts,
        model.top_k,
        f"{model.expert_bytes / _MIB:.2f} MiB",
        f"{model.routed_bytes / _GIB:.1f} GiB",
        f"{model.other_bytes / _GIB:.1f} GiB",
    )


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Flatten nested sections to dotted keys."""
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return rows


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return show_layers(value) or "none"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
