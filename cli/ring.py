"""`moeplan ring`: the best order of cores for the ring collectives of a network on chip."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import UsageError
from . import parameters
from .console import show, show_json, table
from .options import check_outputs, parse_budget
from .signals import EXIT_INTERRUPTED, keep_best_on_signals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hardware.topology import Topology
    from ..placement.result import Result
    from ..placement.ring.problem import Collective, RingOrder, RingProblem

_NETWORK, _WANTED, _SEARCH, _OUTPUT = "Which cores", "What for", "How to search", "What to write"
_COLLECTIVES: dict[str, Collective] = {"all-gather": "all_gather", "all-reduce": "all_reduce"}

_Mesh = Annotated[
    str, typer.Option(metavar="ROWSxCOLS", help="Grid of cores; ids row by row.", rich_help_panel=_NETWORK)
]
_Cores = Annotated[
    str, typer.Option(help="Members: ids and ranges as in 0,1,5-7, or all.", rich_help_panel=_NETWORK)
]
_Torus = Annotated[
    bool, typer.Option("--torus", help="Rows and columns close to rings.", rich_help_panel=_NETWORK)
]
_Duplex = Annotated[
    Literal["full", "half"],
    typer.Option(help="Whether the directions of a link have a wire each.", rich_help_panel=_NETWORK),
]
_Failed = Annotated[str, typer.Option(metavar="CORES", help="Cores out of order.", rich_help_panel=_NETWORK)]
_FailedLinks = Annotated[
    list[str] | None,
    typer.Option(metavar="A-B", help="Link out of order; repeatable.", rich_help_panel=_NETWORK),
]
_Bandwidth = Annotated[str, typer.Option(help="Of a link (default: as SPIMOE).", rich_help_panel=_NETWORK)]
_Latency = Annotated[
    str, typer.Option(help="Of a hop (default: 3 cycles at 800 MHz).", rich_help_panel=_NETWORK)
]

_Objective = Annotated[
    Literal["hops", "load,hops,total", "time"],
    typer.Option(help="What to minimise, in this order.", rich_help_panel=_WANTED),
]
_Message = Annotated[
    str,
    typer.Option(
        help="What every core contributes: its block of an all-gather, its vector of an all-reduce.",
        rich_help_panel=_WANTED,
    ),
]
_Collective = Annotated[
    Literal["all-gather", "all-reduce"],
    typer.Option(help="What objective time is about.", rich_help_panel=_WANTED),
]
_Pair = Annotated[
    bool,
    typer.Option(
        "--pair", help="Also two rings at once, one each way, with half messages.", rich_help_panel=_WANTED
    ),
]

_Solver = Annotated[str, parameters.solver(_SEARCH, family="ring")]
_Budget = Annotated[str, typer.Option(help="10s, 500ms, 20000it, or 2s,20000it.", rich_help_panel=_SEARCH)]
_Seed = Annotated[int, parameters.seed("Of the search.", _SEARCH)]
_Cache = Annotated[
    Path | None,
    typer.Option(help="Folder of known answers (default: the user's cache).", rich_help_panel=_SEARCH),
]
_NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Neither read nor keep answers.", rich_help_panel=_SEARCH)
]

_Svg = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also a picture (.svg).", rich_help_panel=_OUTPUT)
]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def ring(
    mesh: _Mesh,
    cores: _Cores = "all",
    torus: _Torus = False,
    duplex: _Duplex = "full",
    failed: _Failed = "",
    failed_link: _FailedLinks = None,
    bandwidth: _Bandwidth = "25.6 GB/s",
    latency: _Latency = "3.75 ns",
    objective: _Objective = "load,hops,total",
    message: _Message = "64KiB",
    collective: _Collective = "all-gather",
    pair: _Pair = False,
    solver: _Solver = "auto",
    budget: _Budget = "10s",
    seed: _Seed = 0,
    cache: _Cache = None,
    no_cache: _NoCache = False,
    svg: _Svg = None,
    json: _Json = False,
) -> None:
    """Order cores into a ring, and prove how good the order is.

    The largest hop (one way) delays every round of an all-gather or all-reduce; the link load is how many
    transfers share the busiest link. Compared with what SPIMOE does, and with what no algorithm can beat.
    """
    from ..common.files import write_text
    from ..hardware.units import BYTES, parse
    from ..placement.ring.cache import RingCache
    from ..placement.ring.order import best_ring
    from ..placement.ring.picture import as_svg
    from ..placement.ring.problem import RingProblem

    check_outputs({"--svg": svg}, {})
    topology = _topology(mesh, torus, duplex, failed, failed_link or [], bandwidth, latency)
    members = tuple(_members(cores, topology))
    message_bytes = parse(message, BYTES)
    problems = {
        name: RingProblem(
            topology, members, objective, _COLLECTIVES[collective], message_bytes, pair=name == "pair"
        )
        for name in ("ring", "pair")[: 1 + pair]
    }
    store = None if no_cache else RingCache(cache)
    with keep_best_on_signals() as interrupt:
        results = {
            name: best_ring(
                problem, solver, budget=parse_budget(budget), seed=seed, cache=store, interrupt=interrupt
            )
            for name, problem in problems.items()
        }
    if svg is not None:
        write_text(svg, as_svg(topology, _orders(problems, results)))
    if json:
        show_json(answer(problems, results))
    else:
        _show(problems, results)
    if any(result.stop == "interrupted" for result in results.values()):
        raise typer.Exit(EXIT_INTERRUPTED)


def answer(problems: Mapping[str, RingProblem], results: Mapping[str, Result[RingOrder]]) -> dict[str, Any]:
    """What `--json` prints. `bound_hops`: no ring of that load has a smaller largest hop."""
    problem, result = problems["ring"], results["ring"]
    counts = _counts(problem, result)
    told = {
        "order": _ring_of(result).order,
        **counts,
        "bound_hops": problem.least_hops(result.bound, counts["link_load"]),
        "stop": result.stop,
        **_times_s(problem, result),
    }
    if "pair" in problems:
        told["pair"] = {
            "orders": [ring.order for ring in _orders(problems, results)],
            **_counts(problems["pair"], results["pair"]),
            "stop": results["pair"].stop,
            **_times_s(problems["pair"], results["pair"]),
            **{f"bound_{name}": value for name, value in _limits_s(problems["pair"]).items()},
        }
    return told


def _counts(problem: RingProblem, result: Result[RingOrder]) -> dict[str, int]:
    counts = problem.measure(_ring_of(result))
    return {name: getattr(counts, name) for name in ("bottleneck_hops", "link_load", "total_hops")}


def _times_s(problem: RingProblem, result: Result[RingOrder]) -> dict[str, float]:
    ring = _ring_of(result)
    return {f"{name}_s": problem.collective_s(ring, name) for name in _COLLECTIVES.values()}


def _limits_s(problem: RingProblem) -> dict[str, float]:
    """Seconds that no algorithm can beat on these links."""
    from ..placement.ring.limits import least_collective_s

    return {f"{name}_s": least_collective_s(problem, name) for name in _COLLECTIVES.values()}


def _ring_of(result: Result[RingOrder]) -> RingOrder:
    assert result.decision is not None, "every solver of the family offers a ring at once"
    return result.decision


def _orders(problems: Mapping[str, RingProblem], results: Mapping[str, Result[RingOrder]]) -> list[RingOrder]:
    """The two rings of the pair where there is one, else the ring."""
    if "pair" in problems:
        ring = _ring_of(results["pair"])
        return [ring, ring.reversed()]
    return [_ring_of(results["ring"])]


def _show(problems: Mapping[str, RingProblem], results: Mapping[str, Result[RingOrder]]) -> None:
    from ..hardware.units import format_bytes, format_s
    from ..placement.ring.picture import as_text
    from ..placement.solve import solve

    problem, result = problems["ring"], results["ring"]
    topology = problem.topology
    title = (
        f"ring of {problem.n} cores on a {topology.rows} x {topology.cols} {topology.kind}, "
        f"{topology.duplex} duplex, {format_bytes(problem.message_bytes)} a core"
    )
    named = {
        f"{result.solver} ({result.stop})": (problem, result),
        **(
            {f"pair ({results['pair'].stop})": (problems["pair"], results["pair"])}
            if "pair" in problems
            else {}
        ),
        **{name: (problem, solve(problem, name)) for name in problem.baselines},
    }
    rows = []
    for name, (posed, solved) in named.items():
        times = map(format_s, _times_s(posed, solved).values())
        rows.append((name, *_counts(posed, solved).values(), *times))
    rows.append(("any algorithm, at least", "", "", "", *map(format_s, _limits_s(problem).values())))
    columns = ("order", "largest hop", "link load", "total hops", *_COLLECTIVES)
    proof = (
        f"bound: largest hop {problem.least_hops(result.bound, problem.measure(_ring_of(result)).link_load)}"
    )
    show(table(columns, rows, title=title), f"{proof}, by {result.bound.by}", "")
    show(as_text(topology, _ring_of(result)), "", f"order: {','.join(map(str, _ring_of(result).order))}")


def _topology(
    mesh: str,
    torus: bool,
    duplex: str,
    failed: str,
    failed_links: list[str],
    bandwidth: str,
    latency: str,
) -> Topology:
    from ..hardware import topology as network
    from ..hardware.units import BYTES_PER_S, TIME, parse

    bandwidth_bytes_per_s = parse(bandwidth, BYTES_PER_S)
    _between("--bandwidth", bandwidth_bytes_per_s, 1.0, 1e18, "1 B/s to 1 EB/s")
    latency_s = parse(latency, TIME)
    _between("--latency", latency_s, 0.0, 1.0, "0 s to 1 s")
    size = re.fullmatch(r"(\d{1,4})\s*[xX]\s*(\d{1,4})", mesh.strip())
    if size is None:
        raise UsageError(f"{mesh!r} is no grid", where="--mesh", fix="write rows x columns, as in --mesh 4x8")
    build = network.torus if torus else network.mesh
    built = build(
        int(size[1]),
        int(size[2]),
        link_bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        hop_latency_s=latency_s,
        duplex=duplex,
    )
    sites, links = _ids(failed, "--failed") if failed else [], _links(failed_links)
    return network.without(built, sites=sites, links=links) if sites or links else built


def _between(name: str, value: float, low: float, high: float, allowed: str) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name} is out of range", allowed=allowed, fix="write it with its unit")


def _links(texts: list[str]) -> list[tuple[int, int]]:
    """Parse links such as "3-4"."""
    links = []
    for text in texts:
        ends = re.fullmatch(r"(\d+)-(\d+)", text.strip())
        if ends is None:
            raise UsageError(
                f"{text!r} is no link", where="--failed-link", fix="write its ends, as in --failed-link 3-4"
            )
        links.append((int(ends[1]), int(ends[2])))
    return links


def _members(text: str, topology: Topology) -> list[int]:
    if text.strip().lower() == "all":
        return [core for core in range(topology.sites) if core not in topology.failed]
    return _ids(text, "--cores")


def _ids(text: str, option: str) -> list[int]:
    """Parse "0,1,5-7"."""
    ids: list[int] = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (1, 0)
        if last < first:
            raise UsageError(
                f"{text!r} names no cores", where=option, allowed="ids and ranges, as in 0,1,5-7"
            )
        ids += range(first, last + 1)
    return ids
