"""Provenance: everything that tells one plan from another, as names and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...placement.plan import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...placement.plan import PlanFile, PlatformEntry, TrafficEntry


def facts(plan: PlanFile) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return titled groups of (name, value)."""
    groups = [
        ("Model", _model(plan)),
        ("Platform", _platform(plan.platform)),
        ("Profile steps", _traffic(plan.profile)),
    ]
    if plan.held_out is not None:
        groups.append(("Held-out steps", _traffic(plan.held_out)))
    search = (
        ("family", plan.family),
        ("solver", plan.solver),
        ("seed", str(plan.seed)),
        ("stop", plan.totals.stop.replace("_", " ")),
        ("budget a layer", _pairs(plan.budget)),
        ("settings", _pairs(plan.settings)),
        ("options", _pairs(plan.options) or "none"),
        ("elapsed", f"{plan.elapsed_s:,.1f} s"),
    )
    groups.append(("Search", search))
    groups.append(("Versions", tuple(sorted(plan.versions.items()))))
    return tuple(groups)


def _model(plan: PlanFile) -> tuple[tuple[str, str], ...]:
    model = plan.model
    if model is None:
        return (("name", "not named: planned from counts alone"),)
    return (
        ("name", model.name),
        ("experts a layer", f"{model.experts:,}, top-{model.top_k}"),
        ("bytes of an expert", f"{model.expert_bytes:,.0f}"),
        ("fingerprint", model.fingerprint),
    )


def _platform(platform: PlatformEntry) -> tuple[tuple[str, str], ...]:
    if not isinstance(platform, Machine):
        return (("name", platform.name), ("fingerprint", platform.fingerprint))
    shape = f", {platform.rows} by {platform.cols}" if platform.rows else ""
    return (
        ("name", platform.name),
        ("topology", f"{platform.kind.replace('_', ' ')}{shape}, {platform.sites} sites"),
        ("memory of a site for a layer", f"{platform.site_capacity_bytes / 2**20:,.1f} MiB"),
        ("fingerprint", platform.fingerprint),
    )


def _traffic(traffic: TrafficEntry) -> tuple[tuple[str, str], ...]:
    held_out = f"split by {traffic.split}, {traffic.share:.4g} of it held out"
    part = "the whole source" if traffic.split == "whole" else held_out
    repeated = ", repeated from other positions" if traffic.repeated else ""
    return (
        ("source", traffic.source or "not recorded"),
        ("part", part),
        ("steps", f"{traffic.steps:,} of batch {traffic.batch:,}"),
        ("requests", f"{traffic.requests:,}{repeated}"),
        ("note", traffic.note or "none"),
        ("fingerprint", traffic.fingerprint),
    )


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None)
