from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.workload.attention import AttentionWork, decode_attention, projections
from moeplan.workload.model import MoEModel, load_model, model_names


def work(name: str, contexts: list[int], **options: object) -> AttentionWork:
    return decode_attention(load_model(name), contexts, **options)  # type: ignore[arg-type]


def encoder_tokens(model: MoEModel) -> int:
    return 16 if model.attention.cross_layers else 0


def test_grouped_query_attention_by_hand() -> None:
    # Qwen3-30B-A3B, one layer: d 2048, 32 query and 4 key/value heads of 128. Projections 2048 x (4096 +
    # 512 + 512) + 4096 x 2048 = 18.87 M weights of 2 bytes. Two requests see 100 + 300 tokens: keys and
    # values 2 x 512 elements of 2 bytes each.
    layer = work("qwen3-30b-a3b", [100, 300], layers=[7])
    params = 2048 * 5120 + 4096 * 2048
    assert layer.weight_bytes == 2 * params
    assert layer.projection_flop == 2 * 2 * params
    assert layer.activation_bytes == 2 * 2 * (2048 + 5120 + 4096 + 2048)
    assert layer.cache_read_bytes == 400 * 1024 * 2
    assert layer.cache_write_bytes == 2 * 1024 * 2
    assert layer.cache_flop == 400 * 2 * 32 * (128 + 128)
    assert layer.projection_bytes == layer.weight_bytes + layer.activation_bytes
    assert layer.cache_bytes == 402 * 2048
    # All 48 layers are alike; an FP8 cache is half as large.
    model = work("qwen3-30b-a3b", [100, 300], cache_element_bytes=1.0)
    assert model.cache_read_bytes == 48 * 400 * 1024
    assert model.weight_bytes == 48 * layer.weight_bytes


def test_a_sliding_window_stops_growing() -> None:
    # GPT-OSS-120B: even layers see 128 tokens, odd ones all; 8 key/value heads of 64.
    sliding, full = (work("gpt-oss-120b", [100, 5000], layers=[layer]) for layer in (0, 1))
    assert sliding.cache_read_bytes == (100 + 128) * 1024 * 2
    assert full.cache_read_bytes == 5100 * 1024 * 2
    assert sliding.weight_bytes == full.weight_bytes


def test_latents_are_shared_by_all_heads() -> None:
    # DeepSeek-V3: 512 + 64 elements per token; scores over 576 and sums over 512 for each of 128 heads.
    layer = work("deepseek-v3", [4096], layers=[10])
    assert layer.cache_read_bytes == 4096 * 576 * 2
    assert layer.cache_flop == 2 * 128 * (576 + 512) * 4096
    # Queries 7168 x 1536 + 1536 x 24576, latents 7168 x 576, absorbed 128 x (128 x 512 + 512 x 128),
    # output 16384 x 7168: 187.1 M weights of one byte.
    params = 7168 * 1536 + 1536 * 24576 + 7168 * 576 + 128 * 2 * 128 * 512 + 16384 * 7168
    assert layer.projection_flop == 2 * params
    assert layer.weight_bytes == params * load_model("deepseek-v3").other_weight_bytes


def test_linear_attention_does_not_read_a_growing_cache() -> None:
    # Qwen3.5-35B-A3B: layers 3, 7, ... have softmax attention; the others a state of 32 x 128 x 128.
    short, long = (work("qwen3.5-35b-a3b", [context], layers=[0]) for context in (1, 100_000))
    assert short == long
    assert short.cache_read_bytes == short.cache_write_bytes == 32 * 128 * 128 * 4
    assert short.cache_flop == 7 * 32 * 128 * 128
    assert work("qwen3.5-35b-a3b", [1000], layers=[3]).cache_read_bytes == 1000 * 2 * 2 * 256 * 2
    # Of 40 layers, ten grow.
    grown = (
        work("qwen3.5-35b-a3b", [3000]).cache_read_bytes - work("qwen3.5-35b-a3b", [1000]).cache_read_bytes
    )
    assert grown == 10 * 2000 * 1024 * 2


def test_sparse_attention_reads_its_choice_and_the_index() -> None:
    # GLM-5.2: 2048 latents of 576 elements at most; an indexer reads 128 elements of every token.
    without_index, with_index = (work("glm-5.2", [10_000], layers=[layer]) for layer in (3, 6))
    assert without_index.cache_read_bytes == 2048 * 576 * 2
    assert with_index.cache_read_bytes == (2048 * 576 + 10_000 * 128) * 2
    assert with_index.cache_flop - without_index.cache_flop == 2 * 32 * 128 * 10_000
    assert work("glm-5.2", [100], layers=[3]).cache_read_bytes == 100 * 576 * 2


def test_a_decoder_attends_to_its_input_as_well() -> None:
    # Switch-Base-16: d 768, 12 heads of 64. Self-attention over 10 tokens, encoder over 100; of the
    # cross-attention's four projections only query and output are left to do.
    layer = work("switch-base-16", [10], layers=[13], encoder_tokens=100)
    assert layer.weight_bytes == 6 * 768 * 768 * 2
    assert layer.cache_read_bytes == (10 + 100) * 2 * 768 * 2
    assert layer.cache_write_bytes == 2 * 768 * 2
    assert work("switch-base-16", [10], encoder_tokens=100).weight_bytes == 12 * layer.weight_bytes


@pytest.mark.parametrize("name", model_names())
def test_projections_are_the_parameters_of_the_model(name: str) -> None:
    model = load_model(name)
    read = decode_attention(
        replace(model, other_weight_bytes=1.0), [1], encoder_tokens=encoder_tokens(model)
    ).weight_bytes
    if model.attention.cross_layers:
        # Encoder layers and the keys and values of cross-attention are not read while decoding.
        square = model.hidden_size**2
        assert model.attention_params - read == model.layers / 2 * (4 + 2) * square
    else:
        assert read == model.attention_params
    assert all(matrix.params > 0 for layer in range(model.layers) for matrix in projections(model, layer))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.sampled_from(model_names()),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=8),
    st.integers(0, 5000),
)
def test_work_adds_up_and_never_shrinks(name: str, contexts: list[int], more: int) -> None:
    model = load_model(name)
    inputs = encoder_tokens(model)
    whole = decode_attention(model, contexts, encoder_tokens=inputs)
    grown = decode_attention(model, [context + more for context in contexts], encoder_tokens=inputs)
    assert grown.cache_read_bytes >= whole.cache_read_bytes
    assert grown.cache_flop >= whole.cache_flop
    # Requests share weights and nothing else.
    alone = [decode_attention(model, [context], encoder_tokens=inputs) for context in contexts]
    assert sum(one.cache_bytes for one in alone) == pytest.approx(whole.cache_bytes)
    assert sum(one.projection_flop for one in alone) == pytest.approx(whole.projection_flop)
    assert sum(one.activation_bytes for one in alone) == pytest.approx(whole.activation_bytes)
    assert {one.weight_bytes for one in alone} == {whole.weight_bytes}


def test_an_empty_batch_reads_weights_only() -> None:
    nothing = work("mixtral-8x7b", [])
    assert nothing == AttentionWork(weight_bytes=nothing.weight_bytes)


@pytest.mark.parametrize(
    ("name", "contexts", "options", "words"),
    [
        ("mixtral-8x7b", [0], {}, "at least 1"),
        ("mixtral-8x7b", [1.5], {}, "whole numbers"),
        ("mixtral-8x7b", 5, {}, "a list"),
        ("mixtral-8x7b", [5], {"layers": [32]}, "layer 32"),
        ("mixtral-8x7b", [5], {"encoder_tokens": 5}, "0 for any other"),
        ("switch-base-16", [5], {}, "at least 1 for an encoder-decoder"),
        ("switch-base-16", [5], {"encoder_tokens": 5, "layers": [3]}, "layer 3 of switch-base-16"),
    ],
)
def test_bad_calls_are_refused(name: str, contexts: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        work(name, contexts, **options)  # type: ignore[arg-type]
    assert words in str(caught.value)
