"""The operator stages of a transformer layer on SPIMOE, in the order of the dataflow (SPIMOE 3.3.2).

The paper counts 17 operator stages that alternate over both kinds of PIM, and five communication phases
between them, and names the phases; the names and the cut of the stages are ours. Attention runs on SRAM-PIM,
projections and experts on HBM-PIM.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Substrate(StrEnum):
    """Where a stage runs."""

    SRAM = "SRAM-PIM"
    HBM = "HBM-PIM"
    NOC = "NoC"


class Side(StrEnum):
    """What the pipeline of sub-batches overlaps (SPIMOE eq. 6).

    From the output projection of a layer to the query, key and value projection of the next, the work of a
    sub-batch is on HBM-PIM, with short stages on SRAM-PIM between; all of that is the side of the experts.
    """

    ATTENTION = "attention"
    MOE = "moe"


class Stage(NamedTuple):
    """One stage."""

    name: str
    substrate: Substrate
    side: Side
    does: str


_SRAM, _HBM, _NOC = Substrate.SRAM, Substrate.HBM, Substrate.NOC
_ATTENTION, _MOE = Side.ATTENTION, Side.MOE

STAGES: Final = (
    Stage("input_norm", _SRAM, _MOE, "norm of the hidden state, on every token's home core"),
    Stage("qkv_projection", _HBM, _MOE, "query, key and value, weights spread over all channels"),
    Stage("kv_all_gather", _NOC, _ATTENTION, "new queries, keys and values to the cores of the cache"),
    Stage("rotary", _SRAM, _ATTENTION, "rotary embedding of queries and keys"),
    Stage("kv_append", _SRAM, _ATTENTION, "transposed key, and value, into the cache"),
    Stage("block_scores", _SRAM, _ATTENTION, "query against the mean key of every chunk"),
    Stage("block_top_k", _SRAM, _ATTENTION, "choice of chunks"),
    Stage("attention_scores", _SRAM, _ATTENTION, "query against the visible keys"),
    Stage("softmax", _SRAM, _ATTENTION, "weights of the visible tokens"),
    Stage("attention_values", _SRAM, _ATTENTION, "weighted sum of the visible values"),
    Stage("attention_all_gather", _NOC, _MOE, "attention's results to all channels"),
    Stage("output_projection", _HBM, _MOE, "output of attention, weights spread over all channels"),
    Stage("residual_norm", _SRAM, _MOE, "residual and norm, on the home core"),
    Stage("router", _HBM, _MOE, "scores of all experts, on the home's channels"),
    Stage("expert_top_k", _SRAM, _MOE, "weights and choice of experts, with pruning"),
    Stage("dispatch", _NOC, _MOE, "activations to the channels of the chosen experts"),
    Stage("ffn1", _HBM, _MOE, "gate and up of the busiest channel"),
    Stage("expert_activation", _SRAM, _MOE, "activation function of the busiest channel"),
    Stage(
        "tp_communication", _NOC, _MOE, "all-gather before, or all-reduce after FFN2 in groups of channels"
    ),
    Stage("ffn2", _HBM, _MOE, "down of the busiest channel"),
    Stage("output_gather", _NOC, _MOE, "results over the experts' first cores, and home"),
    Stage("combine", _SRAM, _MOE, "weighted sum of the experts, and residual"),
)
"""All stages and phases in order."""

OPERATORS: Final = tuple(stage.name for stage in STAGES if stage.substrate is not Substrate.NOC)
"""The 17 operator stages."""

PHASES: Final = tuple(stage.name for stage in STAGES if stage.substrate is Substrate.NOC)
"""The five communication phases."""
