"""What every engine's file is made from, and what it must fit: a layout of slots, and a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput

if TYPE_CHECKING:
    from ...workload.model import MoEModel


@dataclass(frozen=True, eq=False)
class Layout:
    """Which logical expert every physical slot holds, in the planned MoE layers.

    - `physical_to_logical` int64 [L, R]: slot j belongs to rank j // (R / G).
    - `layers`: absolute ids of axis L; `experts`: E; `ranks`: G; `nodes`: N.

    Raises BadInput where shapes and numbers do not agree; the array is read-only. What an engine asks for
    beyond that is for the checks of the engine.
    """

    physical_to_logical: NDArray[np.int64]
    layers: tuple[int, ...]
    experts: int
    ranks: int
    nodes: int = 1

    def __post_init__(self) -> None:
        array = np.ascontiguousarray(self.physical_to_logical, dtype=np.int64).view()
        if array.ndim != 2 or 0 in array.shape or array.shape[0] != len(self.layers):
            raise BadInput(f"a layout needs [{len(self.layers)} layers, slots], not the shape {array.shape}")
        if list(self.layers) != sorted(set(self.layers)) or self.layers[0] < 0:
            raise BadInput(f"layer ids must be distinct, ascending and not negative: {list(self.layers)}")
        if self.ranks < 1 or array.shape[1] % self.ranks:
            raise BadInput(
                f"{array.shape[1]} slots do not divide among {self.ranks} ranks",
                fix="plan with the same number of slots on every rank",
            )
        array.flags.writeable = False
        object.__setattr__(self, "physical_to_logical", array)

    @property
    def slots(self) -> int:
        """R, physical slots of all ranks together."""
        return int(self.physical_to_logical.shape[1])

    @property
    def redundant(self) -> int:
        """Slots beyond one for every expert."""
        return self.slots - self.experts


@dataclass(frozen=True)
class Deployment:
    """The model as an engine serves it, on `ranks` expert-parallel ranks of `nodes` nodes.

    `layers` counts all hidden layers, `moe_layers` are the absolute ids of those with routed experts.
    `redundant` is the number of redundant experts that the engine is launched with, None where the file
    alone says it.
    """

    model: str
    layers: int
    moe_layers: tuple[int, ...]
    experts: int
    ranks: int
    nodes: int = 1
    redundant: int | None = None


class Planned(Protocol):
    """What a plan of the family `replicas` tells an exporter; see `placement.replicas.document`."""

    @property
    def physical_to_logical(self) -> Any:
        """[L][R] logical ids, rank by rank."""

    @property
    def layer_ids(self) -> Any:
        """[L] absolute layer ids."""

    @property
    def logical_experts(self) -> int:
        """E."""

    @property
    def ranks(self) -> int:
        """G."""

    @property
    def nodes(self) -> int:
        """N."""

    @property
    def slots_per_rank(self) -> Any:
        """[G] slots of every rank."""


def layout_of(plan: Planned) -> Layout:
    """Return the layout of a plan. Raises BadInput where ranks hold different numbers of slots."""
    sizes = sorted(set(plan.slots_per_rank))
    if len(sizes) > 1:
        raise BadInput(
            f"the plan's ranks hold {sizes[0]} to {sizes[-1]} slots",
            allowed="the same number on every rank: the engines split slots evenly",
            fix="plan without uneven slots",
        )
    return Layout(
        physical_to_logical=np.array(plan.physical_to_logical, dtype=np.int64),
        layers=tuple(plan.layer_ids),
        experts=plan.logical_experts,
        ranks=plan.ranks,
        nodes=plan.nodes,
    )


def deployment_of(layout: Layout, model: MoEModel | None) -> Deployment:
    """Return what the layout is deployed as; without a model, its layers are taken to be all MoE layers.

    Raises BadInput where the layout is not of the model.
    """
    if model is None:
        return Deployment(
            "", max(layout.layers) + 1, layout.layers, layout.experts, layout.ranks, layout.nodes, None
        )
    strangers = sorted(set(layout.layers) - set(model.moe_layers))
    if strangers or layout.experts != model.experts:
        raise BadInput(
            f"layer {strangers[0]} of the plan is no MoE layer of {model.name}"
            if strangers
            else f"the plan has {layout.experts} experts, {model.name} has {model.experts}",
            fix="name the model that was planned",
        )
    return Deployment(
        model.name,
        model.layers,
        model.moe_layers,
        model.experts,
        layout.ranks,
        layout.nodes,
        layout.redundant,
    )


def rows_of(layout: Layout, layers: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the rows of `layers` [len(layers), R]; those that were not planned get slot j -> j mod E.

    That is the layout that SGLang and vLLM start from by themselves.
    """
    rows = np.tile(np.arange(layout.slots, dtype=np.int64) % layout.experts, (len(layers), 1))
    place = {layer: row for row, layer in enumerate(layout.layers)}
    for row, layer in enumerate(layers):
        if layer in place:
            rows[row] = layout.physical_to_logical[place[layer]]
    return rows
