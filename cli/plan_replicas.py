"""`moeplan plan` on a GPU cluster: replicas of experts to the slots of ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..common.errors import BadInput, UsageError
from .console import show
from .options import parse_layers
from .planning import Request, conclude, deliver, progress
from .replica_inputs import placement_from, ranks_from
from .replica_text import baseline_means, disagreement, planned_for, standing
from .signals import keep_best_on_signals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..hardware.platform import Platform
    from ..placement.plan import TrafficEntry
    from ..placement.replicas.document import ReplicaPlan
    from ..placement.replicas.problem import ReplicaProblem, Settings
    from ..placement.replicas.ranks import Ranks
    from ..workload.counts import CountLoad
    from ..workload.model import MoEModel


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions:
    """What only this family is asked, by the names of the verb's parameters; risk every family is."""

    nodes: int | None = None
    ranks_per_node: int | None = None
    load: Path | None = None
    slots: int | None = None
    groups: int = 1
    intra_bandwidth: str | None = None
    inter_bandwidth: str | None = None
    slots_per_rank: str | None = None
    speeds: str | None = None
    dispatch: Literal["equal", "hash", "nearest", "fixed"] = "equal"
    sources: Literal["uniform", "slots"] = "uniform"
    duplicates: bool = False
    drift: float | None = None
    traffic_weight: float = 0.0
    tile: int = 1
    current: Path | None = None
    max_moves: int | None = None
    risk: float = 0.0


@dataclass(frozen=True, eq=False)
class Posed:
    """The questions, and where their numbers come from."""

    problems: list[ReplicaProblem]
    platform: Platform
    settings: Settings
    profile: TrafficEntry
    held_out: TrafficEntry | None
    remarks: tuple[str, ...]


def plan_replicas_of(request: Request, options: ReplicaOptions) -> ReplicaPlan:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then."""
    from ..placement.replicas.document import Origin, plan_file
    from ..placement.replicas.planning import plan_replicas

    posed = pose(request, options)
    count = len(posed.problems)
    with keep_best_on_signals() as interrupt:
        with progress(count, visible=not request.quiet, tokens=request.model is None) as on_layer:
            plans = plan_replicas(
                posed.problems,
                search=request.search,
                jobs=min(request.jobs, count),
                on_layer=on_layer,
                interrupt=interrupt,
            )
        origin = Origin(
            posed.platform, request.model, posed.profile, posed.held_out, posed.remarks, options.sources
        )
        document = plan_file(plans, origin, search=request.search, settings=posed.settings)
        deliver(document, request)
    return document


def pose(request: Request, options: ReplicaOptions) -> Posed:
    """Read machine and traffic, and pose a question for every layer."""
    from ..hardware.units import BYTES_PER_S, parse
    from ..placement.replicas.cluster import cluster_nodes, cluster_of, rates_of, resized
    from ..placement.replicas.traffic import problems_of

    inside, across = (
        parse(text, BYTES_PER_S) if text is not None else None
        for text in (options.intra_bandwidth, options.inter_bandwidth)
    )
    platform = resized(
        request.platform,
        nodes=options.nodes,
        ranks_per_node=options.ranks_per_node,
        inside_bytes_per_s=inside,
        across_bytes_per_s=across,
    )
    topology = cluster_of(platform)
    read = _counted if options.load is not None else _replayed
    traffic = read(request, options, topology.sites)
    experts = traffic.profile.shape[-1]
    ranks = ranks_from(
        options.slots_per_rank,
        options.slots,
        options.speeds,
        experts=experts,
        nodes=cluster_nodes(topology),
        ranks=topology.sites,
    )
    settings, remarks = _settings(request, options, ranks)
    problems = problems_of(
        traffic.profile,
        traffic.held_out,
        traffic.layers,
        ranks,
        rates=rates_of(request.model, platform) if request.model is not None else None,
        settings=settings,
        current=placement_from(options.current, traffic.layers, experts, ranks),
    )
    return Posed(problems, platform, settings, *traffic.entries, traffic.remarks + remarks)


def traffic_experts(request: Request, options: ReplicaOptions) -> tuple[int, int]:
    """Return the numbers of experts of the traffic and of ranks of the cluster."""
    from ..placement.replicas.cluster import cluster_of, resized

    platform = resized(request.platform, nodes=options.nodes, ranks_per_node=options.ranks_per_node)
    ranks = cluster_of(platform).sites
    read = _counted if options.load is not None else _replayed
    return read(request, options, ranks).profile.shape[-1], ranks


def replica_answer(document: ReplicaPlan) -> dict[str, Any]:
    """Return what `--json` says of replicas beside what it says of every family."""
    held = document.held_out_balancedness
    return {
        "unit": document.unit,
        "balancedness": document.balancedness.model_dump(),
        "held_out_balancedness": held and held.model_dump(),
        "max_over_bound": document.max_over_bound.model_dump(),
        "duplicates": document.duplicates,
        "moved_slots": document.moved_slots,
        "slots": sum(document.slots_per_rank),
        "ranks": document.ranks,
        "nodes": document.nodes,
        "baseline_balancedness": baseline_means(document),
        "disagreement": disagreement(document),
    }


def conclude_replicas(document: ReplicaPlan, request: Request) -> None:
    """Print the answer; exit with 130 where the search was interrupted."""
    if not request.json and not request.quiet:
        show_replicas(document, request)
        request = replace(request, quiet=True)
    conclude(document, request, replica_answer(document))


def show_replicas(document: ReplicaPlan, request: Request) -> None:
    """Print the outcome for people."""
    show(
        f"{len(document.layers)} layers, {document.logical_experts} experts on "
        f"{sum(document.slots_per_rank)} slots of {document.ranks} ranks: balancedness "
        f"{document.balancedness.mean:.4f}, objective {document.max_over_bound.mean:.4f} times its bound "
        f"(worst layer {document.max_over_bound.worst:.4f})",
        standing(document),
        *(f"note:   {said}" for said in (planned_for(document), disagreement(document)) if said),
        f"plan:   {request.output}",
    )
    if document.current is not None:
        show(f"moved:  {document.moved_slots} slots")
    show(f"next:   moeplan explain {request.output}")


@dataclass(frozen=True, eq=False)
class _Traffic:
    profile: NDArray[np.float64]  # [S, L, E] or [S, G, L, E]
    held_out: NDArray[np.float64] | None
    layers: tuple[int, ...]
    entries: tuple[TrafficEntry, TrafficEntry | None]
    remarks: tuple[str, ...]


def _counted(request: Request, options: ReplicaOptions, ranks: int) -> _Traffic:
    """Counts from a file; several windows are split by time."""
    from ..workload.readers.formats import read_load

    assert options.load is not None
    if request.trace is not None:
        raise UsageError("--load and --trace both give traffic", fix="leave one of them out")
    if options.sources == "slots":
        raise UsageError("counts do not tell which rank a token came from", where="--sources", fix="uniform")
    load = read_load(options.load, request.model)
    layers = load.layers if request.layers is None else parse_layers(request.layers, load.layers, "the load")
    profile, part = _rows(load, layers, options.load), request.replay.held_out
    if isinstance(part, Path):
        other = _other_counts(part, options.load, load, layers, request.model)
        held_out = _rows(other, layers, part)
        pair = _entry(load, options.load, profile, request), _entry(other, part, held_out, request)
        return _Traffic(profile, held_out, layers, pair, load.remarks)
    profile, last = _split_by_time(profile, part, layers)
    share = 0.0 if last is None else part
    entries = (
        _entry(load, options.load, profile, request, share),
        None if last is None else _entry(load, options.load, last, request, share),
    )
    return _Traffic(profile, last, layers, entries, load.remarks)


def _other_counts(
    path: Path, profiled: Path, load: CountLoad, layers: tuple[int, ...], model: MoEModel | None
) -> CountLoad:
    """Read held-out counts from a file of their own. Raises where they are not of the profiled model."""
    from ..workload.readers.formats import read_load

    if path.resolve() == profiled.resolve():
        raise UsageError(
            "the held-out counts are the profiled ones: their score would say nothing",
            where="--held-out",
            fix="name other counts, or a share such as 0.5 of several windows",
        )
    other = read_load(path, model)
    if other.model and load.model and other.model != load.model:
        raise BadInput(
            f"the held-out counts are of {other.model}",
            where=str(path),
            fix=f"name counts of {load.model}",
        )
    missing = sorted(set(layers) - set(other.layers))
    if missing or other.num_experts != load.num_experts:
        raise BadInput(
            f"the held-out counts have {other.num_experts} experts and lack layers {missing}",
            where=str(path),
            allowed=f"{load.num_experts} experts, layers as in {profiled}",
            fix="name counts of the same model",
        )
    return other


def _split_by_time(
    windows: NDArray[np.float64], share: float, layers: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return profiled and held-out windows [S, L, E]: the last ones, where there are several and a share."""
    if not 0.0 <= share < 1.0:
        raise UsageError(f"a held-out share cannot be {share}", where="--held-out", fix="0 to below 1")
    if len(windows) < 2 or share == 0.0:
        return windows, None
    last = min(len(windows) - 1, max(1, round(share * len(windows))))
    _need_tokens(windows[:-last], layers, "profiled windows")
    _need_tokens(windows[-last:], layers, "held-out windows")
    return windows[:-last], windows[-last:]


def _rows(load: CountLoad, layers: tuple[int, ...], path: Path) -> NDArray[np.float64]:
    rows = [load.layers.index(layer) for layer in layers]
    counts: NDArray[np.float64] = load.counts[:, rows]
    _need_tokens(counts, layers, str(path))
    return counts


def _need_tokens(counts: NDArray[np.float64], layers: tuple[int, ...], where: str) -> None:
    empty = [layer for layer, row in zip(layers, counts.sum(axis=0), strict=True) if not row.any()]
    if empty:
        raise BadInput(
            f"{len(empty)} of {len(layers)} layers have only zeros (first: layer {empty[0]})",
            where=where,
            fix="leave dense layers out with --layers, and record all ranks while the engine serves requests",
        )


def _entry(
    load: CountLoad, path: Path, counts: NDArray[np.float64], request: Request, share: float = 0.0
) -> TrafficEntry:
    from ..common.files import fingerprint
    from ..placement.plan import TrafficEntry

    top_k = request.model.top_k if request.model is not None else 1
    tokens = float(counts.sum(axis=2).mean()) / top_k
    return TrafficEntry(
        fingerprint=fingerprint(load.model, load.layers, counts),
        source=f"{path.name}: {load.source}",
        split="time" if share else "whole",
        share=share,
        batch=max(1, round(tokens)),
        steps=len(counts),
        requests=0,
        repeated=False,
        note=" ".join(load.remarks),
    )


def _replayed(request: Request, options: ReplicaOptions, ranks: int) -> _Traffic:
    """Decode steps of a trace."""
    from ..placement.replicas.ranks import Ranks
    from ..placement.replicas.traffic import counts_of
    from ..placement.summary import traffic_entry

    if request.trace is None:
        raise UsageError(
            f"planning on {request.platform.name} needs traffic",
            where="--load, or --trace with --model",
            fix="give counts [layers, experts] (.npy), or a trace of moeplan trace import",
        )
    steps = request.traffic()
    layers = steps.layers(request.layers)
    shape = Ranks(1, (1,) * ranks)
    profile = counts_of(steps.profile, layers, shape, options.sources)
    held_out = None if steps.held_out is None else counts_of(steps.held_out, layers, shape, options.sources)
    entries = (
        traffic_entry(steps.profile, steps.sources[0], steps.split),
        traffic_entry(steps.held_out, steps.sources[1], steps.split) if steps.held_out is not None else None,
    )
    loads = (("profile", steps.profile), ("held-out steps", steps.held_out))
    remarks = tuple(f"{name}: {load.note}" for name, load in loads if load is not None and load.repeated)
    return _Traffic(profile, held_out, layers, entries, remarks)


def _settings(request: Request, options: ReplicaOptions, ranks: Ranks) -> tuple[Settings, tuple[str, ...]]:
    from ..placement.replicas.planning import PUBLISHED
    from ..placement.replicas.problem import Settings

    groups, remarks = options.groups, []
    if request.model is None:
        untimed = ("tile", "intra_bandwidth", "inter_bandwidth")
        given = [name for name in untimed if getattr(options, name) not in (None, 1)]
        remarks += [f"--{name.replace('_', '-')} changes no score without a model" for name in given]
    if groups > 1 and groups % ranks.nodes:
        remarks.append(
            f"{groups} groups do not divide over {ranks.nodes} nodes: planned without groups, as EPLB does"
        )
        groups = 1
    settings = Settings(
        groups=groups,
        duplicates=options.duplicates or request.search.solver in PUBLISHED,
        split=options.dispatch,
        risk=options.risk,
        drift=options.drift,
        traffic_weight=options.traffic_weight,
        max_moves=options.max_moves,
        tile=options.tile,
    )
    if settings.max_moves is not None and options.current is None:
        raise UsageError("--max-moves counts from a current placement", fix="name it with --current")
    if request.search.solver == "current" and options.current is None:
        raise UsageError("the solver current keeps a current placement", fix="name it with --current")
    return settings, tuple(remarks)
