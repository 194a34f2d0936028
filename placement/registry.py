"""The solvers that there are, by family and name, each loaded only when it is used.

Reserved names: `auto` is the family's own choice. Third parties add solvers by `register()`, or by an
entry point of the group `moeplan.solvers` whose object is a `SolverInfo`. An entry point that cannot be used
is left out with a warning; all others stay.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ..common.errors import MissingLibrary, UsageError, did_you_mean
from .control import Claim, Control

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "moeplan.solvers"


class Solver(Protocol):
    """A function that works on `control.problem` under `control` and says how it ended."""

    def __call__(self, control: Control[Any]) -> Claim:
        """Offer decisions through `control` until it says stop, or there is nothing left to try."""


@dataclass(frozen=True)
class SolverInfo:
    """A solver's entry: where it lives, and its traits.

    `exact`: proves optimality given time. `anytime`: gets better with more budget. `seeded`: ends by itself,
    with an answer that depends on the seed. `uses_start`: begins from a given decision. `by_iterations`: an
    iteration budget makes it repeatable. `options` names what it accepts; `published` is the paper that a
    heuristic comes from.
    """

    family: str
    name: str
    load: str | Callable[[], Solver]
    summary: str
    exact: bool = False
    anytime: bool = False
    seeded: bool = False
    uses_start: bool = False
    by_iterations: bool = True
    published: str = ""
    options: tuple[str, ...] = ()

    def function(self) -> Solver:
        """Import and return the solver. Raises MissingLibrary where that fails."""
        if callable(self.load):
            return self.load()
        module, _, name = self.load.partition(":")
        package = __package__ if module.startswith(".") else None
        try:
            solver: Solver = getattr(importlib.import_module(module, package), name)
        except (ImportError, AttributeError) as error:
            raise MissingLibrary(
                f"solver {self.name!r} of {self.family} cannot be loaded: {error}",
                where=self.load,
                fix="install what it needs, or take another solver",
            ) from error
        return solver


_BUILT_IN = (
    SolverInfo("channels", "auto", ".channels.auto:auto",
               "proves the optimum where the instance is small, anneals otherwise",
               anytime=True, uses_start=True),
    SolverInfo("channels", "ep", ".channels.greedy:ep", "contiguous experts, one site each, unsplit",
               published="expert parallelism, the baseline of SPIMOE figure 14"),
    SolverInfo("channels", "round_robin", ".channels.greedy:round_robin", "expert e on site e modulo N"),
    SolverInfo("channels", "lpt", ".channels.greedy:lpt",
               "uniform TP, longest processing time first, at the best factor",
               published="SPIMOE 3.4.1, candidate 3"),
    SolverInfo("channels", "mixed_tp", ".channels.greedy:mixed_tp",
               "every expert picks its cheapest TP factor and group",
               published="SPIMOE 3.4.1, candidate 2"),
    SolverInfo("channels", "spimoe_cliques", ".channels.cliques:spimoe_cliques",
               "co-activation cliques on groups that do not overlap",
               published="SPIMOE 3.4.1, candidate 1"),
    SolverInfo("channels", "spimoe", ".channels.spimoe:spimoe",
               "best of cliques, mixed TP and LPT, annealed on the recorded steps",
               seeded=True, published="SPIMOE 3.4.1"),
    SolverInfo("channels", "annealing", ".channels.annealing:annealing",
               "migrate, change TP, swap, on recorded and drawn steps; until the budget is spent",
               anytime=True, uses_start=True),
    SolverInfo("channels", "ilp", ".channels.ilp:ilp",
               "integer program of the cost's linear part (PuLP, CBC), with its bound",
               anytime=True, uses_start=True, options=("step_clusters",)),
    SolverInfo("channels", "cpsat", ".channels.cpsat:cpsat",
               "CP-SAT model of the cost's linear part, with its bound",
               anytime=True, uses_start=True, options=("step_clusters",)),
    SolverInfo("channels", "exact", ".channels.exact:exact",
               "branch and bound on the whole cost, for small instances",
               exact=True, anytime=True, uses_start=True),
    SolverInfo("cores", "auto", ".cores.auto:auto",
               "proves the optimum where the instance is small, anneals otherwise",
               anytime=True, uses_start=True, options=("steps",)),
    SolverInfo("cores", "contiguous", ".cores.published:contiguous", "contiguous experts on every core",
               published="ReXpert Table IX, broadcast row"),
    SolverInfo("cores", "lpt", ".cores.published:lpt", "longest processing time first, by load alone",
               published="ReXpert section IV-D, load-only LPT"),
    SolverInfo("cores", "coactivation", ".cores.published:coactivation",
               "heaviest first, to the core whose experts it fires with least",
               published="ReXpert section IV-D"),
    SolverInfo("cores", "annealing", ".cores.annealing:annealing",
               "shift and exchange experts; incremental; rounds with their rounding up",
               anytime=True, uses_start=True),
    SolverInfo("cores", "ilp", ".cores.ilp:ilp",
               "integer program of the steps above their bound (PuLP, CBC), with its bound",
               anytime=True, uses_start=True, options=("steps",)),
    SolverInfo("cores", "cpsat", ".cores.cpsat:cpsat",
               "CP-SAT model of the steps above their bound, with its bound",
               anytime=True, uses_start=True, options=("steps",)),
    SolverInfo("partition", "auto", ".partition.ours:exact", "the optimum, proven", exact=True, anytime=True),
    SolverInfo("partition", "no_exp", ".partition.published:no_exp", "all experts on the GPU",
               published="NeuPIMs; NoExp in Sieve 7.1"),
    SolverInfo("partition", "all_exp", ".partition.published:all_exp", "all experts on PIM",
               published="PAPI, Stratum; AllExp in Sieve 7.1"),
    SolverInfo("partition", "pimoe", ".partition.published:pimoe",
               "the busiest channel's most popular expert to the GPU until that is slower",
               published="PIMoE, as described in Sieve 7.1"),
    SolverInfo("partition", "sieve", ".partition.published:sieve",
               "the most popular expert to the GPU until the total would rise", published="Sieve 5"),
    SolverInfo("partition", "fast", ".partition.ours:fast",
               "relaxation, rounding and a short search, with a bound: for the critical path"),
    SolverInfo("partition", "exact", ".partition.ours:exact",
               "relaxation and a search by reduced costs until the optimum is proven",
               exact=True, anytime=True),
    SolverInfo("partition", "annealing", ".partition.annealing:annealing",
               "move or exchange single experts", anytime=True, uses_start=True),
    SolverInfo("partition", "ilp", ".partition.ilp:ilp",
               "integer program over classes of equal experts (PuLP, CBC), with its bound",
               exact=True, anytime=True),
    SolverInfo("partition", "cpsat", ".partition.cpsat:cpsat",
               "CP-SAT over classes of equal experts, with its bound", exact=True, anytime=True),
    SolverInfo("replicas", "auto", ".replicas.joint:auto",
               "joint search on the mean load, then annealing where the objective is more than that",
               anytime=True, uses_start=True, options=("tolerance", "effort")),
    SolverInfo("replicas", "linear", ".replicas.published:linear", "slot s holds expert s modulo E"),
    SolverInfo("replicas", "current", ".replicas.published:current", "the placement that is there"),
    SolverInfo("replicas", "round_robin", ".replicas.published:round_robin", "expert e on rank e modulo G"),
    SolverInfo("replicas", "eplb", ".replicas.published:eplb",
               "greedy counts and packing, hierarchical or global", published="DeepSeek EPLB"),
    SolverInfo("replicas", "snake", ".replicas.published:snake",
               "greedy counts, replicas dealt to and fro", published="SGLang deepseek_vec"),
    SolverInfo("replicas", "flash_like", ".replicas.published:flash_like",
               "spare slots shared out over tiers of risk", published="FlashLB, as described"),
    SolverInfo("replicas", "replicate_everywhere", ".replicas.published:replicate_everywhere",
               "the hottest experts on every rank, the rest by LPT"),
    SolverInfo("replicas", "joint", ".replicas.joint:joint",
               "counts, packing and swaps searched together, groups paired to nodes by bound",
               uses_start=True, options=("tolerance", "effort")),
    SolverInfo("replicas", "annealing", ".replicas.annealing:annealing",
               "random swaps and count moves on the whole objective",
               anytime=True, uses_start=True, options=("tolerance", "effort")),
    SolverInfo("replicas", "ilp", ".replicas.ilp:ilp",
               "integer program of counts and packing (PuLP, CBC), with its bound",
               exact=True, anytime=True, uses_start=True, options=("tolerance", "effort")),
    SolverInfo("replicas", "cpsat", ".replicas.cpsat:cpsat",
               "CP-SAT model of counts and packing, with its bound",
               exact=True, anytime=True, uses_start=True, options=("tolerance", "effort")),
    SolverInfo("ring", "auto", ".ring.exact:auto", "the exact solver, which is anytime",
               exact=True, anytime=True, uses_start=True),
    SolverInfo("ring", "row_major", ".ring.heuristics:row_major", "cores by id"),
    SolverInfo("ring", "snake", ".ring.heuristics:snake",
               "closed tour of a rectangle (comb), else rows in alternating direction",
               published="SPIMOE 3.3.2, rectangular sub-meshes"),
    SolverInfo("ring", "nn_2opt", ".ring.heuristics:nn_2opt",
               "nearest neighbour and 2-opt on the largest hop", published="SPIMOE 3.3.2, general core sets"),
    SolverInfo("ring", "multistart_2opt", ".ring.heuristics:multistart_2opt",
               "nearest neighbour from every core, 2-opt on the changed hops"),
    SolverInfo("ring", "annealing", ".ring.annealing:annealing",
               "2-opt and Or-opt moves towards a smaller cell of load and hops",
               anytime=True, uses_start=True),
    SolverInfo("ring", "ilp", ".ring.ilp:ilp",
               "integer program with subtour cuts (PuLP, CBC), cell by cell",
               exact=True, anytime=True, uses_start=True),
    SolverInfo("ring", "exact", ".ring.exact:exact",
               "bounds, annealing, then CP-SAT cell by cell; dynamic programming for small sets",
               exact=True, anytime=True, uses_start=True),
)  # fmt: skip

#: How each family is asked, for who names a solver of another one.
_ASKED_BY = {
    "channels": "moeplan plan --platform spimoe-4x8",
    "cores": "moeplan plan --platform rexpert-die",
    "replicas": "moeplan plan --platform h20x32",
    "partition": "moeplan partition --platform b200-hbmpim",
    "ring": "moeplan ring",
}

_registered: dict[tuple[str, str], SolverInfo] = {(info.family, info.name): info for info in _BUILT_IN}


def register(info: SolverInfo) -> None:
    """Add a solver. Raises UsageError where the family already has one of that name."""
    key = (info.family, info.name)
    if key in _registered:
        raise UsageError(
            f"family {info.family!r} already has a solver {info.name!r}", fix="choose another name"
        )
    _registered[key] = info


def unregister(family: str, name: str) -> None:
    """Take a registered solver back (tests and notebooks re-register)."""
    _registered.pop((family, name), None)


def solvers_of(family: str) -> dict[str, SolverInfo]:
    """Return the solvers of a family by name, built-in and third-party."""
    _load_entry_points()
    return {info.name: info for info in _registered.values() if info.family == family}


def families() -> tuple[str, ...]:
    """Return the families that have solvers."""
    _load_entry_points()
    return tuple(dict.fromkeys(info.family for info in _registered.values()))


def find(family: str, name: str) -> SolverInfo:
    """Return one solver.

    Raises UsageError where there is none: it names the families that have one, else the closest name.
    """
    known = solvers_of(family)
    if name not in known:
        others = sorted({info.family for info in _registered.values() if info.name == name})
        if others:
            asked = "; or ".join(f"for {other}: {_ASKED_BY.get(other, 'its own verb')}" for other in others)
            raise UsageError(
                f"{name!r} is a solver of {' and '.join(others)}, not of {family}",
                allowed=", ".join(known),
                fix=f"{asked}; see moeplan solvers {family}",
            )
        raise UsageError(f"unknown solver {name!r} for {family}", fix=did_you_mean(name, known))
    return known[name]


_loading = threading.RLock()


def _load_entry_points() -> None:
    """Register what entry points name, each once, however its loading ends."""
    with _loading:
        unread = _entry_points()
        waiting = unread.copy()
        unread.clear()  # a plug-in that asks for solvers while it is loaded gets those that there are by then
        try:
            while waiting:
                _load(waiting.pop(0))
        finally:
            unread += waiting


def _load(entry: EntryPoint) -> None:
    try:
        info = entry.load()
        if not isinstance(info, SolverInfo):
            raise UsageError(f"the object is no SolverInfo but {type(info).__name__}")
        register(info)
    except Exception as error:  # of somebody else's module
        distribution = "unknown" if entry.dist is None else entry.dist.name
        warnings.warn(
            f"a solver is left out: entry point {entry.name!r} ({entry.value}) of the distribution "
            f"{distribution!r} cannot be used: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=4,
        )


@cache
def _entry_points() -> list[EntryPoint]:
    """Entry points that wait to be loaded."""
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINTS))
