"""`moeplan timeline`: its answer, its files, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest

MACHINE = ("--platform", "b200-hbmpim")
MODES = ["serial", "per-device", "overlapped"]


@pytest.fixture(scope="module")
def counted(world, tmp_path_factory):
    """Options for the tiny model's 8 experts with 16 tokens, two choices each."""
    path = tmp_path_factory.mktemp("counts") / "tokens.txt"
    path.write_text("12 9, 5\n3 2 1 0 0\n")
    return ["--model", world.model, *MACHINE, "--tokens-per-expert", path]


def answer(cli, *arguments):
    ended = cli("timeline", *arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_json_is_the_answer(cli, counted):
    found = answer(cli, *counted, "--gpu-experts", "0-1,7", "--layout", "tp")
    assert list(found) == [
        "model", "platform", "layer", "step", "gpus", "layout", "policy", "gpu_experts", "pim_experts",
        "expected", "expected_of_tasks", "timelines", "svg", "chrome",
    ]  # fmt: skip
    assert (found["model"], found["platform"], found["layer"]) == ("tiny", "b200-hbmpim", 1)
    assert (found["step"], found["policy"]) == (None, "named")
    # Expert 7 has no token, and so no task.
    assert (found["gpu_experts"], found["pim_experts"]) == ([0, 1], [2, 3, 4, 5])
    assert [line["mode"] for line in found["timelines"]] == MODES
    assert all(line["optimal"] is None for line in found["timelines"])
    for part in (found["expected"], found["expected_of_tasks"]):
        assert part["total_s"] == max(part["t_comm_s"], part["t_gpu_s"], part["t_pim_s"])


def test_more_overlap_is_faster_and_nothing_beats_what_is_expected(cli, counted):
    found = answer(cli, *counted, "--gpu-experts", "0-1")
    expected_s = found["expected"]["total_s"]
    serial, per_device, overlapped = found["timelines"]
    assert serial["makespan_s"] > per_device["makespan_s"] >= overlapped["makespan_s"] > expected_s
    for line in found["timelines"]:
        assert line["over_expected"] == pytest.approx(line["makespan_s"] / expected_s - 1, rel=1e-12)
        assert line["bound_s"] <= line["makespan_s"] * (1 + 1e-12)
        path = line["critical_path"]
        assert path[0]["start_s"] == 0.0
        assert path[-1]["end_s"] == line["makespan_s"]
        assert all(x["end_s"] == y["start_s"] for x, y in pairwise(path))
    assert serial["busy_share"] == {"everything": pytest.approx(1.0)}
    assert set(overlapped["busy_share"]) == {"GPU compute", "GPU memory", "interconnect", "PIM"}


def test_the_decision_and_attention_take_their_time(cli, counted):
    def serial_s(*more):
        found = answer(cli, *counted, "--gpu-experts", "", "--mode", "serial", *more)
        (line,) = found["timelines"]
        return line["makespan_s"], found["expected"]["t_pim_s"]

    plain_s, pim_s = serial_s("--scheduler", "0 us", "--context", 0)
    later_s, _ = serial_s("--context", 0)
    assert later_s - plain_s == pytest.approx(20e-6, rel=1e-9)
    busy_s, with_attention_s = serial_s("--scheduler", "0 us", "--context", 4000)
    assert busy_s - plain_s == pytest.approx(with_attention_s - pim_s, rel=1e-6)
    assert with_attention_s > pim_s


def test_optimal_order_is_between_bound_and_list_schedule_and_repeats(cli, counted):
    options = (*counted, "--gpu-experts", "0-2", "--optimal", "--budget", "300it")
    found = answer(cli, *options)
    assert found == answer(cli, *options)
    for line in found["timelines"]:
        best = line["optimal"]
        assert line["bound_s"] == best["bound_s"]
        assert best["bound_s"] * (1 - 1e-12) <= best["makespan_s"] <= line["makespan_s"]
        assert best["list_gap"] == line["gap"] >= best["gap"]


def test_policies_of_the_partition_family_decide(cli, counted):
    assert answer(cli, *counted, "--policy", "no_exp")["pim_experts"] == []
    assert answer(cli, *counted, "--policy", "all_exp")["gpu_experts"] == []
    by_default = answer(cli, *counted)
    assert by_default["policy"] == "sieve"
    exact = answer(cli, *counted, "--policy", "exact")
    assert exact["expected"]["total_s"] <= by_default["expected"]["total_s"] * (1 + 1e-12)


def test_one_step_of_a_trace_on_two_gpus(cli, world):
    options = ("--model", world.model, *MACHINE, "--trace", world.trace, "--batch", 16, "--layer", 2)
    assert answer(cli, *options)["step"] == 0
    assert cli("timeline", *options).out.startswith("tiny on b200-hbmpim, layer 2, step 0\n")
    alone = answer(cli, *options, "--step", 3)
    assert (alone["layer"], alone["step"], alone["gpus"]) == (2, 3, 1)
    assert alone["expected"]["t_comm_s"] == 0.0
    shared = answer(cli, *options, "--step", 3, "--gpus", 2)
    assert shared["expected"]["t_comm_s"] > 0.0
    ids = shared["gpu_experts"] + shared["pim_experts"]
    assert set(ids) <= {0, 1, 2, 3} or set(ids) <= {4, 5, 6, 7}


def test_pictures_are_written(cli, counted, tmp_path):
    svg, chrome = tmp_path / "g.svg", tmp_path / "t.json"
    found = answer(cli, *counted, "--gpu-experts", "0", "--svg", svg, "--chrome", chrome)
    assert (found["svg"], found["chrome"]) == (str(svg), str(chrome))
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    events = json.loads(chrome.read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == MODES
    before = svg.read_bytes(), chrome.read_bytes()
    answer(cli, *counted, "--gpu-experts", "0", "--svg", svg, "--chrome", chrome)
    assert (svg.read_bytes(), chrome.read_bytes()) == before


def test_a_table_and_a_picture_for_people(cli, counted):
    ended = cli("timeline", *counted, "--gpu-experts", "0-1")
    assert ended.code == 0, ended.err
    head = "tiny on b200-hbmpim, layer 1\n2 experts on the GPU, 4 on PIM\nmax(...) = "
    assert ended.out.startswith(head)
    assert "over max(...)" in ended.out
    assert "GPU memory" in ended.out
    assert "\x1b" not in ended.out


def test_no_tokens_still_run_the_small_kernels(cli, counted, tmp_path):
    path = tmp_path / "none.json"
    path.write_text("[0, 0, 0, 0, 0, 0, 0, 0]")
    found = answer(cli, *counted[:-1], path)
    assert (found["gpu_experts"], found["pim_experts"]) == ([], [])
    assert found["timelines"][0]["makespan_s"] > 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3", "there are 3 token counts"),
        ("1 2 3 4 5 6 7 -8", "'-8' is no token count"),
        ("1 2 3 4 5 6 7 0.5", "'0.5' is no token count"),
        ("1 2 3 four 5 6 7 8", "'four' is no token count"),
        ("1 2 3 4 5 6 7 99999999999999999999", "is no token count"),
    ],
)
def test_bad_counts_are_refused(cli, counted, tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    ended = cli("timeline", *counted[:-1], path)
    assert (ended.code, ended.out) == (3, "")
    assert message in ended.err


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--gpu-experts", "9"), 2, "there is no expert 9"),
        (("--gpu-experts", "all"), 2, "'all' names no experts"),
        (("--policy", "seive"), 2, "did you mean 'sieve'?"),
        (("--gpus", "2"), 2, "counts do not say"),
        (("--layer", "0"), 3, "no MoE layer 0"),
        (("--scheduler", "20"), 2, "the unit is missing"),
        (("--budget", "soon"), 2, "is no budget"),
        (("--trace", "t.parquet"), 2, "give the tokens of the experts"),
        (("--platform", "spimoe-4x8"), 3, "has no GPU"),
        (("--svg", "gone/g.svg"), 3, "cannot write"),
    ],
)
def test_what_cannot_be_is_refused(cli, counted, monkeypatch, tmp_path, more, code, message):
    monkeypatch.chdir(tmp_path)
    ended = cli("timeline", *counted, *more)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_nothing_to_run_is_refused(cli, world):
    ended = cli("timeline", "--model", world.model, *MACHINE)
    assert ended.code == 2
    assert "--tokens-per-expert or --trace" in ended.err


def test_real_layer_shows_by_how_much_the_expectation_is_too_short(cli, tmp_path):
    # Whatever the partition, the decision (20 us) and six kernels of 3 us (projections twice, router,
    # metadata, permutation, sum) come before or after what PIM does.
    rng = np.random.default_rng(0)
    counts = rng.multinomial(64 * 6, rng.dirichlet(np.ones(64)))
    path = tmp_path / "counts.txt"
    path.write_text(" ".join(map(str, counts)))
    found = answer(
        cli, "--model", "deepseek-v2-lite", *MACHINE, "--tokens-per-expert", path, "--gpu-experts", "0-15"
    )
    overlapped = found["timelines"][-1]
    assert overlapped["makespan_s"] - found["expected"]["t_pim_s"] > 20e-6 + 6 * 3e-6


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("--gpu-experts", "1", "--policy", "sieve"),
            "--policy chooses the experts that --gpu-experts names",
        ),
        (("--gpu-experts", "1", "--budget", "1s"), "--budget limits nothing"),
        (("--budget", "5s"), "--budget limits nothing"),
        (("--policy", "no_exp", "--budget", "10it"), "--budget limits nothing"),
    ],
)
def test_what_would_change_nothing_is_refused(cli, counted, more, message):
    ended = cli("timeline", *counted, *more)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_a_budget_is_for_searches(cli, counted):
    for more in (("--policy", "annealing"), ("--gpu-experts", "1", "--optimal")):
        assert cli("timeline", *counted, *more, "--budget", "10it").code == 0


@pytest.mark.parametrize("beyond", [0, 100_000_000])
def test_a_step_that_the_trace_does_not_have(cli, world, beyond):
    from moeplan.workload.stream import open_trace

    steps = open_trace(world.trace).tokens // 16
    options = ("--model", world.model, *MACHINE, "--trace", world.trace, "--batch", 16)
    ended = cli("timeline", *options, "--step", steps + beyond)
    assert (ended.code, ended.out) == (2, "")
    assert f"make {steps} steps of 16" in ended.err
    assert f"0 to {steps - 1}" in ended.err
    assert cli("timeline", *options, "--step", steps - 1).code == 0
