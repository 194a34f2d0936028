"""What vLLM, TensorRT-LLM and SGLang's answers hold, made by hand."""

import base64
import dataclasses
import io
import json

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.model import load_model
from moeplan.workload.readers.formats import read_recording


@pytest.fixture
def model():
    """4 hidden layers; 1 and 3 have 4 experts, top-2."""
    return dataclasses.replace(
        load_model("olmoe-1b-7b"),
        layers=4,
        experts=4,
        top_k=2,
        moe_layers=(1, 3),
        dense_intermediate_size=8,
    )


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return base64.b64encode(stream.getvalue()).decode()


CHOICES = np.array([[[0, 1], [2, 3]], [[3, 0], [1, 2]], [[2, 1], [0, 3]]], dtype=np.uint8)


def in_all_layers(choices):
    """[T, 2, K] of the MoE layers as [T, 4, K] of all layers, dense rows zero."""
    wide = np.zeros((len(choices), 4, 2), dtype=choices.dtype)
    wide[:, [1, 3]] = choices
    return wide


@pytest.mark.parametrize("array", [CHOICES, in_all_layers(CHOICES).astype(np.uint16)])
def test_vllm_answers(tmp_path, model, array):
    answers = [{"choices": [{"routed_experts": npy(array)}, {"text": "not recorded"}]}]
    answers.append({"choices": [{"routed_experts": npy(array[:1])}]})
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)) + "\n")
    trace = read_recording([tmp_path / "answers.jsonl"], model)
    assert trace.experts.tolist() == [*CHOICES.tolist(), CHOICES[0].tolist()]
    assert trace.request.tolist() == [0, 0, 0, 1]
    assert trace.position.tolist() == [0, 1, 2, 0]
    assert trace.layers == (1, 3)


def test_one_answer_is_read_alone_and_in_a_list(tmp_path, model):
    answer = {"choices": [{"routed_experts": npy(CHOICES)}]}
    for content in (answer, [answer]):
        (tmp_path / "a.json").write_text(json.dumps(content, indent=1))
        assert read_recording([tmp_path / "a.json"], model).tokens == 3


def test_sglang_answers(tmp_path, model):
    bare = base64.b64encode(in_all_layers(CHOICES).astype("<i4").tobytes()).decode()
    (tmp_path / "a.json").write_text(json.dumps({"meta_info": {"routed_experts": bare}}))
    for format in (None, "sglang"):
        trace = read_recording([tmp_path / "a.json"], model, format)
        assert trace.experts.tolist() == CHOICES.tolist()
    cut = base64.b64encode(in_all_layers(CHOICES).astype("<i4").tobytes()[:-4]).decode()
    (tmp_path / "a.json").write_text(json.dumps({"meta_info": {"routed_experts": cut}}))
    with pytest.raises(BadInput, match="a multiple of 32"):
        read_recording([tmp_path / "a.json"], model)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("!!", "no base64 text"),
        (base64.b64encode(b"hello").decode(), "not the bytes of a numpy array"),
        (npy(np.array([{}], dtype=object), allow_pickle=True), "not the bytes of a numpy array"),
        (npy(CHOICES[:, :1]), "routed_experts has the shape (3, 1, 2)"),
        (npy(CHOICES[..., :1]), "routed_experts has the shape (3, 2, 1)"),
        (npy(CHOICES + 4), "expert id 4 is out of range"),
        (npy(CHOICES * 0), "expert 0 appears twice"),
        (7, "no base64 text"),
    ],
)
def test_faulty_answers(tmp_path, model, text, complaint):
    (tmp_path / "a.json").write_text(json.dumps({"choices": [{"routed_experts": text}]}))
    with pytest.raises(BadInput) as error:
        read_recording([tmp_path / "a.json"], model)
    assert complaint in str(error.value)
    assert "a.json" in str(error.value)


def test_a_claimed_shape_beyond_memory(tmp_path, model):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999, 2, 2), }"
    header += b" " * (64 - (10 + len(header) + 1) % 64) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 16
    answer = {"choices": [{"routed_experts": base64.b64encode(content).decode()}]}
    (tmp_path / "a.json").write_text(json.dumps(answer))
    with pytest.raises(BadInput, match="not the bytes of a numpy array"):
        read_recording([tmp_path / "a.json"], model)


def test_files_without_routing(tmp_path, model):
    (tmp_path / "a.json").write_text('{"choices": [{"text": "x"}]}')
    with pytest.raises(BadInput, match="holds no routing"):
        read_recording([tmp_path / "a.json"], model)
    (tmp_path / "a.jsonl").write_text('{"choices": []}\n{broken\n')
    with pytest.raises(BadInput, match="line 2"):
        read_recording([tmp_path / "a.jsonl"], model)
    with pytest.raises(UsageError, match="2 files of format vllm"):
        read_recording([tmp_path / "a.json", tmp_path / "a.jsonl"], model)


MAP = [[0, 1, 2, 3, 2], [1, 0, 2, 3, 0]]


def stats(step, load, slots=MAP, **changes):
    line = {"record_type": "eplb_load_stats", "version": 1, "step": step, "num_ranks": 5}
    return json.dumps({**line, "expert_load": load, "p2l_map": slots, **changes})


def test_vllm_load_statistics(tmp_path, model):
    lines = [
        '{"record_type": "eplb_load_meta", "version": 1, "model": "x"}',
        stats(10, [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]),
        stats(20, [[0, 0, 0, 0, 1], [0, 0, 0, 0, 1]], [[0, 1, 2, 3, 3], [0, 1, 2, 3, 3]]),  # moved since
    ]
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    load = read_recording([tmp_path / "s.jsonl"], model)
    assert load.windows == ("step 10", "step 20")
    assert load.source.endswith("in order of time")
    (tmp_path / "s.jsonl").write_text("\n".join(reversed(lines)))
    assert read_recording([tmp_path / "s.jsonl"], model).source.endswith("in the order of lines")
    assert load.counts.tolist() == [[[1, 2, 8, 4], [7, 1, 3, 4]], [[0, 0, 0, 1], [0, 0, 0, 1]]]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (stats(1, [[1] * 5] * 3, [MAP[0]] * 3), "has 3 layers, olmoe-1b-7b has 2 MoE layers"),
        (stats(1, [[1] * 4] * 2), "'expert_load' has the shape (2, 4), 'p2l_map' (2, 5)"),
        (stats(1, [[1] * 5, [1] * 4]), "must hold lists of equal length"),
        (stats(1, [[1] * 5] * 2, [[0, 1, 2, 3, 4]] * 2), "slot 4 holds expert 4"),
        (stats(1, [["a"] * 5] * 2), "must hold numbers [layers][slots]"),
        (stats(1, [[1] * 5] * 2, version=2), "version 2"),
        ('{"record_type": "other"}', "record_type 'other'"),
        ('{"record_type": "eplb_load_meta", "version": 1}', "holds no line of record_type eplb_load_stats"),
    ],
)
def test_faulty_load_statistics(tmp_path, model, line, complaint):
    (tmp_path / "s.jsonl").write_text(line + "\n")
    with pytest.raises(BadInput) as error:
        read_recording([tmp_path / "s.jsonl"], model)
    assert complaint in str(error.value)


def safetensors(tensors):
    """The bytes of a file, by the format's own description."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        kind = {"int32": "I32", "int64": "I64", "float32": "F32"}[str(array.dtype)]
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "stats"
    path.mkdir()
    (path / "meta_info.json").write_text('{"num_experts": 4, "num_experts_per_token": 2, "ep_size": 2}')
    return path


def test_tensorrt_llm_sums_ranks(folder, model):
    first = {"5_1": [1, 2, 3, 4], "5_3": [4, 3, 2, 1], "6_1": [1, 0, 0, 0], "6_3": [0, 1, 0, 0]}
    second = {key: [1, 1, 1, 1] for key in first}
    for rank, counts in enumerate((first, second)):
        tensors = {key: np.array(row, dtype=np.int32) for key, row in counts.items()}
        (folder / f"rank{rank}.safetensors").write_bytes(safetensors(tensors))
    (folder / "rank0_raw.safetensors").write_bytes(b"another kind of file")  # is not looked at
    load = read_recording([folder], model)
    assert load.layers == (1, 3)  # ids are those of the model
    assert load.windows == ("iteration 5", "iteration 6")
    assert load.counts.tolist() == [[[2, 3, 4, 5], [5, 4, 3, 2]], [[2, 1, 1, 1], [1, 2, 1, 1]]]


def test_the_library_of_safetensors_writes_what_is_read(folder, model):
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    library.save_file({"1_1": np.array([1, 2, 3, 4])}, str(folder / "rank0.safetensors"))
    assert read_recording([folder], model).counts.tolist() == [[[1, 2, 3, 4]]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (safetensors({"1_1": np.ones(5, np.int32)}), "key '1_1' holds int32 of shape (5,)"),
        (safetensors({"1_1": np.ones(4, np.float32)}), "key '1_1' holds float32"),
        (safetensors({"one": np.ones(4, np.int32)}), "key 'one'"),
        (safetensors({"1_2": np.ones(4, np.int32)}), "layer 2 of the counts is no MoE layer"),
        (
            safetensors({"1_1": np.ones(4, np.int32), "2_3": np.ones(4, np.int32)}),
            "iteration 1 lacks layer 3",
        ),
        (safetensors({"1_1": np.ones(4, np.int32)})[:-1], "not a whole safetensors file"),
        (b"\xff" * 20, "its header is longer than the file"),
        (b"", "its header is longer than the file"),
        (safetensors({}), "are empty"),
    ],
)
def test_faulty_statistics(folder, model, content, complaint):
    (folder / "rank0.safetensors").write_bytes(content)
    with pytest.raises(BadInput) as error:
        read_recording([folder], model)
    assert complaint in str(error.value)


def test_statistics_of_another_model_or_none(folder, model):
    with pytest.raises(BadInput, match="holds no counts"):
        read_recording([folder], model)
    (folder / "meta_info.json").write_text('{"num_experts": 8, "num_experts_per_token": 2}')
    with pytest.raises(BadInput, match="key 'num_experts' is 8, olmoe-1b-7b has 4"):
        read_recording([folder], model)
