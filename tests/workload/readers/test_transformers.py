"""The recorder of routing, on tiny models with random weights; the routers' own logits are the reference."""

import numpy as np
import pytest

from moeplan.common.errors import BadInput, MissingLibrary
from moeplan.workload.readers.transformers import load_model_and_tokenizer, record_trace

PROMPTS = [[1, 2, 3, 4, 5], [7, 8, 9]]
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed (extra 'transformers')")


@pytest.fixture(scope="module")
def library(torch):
    return pytest.importorskip("transformers", reason="transformers is not installed (its extra)")


def config(library, family):
    if family == "qwen3_moe":
        sizes = {"head_dim": 8, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        return library.Qwen3MoeConfig(**SIZES, **sizes, mlp_only_layers=[0])
    if family == "mixtral":
        return library.MixtralConfig(**SIZES, num_local_experts=8, num_experts_per_tok=2)
    return library.GptOssConfig(**SIZES, head_dim=8, num_local_experts=8, num_experts_per_tok=4)


def build(library, torch, family):
    torch.manual_seed(1)
    return library.AutoModelForCausalLM.from_config(config(library, family)).eval()


@pytest.mark.parametrize(
    ("family", "layers", "top_k"),
    [("qwen3_moe", (1, 2), 2), ("mixtral", (0, 1, 2), 2), ("gpt_oss", (0, 1, 2), 4)],
)
def test_choices_are_those_of_the_routers(library, torch, family, layers, top_k):
    model = build(library, torch, family)
    trace = record_trace(model, PROMPTS, new_tokens=4, name=family)
    assert trace.layers == layers  # absolute: layer 0 of this Qwen3 is dense
    assert (trace.num_experts, trace.top_k) == (8, top_k)
    # 4 new tokens: the prompt's pass gives the first, the last one is never fed back
    assert trace.request.tolist() == [0] * 8 + [1] * 6
    assert trace.position.tolist() == [*range(8), *range(6)]
    assert trace.phase.tolist() == [0] * 5 + [2] * 3 + [0] * 3 + [2] * 3
    for request, prompt in enumerate(PROMPTS):
        # The whole sequence in one pass, without hooks and cache: what generation fed token by token.
        ids = torch.tensor([prompt])
        sequence = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)[:, :-1]
        with torch.inference_mode():
            logits = model(input_ids=sequence, output_router_logits=True).router_logits
        rows = trace.request == request
        for place, scores in enumerate(logits):
            expected = scores.reshape(-1, 8).topk(top_k, dim=-1).indices.numpy()
            assert np.array_equal(np.sort(trace.experts[rows, place], axis=-1), np.sort(expected, axis=-1)), (
                family,
                request,
                place,
            )
    assert trace.weights is not None
    assert trace.weights.shape == trace.experts.shape


def test_weights_are_those_of_the_router(library, torch):
    model = build(library, torch, "mixtral")
    trace = record_trace(model, [PROMPTS[0]], new_tokens=0, name="mixtral")
    assert trace.tokens == 5
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([PROMPTS[0]]), output_router_logits=True).router_logits
    top = logits[1].reshape(-1, 8).softmax(-1).topk(2, dim=-1).values
    expected = (top / top.sum(-1, keepdim=True)).numpy()  # Mixtral normalises over the chosen
    assert np.allclose(np.sort(trace.weights[:, 1]), np.sort(expected), atol=1e-6)


def test_hooks_are_taken_away(library, torch):
    model = build(library, torch, "mixtral")
    with pytest.raises(BadInput, match="token id 64 is not in the vocabulary"):
        record_trace(model, [[1, 64]], new_tokens=1, name="x")
    with pytest.raises(BadInput, match="the prompt is empty"):
        record_trace(model, [[1], []], new_tokens=1, name="x")
    with pytest.raises(BadInput, match="there are no prompts"):
        record_trace(model, [], new_tokens=1, name="x")
    record_trace(model, [[1]], new_tokens=1, name="x")
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_dense_models_are_refused(library, torch):
    dense = library.AutoModelForCausalLM.from_config(library.LlamaConfig(**SIZES))
    with pytest.raises(BadInput, match="'llama' is no Mixture-of-Experts model"):
        record_trace(dense, [[1]], new_tokens=1, name="x")


def test_checkpoints_are_read_from_safetensors_alone(library, torch, tmp_path):
    model = build(library, torch, "mixtral")
    model.save_pretrained(tmp_path / "good")
    loaded, tokenizer = load_model_and_tokenizer(str(tmp_path / "good"), "cpu")
    assert tokenizer is None
    first, again = (record_trace(m, PROMPTS, new_tokens=2, name="x") for m in (model, loaded))
    assert first.fingerprint == again.fingerprint
    pickled = tmp_path / "pickled"
    model.config.save_pretrained(pickled)
    torch.save(model.state_dict(), pickled / "pytorch_model.bin")
    with pytest.raises(BadInput, match="cannot load the model"):
        load_model_and_tokenizer(str(pickled), "cpu")
    with pytest.raises(BadInput, match="cannot load the model"):
        load_model_and_tokenizer(str(tmp_path / "absent"), "cpu")


def test_without_the_libraries(monkeypatch):
    for name in ("torch", "transformers"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingLibrary, match="needs transformers"):
        load_model_and_tokenizer("x", "cpu")
    with pytest.raises(MissingLibrary, match="needs torch"):
        record_trace(None, [[1]], new_tokens=1, name="x")
