"""`moeplan solvers`: what can search for a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import UsageError, did_you_mean
from . import parameters
from .console import show, show_json, table

if TYPE_CHECKING:
    from ..placement.registry import SolverInfo

_TRAITS = ("exact", "anytime", "uses_start", "by_iterations")


_Family = Annotated[str, typer.Argument(help="Family of problems.")]


def solvers(
    family: _Family = "channels",
    json: parameters.Json = False,
) -> None:
    """List the solvers of a family: traits, options, and the papers that heuristics come from.

    exact: proves optimality, given time. anytime: better with more budget. uses start: begins with the
    best baseline. by iterations: repeats exactly under an iteration budget.
    """
    from ..placement.registry import families, solvers_of

    known = solvers_of(family)
    if not known:
        raise UsageError(f"there is no family {family!r}", fix=did_you_mean(family, families()))
    if json:
        show_json({"family": family, "solvers": [_describe(info) for info in known.values()]})
        return
    columns = ("solver", "what it does", "traits", "options", "published in")
    show(table(columns, (_row(info) for info in known.values()), left=5, title=f"solvers of {family}"))
    show(f"families: {', '.join(families())}")


def _describe(info: SolverInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "summary": info.summary,
        **{trait: getattr(info, trait) for trait in _TRAITS},
        "options": list(info.options),
        "published": info.published,
    }


def _row(info: SolverInfo) -> tuple[str, ...]:
    traits = ", ".join(trait.replace("_", " ") for trait in _TRAITS if getattr(info, trait))
    return info.name, info.summary, traits, ", ".join(info.options), info.published
