"""`moeplan platforms`: the machines that ship, or one with every value and its source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import parameters
from .console import show, show_json, table
from .options import preset_for_yaml

if TYPE_CHECKING:
    from ..hardware.nearmem import Pool
    from ..hardware.platform import Platform
    from ..hardware.topology import Topology

_PREFIXES = (
    ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3),
    ("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9), ("p", 1e-12),
)  # fmt: skip
_SYMBOLS = {"bytes_per_s": "B/s", "flop_per_s": "FLOP/s", "bytes": "B", "hz": "Hz", "s": "s"}
_UNIT = re.compile(r"_(bytes_per_s|flop_per_s|bytes|hz|s)(?=\.|$)")


_Name = Annotated[str | None, typer.Argument(help="A preset or YAML file, in full.")]


def platforms(
    name: _Name = None,
    json: parameters.Json = False,
    yaml: parameters.Yaml = False,
) -> None:
    """List the machines that ship with moeplan, or show one with every value in SI units and its source.

    "default" is the source of a value that the file leaves out; what is off by that is called off, or "-".
    """
    from ..hardware.platform import load_platform, platform_names, platform_yaml

    if yaml:
        show(platform_yaml(preset_for_yaml(name, "a platform", json=json)).rstrip())
        return
    if name is not None:
        platform = load_platform(name)
        if json:
            show_json(_describe(platform))
        else:
            show(platform.description, table((platform.name, "value", "source"), _told(platform), left=3))
        return
    known = [load_platform(preset) for preset in platform_names()]
    if json:
        show_json({"platforms": [_describe(platform) for platform in known]})
        return
    columns = ("platform", "description", "topology", "PIM sites", "of each")
    show(table(columns, (_row(platform) for platform in known), left=3))


def _describe(platform: Platform) -> dict[str, Any]:
    return {
        "name": platform.name,
        "description": platform.description,
        "fingerprint": platform.fingerprint,
        "values": {
            # JSON has no infinity: null says that there is no limit.
            key: {"value": None if value == math.inf else value, "source": source}
            for key, value, source in _sourced(platform)
        },
    }


def _row(platform: Platform) -> tuple[object, ...]:
    topology = platform.topology
    kind = topology.kind if topology else "single GPU" if platform.nearmem is None else "cores"
    shape = f"{topology.rows} x {topology.cols} " if topology and topology.rows else ""
    if platform.nearmem is not None:
        dies = platform.nearmem.dies
        shape = f"{dies} dies of {shape}" if dies else shape
        core_bytes = platform.nearmem.die.core.units.memory_bytes
        cores = platform.nearmem.die.cores * max(dies, 1)
        return platform.name, platform.description, shape + kind, cores, _text("_bytes", core_bytes)
    if platform.pim is None:
        return platform.name, platform.description, shape + kind, "none", ""
    sites = topology.sites if topology else 0
    return (
        platform.name,
        platform.description,
        shape + kind,
        sites,
        _text("_bytes", platform.site_memory_bytes),
    )


def _sourced(platform: Platform) -> Iterator[tuple[str, Any, str]]:
    """Every value in SI units, by dotted name, with the source that its file gives; "" for a default."""
    for key, value in _values(platform):
        yield key, value, _source(platform.sources, key)


def _values(platform: Platform) -> Iterator[tuple[str, Any]]:
    if platform.topology is not None:
        yield from _topology(platform.topology)
    if platform.pim is not None:
        yield "site.memory_bytes", platform.site_memory_bytes
        yield "site.pseudo_channels", platform.site_pseudo_channels
        yield from _fields("pim", platform.pim)
    if platform.sram_pim is not None:
        yield from _fields("sram_pim", platform.sram_pim)
    if platform.gpu is not None:
        yield from _fields("gpu", platform.gpu)
    if platform.nearmem is not None:
        yield from _near_memory(platform.nearmem)


def _near_memory(pool: Pool) -> Iterator[tuple[str, Any]]:
    """Every level's own values, by the keys of a platform file and the unit of each."""
    package, die = pool.node.package, pool.die
    yield from (
        ("nearmem.unit.columns", die.core.unit.columns),
        ("nearmem.unit.column_bytes", die.core.unit.column_bytes),
        ("nearmem.unit.column_time_s", die.core.unit.column_s),
        ("nearmem.unit.tile_tokens", die.core.unit.tile_tokens),
        ("nearmem.unit.peak_flop_per_s", die.core.unit.flop_per_s),
        ("nearmem.core.side", die.core.side),
        ("nearmem.core.link_bytes_per_s", die.core.link_bytes_per_s),
        ("nearmem.core.multicast_bytes_per_s", die.core.multicast_bytes_per_s),
        ("nearmem.die.rows", die.rows),
        ("nearmem.die.cols", die.cols),
        ("nearmem.die.link_bytes_per_s", die.link_bytes_per_s),
        ("nearmem.die.hop_latency_s", die.hop_latency_s),
        ("nearmem.package.dies", package.dies),
        ("nearmem.package.die_link_bytes_per_s", package.die_link_bytes_per_s),
        ("nearmem.node.packages", pool.node.packages),
        ("nearmem.node.die_link_bytes_per_s", pool.node.die_link_bytes_per_s),
        ("nearmem.pool.dies", pool.dies),
        ("nearmem.pool.gpus", pool.gpus),
    )


def _topology(topology: Topology) -> Iterator[tuple[str, Any]]:
    yield "topology.kind", topology.kind
    if topology.rows:
        yield "topology.rows", topology.rows
        yield "topology.cols", topology.cols
    yield "topology.sites", topology.sites
    yield "topology.duplex", topology.duplex
    yield "topology.routing", topology.routing
    yield "topology.link_bandwidth_bytes_per_s", _distinct(topology.link_bandwidth_bytes_per_s.tolist())
    yield "topology.link_latency_s", _distinct(topology.link_latency_s.tolist())


def _distinct(values: list[float]) -> float | list[float]:
    """The value that all links share, or the different ones."""
    known = sorted(set(values))
    return known[0] if len(known) == 1 else known


def _fields(section: str, part: Any) -> Iterator[tuple[str, Any]]:
    """Fields of a dataclass, those of nested ones and of mappings included."""
    for field in fields(part):
        key, value = f"{section}.{field.name}", getattr(part, field.name)
        if is_dataclass(value):
            yield from _fields(key, value)
        elif isinstance(value, Mapping):
            yield from ((f"{key}.{name}", item) for name, item in value.items())
        else:
            yield key, value


def _told(platform: Platform) -> Iterator[tuple[str, str, str]]:
    """Every value for people, with its source or what stands in place of one."""
    defaults = _defaults(platform)
    for key, value, source in _sourced(platform):
        if platform.nearmem is not None and key.startswith("topology."):
            instead = "from nearmem.die"
        elif key == "topology.sites":
            instead = "from the topology's shape"
        else:
            instead = "default" if key in defaults and value == defaults[key] else "none given"
        yield key, _off(key, value, defaults) or _text(key, value), source or instead


def _defaults(platform: Platform) -> dict[str, Any]:
    """What a value is where a platform file leaves it out, by dotted name."""
    topology = platform.topology
    found: dict[str, Any] = {"nearmem.pool.dies": 0, "nearmem.pool.gpus": 0}
    if topology is not None:
        routing = "xy" if topology.kind in ("mesh", "torus") else "shortest"
        found |= {"topology.duplex": "full", "topology.routing": routing}
    for section in ("pim", "sram_pim", "gpu"):
        found |= _field_defaults(section, getattr(platform, section))
    return found


def _field_defaults(section: str, part: Any) -> dict[str, Any]:
    """Defaults of a dataclass's fields, those of nested ones included; none of what is no dataclass."""
    found: dict[str, Any] = {}
    for field in fields(part) if is_dataclass(part) else ():
        key, value = f"{section}.{field.name}", getattr(part, field.name)
        if is_dataclass(value):
            found |= _field_defaults(key, value)
        elif field.default is not MISSING:
            found[key] = field.default
    return found


def _off(key: str, value: Any, defaults: Mapping[str, Any]) -> str:
    """How a value is written that switches something off, or leaves it to others; "" for any other."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value != 0 or defaults.get(key) != 0:
        return ""
    return "off" if _UNIT.search(key) else "-"


def _source(sources: Mapping[str, str], key: str) -> str:
    """Source of a value; keys of a platform file are names without their unit.

    Links have the sources of whatever the topology's kind calls their bandwidth or latency.
    """
    bare = _UNIT.sub("", key)
    if not bare.startswith("topology.link_"):
        return sources.get(bare, "")
    what = bare.rsplit("_", 1)[-1]
    return "; ".join(
        source for name, source in sources.items() if re.fullmatch(rf"topology\..*_{what}", name)
    )


def _text(key: str, value: Any) -> str:
    """Write a value for people; its key says the unit."""
    if isinstance(value, list):
        return ", ".join(_text(key, item) for item in value)
    unit = _UNIT.search(key)
    if unit is None:
        return str(value)
    if value == math.inf:
        return "unlimited"
    if isinstance(value, int) or value == 0.0:
        return f"{value:.15g} {_SYMBOLS[unit[1]]}"
    if unit[1].startswith("bytes"):
        from ..hardware.units import format_round_bytes

        return f"{format_round_bytes(value)}{_SYMBOLS[unit[1]].removeprefix('B')}"
    prefix, scale = next((p, s) for p, s in _PREFIXES if value >= s or s == 1e-12)
    return f"{value / scale:g} {prefix}{_SYMBOLS[unit[1]]}"
