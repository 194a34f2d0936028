"""Exports: what is written is what each engine documents, and reads back the same."""

import dataclasses
import json

import numpy as np
import pytest
import yaml

from moeplan.common.errors import BadInput, UsageError
from moeplan.placement.export.engines import (
    ENGINES,
    check_file,
    export_counts,
    export_layout,
    find_engine,
)
from moeplan.placement.export.layout import Deployment, Layout, layout_of
from moeplan.placement.export.sidecar import sidecar_path
from moeplan.workload.counts import CountLoad
from moeplan.workload.model import load_model

from .maps import FILES, ROWS, TRIVIAL


def test_sglang_is_one_bare_key_with_dense_rows(tmp_path, model, layout):
    export_layout(layout, ENGINES["sglang"], tmp_path / "m.json", model=model)
    written = json.loads((tmp_path / "m.json").read_text())
    assert written == {"physical_to_logical_map": [TRIVIAL, ROWS[0], ROWS[1], TRIVIAL, ROWS[0]]}


def test_vllm_has_no_dense_rows(tmp_path, model, layout):
    export_layout(layout, ENGINES["vllm"], tmp_path / "m.json", model=model)
    assert json.loads((tmp_path / "m.json").read_text()) == [ROWS[0], ROWS[1], ROWS[0]]
    export_layout(layout, ENGINES["vllm"], tmp_path / "m.jsonl", model=model)
    (line,) = (tmp_path / "m.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "record_type": "eplb_initial_mapping",
        "version": 1,
        "num_redundant_experts": 2,
        "num_slots": 6,
        "initial_global_assignments": {"0": ROWS[0], "1": ROWS[1], "2": ROWS[0]},
    }


def test_vllm_ascend_goes_device_by_device(tmp_path, model, layout):
    export_layout(layout, ENGINES["vllm-ascend"], tmp_path / "m.json", model=model)
    written = json.loads((tmp_path / "m.json").read_text())
    assert written["moe_layer_count"] == 3
    assert written["layer_list"][1] == {
        "layer_id": 1,
        "device_count": 2,
        "device_list": [
            {"device_id": 0, "device_expert": [2, 0, 3]},
            {"device_id": 1, "device_expert": [1, 2, 0]},
        ],
    }


def test_tensorrt_llm_has_absolute_ids(tmp_path, model, layout):
    export_layout(layout, ENGINES["tensorrt-llm"], tmp_path / "m.yaml", model=model)
    assert yaml.safe_load((tmp_path / "m.yaml").read_text()) == {
        "num_slots": 6,
        "initial_global_assignments": {1: ROWS[0], 2: ROWS[1], 4: ROWS[0]},
        "layer_updates_per_iter": 0,
    }


def test_eplb_arrays(tmp_path, model, layout):
    export_layout(layout, ENGINES["eplb"], tmp_path / "m.npz", model=model)
    with np.load(tmp_path / "m.npz", allow_pickle=False) as arrays:
        assert arrays["phy2log"].tolist() == [ROWS[0], ROWS[1], ROWS[0]]
        assert arrays["logcnt"].tolist() == [[2, 2, 1, 1], [2, 1, 2, 1], [2, 2, 1, 1]]
        assert arrays["log2phy"][1].tolist() == [[1, 5], [3, -1], [0, 4], [2, -1]]
        assert {arrays[key].dtype for key in arrays.files} == {np.dtype(np.int64)}


@pytest.mark.parametrize("engine", sorted(FILES))
def test_round_trip(tmp_path, model, deployment, layout, engine):
    """Written, read back by the independent check, and compared; twice the same bytes."""
    path = tmp_path / FILES[engine]
    sidecar = export_layout(layout, ENGINES[engine], path, model=model, source="plan.json")
    first = path.read_bytes()
    verdict = check_file(path, ENGINES[engine], dataclasses.replace(deployment, redundant=2))
    assert verdict.ok
    table = verdict.physical_to_logical
    if engine == "sglang":
        table = table[list(model.moe_layers)]
    assert table.tolist() == layout.physical_to_logical.tolist()
    assert json.loads(sidecar_path(path).read_text()) == json.loads(json.dumps(sidecar))
    assert (sidecar["engine"], sidecar["source"], sidecar["ranks"], sidecar["slots"]) == (
        engine,
        "plan.json",
        2,
        6,
    )
    assert sidecar["preconditions"]
    if engine != "eplb":
        assert any(
            path.name in text for text in (*sidecar["launch"]["flags"], str(sidecar["launch"]["config"]))
        )
    export_layout(layout, ENGINES[engine], path, model=model, source="plan.json")
    assert path.read_bytes() == first


def test_production_size_round_trip(tmp_path):
    """DeepSeek-V3: 61 layers, 58 of them MoE, 288 slots on 32 ranks."""
    model = load_model("deepseek-v3")
    rng = np.random.default_rng(0)
    rows = [np.concatenate([rng.permutation(256), rng.permutation(256)[:32]]) for _ in model.moe_layers]
    plan = Layout(np.array(rows), model.moe_layers, experts=256, ranks=32, nodes=4)
    deployment = Deployment(model.name, 61, model.moe_layers, 256, 32, 4, 32)
    for engine in ("sglang", "tensorrt-llm"):
        path = tmp_path / FILES[engine]
        export_layout(plan, ENGINES[engine], path, model=model)
        read = check_file(path, ENGINES[engine], deployment).physical_to_logical
        assert np.array_equal(read if engine != "sglang" else read[3:], plan.physical_to_logical)
    assert json.loads((tmp_path / "map.json").read_text())["physical_to_logical_map"][0][:3] == [0, 1, 2]


def test_layers_that_were_not_planned_are_filled_and_named(tmp_path, model):
    part = Layout(np.array([ROWS[1]]), (2,), experts=4, ranks=2)
    sidecar = export_layout(part, ENGINES["tensorrt-llm"], tmp_path / "m.yaml", model=model)
    assert sidecar["unplanned_layers"] == [1, 4]
    written = yaml.safe_load((tmp_path / "m.yaml").read_text())["initial_global_assignments"]
    assert written == {1: TRIVIAL, 2: ROWS[1], 4: TRIVIAL}


def test_without_a_model(tmp_path, layout):
    for engine in ("vllm", "vllm-ascend", "eplb"):
        export_layout(layout, ENGINES[engine], tmp_path / FILES[engine])
    for engine in ("sglang", "tensorrt-llm"):
        with pytest.raises(UsageError, match="wants layers by their place in the whole model"):
            export_layout(layout, ENGINES[engine], tmp_path / FILES[engine])


def test_broken_plans_leave_no_file(tmp_path, model):
    target = tmp_path / "map.json"
    target.write_text("before")
    twice = Layout(np.array([[0, 1, 0, 3, 2, 1]] * 3), (1, 2, 4), experts=4, ranks=2)
    with pytest.raises(BadInput, match="vllm-ascend cannot be given this plan: duplicates") as error:
        export_layout(twice, ENGINES["vllm-ascend"], target, model=model)
    assert "MoE layer 0, rank 0 holds expert 0 twice" in str(error.value)
    missing = Layout(np.array([[0, 1, 2, 0, 1, 2]] * 3), (1, 2, 4), experts=4, ranks=2)
    for engine, name in FILES.items():
        with pytest.raises(BadInput, match="missing experts"):
            export_layout(missing, ENGINES[engine], tmp_path / name, model=model)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["map.json"]


def test_layouts_that_are_none(model, layout, tmp_path):
    with pytest.raises(BadInput, match="7 slots do not divide among 2 ranks"):
        Layout(np.zeros((1, 7), np.int64), (1,), experts=4, ranks=2)
    with pytest.raises(BadInput, match="layer 3 of the plan is no MoE layer"):
        export_layout(
            dataclasses.replace(layout, layers=(1, 2, 3)), ENGINES["vllm"], tmp_path / "a.json", model=model
        )
    with pytest.raises(UsageError, match="does not read files named"):
        export_layout(layout, ENGINES["sglang"], tmp_path / "a.txt", model=model)
    with pytest.raises(UsageError, match="there is no engine 'sglan'"):
        find_engine("sglan")


def test_a_plan_with_uneven_ranks_is_refused():
    @dataclasses.dataclass
    class Plan:
        physical_to_logical = ((0, 1, 2, 3, 0),)
        layer_ids = (0,)
        logical_experts = 4
        ranks = 2
        nodes = 1
        slots_per_rank = (2, 3)

    with pytest.raises(BadInput, match="ranks hold 2 to 3 slots"):
        layout_of(Plan())


def test_counts_for_sglang(tmp_path, model, deployment):
    load = CountLoad(
        counts=np.array([[[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 1, 1, 1], [0, 0, 0, 2]]]),
        layers=(1, 4),
        windows=("a", "b"),
        model=model.name,
        source="by hand",
    )
    sidecar = export_counts(load, tmp_path / "c.json", model=model)
    zero = [0, 0, 0, 0]
    assert json.loads((tmp_path / "c.json").read_text()) == {
        "logical_count": [zero, [2, 3, 4, 5], zero, zero, [5, 6, 7, 10]]
    }
    assert next(c for c in sidecar["checks"] if c["check"] == "empty layers")["detail"].endswith("[2]")
    assert check_file(tmp_path / "c.json", ENGINES["sglang"], deployment).ok
