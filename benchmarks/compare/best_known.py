"""The best that anyone found and proved on the frozen instances: `best_known.json`, which only improves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from ...common.errors import BadInput
from ...common.files import write_text
from ...common.spec import Spec, parse, read_mapping
from ...placement.problem import SAME_COST

if TYPE_CHECKING:
    from .cell import Finished

SHIPPED = Path(__file__).parent / "best_known.json"


@dataclass(frozen=True)
class BestKnown:
    """The smallest objective and the largest bound on an instance, with who had them.

    `problem` is the fingerprint of the question; `version` and `bound_version` are releases of moeplan.
    """

    problem: str
    objective_s: float
    solver: str
    version: str
    bound_s: float
    bound_by: str
    bound_version: str


class _Entry(Spec):
    problem: str
    objective_s: float = Field(ge=0)
    solver: str
    version: str
    bound_s: float = Field(ge=0)
    bound_by: str
    bound_version: str


def read_best_known(path: Path = SHIPPED) -> dict[str, BestKnown]:
    """Read the file; empty where there is none. Raises BadInput where it is wrong, or contradicts itself."""
    if not path.is_file():
        return {}
    found = {}
    for instance, entry in read_mapping(path, "best-known file").items():
        row = parse(_Entry, entry, f"{path.name}, {instance}")
        if row.bound_s > row.objective_s * (1.0 + SAME_COST):
            raise BadInput(f"{path.name}: the bound of {instance} is above its objective", fix="delete it")
        found[instance] = BestKnown(**row.model_dump())
    return found


def write_best_known(known: Mapping[str, BestKnown], path: Path = SHIPPED) -> None:
    """Write the file, sorted by instance."""
    rows = {name: vars(known[name]) for name in sorted(known)}
    write_text(path, json.dumps(rows, indent=1) + "\n")


def improved(known: Mapping[str, BestKnown], cells: Iterable[Finished]) -> dict[str, BestKnown]:
    """Return `known` with what `cells` improve: a smaller objective, a larger bound. Nothing gets worse.

    An instance whose question has changed starts anew. Raises BadInput where a cell contradicts what is
    known: a bound above a known objective, or an objective below a known bound.
    """
    found = dict(known)
    for cell in cells:
        outcome, name = cell.outcome, cell.cell.instance
        if outcome.status != "ok" or outcome.objective_s is None:
            continue
        new = BestKnown(
            outcome.problem,
            outcome.objective_s,
            cell.cell.solver,
            cell.version,
            outcome.bound_s or 0.0,
            outcome.bound_by,
            cell.version,
        )
        old = found.get(name)
        found[name] = new if old is None or old.problem != new.problem else _better(name, old, new)
    return found


def _better(name: str, old: BestKnown, new: BestKnown) -> BestKnown:
    best = old
    if new.objective_s < old.objective_s * (1.0 - SAME_COST):
        best = replace(best, objective_s=new.objective_s, solver=new.solver, version=new.version)
    if new.bound_s > old.bound_s * (1.0 + SAME_COST):
        best = replace(best, bound_s=new.bound_s, bound_by=new.bound_by, bound_version=new.version)
    if best.bound_s > best.objective_s * (1.0 + SAME_COST):
        raise BadInput(
            f"on {name} {best.bound_by!r} proves {best.bound_s:.9g}, but {best.solver} found "
            f"{best.objective_s:.9g}",
            fix="one of the two is a bug: report it",
        )
    return best
