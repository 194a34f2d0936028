"""`moeplan trace calibrate`: fit synthetic routing to published moments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import UsageError
from . import parameters
from .console import note, show, show_json, table, warn
from .options import check_outputs, parse_budget
from .watching import count

if TYPE_CHECKING:
    from ..workload.calibrate import Calibration


_Targets = Annotated[
    str,
    typer.Option(
        help="Published moments (.yaml), or a model with fitted routing for those it was fitted to."
    ),
]
_Output = Annotated[Path | None, parameters.output("Where to write the fitted parameters (.yaml).")]
_Budget = Annotated[str, typer.Option(help="Parameter sets to try, as in 150it.")]
_Seed = Annotated[int, parameters.seed("First seed of the fit.")]
_Draws = Annotated[int, typer.Option(min=1, help="Seeds that every parameter set is drawn with.")]
_Checks = Annotated[int, typer.Option(min=1, help="Other seeds that the result is measured with.")]
_Start = Annotated[
    str | None, typer.Option(help="Routing to start from: a preset's model or a file (.yaml).")
]


def calibrate(
    model: parameters.ModelName,
    targets: _Targets,
    output: _Output = None,
    budget: _Budget = "150it",
    seed: _Seed = 0,
    draws: _Draws = 1,
    checks: _Checks = 3,
    start: _Start = None,
    json: parameters.Json = False,
) -> None:
    """Fit synthetic routing to published moments, and compare on seeds that the fit did not use."""
    from ..workload.calibrate import START
    from ..workload.calibrate import calibrate as fit
    from ..workload.model import load_model
    from ..workload.routing_presets import find_routing, find_targets, write_routing

    shapes = load_model(model)
    wanted = find_targets(targets)
    check_outputs(
        {"--output": output},
        {"--model": model, "--targets": targets, "--start": start},
        (".yaml", ".yml"),
    )
    if wanted.model != shapes.name:
        note(f"the targets are of {wanted.model}, the routing is drawn for {shapes.name}")
    trials = _trials(budget)
    with count("fitting", trials) as on_trial:
        found = fit(
            shapes,
            wanted.targets(targets),
            steps=wanted.steps,
            evaluations=trials,
            seed=seed,
            draws=draws,
            checks=checks,
            start=START if start is None else find_routing(start),
            on_progress=lambda _, loss: on_trial(f"loss {loss:.3f}"),
        )
    missed = [row.target.label for row in found.comparisons if not row.met]
    if output is not None:
        source = f"moeplan trace calibrate --budget {trials}it --seed {seed} --draws {draws}; {wanted.source}"
        write_routing(found.routing, output, model=shapes.name, source=source)
    if missed:
        warn(f"{len(missed)} of {len(found.comparisons)} moments are missed: {', '.join(missed)}")
    if json:
        show_json(_described(found, shapes.name, output))
        return
    show(*([f"routing: {output}"] if output else []), _parameters(found), _table(found))


def _trials(budget: str) -> int:
    """Parameter sets to try. Raises UsageError on a time, which would not give the same answer twice."""
    parsed = parse_budget(budget)
    if parsed.iterations is None or parsed.time_s is not None:
        raise UsageError(
            f"a fit is limited by the parameter sets it tries, not by {budget!r}",
            where="--budget",
            fix="for example --budget 150it",
        )
    return parsed.iterations


def _described(found: Calibration, model: str, output: Path | None) -> dict[str, Any]:
    return {
        "model": model,
        "output": None if output is None else str(output),
        "routing": asdict(found.routing),
        "loss": found.loss,
        "evaluations": found.evaluations,
        "fit_seeds": list(found.fit_seeds),
        "check_seeds": list(found.check_seeds),
        "met": all(row.met for row in found.comparisons),
        "moments": [row.to_dict() for row in found.comparisons],
    }


def _parameters(found: Calibration) -> str:
    knobs = ", ".join(f"{name} {value}" for name, value in asdict(found.routing).items())
    return f"{knobs}\nloss {found.loss:.3f} after {found.evaluations} parameter sets"


def _table(found: Calibration) -> Any:
    rows = [
        (
            row.target.label,
            row.target.batch,
            f"{row.target.value:.4g}",
            f"{row.mean:.4g}",
            f"{row.miss:+.1%}",
            f"{row.worst:.1%}",
            f"{row.target.tolerance:.0%}",
            "met" if row.met else "missed",
        )
        for row in found.comparisons
    ]
    seeds = ", ".join(map(str, found.check_seeds))
    columns = ("moment", "batch", "target", "fitted", "miss", "worst", "tolerance", "")
    return table(columns, rows, title=f"measured with seeds {seeds}, which the fit did not use")
