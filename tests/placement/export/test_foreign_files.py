"""Files of others: every documented trap of every engine is met as documented."""

import dataclasses
import importlib.util
import json

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.placement.export.engines import ENGINES, check_file, export_layout, find_engine

from .maps import FILES, ROWS, TRIVIAL

SGLANG = [TRIVIAL, ROWS[0], ROWS[1], TRIVIAL, ROWS[0]]
MOE = [ROWS[0], ROWS[1], ROWS[0]]


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
