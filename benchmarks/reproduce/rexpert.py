"""ReXpert: tables from arithmetic, tables from fitted routing, and the placement tables IX and X."""

from __future__ import annotations

from collections.abc import Iterator

from ...workload.calibrate import compare
from ...workload.model import load_model
from ...workload.routing_presets import preset_targets, routing_preset
from .. import pooling, rexpert_routed, rexpert_tables
from ..rexpert_row import Row as Figure
from .rows import Row

_FITTED = ("qwen3.5-35b-a3b", "qwen3.5-397b-a17b")
_FRESH_SEED = 4001
_CANNOT = (
    (
        "table II and VI, the traces",
        "recorded by the authors and not public; their moments are fitted instead",
    ),
    ("table IX, load-aware fetch at depth 16", "2.45 rounds are fewer than the hottest expert alone takes"),
)


def collect() -> Iterator[Row]:
    """Yield the rows: arithmetic first, then what routing decides."""
    for figure in rexpert_tables.rows():
        yield _row(figure, "")
    for figure in rexpert_routed.routed_rows():
        yield _row(figure, "the routing is drawn from parameters fitted to published moments")
    yield from _moments()
    yield from _placements()
    for item, why in _CANNOT:
        yield Row("rexpert", item, None, None, why)


def _row(figure: Figure, note: str) -> Row:
    ours = figure.ours if figure.decimals is None else round(figure.ours, figure.decimals)
    why = "; ".join(part for part in (figure.unit, figure.note, note) if part)
    return Row("rexpert", f"{figure.table}, {figure.name}", figure.published, ours, why)


def _moments() -> Iterator[Row]:
    """Moments of tables II and VI, of generators that were fitted to them, on a seed that no fit used."""
    for model in _FITTED:
        spec = preset_targets(model)
        published = [target for target in spec.targets(model) if "ReXpert" in (target.source or spec.source)]
        found = compare(
            load_model(model), routing_preset(model), published, steps=spec.steps, seeds=(_FRESH_SEED,)
        )
        for comparison in found:
            target = comparison.target
            sliced = f" of {target.tokens} tokens" if target.tokens else ""
            item = f"tables II and VI, {model}, batch {target.batch}: {target.name}{sliced}"
            yield Row("rexpert", item, target.value, comparison.mean, "the generator was fitted to it")


def _placements() -> Iterator[Row]:
    loads = {
        name: pooling.drawn_steps(load_model(name), batch=batch, steps=pooling.STEPS, seed=pooling.SEED)
        for name, batch in pooling.SYSTEMS
    }
    why = {"contiguous": "experts in order", "lpt": "LPT on each layer's own profile"}
    for entry in pooling.table_ix(loads):
        yield Row("rexpert", f"table IX, {entry.name}", entry.published, entry.ours)
    for placement in ("contiguous", "lpt"):
        for entry in pooling.table_x(placement, loads):
            note = f"{why[placement]}; the paper does not say under which placement it took the table"
            yield Row("rexpert", f"table X, {placement}, {entry.name}", entry.published, entry.ours, note)
