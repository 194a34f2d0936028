"""A machine: topology, sites, PIM banks, SRAM-PIM cores, near-memory dies and GPU. Read from YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..common.errors import BadInput, UsageError, did_you_mean
from ..common.files import fingerprint, read_text
from .gpu import Gpu
from .pim import Pim
from .refresh import Refresh
from .sram_pim import SramPim

if TYPE_CHECKING:
    from ..common.spec import Spec
    from .nearmem import Pool
    from .topology import Topology

PRESETS = Path(__file__).parent / "platforms"

T = TypeVar("T")
Key = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Platform:
    """A machine on which experts are placed; see `load_platform`."""

    name: str
    description: str
    topology: Topology | None
    """Sites and links; None for a single GPU, and for near-memory dies that their cores do not tile."""
    site_memory_bytes: float
    """Memory of one site for weights; 0.0 where there are no PIM sites."""
    pim: Pim | None
    """One lock-step group (a pseudo-channel) of a site."""
    site_pseudo_channels: int
    """Lock-step groups of a site; 0 where there are no PIM sites."""
    gpu: Gpu | None
    nearmem: Pool | None
    """Near-memory dies; the topology is then the mesh between the cores of one of them."""
    sram_pim: SramPim | None
    """The core beside every site; None where there are none."""
    sources: Mapping[str, str]
    """Where a value comes from, by the dotted key of the file ("pim.t_rcd")."""
    fingerprint: str
    """Over all values; not over names, descriptions and sources."""


def platform_names() -> tuple[str, ...]:
    """Return the names of the presets, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.yaml")))


def platform_yaml(name: str) -> str:
    """Return the text of a preset's file, to start one's own from. Raises UsageError for an unknown name."""
    if name not in platform_names():
        raise UsageError(f"there is no preset {name!r}", fix=did_you_mean(name, platform_names()))
    return read_text(PRESETS / f"{name}.yaml", "preset")


def load_platform(name_or_path: str) -> Platform:
    """Load a preset by name, or a YAML or JSON file by path.

    A path has a "/" in it or ends in .yaml, .yml or .json. A file may start from a preset with
    `base: NAME` and name only what differs; a topology with a `kind` replaces the whole section.
    Raises UsageError on an unknown name, and BadInput on a file that is missing or wrong.
    """
    path = Path(name_or_path)
    if "/" in name_or_path or path.suffix in (".yaml", ".yml", ".json"):
        return _build(path, name_or_path)
    if name_or_path not in platform_names():
        raise UsageError(
            f"unknown platform {name_or_path!r}",
            allowed=f"{', '.join(platform_names())}, or the path of a YAML file",
            fix=did_you_mean(name_or_path, platform_names()),
        )
    return _build(PRESETS / f"{name_or_path}.yaml", f"platform {name_or_path}")


def _build(path: Path, where: str) -> Platform:
    """Read, check and convert the file at `path`; errors call it `where`."""
    from ..common.spec import parse
    from .platforms import TOPOLOGIES, PlatformSpec

    leaves = _read(path, where)
    name, description = (str(leaves.pop((key,), ("", ""))[0]) for key in ("name", "description"))
    spec = parse(PlatformSpec, _nested({key: value for key, (value, _) in leaves.items()}), where)
    topology = None
    values = spec.model_dump()
    if spec.topology is not None:
        kind = str(spec.topology.get("kind"))
        if kind not in TOPOLOGIES:
            raise BadInput(f"{where}: unknown topology.kind {kind!r}", fix=did_you_mean(kind, TOPOLOGIES))
        shape = parse(TOPOLOGIES[kind], spec.topology, f"{where}: topology")
        topology = _checked(f"{where}: topology", shape.build)
        values["topology"] = shape.model_dump()
    if (spec.pim is None) != (spec.site is None) or (spec.pim and topology is None):
        raise BadInput(f"{where}: pim, site and topology need each other", fix="give all three, or no pim")
    if spec.pim is None and spec.gpu is None and spec.nearmem is None:
        raise BadInput(f"{where}: there is nothing to compute on", fix="give a section pim, gpu or nearmem")
    if spec.sram_pim is None:
        del values["sram_pim"]
    elif spec.pim is None:
        raise BadInput(f"{where}: sram_pim needs sites beside which its cores stand", fix="give site and pim")
    nearmem = None
    if spec.nearmem is None:
        del values["nearmem"]  # fingerprints do not depend on sections that a file does not have
    elif topology is not None:
        raise BadInput(
            f"{where}: near-memory dies bring their own network", fix="leave out topology, site and pim"
        )
    else:
        nearmem = _checked(f"{where}: nearmem", spec.nearmem.build)
        if nearmem.die.is_tiled:
            topology = _checked(f"{where}: cores of nearmem.die", nearmem.die.network)
    return Platform(
        name=name or path.stem,
        description=description,
        topology=topology,
        site_memory_bytes=spec.site.memory if spec.site else 0.0,
        pim=_checked(f"{where}: pim", lambda: _pim(spec.pim)) if spec.pim else None,
        site_pseudo_channels=spec.site.pseudo_channels if spec.site else 0,
        gpu=_converted(Gpu, spec.gpu) if spec.gpu else None,
        nearmem=nearmem,
        sram_pim=_converted(SramPim, spec.sram_pim) if spec.sram_pim else None,
        sources={".".join(key): source for key, (_, source) in leaves.items() if source},
        fingerprint=fingerprint(values),
    )


def _read(path: Path, where: str) -> dict[Key, tuple[object, str]]:
    """Return (value, source) of every key of the file, those of its base included."""
    from ..common.spec import read_mapping

    leaves = dict(_leaves(read_mapping(path, "platform"), (), where))
    base, _ = leaves.pop(("base",), (None, ""))
    if base is None:
        return leaves
    if base not in platform_names():
        fix = did_you_mean(str(base), platform_names())
        raise BadInput(f"{where}: unknown base {base!r}", allowed=", ".join(platform_names()), fix=fix)
    inherited = _read(PRESETS / f"{base}.yaml", f"platform {base}")
    replaced = [*leaves, ("name",)] + [("topology",)] * (("topology", "kind") in leaves)
    kept = {
        key: leaf for key, leaf in inherited.items() if not any(_overlap(key, other) for other in replaced)
    }
    return kept | leaves


def _leaves(node: Mapping[str, Any], path: Key, where: str) -> list[tuple[Key, tuple[object, str]]]:
    """Flatten a mapping; {value: ..., source: ...} is one leaf, so is anything that is no mapping."""
    found: list[tuple[Key, tuple[object, str]]] = []
    for name, value in node.items():
        key = (*path, str(name))
        if not isinstance(value, dict) or not value:
            found.append((key, (value, "")))
        elif "value" in value and value.keys() <= {"value", "source"}:
            source = value.get("source", "")
            if not isinstance(source, str):
                raise BadInput(f"{where}: {'.'.join(key)}.source must be text (got {source!r})")
            found.append((key, (value["value"], source)))
        else:
            found += _leaves(value, key, where)
    return found


def _nested(flat: Mapping[Key, object]) -> dict[str, Any]:
    """Undo `_leaves`."""
    root: dict[str, Any] = {}
    for key, value in flat.items():
        node = root
        for name in key[:-1]:
            node = node.setdefault(name, {})
        node[key[-1]] = value
    return root


def _overlap(one: Key, other: Key) -> bool:
    """Whether one key lies in the section of the other, or is it."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _pim(spec: Any) -> Pim:
    refresh = _converted(Refresh, spec.refresh) if spec.refresh else Refresh()
    return _converted(Pim, spec, refresh=refresh)


def _converted(kind: type[T], spec: Spec, **nested: object) -> T:
    """Build the dataclass `kind` from a section whose keys are its field names without units."""
    values = {field.name: getattr(spec, _key(field.name)) for field in fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in values.items() if value is not None}
    return kind(**(given | nested))


def _key(field: str) -> str:
    return re.sub(r"_(bytes_per_s|flop_per_s|bytes|hz|s)$", "", field)


def _checked(where: str, build: Callable[[], T]) -> T:
    """Turn the UsageError of a constructor into BadInput that names the file."""
    try:
        return build()
    except UsageError as error:
        raise BadInput(f"{where}: {error.what}", allowed=error.allowed, fix=error.fix) from error
