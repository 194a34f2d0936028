"""Dumps of SGLang's recorder, made by hand.

What a dump says is tested on plain values (`dump` stands in for the file); that real .pt files give the
same values is tested where torch is installed.
"""

import dataclasses
import importlib.util

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.model import load_model
from moeplan.workload.readers import sglang_dump
from moeplan.workload.readers.formats import read_recording
from moeplan.workload.readers.sglang import read_sglang

# 5 slots for 4 experts: slot 4 is a second replica of expert 2; in layer 3 slots 0 and 1 are swapped.
MAP = np.array([[0, 1, 2, 3, 0], [0, 1, 2, 3, 2], [0, 1, 2, 3, 0], [1, 0, 2, 3, 2]])


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


@pytest.fixture
def dump(tmp_path, monkeypatch):
    """Write a dump: its file is empty, its content is handed to the reader."""
    contents = {}
    monkeypatch.setattr(sglang_dump, "load_torch_file", lambda path: contents[path])

    def write(content, name="expert_distribution_recorder_1.5.pt"):
        path = tmp_path / name
        path.write_bytes(b"")
        contents[path] = content
        return path

    return write


def stat(rows):
    """`logical_count` [B, 4, 4] with zero rows for the dense layers 0 and 2."""
    counts = np.zeros((len(rows), 4, 4), dtype=np.int32)
    counts[:, [1, 3]] = rows
    return {"rank": 0, "logical_count": counts, "average_utilization_rate_over_window": None}


def test_stat(dump, model):
    rows = [[[0] * 4] * 2, [[1, 2, 3, 4], [4, 3, 2, 1]], [[0, 0, 0, 9], [9, 0, 0, 0]], [[0] * 4] * 2]
    load = read_sglang([dump(stat(rows))], model)
    assert load.layers == (1, 3)  # dense rows are dropped
    assert load.counts.tolist() == rows[1:3]  # and so are unused rows of the ring
    assert load.windows == (
        "expert_distribution_recorder_1.5.pt row 1",
        "expert_distribution_recorder_1.5.pt row 2",
    )
    assert "ring" in load.remarks[0]


def test_stat_leaves_silent_layers_out(dump, model):
    load = read_sglang([dump(stat([[[1, 2, 3, 4], [0] * 4]]))], model)
    assert load.layers == (1,)
    assert any("left out: 3" in remark for remark in load.remarks)


def test_stat_of_one_rank_is_remarked(dump, model):
    load = read_sglang([dump(stat([[[1, 2, 0, 0], [3, 4, 0, 0]]]))], model)
    assert any("2 of 4 experts have no token" in remark for remark in load.remarks)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: c[:, [1, 3]], "these look like its MoE layers alone"),
        (lambda c: c[:, :3], "there are 3 layer rows, SGLang writes one for each of the 4 hidden layers"),
        (lambda c: np.concatenate([c, c], axis=2), "'logical_count' is int32 of shape (1, 4, 8)"),
        (lambda c: c + 1, "layer 0 is dense in olmoe-1b-7b, but has counts"),
        (lambda c: c * 0, "the recording holds no counts"),
        (lambda c: c - (c > 3) * 9, "count -5.0 is no number of tokens"),
    ],
)
def test_faulty_stat(dump, model, change, complaint):
    content = stat([[[1, 2, 3, 4], [4, 3, 2, 1]]])
    content["logical_count"] = change(content["logical_count"])
    with pytest.raises(BadInput) as error:
        read_sglang([dump(content)], model)
    assert complaint in str(error.value)


def per_pass(rank, passes):
    """Records of {pass id: counts [2, 5] of the MoE layers by slot}."""
    records = []
    for number, counts in passes.items():
        physical = np.zeros((4, 5), dtype=np.int32)
        physical[[1, 3]] = counts
        records.append(
            {
                "forward_pass_id": number,
                "rank": rank,
                "gatherer_key": "primary",
                "global_physical_count": physical,
            }
        )
    return {"records": records, "last_physical_to_logical_map": MAP}


def test_per_pass_sums_ranks_and_folds_slots(dump, model):
    first = dump(per_pass(0, {8: [[1, 0, 2, 0, 0], [5, 7, 0, 0, 0]], 7: [[1] * 5] * 2}), "r_0.pt")
    dump(per_pass(1, {7: [[0, 0, 0, 0, 3], [0, 0, 0, 1, 0]], 8: [[0, 0, 0, 0, 4], [0] * 5]}), "r_1.pt")
    load = read_sglang([first.parent], model)
    assert load.windows == ("pass 7", "pass 8")
    # layer 1: slots 2 and 4 are expert 2; layer 3: slots 0 and 1 are experts 1 and 0
    assert load.counts.tolist() == [[[1, 1, 5, 1], [1, 1, 2, 2]], [[1, 0, 6, 0], [7, 5, 0, 0]]]
    assert load.layers == (1, 3)


def test_per_pass_faults(dump, model):
    good = per_pass(0, {7: [[1] * 5] * 2})
    again = dump(good, "again.pt")
    with pytest.raises(BadInput, match="pass 7 of rank 0 is recorded twice"):
        read_sglang([dump(good, "a.pt"), again], model)
    other = {**per_pass(1, {7: [[1] * 5] * 2}), "last_physical_to_logical_map": MAP[::-1]}
    with pytest.raises(BadInput, match="maps of physical to logical experts differ"):
        read_sglang([again, dump(other, "b.pt")], model)
    wrong = {**good, "last_physical_to_logical_map": MAP + 1}
    with pytest.raises(BadInput, match="slot 3 holds expert 4"):
        read_sglang([dump(wrong, "c.pt")], model)
    with pytest.raises(BadInput, match="different modes"):
        read_sglang([again, dump(stat([[[1] * 4] * 2]), "d.pt")], model)
    with pytest.raises(BadInput, match="holds no records"):
        read_sglang([dump({**good, "records": []}, "e.pt")], model)
    with pytest.raises(BadInput, match="is no dump of SGLang's recorder"):
        read_sglang([dump({"weights": 1}, "f.pt")], model)


def per_token(rank, passes, width=2):
    """Records of (pass id, mode, positions, lengths, choices [tokens, 2, 2] by slot); -1 pads the rest."""
    records = []
    for number, mode, positions, lengths, choices in passes:
        topk = np.full((4, len(positions), 8), -1, dtype=np.int32)
        topk[[1, 3], :, :width] = np.array(choices).reshape(-1, 2, width).transpose(1, 0, 2)
        records.append(
            {
                "forward_pass_id": number,
                "rank": rank,
                "gatherer_key": "primary",
                "global_physical_count": np.zeros((4, 5), dtype=np.int32),
                "input_ids": [5] * len(positions),
                "positions": positions,
                "extend_seq_lens": lengths,
                "forward_mode": mode,
                "topk_ids_of_layer": topk,
                "misc_objects": [],
            }
        )
    return {"records": records, "last_physical_to_logical_map": MAP}


def test_per_token_maps_slots_and_joins_requests(dump, model):
    passes = [
        # two prompts, of 2 tokens and of 1
        (3, 1, [0, 1, 0], [2, 1], [[[0, 4], [0, 4]], [[1, 2], [1, 2]], [[3, 0], [3, 0]]]),
        # decoding both; the third row is padding
        (4, 2, [2, 1, 0], None, [[[4, 3], [0, 3]], [[1, 0], [1, 3]], [[-1, -1], [-1, -1]]]),
        (5, 2, [3, 2], None, [[[0, 1], [2, 3]], [[2, 3], [0, 1]]]),
    ]
    trace = read_sglang([dump(per_token(0, passes))], model)
    assert trace.layers == (1, 3)
    assert trace.top_k == 2
    assert trace.experts[:, 0].tolist() == [[0, 2], [1, 2], [3, 0], [2, 3], [1, 0], [0, 1], [2, 3]]
    assert trace.experts[:, 1].tolist() == [[1, 2], [0, 2], [3, 1], [1, 3], [0, 3], [2, 3], [1, 0]]
    assert trace.request.tolist() == [0, 0, 1, 0, 1, 0, 1]
    assert trace.position.tolist() == [0, 1, 0, 2, 1, 3, 2]
    assert trace.step.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert trace.phase.tolist() == [0, 0, 0, 2, 2, 2, 2]


def test_per_token_does_not_guess_between_requests_at_one_position(dump, model):
    choices = [[[0, 1], [0, 1]], [[2, 3], [2, 3]]]
    passes = [(1, 1, [0, 0], [1, 1], choices), (2, 2, [1, 1], None, choices)]
    trace = read_sglang([dump(per_token(0, passes))], model)
    assert trace.request[:2].tolist() == [0, 1]
    assert len(set(trace.request.tolist())) == 4


def test_per_token_of_ranks_that_see_the_same_tokens(dump, model):
    passes = [(1, 1, [0, 1], [2], [[[0, 1], [0, 1]], [[2, 3], [2, 3]]])]
    files = [dump(per_token(rank, passes), f"r_{rank}.pt") for rank in (0, 1)]
    trace = read_sglang(files, model)
    assert trace.tokens == 2
    assert "1 passes that repeat" in trace.source
    other = [(1, 1, [0, 1], [2], [[[0, 1], [0, 1]], [[1, 3], [2, 3]]])]
    trace = read_sglang([files[0], dump(per_token(1, other), "r_2.pt")], model)
    assert trace.tokens == 4  # another rank's own tokens
    assert trace.request.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("passes", "changes", "complaint"),
    [
        ([(1, 1, [0], [1], [[[0, 5], [0, 1]]])], {}, "a token chose slot 5"),
        ([(1, 1, [0], [1], [[[2, 4], [0, 1]]])], {}, "expert 2 appears twice"),
        ([(1, 1, [0, 1], [2], [[[0, 1], [0, 1]], [[-1, -1], [0, 1]]])], {}, "choices of token 1 are missing"),
        ([(1, 1, [0], [1], [[[-1, -1], [-1, -1]]])], {}, "the recording holds no tokens"),
        ([(1, 1, [0], [1], [[[0, 1], [0, 1]]])], {"top_k": 1}, "tokens chose more than the 1 experts"),
        ([(1, 1, [0], [1], [[[0, 1], [0, 1]]])], {"top_k": 9}, "keeps 8 choices of a token"),
        ([(1, 1, [0], [1], [[[0, 1], [0, 1]]])], {"layers": 5}, "SGLang writes one for each of the 5 hidden"),
    ],
)
def test_faulty_per_token(dump, model, passes, changes, complaint):
    with pytest.raises(BadInput) as error:
        read_sglang([dump(per_token(0, passes))], dataclasses.replace(model, **changes))
    assert complaint in str(error.value)


def test_folders_without_dumps(tmp_path, model):
    with pytest.raises(BadInput, match=r"holds no \.pt files"):
        read_sglang([tmp_path], model)


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (extra 'torch')"
)
@pytest.mark.parametrize("mode", ["stat", "per_pass", "per_token"])
def test_real_files_give_the_same(tmp_path, dump, model, mode, monkeypatch):
    import torch

    content = {
        "stat": stat([[[1, 2, 3, 4], [4, 3, 2, 1]]]),
        "per_pass": per_pass(0, {7: [[1, 2, 3, 4, 5]] * 2}),
        "per_token": per_token(0, [(1, 1, [0], [1], [[[0, 4], [1, 3]]])]),
    }[mode]
    expected = read_sglang([dump(content)], model)

    def tensors(value):
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value.copy())
        if isinstance(value, dict):
            return {key: tensors(item) for key, item in value.items()}
        return [tensors(item) for item in value] if isinstance(value, list) else value

    monkeypatch.undo()
    torch.save(tensors(content), tmp_path / "real.pt")
    read = read_recording([tmp_path / "real.pt"], model)
    assert read.fingerprint == expected.fingerprint
