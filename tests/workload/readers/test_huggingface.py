import dataclasses
import json

import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.model import load_model

# The keys that matter of the published configurations.
CONFIGS = {
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
        "sliding_window": None, "vocab_size": 32000, "torch_dtype": "bfloat16",
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
        "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "vocab_size": 151936, "use_sliding_window": False, "sliding_window": None,
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "num_experts": 512, "num_experts_per_tok": 10,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 151936,
    },
    "qwen3.5-35b-a3b": {
        "model_type": "qwen3_5_moe", "tie_word_embeddings": False, "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_attention_heads": 16,
            "num_key_value_heads": 2, "head_dim": 256, "num_experts": 256, "num_experts_per_tok": 8,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10, "attn_output_gate": True,
            "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320,
        },
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
        "num_experts_per_tok": 4, "vocab_size": 201088, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
        "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "kimi-k2": {
        "model_type": "kimi_k25",
        "text_config": {
            "model_type": "kimi_k2", "hidden_size": 7168, "intermediate_size": 18432,
            "num_hidden_layers": 61, "moe_intermediate_size": 2048, "n_routed_experts": 384,
            "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
            "num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840,
            "quantization_config": {"quant_method": "fp8"},
        },
    },
    "glm-5.2": {
        "model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75,
        "num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64, "v_head_dim": 256, "vocab_size": 154880, "index_topk": 2048,
        "index_n_heads": 32, "index_head_dim": 128,
        "indexer_types": ["full"] * 3
        + ["full" if i % 4 == 2 and i <= 74 else "shared" for i in range(3, 78)],
    },
    "phi-mini-moe": {
        "model_type": "phimoe", "hidden_size": 4096, "intermediate_size": 960, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 16,
        "num_experts_per_tok": 2, "vocab_size": 32064,
    },
    "olmoe-1b-7b": {
        "model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
        "vocab_size": 50304, "tie_word_embeddings": False,
    },
    "switch-base-16": {
        "model_type": "switch_transformers", "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12,
        "num_decoder_layers": 12, "num_sparse_encoder_layers": 6, "num_sparse_decoder_layers": 6,
        "num_heads": 12, "num_experts": 16, "vocab_size": 32128,
    },
}  # fmt: skip


def write(folder, config):
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("name", CONFIGS)
def test_configuration_gives_the_preset(tmp_path, name):
    path = write(tmp_path / name, CONFIGS[name])
    preset = load_model(name)
    for given in (path, path.parent):
        assert dataclasses.replace(load_model(given), source=preset.source) == preset


def moe_layers(tmp_path, name, **changes):
    return load_model(write(tmp_path / "m", CONFIGS[name] | changes)).moe_layers


def test_sparse_steps_and_dense_layers(tmp_path):
    # Qwen: layer i has experts where (i + 1) mod step is 0 and i is not named as dense
    assert moe_layers(tmp_path, "qwen3-30b-a3b", num_hidden_layers=6, decoder_sparse_step=2) == (1, 3, 5)
    assert moe_layers(tmp_path, "qwen3-30b-a3b", num_hidden_layers=4, mlp_only_layers=[0, 2]) == (1, 3)
    # DeepSeek: from the first_k_dense_replace-th layer on, every moe_layer_freq-th
    assert moe_layers(tmp_path, "deepseek-v3", num_hidden_layers=8, moe_layer_freq=2) == (4, 6)
    assert moe_layers(tmp_path, "deepseek-v3", num_hidden_layers=4, moe_layer_freq=[0, 1, 0, 1]) == (1, 3)


def test_sliding_window_counts_where_it_is_shorter_than_the_context(tmp_path):
    long = CONFIGS["mixtral-8x7b"] | {"sliding_window": 4096, "max_position_embeddings": 4096}
    assert load_model(write(tmp_path / "a", long)).attention.sliding_layers == ()
    short = long | {"sliding_window": 1024}
    attention = load_model(write(tmp_path / "b", short)).attention
    assert (attention.sliding_window, attention.sliding_layers) == (1024, tuple(range(32)))


def test_name_comes_from_folder_or_file(tmp_path):
    path = write(tmp_path / "My-MoE", CONFIGS["olmoe-1b-7b"])
    assert load_model(path).name == "my-moe"
    assert load_model(path.rename(path.with_name("other.json"))).name == "other"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("mixtral-8x7b", "num_local_experts"),
        ("qwen3-30b-a3b", "moe_intermediate_size"),
        ("qwen3-next-80b-a3b", "shared_expert_intermediate_size"),
        ("deepseek-v3", "n_routed_experts"),
        ("deepseek-v3", "intermediate_size"),
        ("glm-5.2", "index_n_heads"),
        ("switch-base-16", "d_ff"),
        ("olmoe-1b-7b", "num_hidden_layers"),
    ],
)
def test_missing_key_is_named(tmp_path, name, key):
    config = {k: v for k, v in CONFIGS[name].items() if k != key}
    with pytest.raises(BadInput, match=f"key '{key}' is missing"):
        load_model(write(tmp_path, config))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "llama"}, "model_type 'llama' is no known MoE family"),
        ({"model_type": None}, "no known MoE family"),
        ({"num_experts": "many"}, "key 'num_experts' must be a whole number, not 'many'"),
        ({"num_experts": True}, "key 'num_experts' must be a whole number"),
        ({"num_experts_per_tok": 65}, "top_k 65 is larger than the number of experts, 64"),
        ({"layer_types": ["full_attention"]}, "key 'layer_types' has 1 entries for 16 layers"),
        ({"mlp_only_layers": 3}, "key 'mlp_only_layers' must be a list"),
        ({"torch_dtype": "int3"}, "data type 'int3' is not known"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization 'awq' is not known"),
    ],
)
def test_faulty_configuration(tmp_path, changes, complaint):
    with pytest.raises(BadInput) as error:
        load_model(write(tmp_path, CONFIGS["olmoe-1b-7b"] | changes))
    assert complaint in str(error.value)
    assert "config.json" in str(error.value)


def test_broken_json_and_empty_folder(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="not JSON"):
        load_model(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(BadInput, match="does not exist"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_hidden_layers", 10**30), ("first_k_dense_replace", -(10**12)), ("vocab_size", 10**30)],
)
def test_numbers_beyond_any_model_are_refused_before_layers_are_listed(tmp_path, key, value):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIGS["qwen3-30b-a3b"], key: value}))
    with pytest.raises(BadInput, match=f"key '{key}' is out of range") as caught:
        load_model(path)
    assert "whole numbers from 0 to" in caught.value.allowed
