"""Ranks and the placement that is there, from the options of `moeplan plan` on a GPU cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.errors import BadInput, UsageError
from .options import NumberT, is_given, parse_numbers

if TYPE_CHECKING:
    import numpy as np
    import typer
    from numpy.typing import NDArray

    from ..placement.replicas.ranks import Ranks


def refuse_with_counts(context: typer.Context, split: str) -> None:
    """Refuse what counts would silently ignore: they know no requests, and their windows are the steps."""
    for name in ("batch", "steps", "split"):
        if not is_given(context, name) or (name == "split" and split == "time"):
            continue
        fix = "counts are split by time" if name == "split" else "leave it out"
        raise UsageError(f"--{name} says nothing about counts", where=f"--{name}", fix=fix)


def ranks_from(
    slots_per_rank: str | None, slots: int | None, speeds: str | None, *, experts: int, nodes: int, ranks: int
) -> Ranks:
    """Return ranks with as many slots each (default: one an expert), or with those of a list.

    Raises UsageError where a list has another length, or the numbers do not divide.
    """
    from ..placement.replicas.ranks import Ranks, even_ranks

    speed = _one_a_rank(speeds, "--speeds", ranks, float) if speeds is not None else []
    if slots_per_rank is not None:
        room = _one_a_rank(slots_per_rank, "--slots-per-rank", ranks, int)
        built = Ranks(nodes, tuple(room), tuple(speed))
        if slots not in (None, built.slots):
            raise UsageError(f"--slots says {slots}, --slots-per-rank {built.slots}", fix="give one")
        return built
    return even_ranks(nodes, ranks, slots or experts, speed)


def placement_from(
    path: Path | None, layers: tuple[int, ...], experts: int, ranks: Ranks
) -> NDArray[np.int64] | None:
    """Read the placement that is there: a plan of replicas, or an array of slots [L, R] (.npy).

    Of a plan the rows of the planned layers are taken, by their ids. Raises BadInput where they are not
    there, or on other ranks.
    """
    if path is None:
        return None
    import numpy as np

    from ..placement.plan import read_plan
    from ..placement.replicas.document import ReplicaPlan
    from ..workload.readers.numpy_file import read_array

    if path.suffix == ".npy":
        slots = read_array(path)
        if slots.ndim != 2 or slots.dtype.kind not in "iu":
            raise BadInput(
                f"{str(path)!r} holds no placement",
                allowed="whole numbers [layers, slots]",
                where="--current",
                fix="save the expert of every slot with numpy.save, or name a plan",
            )
        return slots.astype(np.int64)
    plan = read_plan(path)
    if not isinstance(plan, ReplicaPlan):
        raise BadInput(f"{str(path)!r} is a plan of {plan.family}", allowed="a plan of replicas")
    missing = sorted(set(layers) - set(plan.layer_ids))
    if missing:
        raise BadInput(
            f"the current placement has no layer {missing[0]}", where=str(path), fix="plan with --layers"
        )
    if (plan.slots_per_rank, plan.logical_experts) != (ranks.room, experts):
        raise BadInput(
            f"there are {plan.logical_experts} experts on {sum(plan.slots_per_rank)} slots of "
            f"{plan.ranks} ranks",
            where=str(path),
            allowed=f"{experts} experts on {ranks.slots} slots of {ranks.ranks} ranks, as many on each",
            fix="give the ranks and slots of the current placement, or plan without it",
        )
    rows = [plan.layer_ids.index(layer) for layer in layers]
    return np.array(plan.physical_to_logical, dtype=np.int64)[rows]


def _one_a_rank(text: str, option: str, ranks: int, read: Callable[[str], NumberT]) -> list[NumberT]:
    values = parse_numbers(text, option, read, "9,9,8,8")
    if len(values) != ranks:
        raise UsageError(f"{len(values)} numbers are given for {ranks} ranks", where=option, fix="one a rank")
    return values
