"""A comparison as one page: standings with their intervals, performance profiles, curves, every cell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from ..report.scales import percent, plain
from ..report.sheet import Column, Section, Table, render_sheet
from ..report.svg import figure, lines, tag, text
from .statistics import OURS, PROFILE_AT, behind, profiles, rows, shown, standings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .best_known import BestKnown
    from .cell import Finished
    from .statistics import Row, Standing

_WIDTH = 900.0
_COLOURS = 8


def render(cells: Sequence[Finished], known: Mapping[str, BestKnown], suite: str) -> str:
    """Return the page of a comparison. Cells without a score are listed with their reason."""
    ranked, standing = rows(cells, known), standings(cells)
    shares = profiles(cells)
    families = list(dict.fromkeys(row.family for row in standing))
    lead = f"{len(cells)} cells on {len({cell.cell.instance for cell in cells})} instances. " + (
        "; ".join(behind(ranked)) + "." if behind(ranked) else f"{OURS} is first or tied everywhere."
    )
    sections = [
        Section(
            "Standing",
            "Score over the best score of each instance, geometric mean over the instances of a family; the "
            "score is the time on held-out traffic where an instance has any, else on its own. Bars: 95 % "
            "bootstrap interval over seeds.",
            tuple(
                _standing_chart(family, [s for s in standing if s.family == family]) for family in families
            ),
            _standing_table(standing),
        ),
        Section(
            "Performance profiles",
            "Share of the instances on which a solver's score is within a factor of the best.",
            tuple(_profile_chart(family, shares[family]) for family in families),
        ),
        Section(
            "Instances",
            "Best score first. Gaps are of the objective, against the strongest bound that any proved.",
            table=_instance_table(ranked),
        ),
    ]
    without = [cell for cell in cells if cell.outcome.status != "ok"]
    if without:
        sections.append(Section("Cells without a score", table=_reasons(without)))
    return render_sheet("comparison of solvers", f"Solvers beside each other: {suite}", lead, sections)


def _standing_table(standing: Sequence[Standing]) -> Table:
    head = (
        Column("solver"), Column("family", words=True), Column("instances"), Column("score / best"),
        Column("low"), Column("high"),
    )  # fmt: skip
    return Table(
        head,
        tuple(
            (
                s.solver == OURS,
                (s.solver, s.family, str(s.instances), *(f"{v:.4f}" for v in (s.ratio, s.low, s.high))),
            )
            for s in standing
        ),
    )


def _instance_table(ranked: Sequence[Row]) -> Table:
    head = (
        Column("instance"), Column("solver", words=True), Column("seeds"), Column("total"),
        Column("held-out"), Column("over first"), Column("over best known"), Column("gap"), Column("s"),
    )  # fmt: skip

    def cells(row: Row) -> tuple[str, ...]:
        return (
            row.instance, row.solver, str(row.seeds), shown(row.instance, row.total_s, mu=True),
            "-" if row.held_out_s is None else shown(row.instance, row.held_out_s, mu=True),
            f"{row.over_first:.2%}", f"{row.over_best:.2%}", f"{row.gap:.2%}", f"{row.elapsed_s:.3f}",
        )  # fmt: skip

    return Table(head, tuple((row.solver == OURS, cells(row)) for row in ranked))


def _reasons(cells: Sequence[Finished]) -> Table:
    head = (
        Column("instance"), Column("solver", words=True), Column("seed"), Column("status", words=True),
        Column("reason", words=True),
    )  # fmt: skip
    return Table(
        head,
        tuple(
            (
                False,
                (c.cell.instance, c.cell.solver, str(c.cell.seed), c.outcome.status, c.outcome.reason),
            )
            for c in cells
        ),
    )


def _standing_chart(family: str, standing: Sequence[Standing]) -> Markup:
    """Draw how far every solver is from the best, on a scale of log(1 + excess)."""
    label, row, top = 190.0, 26.0, 24.0
    most = max(s.high for s in standing) - 1.0

    def at(ratio: float) -> float:
        share = math.log1p(100 * max(ratio - 1.0, 0.0)) / math.log1p(100 * max(most, 0.01))
        return label + (_WIDTH - label - 90) * share

    shapes = [text(0, 12, family, "strong")]
    for index, s in enumerate(standing):
        y = top + index * row
        shapes.append(text(label - 12, y + 14, s.solver, "label", "end"))
        shapes.append(lines([(at(s.low), y + 10, at(s.high), y + 10)], "axis", 2.0))
        mark = tag("title", f"{s.solver}: {s.ratio:.4f}, {s.low:.4f} to {s.high:.4f}")
        shapes.append(
            tag("circle", mark, cx=at(s.ratio), cy=y + 10, r=5, class_="own" if s.solver == OURS else "other")
        )
        shapes.append(text(at(s.high) + 12, y + 14, f"+{percent(s.ratio - 1.0)}", "tick"))
    said = "; ".join(f"{s.solver} {s.ratio:.4f}" for s in standing)
    size = (_WIDTH, top + row * len(standing))
    return figure(f"standing-{family}", f"Standing in {family}", said, size, *shapes)


def _profile_chart(family: str, shares: Mapping[str, Sequence[float]]) -> Markup:
    """Draw the share of instances within each factor of the best, one step line a solver."""
    left, top, height, right = 64.0, 30.0, 190.0, 170.0
    width = _WIDTH - left - right
    pitch = width / len(PROFILE_AT)
    shapes = [text(0, 12, family, "strong")]
    marks = (0.0, 0.25, 0.5, 0.75, 1.0)
    shapes.append(
        lines([(left, top + height * (1 - m), left + width, top + height * (1 - m)) for m in marks], "rule")
    )
    shapes += [text(left - 10, top + height * (1 - m) + 4, f"{m:.0%}", "tick", "end") for m in marks]
    for index, ratio in enumerate(PROFILE_AT):
        shapes.append(
            text(left + (index + 0.5) * pitch, top + height + 18, f"{plain(ratio)}x", "tick", "middle")
        )
    for index, (solver, share) in enumerate(shares.items()):
        # A little apart, so that equal lines do not hide each other.
        y = [top + height * (1 - s) + 1.5 * (index - len(shares) / 2) for s in share]
        outline = f"M{left:.1f} {y[0]:.1f}" + "".join(
            f"V{value:.1f}H{left + (i + 1) * pitch:.1f}" for i, value in enumerate(y)
        )
        colour = f"stroke:var(--p{index % _COLOURS})"
        dashes = "" if index < _COLOURS else ";stroke-dasharray:5 3"
        shapes.append(
            tag("path", tag("title", solver), d=outline, style=f"fill:none;stroke-width:2;{colour}{dashes}")
        )
        key = top + 16.0 * index
        shapes.append(
            tag("rect", x=left + width + 20, y=key, width=12, height=12, class_=f"p{index % _COLOURS}")
        )
        shapes.append(text(left + width + 38, key + 11, solver, "tick"))
    said = "; ".join(f"{solver} best on {share[0]:.0%}" for solver, share in shares.items())
    tall = max(top + height + 26, top + 16.0 * len(shares) + 4)
    return figure(f"profile-{family}", f"Performance profile of {family}", said, (_WIDTH, tall), *shapes)
