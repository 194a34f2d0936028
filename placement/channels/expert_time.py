"""PIM seconds of one token on the shards of an expert: how matrices are split over sites and banks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.model import MoEModel

Mode = Literal["auto", "row", "col"]
LayoutName = Literal["rows", "best"]


def is_row_mode(model: MoEModel, mode: Mode) -> bool:
    """Tell whether FFN2 is split by inputs; `auto`: where d_moe >= d (SPIMOE 3.3.2)."""
    return mode == "row" or (mode == "auto" and model.expert_intermediate_size >= model.hidden_size)


def product_s(
    platform: Platform,
    outputs: int,
    inputs: int,
    *,
    weight_bytes: float,
    activation_bytes: float,
    layout: LayoutName,
    sites: int = 1,
) -> float:
    """Return the time of one token on a matrix that lies over the channels of so many sites.

    `rows`: whole outputs per bank; `best`: the fastest split of the inputs over banks.
    """
    pim = platform.pim
    assert pim is not None
    splits = [1] if layout == "rows" else [k for k in range(1, pim.banks + 1) if pim.banks % k == 0]
    return min(
        pim.gemv_s(
            outputs,
            inputs,
            weight_bytes=weight_bytes,
            activation_bytes=activation_bytes,
            groups=sites * platform.site_pseudo_channels,
            k_banks=k_banks,
        )
        for k_banks in splits
    )


def shard_s(
    model: MoEModel, platform: Platform, factor: int, mode: Mode, layout: LayoutName
) -> tuple[float, float]:
    """Return FFN1's and FFN2's time of one token on every site of a group of `factor` sites.

    Shapes of a shard: SPIMOE 3.3.2. FFN1 is every matrix of an expert but the last.
    """
    hidden, inner = model.hidden_size, model.expert_intermediate_size
    shard = -(-inner // factor)
    down = (hidden, shard) if is_row_mode(model, mode) else (-(-hidden // factor), inner)
    up_s, down_s = (
        product_s(
            platform,
            *shape,
            weight_bytes=model.weight_bytes,
            activation_bytes=model.activation_bytes,
            layout=layout,
        )
        for shape in ((shard, hidden), down)
    )
    return (model.expert_matrices - 1) * up_s, down_s
