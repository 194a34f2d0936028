import dataclasses
import re

import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.model import load_model, model_names

# Routed-expert parameters in 1e9: MoE layers x experts x matrices x hidden x width.
ROUTED = {
    "qwen3-30b-a3b": 28.99,  # 48 x 128 x 3 x 2048 x 768
    "qwen3-next-80b-a3b": 77.3,
    "qwen3.5-35b-a3b": 32.2,
    "qwen3.5-397b-a17b": 386.5,
    "gpt-oss-120b": 114.7,
    "mixtral-8x7b": 45.1,
    "deepseek-v3": 653.9,
    "glm-5.2": 724.8,
    "kimi-k2": 1014.7,
    "phi-mini-moe": 6.04,
    "olmoe-1b-7b": 6.44,
    "switch-base-16": 0.91,
    "switch-large-128": 25.8,
    "deepseek-v2-lite": 14.395,  # 26 x 64 x 3 x 2048 x 1408
    "gpt-oss-20b": 19.11,  # 24 x 32 x 3 x 2880 x 2880
    "mixtral-8x22b": 135.29,  # 56 x 8 x 3 x 6144 x 16384
}
# Total parameters in 1e9 as the makers state them (model cards and papers).
TOTAL = {
    "deepseek-v2-lite": 15.7,
    "deepseek-v3": 671.0,
    "glm-5.2": 744.0,
    "gpt-oss-20b": 20.9,
    "gpt-oss-120b": 116.8,
    "kimi-k2": 1026.0,
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 141.0,
    "olmoe-1b-7b": 6.92,
    "phi-mini-moe": 7.6,
    "qwen3-30b-a3b": 30.5,
    "qwen3-next-80b-a3b": 80.0,
    "qwen3.5-35b-a3b": 35.0,
    "qwen3.5-397b-a17b": 397.0,
    "switch-large-128": 26.3,
}


def test_every_preset_has_a_stated_size_and_its_file_name():
    assert set(model_names()) == set(ROUTED)
    for name in model_names():
        model = load_model(name)
        assert model.name == name
        assert model.source


@pytest.mark.parametrize("name", ROUTED)
def test_routed_parameters(name):
    assert load_model(name).routed_params == pytest.approx(ROUTED[name] * 1e9, rel=5e-3)


@pytest.mark.parametrize("name", TOTAL)
def test_total_parameters(name):
    assert load_model(name).total_params == pytest.approx(TOTAL[name] * 1e9, rel=0.015)


def test_expert_bytes_of_qwen3_30b():
    model = load_model("qwen3-30b-a3b")
    assert model.expert_params == 3 * 2048 * 768
    assert model.expert_bytes == 9_437_184.0  # 2 bytes each


def test_ffn_of_qwen3_5_35b_at_fp8_with_the_shared_expert():
    # ReXpert: 40 layers x 257 experts x 3 x 2048 x 512 bytes = 30.1 GiB
    model = load_model("qwen3.5-35b-a3b")
    ffn_bytes = (model.routed_params + model.shared_params) * 1.0
    assert ffn_bytes / 2**30 == pytest.approx(30.117, abs=5e-4)


def test_mxfp4_is_four_bits_and_a_scale_byte_per_32_weights():
    model = load_model("gpt-oss-20b")
    assert model.expert_bytes == model.expert_params * (4 / 8 + 1 / 32)


def test_parts_of_mixtral_by_hand():
    model = load_model("mixtral-8x7b")
    # q and o 4096 x 4096, k and v 4096 x 1024, in 32 layers
    assert model.attention_params == 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    assert model.router_params == 32 * 4096 * 8
    assert model.embedding_params == 2 * 32000 * 4096
    assert model.shared_params == model.dense_params == 0
    assert model.other_params == model.attention_params + model.router_params + model.embedding_params
    assert model.other_bytes == 2.0 * model.other_params


def test_parts_of_deepseek_v2_lite_by_hand():
    model = load_model("deepseek-v2-lite")
    query = 2048 * 16 * 192  # no low-rank query
    latent = 2048 * (512 + 64) + 512 * 16 * (128 + 128)
    assert model.attention_params == 27 * (query + latent + 16 * 128 * 2048)
    assert model.dense_params == 3 * 2048 * 10944  # layer 0
    assert model.shared_params == 26 * 2 * 3 * 2048 * 1408
    assert model.moe_layers == tuple(range(1, 27))


def test_low_rank_query_of_deepseek_v3_by_hand():
    # q: 7168 -> 1536 -> 128 x 192; kv: 7168 -> 576, 512 -> 128 x 256; out: 128 x 128 -> 7168
    block = 7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384 * 7168
    assert load_model("deepseek-v3").attention_params == 61 * block


def test_gated_delta_net_of_qwen3_next_by_hand():
    model = load_model("qwen3-next-80b-a3b")
    assert len(model.attention.linear_layers) == 36
    assert set(model.moe_layers) - set(model.attention.linear_layers) == set(range(3, 48, 4))
    # q, k 2048 wide, v and gate 4096, decay and beta 32 each; convolution over q, k, v; out
    linear = 2048 * (2048 + 2048 + 4096 + 4096 + 64) + 4 * 8192 + 4096 * 2048
    # query with output gate, two key and two value heads, out
    full = 2048 * 2 * 4096 + 2 * 2048 * 512 + 4096 * 2048
    assert model.attention_params == 36 * linear + 12 * full


def test_indexer_of_glm_by_hand():
    model = load_model("glm-5.2")
    assert len(model.attention.index_layers) == 21
    without = dataclasses.replace(model, attention=dataclasses.replace(model.attention, index_layers=()))
    indexer = 2048 * 32 * 128 + 6144 * (128 + 32)
    assert model.attention_params - without.attention_params == 21 * indexer


def test_switch_has_cross_attention_and_every_second_layer_sparse():
    model = load_model("switch-base-16")
    assert model.moe_layers == (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23)
    assert model.attention_params == (24 + 12) * 4 * 768 * 768
    assert model.dense_params == 12 * 2 * 768 * 3072
    assert model.embedding_params == 32128 * 768  # tied


def test_embeddings_stay_in_the_type_of_the_activations():
    model = load_model("deepseek-v3")
    assert model.other_bytes == model.other_params + model.embedding_params


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("deepseek-r1", "deepseek-v3"),
        ("DeepSeek-V2-Lite", "deepseek-v2-lite"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
    ],
)
def test_aliases(given, name):
    assert load_model(given) == load_model(name)


def test_unknown_name_suggests_the_closest():
    with pytest.raises(UsageError, match="did you mean 'qwen3-30b-a3b'"):
        load_model("qwen3-30b")


def test_fingerprint_follows_the_shapes_and_not_the_source():
    model = load_model("olmoe-1b-7b")
    assert dataclasses.replace(model, source="elsewhere").fingerprint == model.fingerprint
    assert dataclasses.replace(model, top_k=4).fingerprint != model.fingerprint


MODEL_FILE = """
name: tiny
source: made up
layers: 4
moe_layers: ["1", "2-3"]
hidden_size: 8
expert_intermediate_size: 4
experts: 6
top_k: 2
dense_intermediate_size: 16
vocab_size: 10
attention: {kind: gqa, heads: 2, kv_heads: 1, head_dim: 4}
"""


def write(folder, text):
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path


def test_model_file(tmp_path):
    model = load_model(write(tmp_path, MODEL_FILE))
    assert model.moe_layers == (1, 2, 3)
    assert model.expert_params == 3 * 8 * 4
    assert model.dense_params == 3 * 8 * 16
    assert model.attention.v_head_dim == 4


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("top_k: 2", "top_k: 7", "top_k 7 is larger than the number of experts, 6"),
        ("top_k: 2", "topk: 2", "topk: unknown key; did you mean 'top_k'"),
        ("top_k: 2", "", "top_k: Field required"),
        ('["1", "2-3"]', '"1-4"', "names layer 4, but the model's last layer is 3"),
        ('["1", "2-3"]', '"1 to 3"', "'1 to 3' is no layer range"),
        ('["1", "2-3"]', '["1", "1-2"]', "names a layer twice"),
        ('["1", "2-3"]', "[]", "moe_layers is empty"),
        ("dense_intermediate_size: 16", "", "'dense_intermediate_size' is missing"),
        ("experts: 6", "experts: 0", "experts: must be a whole number from 1 to 32767 (got 0)"),
        ("head_dim: 4", "v_head_dim: 4", "'head_dim' is missing"),
        ("layers: 4", "layers: four", "layers: Input should be a valid integer"),
        ("vocab_size: 10", "vocab_size: 10\nshared_experts: 1", "'shared_intermediate_size' is missing"),
        ("name: tiny", "model_type: olmoe", "looks like a Hugging Face configuration"),
    ],
)
def test_faulty_model_file_names_the_key(tmp_path, old, new, complaint):
    with pytest.raises(BadInput) as error:
        load_model(write(tmp_path, MODEL_FILE.replace(old, new)))
    assert complaint in str(error.value)
    assert "tiny.yaml" in str(error.value)


def test_missing_and_strange_files(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        load_model(tmp_path / "absent.yaml")
    (tmp_path / "model.txt").write_text("name: x")
    with pytest.raises(BadInput, match="neither YAML nor JSON"):
        load_model(tmp_path / "model.txt")


@pytest.mark.parametrize("text", ["5-3", "0-99999999", "3-x"])
def test_ranges_that_cannot_be_meant(text):
    from moeplan.workload.model_file import expand_layers

    with pytest.raises(ValueError, match=re.escape(repr(text))):
        expand_layers(text)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "vocab_size: 10",
            f"vocab_size: {10**30}",
            "vocab_size: must be a whole number from 1 to 1000000000",
        ),
        ("experts: 6", "experts: 1.0e+300", "experts: must be a whole number from 1 to 32767"),
        (
            "head_dim: 4",
            f"head_dim: {10**30}",
            "attention.head_dim: must be a whole number from 0 to 1000000",
        ),
        ("layers: 4", "layers: 100001", "layers: must be a whole number from 1 to 100000"),
        ("top_k: 2", "top_k: true", "top_k: must be a number (got True)"),
        ('["1", "2-3"]', "[2, 3, true]", "moe_layers.2: must be a number (got True)"),
        ("vocab_size: 10", "vocab_size: 10\nweight_bytes: 1.0e-300", "weight_bytes: must be from 0.01 to 8"),
    ],
)
def test_numbers_beyond_any_model_are_refused_with_their_range(tmp_path, old, new, complaint):
    with pytest.raises(BadInput) as error:
        load_model(write(tmp_path, MODEL_FILE.replace(old, new)))
    assert complaint in error.value.what
