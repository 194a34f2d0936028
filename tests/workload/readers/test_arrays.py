import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.model import load_model
from moeplan.workload.readers.arrays import read_arrays


@pytest.fixture
def model():
    """OLMoE cut to 4 experts, top-2, and MoE layers 1 and 3."""
    return dataclasses.replace(
        load_model("olmoe-1b-7b"), experts=4, top_k=2, moe_layers=(1, 3), dense_intermediate_size=8
    )


def choices(tokens=5):
    return np.tile(np.array([[0, 1], [3, 2]]), (tokens, 1, 1))


def save(folder, **arrays):
    path = folder / "choices.npz"
    np.savez(path, **arrays)
    return path


def test_all_keys(tmp_path, model):
    weights = np.full((5, 2, 2), 0.5, dtype=np.float16)
    weights[0, 0, 1] = 0.0  # legal
    trace = read_arrays(
        save(
            tmp_path,
            experts=choices(),
            weights=weights,
            request=[7, 7, 9, 9, 9],
            position=[4, 5, 0, 1, 2],
            step=[0, 1, 0, 1, 2],
            phase=[0, 0, 1, 2, 2],
            layers=[1, 3],
            num_experts=4,
            domain=["ignored"],
        ),
        model,
    )
    assert trace.experts.tolist() == choices().tolist()
    assert trace.weights.dtype == np.float32
    assert trace.request.tolist() == [7, 7, 9, 9, 9]
    assert (trace.layers, trace.num_experts, trace.top_k, trace.model) == ((1, 3), 4, 2, "olmoe-1b-7b")
    assert trace.source == "numpy arrays, choices.npz"


def test_without_layers_the_models_own_are_taken(tmp_path, model):
    assert read_arrays(save(tmp_path, experts=choices()), model).layers == (1, 3)


def test_without_request_every_row_is_a_request(tmp_path, model):
    trace = read_arrays(save(tmp_path, experts=choices(3)), model)
    assert trace.request.tolist() == [0, 1, 2]
    assert trace.position.tolist() == [0, 0, 0]


def test_without_position_rows_of_a_request_are_in_order(tmp_path, model):
    trace = read_arrays(save(tmp_path, experts=choices(), request=[5, 2, 5, 5, 2]), model)
    assert trace.position.tolist() == [0, 0, 1, 2, 1]


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"chosen": choices()}, "no key 'experts'"),
        ({"experts": choices()[0]}, "key 'experts' must have the axes [tokens, layers, top-k]"),
        ({"experts": choices().astype(float)}, "'experts' must hold whole numbers, not float64"),
        ({"experts": choices()[:, :1]}, "'experts' has 1 layers, but olmoe-1b-7b has 2 MoE layers"),
        ({"experts": choices(), "layers": [1]}, "key 'layers' must hold 2 whole numbers"),
        ({"experts": choices(), "layers": [1.0, 3.0]}, "key 'layers' must hold 2 whole numbers"),
        ({"experts": choices(), "layers": [0, 3]}, "layer 0 of the trace is no MoE layer"),
        ({"experts": choices(), "num_experts": [4, 4]}, "key 'num_experts' must hold one whole number"),
        ({"experts": choices(), "num_experts": 8}, "the trace has 8 experts, the model 4"),
        ({"experts": choices()[..., :1]}, "the trace has top-1, the model top-2"),
        ({"experts": choices(0)}, "the trace holds no tokens"),
        ({"experts": choices(), "position": np.arange(5)}, "'position' means nothing without 'request'"),
        ({"experts": choices(), "request": np.arange(4)}, "'request' must have one value per token"),
        ({"experts": choices(), "request": np.arange(5.0)}, "'request' must hold whole numbers"),
        ({"experts": choices(), "request": np.arange(5), "position": [0]}, "'position' must have one value"),
        ({"experts": choices(), "request": np.arange(5) + 2**40}, "'request' value 1099511627776 is out"),
        ({"experts": choices(), "phase": [0, 1, 2, 3, 0]}, "'phase' value 3 is out of range"),
        ({"experts": choices(), "weights": np.ones((5, 2))}, "'weights' must have the shape of 'experts'"),
        ({"experts": choices(), "weights": choices()}, "'weights' must hold floating-point numbers"),
        ({"experts": choices() + 70_000}, "expert id 70000 is out of range"),
    ],
)
def test_faulty_arrays_name_the_key(tmp_path, model, arrays, complaint):
    with pytest.raises(BadInput) as error:
        read_arrays(save(tmp_path, **arrays), model)
    assert complaint in str(error.value)


def test_pickled_objects_are_never_loaded(tmp_path, model):
    path = save(tmp_path, experts=choices(), request=np.array([{}] * 5, dtype=object))
    with pytest.raises(BadInput, match="key 'request' cannot be read"):
        read_arrays(path, model)


def test_files_that_are_no_archive(tmp_path, model):
    with pytest.raises(BadInput, match="does not exist"):
        read_arrays(tmp_path / "absent.npz", model)
    np.save(tmp_path / "one.npy", choices())
    with pytest.raises(BadInput, match="holds one array"):
        read_arrays(tmp_path / "one.npy", model)
    whole = save(tmp_path, experts=choices(1000)).read_bytes()
    for name, content in (("cut.npz", whole[:2000]), ("text.npz", b"hello"), ("empty.npz", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInput, match="not a whole numpy archive"):
            read_arrays(tmp_path / name, model)


@pytest.mark.parametrize(
    ("file", "name", "shape"),
    [
        ("gpt-oss-20b-decode.npz", "gpt-oss-20b", (54459, 24, 4)),
        ("deepseek-v2-lite-law.npz", "deepseek-v2-lite", (8327, 26, 6)),
    ],
)
def test_recorded_traces(traces_folder, file, name, shape):
    trace = read_arrays(traces_folder / file, load_model(name))
    assert trace.experts.shape == trace.weights.shape == shape
    with pytest.raises(BadInput, match="the trace does not fit olmoe-1b-7b"):
        read_arrays(traces_folder / file, load_model("olmoe-1b-7b"))
