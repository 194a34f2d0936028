"""What `plan` and `explain` both say of a plan of replicas: time and balance, beside the baselines'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .console import table

if TYPE_CHECKING:
    from rich.table import Table

    from ..placement.plan import Scores
    from ..placement.replicas.document import ReplicaPlan

#: Relative difference below which two solvers are tied.
_TIED = 1e-4


def baseline_means(document: ReplicaPlan) -> dict[str, dict[str, float | None]]:
    """Mean balancedness over layers of every published heuristic, on the profile and held out."""
    found: dict[str, dict[str, float | None]] = {}
    for name in document.layers[0].baselines:
        entries = [layer.baselines[name] for layer in document.layers]
        found[name] = {
            "profile": _mean([entry.balancedness for entry in entries]),
            "held_out": _mean([entry.held_out_balancedness for entry in entries]),
        }
    return found


def standing(document: ReplicaPlan) -> Table:
    """Table of the plan and its baselines: what is minimised, summed over layers, and mean balancedness."""
    what = "load" if document.unit == "tokens" else "time"
    totals, held = document.totals, document.held_out_balancedness
    rows = [
        (f"{document.solver} (plan)", _shown(document, totals.profile), _shown(document, totals.held_out),
         _digits(document.balancedness.mean), _digits(held.mean if held else None),
         str(document.duplicates))
    ]  # fmt: skip
    for name, mean in baseline_means(document).items():
        entry = totals.baselines[name]
        repeated = sum(layer.baselines[name].duplicates for layer in document.layers)
        rows.append(
            (name, _shown(document, entry.profile), _shown(document, entry.held_out),
             _digits(mean["profile"]), _digits(mean["held_out"]), str(repeated))
        )  # fmt: skip
    columns = (
        "solver",
        "largest load" if what == "load" else "step time",
        f"held-out {what}",
        "balancedness",
        "held out",
        "duplicates",
    )
    return table(columns, rows)


def disagreement(document: ReplicaPlan) -> str | None:
    """Name the baselines that time and balancedness rank differently against the plan; None where none is.

    On held-out steps where there are some.
    """
    held, totals = document.held_out_balancedness, document.totals
    unseen = held is not None and totals.held_out is not None
    mine = totals.held_out if totals.held_out is not None and unseen else totals.profile
    balance = held.mean if held is not None and unseen else document.balancedness.mean
    means, apart = baseline_means(document), []
    for name, entry in totals.baselines.items():
        score = entry.held_out if unseen else entry.profile
        other = means[name]["held_out" if unseen else "profile"]
        if score is None or other is None:
            continue
        faster, evener = score.total_s / mine.total_s - 1.0, balance / other - 1.0
        if faster * evener < 0.0 and min(abs(faster), abs(evener)) > _TIED:
            apart.append(f"{name} ({'slower' if faster > 0.0 else 'faster'})")
    if not apart:
        return None
    where = "held-out steps" if unseen else "the profile"
    if document.unit == "tokens":
        return (
            f"on {where} balancedness ranks plan and {', '.join(apart)} the other way: it weighs windows and "
            "layers alike, the largest load, which is minimised, by their tokens"
        )
    return (
        f"on {where} balancedness ranks plan and {', '.join(apart)} the other way: it counts tokens alone, "
        "the time, which is minimised, also the weights that a rank reads and what its links carry"
    )


def planned_for(document: ReplicaPlan) -> str | None:
    """Say against which windows the plan was made; None where the recorded ones are all."""
    layers = [layer for layer in document.layers if layer.drift is not None and layer.kept is not None]
    drift, kept = (_mean([getattr(layer, name) for layer in layers]) for name in ("drift", "kept"))
    if drift is None or kept is None or (drift == 0.0 and kept == 1.0):
        return None
    if document.settings.get("drift") is not None:
        return f"made for the recorded windows, and loads that drift by {drift:.1%} independently"
    return (
        f"made for windows that differ as recorded by {kept:.0%}, and by {drift:.1%} of every expert's load "
        "independently (estimated, means over layers)"
    )


def _shown(document: ReplicaPlan, scores: Scores | None) -> str:
    if scores is None:
        return "-"
    # All in one unit, with the digits that tell neighbours apart.
    return f"{scores.total_s:,.0f}" if document.unit == "tokens" else f"{scores.total_s * 1e6:,.1f} us"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
