"""Estimates of memory: by hand, against the limit, and against what plans really take."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.placement.memory import BASE_BYTES, Ask, check_memory, estimate, smaller

#: 100 steps of 10 tokens of 4 choices are 4000 choices a layer; 8 experts on 3 sites.
SMALL = Ask("replicas", 8, 4, 2, 3, batch=10, steps=100, trace_tokens=5000, trace_layers=2)
#: Large enough that every part shows beside the program.
LARGE = Ask("cores", 256, 8, 16, 20, batch=256, steps=2048, jobs=8, trace_tokens=2_000_000, trace_layers=16)
GIB = 2**30


def test_decode_steps_take_two_bytes_a_choice():
    # profile and held-out part, 2 layers, 4000 choices, int16
    assert estimate(SMALL).traffic_bytes == 2 * 2 * 4000 * 2
    assert estimate(replace(SMALL, held_out=False)).traffic_bytes == 2 * 4000 * 2


def test_what_stays_grows_with_layers_and_what_works_with_jobs():
    one, four = estimate(replace(LARGE, layers=1)), estimate(replace(LARGE, layers=4, jobs=2))
    assert four.kept_bytes == 4 * one.kept_bytes
    assert four.working_bytes == 2 * one.working_bytes
    # more jobs than layers are as many as layers
    assert estimate(replace(LARGE, layers=1, jobs=8)).working_bytes == one.working_bytes


def test_replicas_of_uniform_sources_by_hand():
    found = estimate(replace(SMALL, layers=1))
    # counts [S, E] of float64, for the load and for the question, of both parts
    assert found.kept_bytes == 2 * 2 * 100 * 8 * 8
    # three states of [S, G] thrice and [S, 1, 2] twice, and who holds what
    assert found.working_bytes == 3 * 8 * 100 * (3 * 3 + 4) + 4 * 8 * 3


def test_a_long_trace_is_not_read_whole():
    short, long = (estimate(replace(LARGE, trace_tokens=n, steps=16)) for n in (10**6, 10**8))
    # 16 layers x 8 choices x 2 bytes x 10**6 are below the bound for whole traces, 10**8 are not
    assert short.reading_bytes > 2 * 256 * 10**6
    assert long.reading_bytes < 0.2 * 256 * 10**8


@pytest.mark.parametrize("name", ["experts", "top_k", "layers", "sites", "batch", "steps", "jobs"])
def test_a_size_of_nothing_is_refused(name):
    with pytest.raises(UsageError, match=name):
        estimate(replace(SMALL, **{name: 0}))


def test_within_the_limit_the_estimate_comes_back():
    assert check_memory(1e15, LARGE) == estimate(LARGE)


def test_fewer_jobs_are_tried_first_and_are_the_most_that_fit():
    limit = (estimate(replace(LARGE, jobs=3)).total_bytes + estimate(replace(LARGE, jobs=4)).total_bytes) / 2
    assert smaller(limit, LARGE) == replace(LARGE, jobs=3)
    with pytest.raises(BadInput, match="--jobs 3") as caught:
        check_memory(limit, LARGE)
    assert caught.value.exit_code == 3
    assert "would take about" in caught.value.what


def test_then_fewer_steps_the_most_that_fit():
    # Whatever is read is there in any case: the limit lies above it, and below one job of all steps.
    ask = replace(LARGE, trace_tokens=100_000)
    limit = 0.6 * (estimate(replace(ask, jobs=1)).total_bytes + BASE_BYTES)
    found = smaller(limit, ask)
    assert found is not None
    assert found.jobs == 1
    assert 1 < found.steps < ask.steps
    assert found.batch == ask.batch
    assert estimate(found).total_bytes <= limit
    assert estimate(replace(found, steps=found.steps + 1)).total_bytes > limit


def test_then_a_smaller_batch():
    ask = replace(LARGE, family="channels", batch=2**20, steps=1, trace_tokens=0, trace_layers=1)
    limit = BASE_BYTES + 0.5 * (estimate(replace(ask, jobs=1)).total_bytes - BASE_BYTES)
    found = smaller(limit, ask)
    assert found is not None
    assert (found.jobs, found.steps) == (1, 1)
    assert estimate(found).total_bytes <= limit
    assert estimate(replace(found, batch=found.batch + 1)).total_bytes > limit


def test_a_limit_below_the_program_is_refused_with_the_least_that_is_needed():
    with pytest.raises(BadInput, match="allow at least"):
        check_memory(100 * 2**20, SMALL)
    assert smaller(100 * 2**20, SMALL) is None


@pytest.mark.parametrize(
    ("family", "platform", "steps"),
    [("channels", "spimoe-4x8", 128), ("cores", "rexpert-die", 1024), ("replicas", "gpu-cluster", 1024)],
)
def test_estimates_meet_what_a_plan_takes(family, platform, steps, long_trace):
    path, rows = long_trace
    from moeplan.hardware.platform import load_platform
    from moeplan.workload.model import load_model

    model, topology = load_model("olmoe-1b-7b"), load_platform(platform).topology
    assert topology is not None
    ask = Ask(
        family, model.experts, model.top_k, 1, topology.sites, batch=256, steps=steps, jobs=1,
        links=topology.links, route_links=len(topology.route_links), trace_tokens=rows, trace_layers=16,
    )  # fmt: skip
    command = [
        "plan", "--platform", platform, "--model", "olmoe-1b-7b", "--trace", str(path), "--layers", "0",
        "--batch", "256", "--steps", str(steps), "--jobs", "1", "--budget", "50it", "--quiet",
        "--output", str(path.with_name(f"{family}.json")),
    ]  # fmt: skip
    peak = _peak_bytes(command)
    if peak is None:
        pytest.skip("this system does not tell a process's largest memory")
    assert 0.7 <= estimate(ask).total_bytes / peak <= 1.5


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory) -> tuple[Path, int]:
    from moeplan.workload.model import load_model
    from moeplan.workload.synthetic import SyntheticRouting, synthesize
    from moeplan.workload.trace import write_trace

    path = tmp_path_factory.mktemp("memory") / "trace.parquet"
    write_trace(
        synthesize(
            load_model("olmoe-1b-7b"), tokens=8_000, seed=0, routing=SyntheticRouting(sampler="draws")
        ),
        path,
    )
    return path, 8_000


def _peak_bytes(command: list[str]) -> int | None:
    """Return the largest memory of a command's process; None where the system does not tell."""
    code = (
        "import sys, json\n"
        "from moeplan.cli.main import run\n"
        "from moeplan.common.memory import peak_bytes, reset_peak\n"
        "known = reset_peak()\n"
        "try:\n    run(json.loads(sys.argv[1]))\n"
        "except SystemExit as end:\n    print(end.code, peak_bytes() if known else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(command)], capture_output=True, text=True, check=True
    )
    status, peak = done.stdout.split()[-2:]
    assert status == "0", done.stderr
    return int(peak) or None
