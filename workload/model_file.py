"""The YAML form of a model: what a preset or a user's model file may say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ..common.errors import BadInput
from ..common.spec import Spec, parse, read_mapping, whole, within
from .model import Attention, MoEModel

#: More layers than any model has; a longer range is a slip, and would fill the memory.
MOST_LAYERS = 100_000


def expand_layers(value: Any) -> Any:
    """Expand "3-60", "1-23/2" (every second) or a list of such ranges and ids into a tuple of ids.

    Raises ValueError on text that is no range; anything else is left for pydantic to refuse.
    """
    parts = value if isinstance(value, list | tuple) else [value]
    layers: list[Any] = []
    for part in parts:
        layers.extend(_expand_range(part) if isinstance(part, str) else [part])
    return tuple(layers)


def _expand_range(text: str) -> range:
    bounds, _, step = text.partition("/")
    first, dash, last = bounds.partition("-")
    try:
        ids = range(int(first), int(last if dash else first) + 1, int(step or 1))
    except ValueError as error:
        raise ValueError(f'{text!r} is no layer range such as "3-60" or "1-23/2"') from error
    if not 0 < len(ids) <= MOST_LAYERS:
        raise ValueError(f"{text!r} holds {'no' if not ids else 'too many'} layers")
    return ids


# Far beyond any model; what is counted from them stays a number.
Layer = Annotated[int, whole(0, MOST_LAYERS - 1)]
Positive = Annotated[int, whole(1, 1_000_000)]
NotNegative = Annotated[int, whole(0, 1_000_000)]
Tokens = Annotated[int, whole(0, 1_000_000_000)]
Bytes = Annotated[float, within(0.01, 8)]
Layers = Annotated[tuple[Layer, ...], BeforeValidator(expand_layers)]


class AttentionSpec(Spec):
    """The `attention:` section; the fields are those of `Attention`."""

    kind: Literal["gqa", "mla"]
    heads: Positive
    kv_heads: NotNegative = 0
    head_dim: NotNegative = 0
    v_head_dim: NotNegative = 0
    output_gate: bool = False
    q_lora_rank: NotNegative = 0
    kv_lora_rank: NotNegative = 0
    qk_nope_head_dim: NotNegative = 0
    qk_rope_head_dim: NotNegative = 0
    sliding_window: Tokens = 0
    sliding_layers: Layers = ()
    linear_layers: Layers = ()
    linear_key_heads: NotNegative = 0
    linear_value_heads: NotNegative = 0
    linear_key_head_dim: NotNegative = 0
    linear_value_head_dim: NotNegative = 0
    linear_conv_width: NotNegative = 0
    index_layers: Layers = ()
    index_heads: NotNegative = 0
    index_head_dim: NotNegative = 0
    index_top_k: Tokens = 0
    cross_layers: Layers = ()

    @model_validator(mode="after")
    def _complete(self) -> AttentionSpec:
        needed = {
            "gqa": ("kv_heads", "head_dim"),
            "mla": ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        }[self.kind]
        parts = (
            ("linear_layers", ("linear_key_heads", "linear_value_heads", "linear_key_head_dim")),
            ("linear_layers", ("linear_value_head_dim", "linear_conv_width")),
            ("index_layers", ("index_heads", "index_head_dim", "index_top_k", "q_lora_rank")),
            ("sliding_layers", ("sliding_window",)),
        )
        for owner, keys in (("kind", needed), *parts):
            missing = [key for key in keys if not getattr(self, key)]
            if getattr(self, owner) and missing:
                raise ValueError(f"{missing[0]!r} is missing (needed by {owner!r})")
        return self


class ModelSpec(Spec):
    """A model file; the fields are those of `MoEModel`."""

    name: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    layers: Annotated[int, whole(1, MOST_LAYERS)]
    moe_layers: Layers
    hidden_size: Positive
    expert_intermediate_size: Positive
    experts: Annotated[int, whole(1, 32767)]
    top_k: Positive
    shared_experts: NotNegative = 0
    shared_intermediate_size: NotNegative = 0
    expert_matrices: Literal[2, 3] = 3
    dense_intermediate_size: NotNegative = 0
    attention: AttentionSpec
    vocab_size: Annotated[int, whole(1, 1_000_000_000)]
    tied_embeddings: bool = False
    weight_bytes: Bytes = 2.0
    other_weight_bytes: Bytes = 2.0
    activation_bytes: Bytes = 2.0

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is larger than the number of experts, {self.experts}")
        if not self.moe_layers:
            raise ValueError("moe_layers is empty: a model without routed experts has nothing to place")
        if len(self.moe_layers) < self.layers and not self.dense_intermediate_size:
            raise ValueError("'dense_intermediate_size' is missing (some layers have no routed experts)")
        if self.shared_experts and not self.shared_intermediate_size:
            raise ValueError("'shared_intermediate_size' is missing (needed by 'shared_experts')")
        attention = self.attention
        for key, ids in (
            ("moe_layers", self.moe_layers),
            ("attention.sliding_layers", attention.sliding_layers),
            ("attention.linear_layers", attention.linear_layers),
            ("attention.index_layers", attention.index_layers),
            ("attention.cross_layers", attention.cross_layers),
        ):
            _check_layers(key, ids, self.layers)
        return self


def _check_layers(key: str, ids: tuple[int, ...], layers: int) -> None:
    if any(layer >= layers for layer in ids):
        raise ValueError(f"{key} names layer {max(ids)}, but the model's last layer is {layers - 1}")
    if len(set(ids)) < len(ids):
        raise ValueError(f"{key} names a layer twice")


def build_model(data: dict[str, Any], where: str) -> MoEModel:
    """Validate the keys of a model file and build the model. Raises BadInput naming `where` and keys."""
    spec = parse(ModelSpec, data, where)
    fields = spec.model_dump(exclude={"attention"})
    attention = spec.attention.model_dump()
    if spec.attention.kind == "mla":
        attention["kv_heads"] = spec.attention.heads
        attention["head_dim"] = spec.attention.qk_nope_head_dim + spec.attention.qk_rope_head_dim
    else:
        attention["v_head_dim"] = spec.attention.v_head_dim or spec.attention.head_dim
    for group in (fields, attention):
        for key, value in group.items():
            group[key] = tuple(sorted(value)) if isinstance(value, tuple) else value
    return MoEModel(**fields, attention=Attention(**attention))


def read_model_file(path: str | Path) -> MoEModel:
    """Read a YAML model file. Raises BadInput where it is missing, is no YAML, or has faulty keys."""
    data = read_mapping(path, "model file")
    if "model_type" in data:
        raise BadInput(
            f"model file {str(path)!r} looks like a Hugging Face configuration",
            fix="give it the suffix .json",
        )
    return build_model(data, f"model file {str(path)!r}")
