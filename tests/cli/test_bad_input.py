"""What cannot be done is said in full, with its exit code, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

DEMO = ("--model", "olmoe-1b-7b", "--platform", "spimoe-4x8", "--batch", "8", "--steps", "4")


def archive(path: Path, experts: np.ndarray, **more: np.ndarray) -> Path:
    np.savez(path, experts=experts, **more)
    return path


@pytest.fixture
def refused(cli_process, tmp_path):
    """Run a command that must fail in an empty folder; check that it leaves neither answer nor file."""
    here = tmp_path / "here"
    here.mkdir()

    def run(code: int, *arguments: object) -> str:
        ended = cli_process(*arguments, cwd=here)
        assert ended.code == code, ended.err
        assert ended.out == ""
        assert list(here.iterdir()) == []
        assert "Traceback" not in ended.err
        assert "\x1b" not in ended.err
        return ended.err

    return run


@pytest.fixture
def tokens() -> np.ndarray:
    """Choices [40, 3, 2] of 8 experts for the small model."""
    rng = np.random.default_rng(0)
    return np.argsort(rng.random((40, 3, 8)), axis=-1)[..., :2].astype(np.int16)


def test_missing_trace(refused):
    err = refused(3, "plan", *DEMO, "--trace", "gone.parquet")
    assert "error: trace 'gone.parquet' does not exist" in err
    assert "fix: " in err


def test_truncated_trace(refused, world, tmp_path):
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(world.trace.read_bytes()[:-100])
    assert "is not a whole Parquet file" in refused(3, "trace", "stats", cut)


def test_expert_out_of_range_names_row_and_layer(refused, world, tokens, tmp_path):
    tokens[17, 2, 0] = 8
    err = refused(
        3, "trace", "import", archive(tmp_path / "a.npz", tokens), "--model", world.model, "-o", "t.parquet"
    )
    assert "expert id 8 is out of range" in err
    assert "row 17, layer 3" in err
    assert "0 to 7" in err


def test_nan_weights_name_row_and_layer(refused, world, tokens, tmp_path):
    weights = np.full(tokens.shape, 0.5, dtype=np.float32)
    weights[5, 1, 1] = np.nan
    file = archive(tmp_path / "a.npz", tokens, weights=weights)
    err = refused(3, "trace", "import", file, "--model", world.model, "-o", "t.parquet")
    assert "router weight nan" in err
    assert "row 5, layer 2" in err


def test_truncated_archive(refused, world, tokens, tmp_path):
    file = archive(tmp_path / "a.npz", tokens)
    file.write_bytes(file.read_bytes()[:200])
    assert "a.npz" in refused(3, "trace", "import", file, "--model", world.model, "-o", "t.parquet")


def test_trace_of_another_model(refused, world):
    err = refused(3, "plan", *DEMO, "--trace", world.trace)
    assert "the trace of tiny does not fit olmoe-1b-7b" in err
    assert "8 experts" in err


def test_held_out_trace_of_another_model(refused, world, plan_inputs):
    from moeplan.cli.demo import TRACE

    err = refused(3, "plan", *plan_inputs, "--held-out", TRACE)
    assert "the trace of deepseek-v2-lite does not fit" in err


def test_fewer_tokens_than_one_batch(refused, world):
    inputs = ("--model", world.model, "--platform", "spimoe-4x8", "--trace", world.trace)
    err = refused(3, "plan", *inputs, "--batch", 641)
    assert "640 tokens" in err  # half of 1280
    assert "profile part of trace.parquet" in err


def test_platform_without_pim_sites(refused, world):
    err = refused(3, "plan", "--model", world.model, "--platform", "h100", "--trace", world.trace)
    assert "no PIM channel sites" in err


def test_model_that_does_not_fit_says_how_much_is_missing(cli, refused, tmp_path):
    trace = tmp_path / "t.parquet"
    size = ("--layers", "0", "--tokens", 1024, "--requests", 16)
    assert cli("trace", "synth", "--model", "olmoe-1b-7b", *size, "-o", trace).code == 0
    small = tmp_path / "small.yaml"
    small.write_text("base: spimoe-4x8\nname: small\nsite: {memory: 100 MB}\n")
    err = refused(4, "plan", "--model", "olmoe-1b-7b", "--platform", small, "--trace", trace)
    # 16 layers x 64 experts x 3 x 2048 x 1024 weights of 2 bytes are 12 GiB, all else 0.888 GiB
    # (476,577,792 weights); 32 sites of 100 MB hold 2.980 GiB: 9.907 GiB are missing.
    assert "9.9 GiB are missing" in err


def test_yaml_with_an_unknown_key(refused, world, tmp_path):
    file = tmp_path / "typo.yaml"
    file.write_text(world.model.read_text().replace("top_k", "topk"))
    err = refused(3, "models", file)
    assert "topk: unknown key" in err
    assert "did you mean 'top_k'" in err


def test_yaml_with_a_unit_error(refused, tmp_path):
    file = tmp_path / "units.yaml"
    file.write_text("base: spimoe-4x8\nsite: {memory: 3 parsec}\n")
    err = refused(3, "platforms", file)
    assert "site.memory" in err
    assert "unknown unit 'parsec'" in err


@pytest.mark.parametrize("budget", ["0", "0s", "-1s", "abc"])
def test_budget_that_is_none(refused, budget):
    err = refused(2, "plan", *DEMO, "--trace", "t.parquet", "--budget", budget)
    assert f"{budget!r} is no budget" in err
    assert "--budget 20000it" in err


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--solver", "anealing", "did you mean 'annealing'"),
        ("--model", "olmoe-1b-8b", "did you mean 'olmoe-1b-7b'"),
        ("--platform", "spimoe-4x9", "did you mean 'spimoe-4x8'"),
    ],
)
def test_unknown_names_are_corrected(refused, option, value, hint):
    arguments = list(DEMO)
    if option in arguments:
        arguments[arguments.index(option) + 1] = value
    else:
        arguments += [option, value]
    assert hint in refused(2, "plan", *arguments, "--trace", "t.parquet")


@pytest.mark.parametrize("share", ["1", "-0.5", "nan"])
def test_held_out_share_out_of_range(refused, plan_inputs, share):
    assert "held-out fraction must lie between 0 and 1" in refused(
        2, "plan", *plan_inputs, "--held-out", share
    )


@pytest.mark.parametrize(("share", "fix"), [("50", "0.5"), ("2.5", "0.025"), ("100", "for example 0.5")])
def test_a_percentage_held_out_is_told_its_share(refused, plan_inputs, share, fix):
    assert fix in refused(2, "plan", *plan_inputs, "--held-out", share)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan", *DEMO), ("is a solver of replicas", "moeplan plan --platform h20x32")),
        (("partition", "--platform", "b200-hbmpim", "--model", "olmoe-1b-7b"), ("solver of replicas",)),
    ],
)
def test_a_solver_of_another_family_is_told_where_it_belongs(refused, arguments, told):
    option = "--policy" if arguments[0] == "partition" else "--solver"
    err = refused(2, *arguments, "--trace", "gone.parquet", option, "eplb")
    assert all(words in err for words in told)
    assert "did you mean" not in err


@pytest.mark.parametrize("verb", ["partition", "timeline"])
def test_machine_and_policy_are_looked_at_before_the_trace(refused, verb):
    asked = (verb, "--model", "olmoe-1b-7b", "--trace", "gone.parquet")
    assert "gone.parquet" not in refused(3, *asked, "--platform", "spimoe-4x8")
    err = refused(2, *asked, "--platform", "b200-hbmpim", "--policy", "seive")
    assert "did you mean 'sieve'" in err


def test_timeline_names_its_own_option(refused, world):
    asked = ("timeline", "--model", world.model, "--platform", "b200-hbmpim", "--trace", world.trace)
    err = refused(2, *asked, "--layer", 0)
    assert "where:   --layer\n" in err


def test_too_little_memory_says_what_the_least_is_of(refused, plan_inputs):
    err = refused(3, "plan", *plan_inputs, "--memory", "1 MiB")
    assert "--jobs 1 --steps 1 --batch 1" in err


@pytest.mark.parametrize(
    ("verb", "option"),
    [("plan", "--trace"), ("plan", "--held-out"), ("stats", None), ("simulate", "--trace")],
)
def test_what_is_no_trace_is_recognised(refused, plan_inputs, world, tokens, tmp_path, verb, option):
    file = archive(tmp_path / "yours.npz", tokens)
    inputs = list(plan_inputs)
    if option in inputs:
        at = inputs.index(option)
        del inputs[at : at + 2]
    for path, told in (
        (file, f"moeplan trace import {file} --model"),
        (world.plan, "a plan of moeplan, no trace"),
    ):
        if verb == "stats":
            err = refused(3, "trace", "stats", path)
        else:
            err = refused(3, verb, *inputs, option, path)
        assert told in err
        assert "copy it again" not in err


def test_a_plan_in_place_of_a_trace_comes_before_the_name_of_the_output(refused, plan_inputs, world):
    inputs = [world.plan if each == world.trace else each for each in plan_inputs]
    err = refused(3, "plan", *inputs, "-o", world.plan)
    assert "a plan of moeplan, no trace" in err


def test_a_trace_in_place_of_a_plan(refused, world):
    err = refused(3, "report", world.trace)
    assert "no plan" in err
    assert "fix: " in err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("report", "PLAN", "-o", "r.pdf"), "r.html"),
        (("plan", "INPUTS", "-o", "p.yaml"), "p.json"),
        (("plan", "INPUTS", "--report", "r.md"), "r.html"),
        (("pareto", "--model", "olmoe-1b-7b", "--svg", "p.png"), "p.svg"),
        (("ring", "--mesh", "2x2", "--svg", "p.pdf"), "p.svg"),
        (("bench", "scale", "--svg", "p.png"), "p.svg"),
        (("validate", "--figure", "p.png"), "p.svg"),
        (("reproduce", "eplb", "--report", "p.txt"), "p.html"),
        (
            ("trace", "synth", "--model", "olmoe-1b-7b", "--tokens", 8, "--requests", 2, "-o", "t.npz"),
            "t.parquet",
        ),
        (("trace", "calibrate", "--model", "glm-5.2", "--targets", "glm-5.2", "-o", "t.json"), "t.yaml"),
    ],
)
def test_outputs_named_like_something_else_are_refused(refused, plan_inputs, world, arguments, name):
    asked: list[object] = []
    for part in arguments:
        asked += plan_inputs if part == "INPUTS" else [world.plan if part == "PLAN" else part]
    assert f"fix: name it {name}" in refused(2, *asked)


def test_unknown_solver_option(refused, plan_inputs):
    err = refused(
        2, "plan", *plan_inputs, "--solver", "ilp", "--option", "step_cluster=2", "--budget", "10it"
    )
    assert "did you mean 'step_clusters'" in err


def test_unwritable_output_is_said_before_the_work(refused, plan_inputs):
    err = refused(3, "plan", *plan_inputs, "--budget", "1h", "-o", "no/such/folder/plan.json")
    assert "cannot write 'no/such/folder/plan.json'" in err
    assert "cannot write '.'" in refused(3, "plan", *plan_inputs, "--budget", "1h", "--report", ".")


def test_plan_over_its_own_trace(refused, plan_inputs, world):
    before = world.trace.read_bytes()
    assert "same file" in refused(2, "plan", *plan_inputs, "-o", world.trace)
    assert world.trace.read_bytes() == before


def test_report_of_what_is_no_plan(refused, world, tmp_path):
    assert "does not exist" in refused(3, "report", "gone.json")
    half = tmp_path / "half.json"
    half.write_text(world.plan.read_text()[:1000])
    assert "is not JSON" in refused(3, "report", half)
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"format": "something"}))
    assert "is not a plan of moeplan" in refused(3, "check", other)


def test_synthetic_requests_that_do_not_come_out_even(refused, world):
    synth = ("trace", "synth", "--model", world.model, "-o", "t.parquet")
    assert "cannot share 100 tokens" in refused(
        2, *synth, "--tokens", 100, "--requests", 7, "--concurrency", 3
    )
    assert "too few for 7 requests" in refused(2, *synth, "--tokens", 6, "--requests", 7)
    assert "no MoE layer 9" in refused(2, *synth, "--tokens", 8, "--requests", 2, "--layers", "1,9")


def test_demo_where_its_folder_cannot_be(refused, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert "cannot make the folder" in refused(3, "demo", "-o", file / "demo")
