"""`moeplan explain`: what a plan of replicas reaches, what limits it, and whether it is worth deploying."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.errors import BadInput
from . import parameters
from .console import show, show_json, table
from .options import check_outputs
from .replica_text import disagreement, standing

if TYPE_CHECKING:
    from rich.table import Table

    from ..placement.replicas.document import ReplicaPlan
    from ..placement.replicas.explain import Explanation


_Plan = Annotated[Path, typer.Argument(help="A plan of replicas (.json).")]
_Threshold = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Least part of the largest load that makes it worth it.")
]
_Traffic = Annotated[
    Path | None, typer.Option(help="Write the predicted rank-to-rank traffic there (.json).")
]


def explain(
    plan: _Plan,
    threshold: _Threshold = 0.05,
    traffic: _Traffic = None,
    json: parameters.Json = False,
) -> None:
    """Explain a plan: its ceiling and what limits it, what moves, what it gains, whether that is worth it.

    Traffic is predicted in tokens of a mean step, from source rank (row) to rank (column).
    """
    from ..placement.plan import read_plan
    from ..placement.replicas.document import ReplicaPlan
    from ..placement.replicas.explain import explain as explained
    from ..placement.replicas.explain import traffic_matrix, traffic_shares

    check_outputs({"--traffic": traffic}, {"PLAN": plan})
    document = read_plan(plan)
    if not isinstance(document, ReplicaPlan):
        raise BadInput(
            f"{str(plan)!r} is a plan of {document.family}",
            allowed="plans of replicas",
            fix="see moeplan report for other families",
        )
    found = explained(document, threshold)
    matrix = traffic_matrix(document)
    shares = traffic_shares(document, matrix)
    answer = {
        "plan": str(plan),
        "ceiling": found.ceiling,
        "reached": found.reached,
        **asdict(found),
        "balancedness": document.balancedness.model_dump(),
        "disagreement": disagreement(document),
        "traffic_shares": shares,
        "rank_traffic": matrix.tolist(),
    }
    if traffic is not None:
        from json import dumps

        from ..common.files import write_text

        keys = ("traffic_shares", "rank_traffic")
        write_text(traffic, dumps({key: answer[key] for key in keys}, indent=1) + "\n")
    if json:
        show_json(answer)
    else:
        _show(document, found, shares, traffic)


def _show(document: ReplicaPlan, found: Explanation, shares: dict[str, float], traffic: Path | None) -> None:
    show(found.verdict, standing(document))
    if (said := disagreement(document)) is not None:
        show(f"note:    {said}")
    show(
        f"ceiling: with all windows added up, a balancedness of {found.ceiling:.4f} is possible at most, and "
        f"the plan's is {found.reached:.4f}; in single windows, which vary, it is "
        f"{document.balancedness.mean:.4f} in the mean"
    )
    if found.gain_over_eplb is not None:
        change = f"{abs(found.gain_over_eplb):.1%} {'less' if found.gain_over_eplb >= 0.0 else 'more'}"
        show(f"EPLB:    {found.measure} is {change} than under EPLB ({found.measured_on})")
    show(
        _moved(found),
        f"traffic: {shares['same_rank']:.1%} stays on its rank, {shares['same_node']:.1%} inside the node, "
        f"{shares['cross_node']:.1%} to other nodes",
        *_limits(found),
        _tightest(found),
    )
    if traffic is not None:
        show(f"traffic matrix: {traffic}")


def _moved(found: Explanation) -> str:
    from ..hardware.units import format_bytes, format_s

    moved = f"moved:   {found.moved_slots} of {found.slots} slots, from the {found.before} placement"
    if found.moved_bytes is None or found.moving_s is None:
        return moved
    moved += f": {format_bytes(found.moved_bytes)}, {format_s(found.moving_s)} over the busiest rank's link"
    if found.steps_to_repay is not None:
        moved += f", repaid after {found.steps_to_repay:.0f} steps"
    return moved


def _limits(found: Explanation) -> list[str]:
    """What limits how many layers, the most first."""
    from ..placement.replicas.explain import EVEN

    limits: dict[str, int] = {}
    for layer in found.layers:
        kind = layer.limit if layer.limit == EVEN else layer.limit.split(":")[0]
        limits[kind] = limits.get(kind, 0) + 1
    return [
        f"limit:   {number} of {len(found.layers)} layers "
        + ("have none: their ranks can carry equal loads" if kind == EVEN else f"by {kind}")
        for kind, number in sorted(limits.items(), key=lambda item: -item[1])
    ]


def _tightest(found: Explanation) -> Table:
    """The layers furthest from balance."""
    title = "balancedness with all windows added up, the lowest five"
    rows = (
        (
            layer.layer,
            f"{layer.reached:.4f}",
            f"{layer.ceiling:.4f}",
            f"{layer.hottest_expert} ({layer.hottest_share:.1%}, {layer.hottest_replicas} replicas)",
            layer.limit,
        )
        for layer in sorted(found.layers, key=lambda layer: layer.reached)[:5]
    )
    return table(("layer", "all windows", "at most", "hottest expert", "limited by"), rows, title=title)
