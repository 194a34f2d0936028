"""A plan that is killed goes on where it was, and comes out the same wherever its layers were planned."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import time

import pytest

BUDGET = ("--solver", "annealing", "--budget", "3000it", "--seed", 3)
NEEDS = {"dask": "distributed", "ray": "ray"}


def untimed(value):
    """A plan without what a clock said, and without where it was asked to write."""
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if k not in ("elapsed_s",)}
    return [untimed(v) for v in value] if isinstance(value, list) else value


def read(path):
    return untimed(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def undisturbed(cli, plan_inputs, tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "plan.json"
    assert cli("plan", *plan_inputs, *BUDGET, "-o", path, "--quiet").code == 0
    assert [file.name for file in path.parent.iterdir()] == ["plan.json"]  # a finished job leaves no folder
    return read(path)


def test_killed_at_random_moments_it_ends_the_same(start_cli, plan_inputs, undisturbed, tmp_path):
    rng = random.Random(5)
    command = ("plan", *plan_inputs, *BUDGET, "--jobs", 1, "-o", tmp_path / "plan.json", "--quiet")
    for _ in range(4):
        process = start_cli(*command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0.5, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        if (tmp_path / "plan.json").exists():
            break
    process = start_cli(*command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert read(tmp_path / "plan.json") == undisturbed
    assert not (tmp_path / "plan.json.work").exists()


def test_finished_layers_are_not_planned_again(cli, plan_inputs, undisturbed, tmp_path):
    """A piece put there by hand shows that it is taken as it is."""
    from moeplan.common.checkpoint import open_work

    path = tmp_path / "plan.json"
    work = tmp_path / "work"
    ended = cli("plan", *plan_inputs, *BUDGET, "-o", path, "--work", work, "--layers", "1", "--quiet")
    assert ended.code == 0
    work.mkdir()
    (work / "inputs.json").write_text(json.dumps({"format": "moeplan.work", "inputs": {}}))
    refused = cli("plan", *plan_inputs, *BUDGET, "-o", path, "--work", work)
    assert refused.code == 3
    for name in ("model", "platform", "profile steps", "held-out steps", "solver", "seed", "budget"):
        assert f"{name}: then none" in refused.err
    begun = {part.split(": then none, now ")[0]: part.split(", now ")[1] for part in _changes(refused.err)}
    with open_work(work, begun, fresh=True) as folder:
        entry = json.loads(json.dumps(undisturbed["layers"][0]))
        entry["stop"] = "converged"
        for point in entry["anytime"]:
            point["elapsed_s"] = 0.0
        folder.keep("layer-1", json.dumps(entry))
    ended = cli("plan", *plan_inputs, *BUDGET, "-o", path, "--work", work)
    assert ended.code == 0, ended.err
    assert "1 of 3 layers are in" in ended.err
    assert read(path)["layers"][0]["stop"] == "converged"


def _changes(err: str) -> list[str]:
    (line,) = [line for line in err.splitlines() if "then none" in line]
    return line.partition("where:")[2].strip().split("; ")


def test_other_inputs_are_refused_until_fresh(cli, start_cli, plan_inputs, tmp_path):
    path, work = tmp_path / "plan.json", tmp_path / "plan.json.work"
    work.mkdir()
    (work / "inputs.json").write_text(json.dumps({"format": "moeplan.work", "inputs": {"seed": "7"}}))
    refused = cli("plan", *plan_inputs, *BUDGET, "-o", path)
    assert refused.code == 3
    assert "seed: then 7, now 3" in refused.err
    assert "--fresh" in refused.err
    assert not path.exists()
    assert cli("plan", *plan_inputs, *BUDGET, "-o", path, "--fresh", "--quiet").code == 0


@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
@pytest.mark.xdist_group("clusters")
def test_backends_give_equal_plans(cli_process, plan_inputs, undisturbed, tmp_path, backend):
    needed = NEEDS.get(backend)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"the extra {backend} is not installed")
    command = ("plan", *plan_inputs, *BUDGET, "--jobs", 2, "-o", tmp_path / "plan.json", "--quiet")
    ended = cli_process(*command, "--backend", backend, cwd=tmp_path)
    if backend == "ray" and "Failed to connect to GCS" in ended.err:
        pytest.skip("Ray does not start within its own 60 s: the machine is too busy")
    assert ended.code == 0, ended.err
    assert read(tmp_path / "plan.json") == undisturbed


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--address", "tcp://localhost:1"], "no address"), (["--backend", "slurm"], "--backend")],
)
def test_what_cannot_be_is_refused(cli, plan_inputs, tmp_path, more, said):
    ended = cli("plan", *plan_inputs, *BUDGET, "-o", tmp_path / "plan.json", *more)
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize("backend", ["loky", "dask"])
@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_of_a_terminal_reaches_workers_too(start_cli, plan_inputs, tmp_path, backend, times):
    """A terminal sends it to the whole group: no traceback, 130, and once leaves a plan of what is done."""
    needed = NEEDS.get(backend)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"the extra {backend} is not installed")
    path = tmp_path / "plan.json"
    search = ("--solver", "annealing", "--budget", "3s", "--seed", 3)  # long enough to be met by it
    (tmp_path / "plan.json.work").mkdir()
    command = ("plan", *plan_inputs, *search, "--jobs", 1, "-o", path, "--backend", backend, "--json")
    process = start_cli(
        *command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    until = time.monotonic() + 60
    while not list(tmp_path.glob("plan.json.work/layer-*")) and time.monotonic() < until:
        time.sleep(0.02)
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted" in err
    if times == 1:
        answer = json.loads(out)
        assert answer["stop"] == "interrupted"
        assert 1 <= len(answer["layers"]) < 3
        assert path.exists()
    else:  # the first may have been answered in full before the second came; then that is whole
        assert bool(out) == path.exists()
        assert not out or json.loads(out) == {**json.loads(out), "stop": "interrupted"}
