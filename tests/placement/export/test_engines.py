"""Exports: what is written reads back the same, and every documented trap is met as documented."""

import dataclasses
import importlib.util
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
    sidecar_path,
)
from moeplan.placement.export.layout import Deployment, Layout, layout_of
from moeplan.workload.counts import CountLoad
from moeplan.workload.model import load_model

FILES = {
    "sglang": "map.json",
    "vllm": "map.json",
    "vllm-ascend": "map.json",
    "tensorrt-llm": "map.yaml",
    "eplb": "map.npz",
}
# 4 experts, 6 slots on 2 ranks: [0 1 2 | 3 0 1] and [2 0 3 | 1 2 0]
ROWS = [[0, 1, 2, 3, 0, 1], [2, 0, 3, 1, 2, 0]]
TRIVIAL = [0, 1, 2, 3, 0, 1]


@pytest.fixture
def model():
    """5 hidden layers, of which 1, 2 and 4 have 4 experts."""
    return dataclasses.replace(
        load_model("olmoe-1b-7b"),
        layers=5,
        experts=4,
        top_k=2,
        moe_layers=(1, 2, 4),
        dense_intermediate_size=8,
    )


@pytest.fixture
def layout():
    return Layout(np.array([ROWS[0], ROWS[1], ROWS[0]]), (1, 2, 4), experts=4, ranks=2)


@pytest.fixture
def deployment(model):
    return Deployment(model.name, model.layers, model.moe_layers, model.experts, ranks=2)


@pytest.fixture
def judge(tmp_path, deployment):
    """Write a file by hand and judge it; returns {check: (ok, detail)}."""

    def run(engine, content, name=None, **changes):
        path = tmp_path / (name or FILES[engine])
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        verdict = check_file(path, find_engine(engine), dataclasses.replace(deployment, **changes))
        return {found.check: (found.ok, found.detail) for found in verdict.findings}

    return run


def wrong(found):
    return sorted(check for check, (ok, _) in found.items() if ok is False)


# -- what is written -------------------------------------------------------------------------------------


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


# -- traps in files of others ----------------------------------------------------------------------------

SGLANG = [TRIVIAL, ROWS[0], ROWS[1], TRIVIAL, ROWS[0]]
MOE = [ROWS[0], ROWS[1], ROWS[0]]


def sglang(rows, **more):
    return {"physical_to_logical_map": rows, **more}


def test_sglang_accepts(judge):
    assert not wrong(judge("sglang", sglang(SGLANG), redundant=2))
    assert not wrong(judge("sglang", {"logical_count": [[1] * 4] * 5, "note": "ignored"}))
    assert not wrong(judge("sglang", {"logical_count": [[[1] * 4] * 5] * 3}))
    twice = [[0, 0, 1, 2, 3, 1], *SGLANG[1:]]  # tolerated, but named
    found = judge("sglang", sglang(twice))
    assert not wrong(found)
    assert "layer 0, rank 0 holds expert 0 twice" in found["duplicates"][1]


@pytest.mark.parametrize(
    ("content", "check", "detail"),
    [
        (sglang(SGLANG, moeplan_version=1), "keys", "key 'moeplan_version' stands beside"),
        (sglang(SGLANG, logical_count=[]), "keys", "key 'logical_count' stands beside"),
        ({"map": SGLANG}, "keys", "neither key"),
        ([1, 2], "keys", "neither key"),
        (
            sglang(MOE),
            "layer axis",
            "3 rows, the engine wants 5: hidden layers, dense ones included; these look",
        ),
        (sglang(SGLANG * 2), "layer axis", "10 rows, the engine wants 5"),
        (sglang(np.array(SGLANG).reshape(5, 2, 3).tolist()), "slot axis", "layer 0 is a list of lists"),
        (sglang(np.array(SGLANG).T.tolist()), "layer axis", "dense ones included; the axes look swapped"),
        (sglang([*SGLANG[:4], ROWS[0][:5]]), "slot axis", "layer 0 has 6 slots, layer 4 has 5"),
        (
            sglang([*SGLANG[:4], [0, 1, 2, 3, 0, 1.0]]),
            "slot axis",
            "layer 4 holds 1.0, which is no expert id",
        ),
        (sglang([*SGLANG[:4], [0, 1, 2, 3, 0, True]]), "slot axis", "layer 4 holds True"),
        (sglang([[0, 1, 2, 3, 0, 10**30], *SGLANG[1:]]), "slot axis", "a number that is no expert id"),
        (sglang([[0, 1, 2]] * 5), "slot axis", "3 slots a layer cannot hold 4 experts"),
        (sglang([[0] * 6, *SGLANG[1:]]), "missing experts", "layer 0 has no slot of expert 1 and 2 more"),
        (
            sglang([*SGLANG[:4], [0, 1, 2, 3, 4, 1]]),
            "expert ids",
            "layer 4, slot 4 holds expert 4, not 0 to 3",
        ),
        (sglang([*SGLANG[:4], [0, 1, 2, 3, -1, 1]]), "expert ids", "layer 4, slot 4 holds expert -1"),
        (sglang([[0, 1, 2, 3, 0]] * 5), "divisibility", "5 slots do not divide among 2 ranks; 4 or 6 would"),
        ({"logical_count": [[1] * 4] * 3}, "layer axis", "3 rows, the engine wants 5"),
        ({"logical_count": [[1] * 6] * 5}, "slot axis", "6 experts, 4 in the model"),
        ({"logical_count": [[1] * 4, [1] * 3]}, "slot axis", "rows of different lengths"),
        ({"logical_count": [[-1] * 4] * 5}, "counts", "not negative"),
    ],
)
def test_sglang_refuses(judge, content, check, detail):
    ok, said = judge("sglang", content)[check]
    assert ok is False
    assert detail in said


def test_redundancy_and_nodes(judge):
    assert judge("sglang", sglang(SGLANG), redundant=4)["slot axis"] == (
        False,
        "6 slots a layer; 4 experts and 4 redundant ones make 8",
    )
    ok, detail = judge("sglang", sglang(SGLANG), ranks=3, nodes=2)["divisibility"]
    assert (ok, detail) == (False, "3 ranks do not divide among 2 nodes")


def lines(**changes):
    record = {"record_type": "eplb_initial_mapping", "version": 1, "num_redundant_experts": 2}
    table = {str(index): row for index, row in enumerate(MOE)}
    return {**record, "num_slots": 6, "initial_global_assignments": table, **changes}


def test_vllm_accepts(judge):
    assert not wrong(judge("vllm", MOE, redundant=2))
    assert judge("vllm", ROWS[0])["layer axis"] == (True, "one list for all layers")
    assert not wrong(judge("vllm", lines(), "m.jsonl"))
    meta = '{"record_type": "eplb_load_meta", "version": 1}\n'
    assert not wrong(judge("vllm", meta + json.dumps(lines()), "m.jsonl"))
    shuffled = {key: lines()["initial_global_assignments"][key] for key in ("2", "0", "1")}
    assert not wrong(judge("vllm", lines(initial_global_assignments=shuffled), "m.jsonl"))


@pytest.mark.parametrize(
    ("content", "name", "check", "detail"),
    [
        (
            SGLANG,
            "m.json",
            "layer axis",
            "5 rows, the engine wants 3: MoE layers; these look like all hidden",
        ),
        (
            lines(initial_global_assignments={"1": ROWS[0], "2": ROWS[1], "4": ROWS[0]}),
            "m.jsonl",
            "layer axis",
            "key '4' is none of 0 to 2; these look like ids of the whole model",
        ),
        (lines(num_slots=8), "m.jsonl", "keys", "num_slots and num_redundant_experts are (8, 2)"),
        (lines(version=2), "m.jsonl", "keys", "version 1"),
        (lines(initial_global_assignments=MOE), "m.jsonl", "keys", "must map layers to lists"),
        (json.dumps(lines()) + "\n" + json.dumps(lines()), "m.jsonl", "keys", "not one line"),
        (np.array(MOE).reshape(3, 2, 3).tolist(), "m.json", "slot axis", "MoE layer 0 is a list of lists"),
        ([[0, 1, 2, 0, 1, 2]] * 3, "m.json", "missing experts", "MoE layer 0 has no slot of expert 3"),
        ([[0, 1, 2, 3, 0]] * 3, "m.json", "divisibility", "5 slots do not divide among 2 ranks"),
        ("[]", "m.json", "keys", "neither a list of slots"),
        ([[0, 1, 2, 3, 0, None]] * 3, "m.json", "slot axis", "MoE layer 0 holds None"),
    ],
)
def test_vllm_refuses(judge, content, name, check, detail):
    ok, said = judge("vllm", content, name)[check]
    assert ok is False
    assert detail in said


def ascend(rows=MOE, ids=None, devices=2, **changes):
    layers = [
        {
            "layer_id": layer,
            "device_count": devices,
            "device_list": [
                {"device_id": device, "device_expert": part}
                for device, part in enumerate(np.array(row).reshape(devices, -1).tolist())
            ],
        }
        for layer, row in zip(ids or range(len(rows)), rows, strict=True)
    ]
    return {"moe_layer_count": len(rows), "layer_list": layers, **changes}


def uneven():
    content = ascend()
    content["layer_list"][1]["device_list"][0]["device_expert"].append(1)
    return content


def swapped_devices():
    content = ascend()
    content["layer_list"][2]["device_list"].reverse()
    return content


def test_vllm_ascend_accepts(judge):
    assert not wrong(judge("vllm-ascend", ascend(), redundant=2))
    assert not wrong(judge("vllm-ascend", ascend(ids=(1, 2, 4))))  # only the order is read


@pytest.mark.parametrize(
    ("content", "check", "detail"),
    [
        (ascend(SGLANG), "layer axis", "5 rows, the engine wants 3: MoE layers"),
        (ascend(ids=(2, 1, 0)), "layer axis", "layer_id is not ascending"),
        (ascend(moe_layer_count=5), "layer axis", "moe_layer_count is 5, layer_list has 3 layers"),
        ({"moe_layer_count": 3}, "keys", "'layer_list' must hold a list"),
        (uneven(), "slot axis", "MoE layer 1: devices hold 3 to 4 experts"),
        (swapped_devices(), "slot axis", "MoE layer 2: device_id is not ascending"),
        ({"layer_list": [{"device_list": MOE}] * 3}, "slot axis", "has no device_list"),
        (
            {"layer_list": [{"device_list": [{"device_expert": [[0, 1]]}]}] * 3},
            "slot axis",
            "every device wants device_expert",
        ),
        (ascend(devices=3), "divisibility", "MoE layer 0 has 3 devices, not 2"),
        (
            ascend([[0, 1, 0, 3, 2, 1], *MOE[1:]]),
            "duplicates",
            "MoE layer 0, rank 0 holds expert 0 twice; vllm-ascend would use only the last",
        ),
        (ascend([[0, 1, 2, 0, 1, 2], *MOE[1:]]), "missing experts", "MoE layer 0 has no slot of expert 3"),
    ],
)
def test_vllm_ascend_refuses(judge, content, check, detail):
    ok, said = judge("vllm-ascend", content)[check]
    assert ok is False
    assert detail in said


def trt(layers=(1, 2, 4), rows=MOE, slots=6, more="layer_updates_per_iter: 0\n"):
    table = "".join(f"  {layer}: {row}\n" for layer, row in zip(layers, rows, strict=True))
    return f"num_slots: {slots}\ninitial_global_assignments:\n{table}{more}"


def test_tensorrt_llm_accepts(judge):
    assert not wrong(judge("tensorrt-llm", trt(), redundant=2))
    assert not wrong(judge("tensorrt-llm", trt(more="layer_updates_per_iter: 2\n")))
    assert not wrong(judge("tensorrt-llm", trt((4, 2, 1))))
    assert not wrong(judge("tensorrt-llm", "num_slots: 6\nlayer_updates_per_iter: 1\n"))
    found = judge("tensorrt-llm", trt(rows=[[0, 1, 0, 3, 2, 1], *MOE[1:]]))
    assert not wrong(found)
    assert "layer 1, rank 0 holds expert 0 twice" in found["duplicates"][1]


@pytest.mark.parametrize(
    ("content", "check", "detail"),
    [
        (trt((0, 1, 2)), "layer axis", "layer 4 is missing; these count MoE layers from 0"),
        (trt((1, 2), MOE[:2]), "layer axis", "layer 4 is missing"),
        (trt((1, 2, 3, 4), [*MOE, ROWS[0]]), "layer axis", "layer 3 is no MoE layer"),
        (trt(("'1'", 2, 4)), "layer axis", "layer '1' is a str, not a number"),
        (trt(more="ep_size: 2\n"), "keys", "key 'ep_size' is no field"),
        (trt(more="layer_updates_per_iter: -1\n"), "keys", "must be 0 (static) or more"),
        (trt(slots=8), "slot axis", "layer 1 has not num_slots = 8 slots"),
        (trt(slots="many"), "slot axis", "num_slots must be a number"),
        (trt(rows=[ROWS[0], ROWS[1], [[0, 1, 2], [3, 0, 1]]]), "slot axis", "layer 4 has not num_slots"),
        ("num_slots: 7\n", "divisibility", "7 slots on 2 ranks"),
        (trt(rows=[[0, 1, 2, 3, 0]] * 3, slots=5), "divisibility", "5 slots do not divide among 2 ranks"),
        (trt(rows=[[0, 1, 2, 0, 1, 2], *MOE[1:]]), "missing experts", "layer 1 has no slot of expert 3"),
        ("[1, 2]", "keys", "not a mapping"),
    ],
)
def test_tensorrt_llm_refuses(judge, content, check, detail):
    ok, said = judge("tensorrt-llm", content)[check]
    assert ok is False
    assert detail in said


def test_eplb_refuses(tmp_path, model, deployment, layout):
    path = tmp_path / "m.npz"
    export_layout(layout, ENGINES["eplb"], path, model=model)
    with np.load(path, allow_pickle=False) as arrays:
        good = dict(arrays)

    def judged(**changes):
        np.savez(path, **{key: value for key, value in {**good, **changes}.items() if value is not None})
        found = check_file(path, ENGINES["eplb"], deployment).findings
        return [(one.check, one.detail) for one in found if one.ok is False]

    assert judged() == []
    assert judged(logcnt=None) == [("keys", "no array 'logcnt'")]
    assert judged(phy2log=good["phy2log"].astype(float)) == [("keys", "'phy2log' is float64 of shape (3, 6)")]
    ((check, detail),) = judged(logcnt=good["logcnt"] + 1)
    assert (check, detail[:24]) == ("inverse", "MoE layer 0, expert 0: l")
    assert judged(log2phy=good["log2phy"][:, :, ::-1])[0][0] == "inverse"
    assert judged(log2phy=good["log2phy"][:, :3])[0][0] == "inverse"
    assert judged(phy2log=good["phy2log"][:2])[0][0] == "layer axis"
    assert ("slot axis", "there is no row of slots") in judged(phy2log=good["phy2log"][:0])
    with pytest.raises(BadInput, match="'logcnt' cannot be read"):
        judged(logcnt=np.array([{}], dtype=object))


@pytest.mark.parametrize(
    ("engine", "content", "complaint"),
    [
        ("sglang", "{", "is not JSON"),
        ("sglang", '{"physical_to_logical_map": [[NaN]]}', "NaN is no JSON number"),
        ("sglang", '{"physical_to_logical_map": [], "physical_to_logical_map": []}', "is given twice"),
        ("sglang", "[" * 100_000, "is not JSON"),
        ("tensorrt-llm", "a: [", "is not YAML"),
        ("tensorrt-llm", "initial_global_assignments:\n  3: [0]\n  3: [1]\n", "key '3' is given twice"),
        ("tensorrt-llm", "a: &x [1]\nb: [*x, *x]\n", "uses aliases"),
        ("tensorrt-llm", "!!python/object/apply:os.system ['true']", "is not YAML"),
        ("eplb", "hello", "is not a whole numpy archive"),
    ],
)
def test_files_that_nothing_can_read(judge, engine, content, complaint):
    with pytest.raises(BadInput) as error:
        judge(engine, content)
    assert complaint in str(error.value)


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (extra 'torch')"
)
def test_sglang_map_as_pt(tmp_path, deployment):
    import torch

    torch.save({"physical_to_logical_map": torch.tensor(SGLANG)}, tmp_path / "m.pt")
    assert check_file(tmp_path / "m.pt", ENGINES["sglang"], deployment).ok
