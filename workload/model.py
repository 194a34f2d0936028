"""Shapes of Mixture-of-Experts models: what there is to place, and what stays beside it.

Parameter counts are closed forms over the shapes. Norms, biases, attention sinks and positional
tables are left out (together below 0.1 % of every preset), and so are vision towers and
multi-token-prediction layers, which serving engines load separately.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from ..common.errors import BadInput, UsageError, did_you_mean
from ..common.files import fingerprint, read_text, require_file

_PRESETS: Final = Path(__file__).parent / "models"
_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deepseek-r1": "deepseek-v3",
        "deepseek-r1-0528": "deepseek-v3",
        "deepseek-v3-0324": "deepseek-v3",
        "deepseek-v2-lite-chat": "deepseek-v2-lite",
        "kimi-k2-instruct": "kimi-k2",
        "mixtral-8x7b-v0.1": "mixtral-8x7b",
        "mixtral-8x7b-instruct-v0.1": "mixtral-8x7b",
        "mixtral-8x22b-v0.1": "mixtral-8x22b",
        "olmoe-1b-7b-0924": "olmoe-1b-7b",
        "phi-mini-moe-instruct": "phi-mini-moe",
        "qwen3-next-80b-a3b-instruct": "qwen3-next-80b-a3b",
        "qwen3-next-80b-a3b-thinking": "qwen3-next-80b-a3b",
    }
)


@dataclass(frozen=True)
class Attention:
    """Attention shapes; all layer ids are absolute, a size of 0 means that the model has no such part.

    `kind` is "gqa" (grouped query attention; multi-head where `kv_heads == heads`) or "mla" (latent
    attention of DeepSeek-V2). `head_dim` is the width of a query or key head, `v_head_dim` of a value
    head. Of the layers, `linear_layers` run gated delta nets instead, `sliding_layers` see only the
    last `sliding_window` tokens, `index_layers` carry the indexer of DeepSeek sparse attention, and
    `cross_layers` of an encoder-decoder model attend to the encoder as well.
    """

    kind: Literal["gqa", "mla"]
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    output_gate: bool = False
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    sliding_window: int = 0
    sliding_layers: tuple[int, ...] = ()
    linear_layers: tuple[int, ...] = ()
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_width: int = 0
    index_layers: tuple[int, ...] = ()
    index_heads: int = 0
    index_head_dim: int = 0
    index_top_k: int = 0
    cross_layers: tuple[int, ...] = ()

    def params(self, layers: int, hidden_size: int) -> int:
        """Weights of all attention blocks of a model of `layers` layers."""
        softmax = self._mla_params(hidden_size) if self.kind == "mla" else self._gqa_params(hidden_size)
        return (
            (layers - len(self.linear_layers) + len(self.cross_layers)) * softmax
            + len(self.linear_layers) * self._linear_params(hidden_size)
            + len(self.index_layers) * self._index_params(hidden_size)
        )

    def _gqa_params(self, hidden_size: int) -> int:
        query = self.heads * self.head_dim * (2 if self.output_gate else 1)
        key_value = self.kv_heads * (self.head_dim + self.v_head_dim)
        return hidden_size * (query + key_value + self.heads * self.v_head_dim)

    def _mla_params(self, hidden_size: int) -> int:
        query_width = self.heads * self.head_dim
        query = (
            self.q_lora_rank * (hidden_size + query_width) if self.q_lora_rank else hidden_size * query_width
        )
        down = hidden_size * (self.kv_lora_rank + self.qk_rope_head_dim)
        up = self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)
        return query + down + up + self.heads * self.v_head_dim * hidden_size

    def _linear_params(self, hidden_size: int) -> int:
        key = self.linear_key_heads * self.linear_key_head_dim
        value = self.linear_value_heads * self.linear_value_head_dim
        into = 2 * key + 2 * value + 2 * self.linear_value_heads  # q, k, v, output gate; decay and beta
        return hidden_size * (into + value) + self.linear_conv_width * (2 * key + value)

    def _index_params(self, hidden_size: int) -> int:
        query = self.q_lora_rank * self.index_heads * self.index_head_dim
        return query + hidden_size * (self.index_head_dim + self.index_heads)


@dataclass(frozen=True)
class MoEModel:
    """One Mixture-of-Experts model.

    `layers` counts all layers (encoder layers first in an encoder-decoder model), `moe_layers` are
    the absolute ids of those with routed experts; the others are dense with an inner width of
    `dense_intermediate_size`. A feed-forward block has `expert_matrices` matrices (3: gate, up and
    down; 2: without gate). `shared_intermediate_size` is the width of one of `shared_experts`.
    `weight_bytes` is per weight of a routed expert (0.53125 for MXFP4: 4 bits and one scale byte per
    32), `other_weight_bytes` per weight of all else but the embeddings, which stay in the type of the
    activations (`activation_bytes`). `source` says where the shapes were read.
    """

    name: str
    layers: int
    moe_layers: tuple[int, ...]
    hidden_size: int
    expert_intermediate_size: int
    experts: int
    top_k: int
    shared_experts: int
    shared_intermediate_size: int
    expert_matrices: int
    dense_intermediate_size: int
    attention: Attention
    vocab_size: int
    tied_embeddings: bool
    weight_bytes: float
    other_weight_bytes: float
    activation_bytes: float
    source: str

    @property
    def expert_params(self) -> int:
        """Weights of one routed expert."""
        return self._ffn_params(self.expert_intermediate_size)

    @property
    def expert_bytes(self) -> float:
        """Bytes of one routed expert's weights."""
        return self.expert_params * self.weight_bytes

    @property
    def routed_params(self) -> int:
        """Weights of all routed experts of all MoE layers."""
        return len(self.moe_layers) * self.experts * self.expert_params

    @property
    def routed_bytes(self) -> float:
        """Bytes of all routed experts of all MoE layers."""
        return self.routed_params * self.weight_bytes

    @property
    def shared_params(self) -> int:
        """Weights of the shared experts of all MoE layers."""
        return len(self.moe_layers) * self.shared_experts * self._ffn_params(self.shared_intermediate_size)

    @property
    def dense_params(self) -> int:
        """Weights of the feed-forward blocks of the dense layers."""
        return (self.layers - len(self.moe_layers)) * self._ffn_params(self.dense_intermediate_size)

    @property
    def attention_params(self) -> int:
        """Weights of the attention blocks of all layers."""
        return self.attention.params(self.layers, self.hidden_size)

    @property
    def router_params(self) -> int:
        """Weights of the routers of all MoE layers."""
        return len(self.moe_layers) * self.hidden_size * self.experts

    @property
    def embedding_params(self) -> int:
        """Weights of input embedding and output head (once where they are tied)."""
        return (1 if self.tied_embeddings else 2) * self.vocab_size * self.hidden_size

    @property
    def other_params(self) -> int:
        """Weights of everything that is not a routed expert."""
        return self.embedding_params + self._body_params

    @property
    def other_bytes(self) -> float:
        """Bytes of everything that is not a routed expert."""
        return self.embedding_params * self.activation_bytes + self._body_params * self.other_weight_bytes

    @property
    def total_params(self) -> int:
        """Weights of the whole model."""
        return self.routed_params + self.other_params

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every field but the source's wording."""
        fields = dataclasses.asdict(self)
        del fields["source"]
        return fingerprint(fields)

    @property
    def _body_params(self) -> int:
        return self.attention_params + self.shared_params + self.dense_params + self.router_params

    def _ffn_params(self, intermediate_size: int) -> int:
        return self.expert_matrices * self.hidden_size * intermediate_size


def model_names() -> tuple[str, ...]:
    """Names of the presets, in alphabetical order."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.yaml")))


def model_yaml(name: str) -> str:
    """Return the text of a preset's file, to start one's own from. Raises UsageError for an unknown name."""
    preset = _ALIASES.get(name.lower(), name.lower())
    if preset not in model_names():
        raise UsageError(f"there is no preset {name!r}", fix=did_you_mean(name, [*model_names(), *_ALIASES]))
    return read_text(_PRESETS / f"{preset}.yaml", "preset")


def load_model(name_or_path: str | Path) -> MoEModel:
    """Load a preset by name, a YAML model file, or a Hugging Face config.json (or its folder).

    Names are not case-sensitive and may carry the organisation ("Qwen/Qwen3-30B-A3B"); a folder that
    is named like a preset is meant by "./name". Raises UsageError for an unknown name, BadInput for a
    missing or faulty file.
    """
    from .model_file import read_model_file
    from .readers.huggingface import read_config

    name, path = str(name_or_path).lower(), Path(name_or_path)
    if _ALIASES.get(name, name) in model_names():
        return read_model_file(_PRESETS / f"{_ALIASES.get(name, name)}.yaml")
    if path.is_dir():
        return read_config(path / "config.json")
    if path.suffix.lower() == ".json":
        return read_config(path)
    if path.suffix.lower() in {".yaml", ".yml"}:
        return read_model_file(path)
    if path.exists():
        require_file(path, "model file")
        raise BadInput(
            f"model file {str(path)!r} is neither YAML nor JSON",
            allowed="a .yaml model file, or a Hugging Face config.json",
            fix="give the file its right suffix",
        )
    if "/" in name:
        return load_model(name.rsplit("/", 1)[-1])
    raise UsageError(
        f"there is no model {str(name_or_path)!r}",
        allowed="a preset, a YAML model file, or a Hugging Face config.json",
        fix=did_you_mean(name, [*model_names(), *_ALIASES]),
    )
