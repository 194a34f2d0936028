"""MoE shapes out of a Hugging Face `config.json`.

Key names are those of the model classes in huggingface/transformers; where a class fills in a
missing key with a default of its own, the same default is used here and named beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from ...common.errors import BadInput
from ...common.spec import read_mapping
from ..model import MoEModel
from ..model_file import MOST_LAYERS, build_model


@dataclass(frozen=True)
class _Family:
    """Where a family of configurations keeps its MoE shapes."""

    experts: str
    width: str
    shared: Literal["none", "count", "width"] = "none"  # shared experts by number, or one by its width


_QWEN: Final = _Family("num_experts", "moe_intermediate_size")
_QWEN_SHARED: Final = _Family("num_experts", "moe_intermediate_size", "width")
_DEEPSEEK: Final = _Family("n_routed_experts", "moe_intermediate_size", "count")
_MIXTRAL: Final = _Family("num_local_experts", "intermediate_size")
_FAMILIES: Final[Mapping[str, _Family]] = MappingProxyType(
    {
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
        "deepseek_v32": _DEEPSEEK,
        "glm4_moe": _DEEPSEEK,
        "glm_moe_dsa": _DEEPSEEK,
        "gpt_oss": _MIXTRAL,
        "kimi_k2": _DEEPSEEK,
        "mixtral": _MIXTRAL,
        "olmoe": _Family("num_experts", "intermediate_size"),
        "phimoe": _MIXTRAL,
        "qwen2_moe": _QWEN_SHARED,
        "qwen3_moe": _QWEN,
        "qwen3_next": _QWEN_SHARED,
        "qwen3_5_moe": _QWEN_SHARED,
        "qwen3_vl_moe": _QWEN,
    }
)
#: More than any whole number of a configuration; ranges of layers are listed, so they end much earlier.
_MOST: Final = 1_000_000_000
_SWITCH: Final = "switch_transformers"
_TYPE_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "float8_e4m3fn": 1.0}
)
_MXFP4_BYTES: Final = (4 + 8 / 32) / 8  # 4 bits per weight and one scale byte per block of 32


class _Config:
    """The keys of one configuration; every complaint names the file and the key."""

    def __init__(self, keys: Mapping[str, Any], where: str) -> None:
        self.keys = keys
        self.where = where

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.keys.get(key)
        if value is None:
            value = default
        if value is None:
            raise BadInput(
                f"{self.where}: key {key!r} is missing",
                fix="use the complete config.json of the checkpoint, or write a YAML model file",
            )
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInput(f"{self.where}: key {key!r} must be a whole number, not {value!r}")
        most = MOST_LAYERS if "layers" in key else _MOST
        if not 0 <= value <= most:
            raise BadInput(
                f"{self.where}: key {key!r} is out of range",
                allowed=f"whole numbers from 0 to {most}",
                fix="use the config.json of the checkpoint as it is",
            )
        return value

    def items(self, key: str) -> list[Any]:
        value = self.keys.get(key)
        if value is not None and not isinstance(value, list):
            raise BadInput(f"{self.where}: key {key!r} must be a list, not {value!r}")
        return value or []

    def per_layer(self, key: str, layers: int) -> list[Any]:
        values = self.items(key)
        if values and len(values) < layers:
            raise BadInput(f"{self.where}: key {key!r} has {len(values)} entries for {layers} layers")
        return values[:layers]


def read_config(path: str | Path) -> MoEModel:
    """Read a `config.json`, also one whose language model is nested under `text_config`.

    The model is named after the folder of a file called config.json, otherwise after the file.
    Raises BadInput where the file is missing or no JSON, the family is unknown, or a key is missing.
    """
    path = Path(path)
    data = read_mapping(path, "model configuration")
    nested = data.get("text_config")
    keys = {**data, **nested} if isinstance(nested, dict) else data
    family = str(keys.get("model_type", "")).removesuffix("_text")
    if family not in _FAMILIES and family != _SWITCH:
        raise BadInput(
            f"model configuration {str(path)!r}: model_type {family!r} is no known MoE family"
            if family
            else f"model configuration {str(path)!r}: key 'model_type' is missing",
            allowed=", ".join([*_FAMILIES, _SWITCH]),
            fix="write a YAML model file (start from one that ships with moeplan)",
        )
    where = f"model configuration {str(path)!r} ({family})"
    config = _Config(keys, where)
    try:
        fields = _switch(config) if family == _SWITCH else _decoder(config, family)
    except (ArithmeticError, TypeError, ValueError, LookupError) as error:
        raise BadInput(
            f"{where}: its shapes cannot be understood ({error})",
            fix="use the complete config.json of the checkpoint, or write a YAML model file",
        ) from error
    stem = path.resolve().parent.name if path.name == "config.json" else path.stem
    named = {"name": stem.lower() or family, "source": f"Hugging Face {path.name} ({family})"}
    return build_model({**named, **fields, **_number_types(config, family)}, where)


def _decoder(config: _Config, family: str) -> dict[str, Any]:
    """Shapes of a decoder-only model, as keys of a model file."""
    shapes = _FAMILIES[family]
    layers = config.integer("num_hidden_layers")
    moe_layers = _moe_layers(config, layers)
    width = config.integer(shapes.width)
    fields: dict[str, Any] = {
        "layers": layers,
        "moe_layers": moe_layers,
        "hidden_size": config.integer("hidden_size"),
        "expert_intermediate_size": width,
        "experts": config.integer(shapes.experts),
        "top_k": config.integer("num_experts_per_tok"),
        "dense_intermediate_size": config.integer("intermediate_size") if len(moe_layers) < layers else 0,
        "attention": _attention(config, family, layers),
        "vocab_size": config.integer("vocab_size"),
        "tied_embeddings": bool(config.keys.get("tie_word_embeddings", False)),
    }
    if shapes.shared == "count":
        fields |= {"shared_experts": config.integer("n_shared_experts", 0), "shared_intermediate_size": width}
    elif shapes.shared == "width":
        shared = config.integer("shared_expert_intermediate_size")
        fields |= {"shared_experts": int(shared > 0), "shared_intermediate_size": shared}
    return fields


def _moe_layers(config: _Config, layers: int) -> list[int]:
    """Absolute ids of the layers with routed experts, by whichever keys the family has."""
    types = config.per_layer("mlp_layer_types", layers)
    if types:
        return [layer for layer, kind in enumerate(types) if kind == "sparse"]
    flags = config.keys.get("moe_layer_freq")
    if isinstance(flags, list):
        return [layer for layer, flag in enumerate(config.per_layer("moe_layer_freq", layers)) if flag]
    first = config.integer("first_k_dense_replace", 0)
    frequency = max(1, config.integer("moe_layer_freq", 1))
    step = max(1, config.integer("decoder_sparse_step", 1))
    dense = set(config.items("mlp_only_layers"))
    return [
        layer
        for layer in range(first, layers)
        if layer % frequency == 0 and (layer + 1) % step == 0 and layer not in dense
    ]


def _attention(config: _Config, family: str, layers: int) -> dict[str, Any]:
    heads = config.integer("num_attention_heads")
    types = config.per_layer("layer_types", layers)
    if config.keys.get("kv_lora_rank") is not None:
        return {"kind": "mla", "heads": heads, **_latent(config, layers)}
    attention: dict[str, Any] = {
        "kind": "gqa",
        "heads": heads,
        "kv_heads": config.integer("num_key_value_heads", heads),
        "head_dim": config.integer("head_dim", config.integer("hidden_size") // heads),
    }
    if family in {"qwen3_next", "qwen3_5_moe"}:
        attention |= {"output_gate": bool(config.keys.get("attn_output_gate", True))}
        attention |= _linear(config, types, layers)
    return attention | _sliding(config, family, types, layers)


def _latent(config: _Config, layers: int) -> dict[str, Any]:
    ranks = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    latent: dict[str, Any] = {key: config.integer(key) for key in ranks}
    latent["q_lora_rank"] = config.integer("q_lora_rank", 0)
    if "index_topk" in config.keys:
        types = config.per_layer("indexer_types", layers)
        latent |= {
            "index_layers": [layer for layer in range(layers) if not types or types[layer] == "full"],
            "index_heads": config.integer("index_n_heads"),
            "index_head_dim": config.integer("index_head_dim"),
            "index_top_k": config.integer("index_topk"),
        }
    return latent


def _linear(config: _Config, types: list[Any], layers: int) -> dict[str, Any]:
    interval = config.integer("full_attention_interval", 4)  # default of Qwen3NextConfig
    linear = [
        layer
        for layer in range(layers)
        if (types[layer] == "linear_attention" if types else (layer + 1) % interval)
    ]
    return {
        "linear_layers": linear,
        "linear_key_heads": config.integer("linear_num_key_heads"),
        "linear_value_heads": config.integer("linear_num_value_heads"),
        "linear_key_head_dim": config.integer("linear_key_head_dim"),
        "linear_value_head_dim": config.integer("linear_value_head_dim"),
        "linear_conv_width": config.integer("linear_conv_kernel_dim", 4),  # default of Qwen3NextConfig
    }


def _sliding(config: _Config, family: str, types: list[Any], layers: int) -> dict[str, Any]:
    """Layers with a sliding window: by `layer_types`, or all where the window is shorter than the context."""
    window = config.integer("sliding_window", 128 if family == "gpt_oss" else 0)  # default of GptOssConfig
    if types:
        sliding = [layer for layer, kind in enumerate(types) if kind == "sliding_attention"]
    elif family == "gpt_oss":
        sliding = list(range(0, layers, 2))  # default of GptOssConfig: every second layer
    else:
        used = bool(config.keys.get("use_sliding_window", True)) and window
        sliding = list(range(layers)) if used and window < config.integer("max_position_embeddings") else []
    return {"sliding_window": window, "sliding_layers": sliding} if sliding else {}


def _switch(config: _Config) -> dict[str, Any]:
    """Shapes of Switch Transformers: encoder layers first, both stacks sparse at every n-th layer."""
    encoder = config.integer("num_layers")
    decoder = config.integer("num_decoder_layers", encoder)
    heads = config.integer("num_heads")
    width = config.integer("d_ff")
    sparse = [
        *_switch_stack(encoder, config.integer("num_sparse_encoder_layers")),
        *(encoder + i for i in _switch_stack(decoder, config.integer("num_sparse_decoder_layers"))),
    ]
    return {
        "layers": encoder + decoder,
        "moe_layers": sparse,
        "hidden_size": config.integer("d_model"),
        "expert_intermediate_size": width,
        "experts": config.integer("num_experts"),
        "top_k": 1,
        "expert_matrices": 2,
        "dense_intermediate_size": width,
        "attention": {
            "kind": "gqa",
            "heads": heads,
            "kv_heads": heads,
            "head_dim": config.integer("d_kv"),
            "cross_layers": list(range(encoder, encoder + decoder)),
        },
        "vocab_size": config.integer("vocab_size"),
        "tied_embeddings": bool(config.keys.get("tie_word_embeddings", True)),
    }


def _switch_stack(layers: int, sparse: int) -> list[int]:
    """Sparse layers of one stack: with a step of n, layer i is sparse where i mod n is 1."""
    step = layers // sparse if sparse else 0
    return [layer for layer in range(layers) if step == 1 or (step and layer % step == 1)]


def _number_types(config: _Config, family: str) -> dict[str, float]:
    """Bytes per weight, from the quantisation and the data type of the checkpoint."""
    name = str(config.keys.get("torch_dtype") or config.keys.get("dtype") or "bfloat16")
    if name not in _TYPE_BYTES:
        raise BadInput(
            f"{config.where}: data type {name!r} is not known",
            allowed=", ".join(_TYPE_BYTES),
            fix="correct the key 'torch_dtype'",
        )
    plain = _TYPE_BYTES[name]
    quantization = config.keys.get("quantization_config") or {}
    method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
    if method == "mxfp4":  # experts only
        return {"weight_bytes": _MXFP4_BYTES, "other_weight_bytes": plain, "activation_bytes": plain}
    if method == "fp8":  # every linear layer; block scales (below 0.03 %) are not counted
        return {"weight_bytes": 1.0, "other_weight_bytes": 1.0, "activation_bytes": plain}
    if method is not None:
        raise BadInput(
            f"{config.where}: quantization {method!r} is not known",
            where="key 'quantization_config.quant_method'",
            allowed="fp8, mxfp4, or no quantization_config",
            fix="write a YAML model file with 'weight_bytes' and 'other_weight_bytes'",
        )
    return {"weight_bytes": plain, "other_weight_bytes": plain, "activation_bytes": plain}
