"""`moeplan simulate` on GPUs with PIM and on GPU clusters: sums, baselines, and what is refused."""

from __future__ import annotations

import json

import pytest

from moeplan.hardware.platform import load_platform
from moeplan.placement.plan import read_plan
from moeplan.placement.replicas.document import decisions


def asked(world, platform):
    return ("simulate", "--model", world.model, "--platform", platform, "--trace", world.trace, "--steps", 3)


@pytest.fixture(scope="module")
def cluster_plan(cli, world, tmp_path_factory):
    path = tmp_path_factory.mktemp("cluster") / "plan.json"
    inputs = (
        "--model",
        world.model,
        "--platform",
        "h100x8",
        "--trace",
        world.trace,
        "--batch",
        8,
        "--steps",
        12,
    )
    ended = cli("plan", *inputs, "--slots", 16, "--quiet", "-o", path)
    assert ended.code == 0, ended.err
    return path


@pytest.mark.parametrize("timing", ["estimate", "timeline"])
def test_gpu_with_pim(cli, world, timing):
    out = json.loads(cli(*asked(world, "b200-hbmpim"), "--batch", 8, "--timing", timing, "--json").out)
    parts = out["parts"]
    assert out["tpot_s"] == pytest.approx(parts["moe_layers_s"] + parts["dense_layers_s"] + parts["head_s"])
    assert out["tokens_per_s"] == pytest.approx(8 / out["tpot_s"])
    assert out["baseline"]["policy"] == "no_exp"
    if timing == "estimate":
        assert out["tpot_s"] <= out["baseline"]["tpot_s"] * (1 + 1e-9)


def test_cluster_by_a_plan(cli, world, cluster_plan):
    command = (*asked(world, "h100x8"), "--batch", 8, "--plan", cluster_plan)
    out = json.loads(cli(*command, "--json").out)
    assert out["ranks"] == 8
    assert out["tpot_s"] == pytest.approx(sum(out["parts"].values()))
    assert out["tokens_per_s"] == pytest.approx(8 / out["tpot_s"])
    # Every rank reads the output matrix, 1,000 x 256 weights of two bytes, for its one request.
    gpu = load_platform("h100x8").gpu
    head_s = gpu.kernel_s + 1000 * 256 * 2 / (gpu.memory_bandwidth_bytes_per_s * gpu.memory_efficiency)
    assert out["parts"]["head_s"] == pytest.approx(head_s)
    table = cli(*command)
    assert "linear" in table.out
    assert len(decisions(read_plan(cluster_plan))) == 3


@pytest.mark.parametrize(
    ("platform", "more", "code", "said"),
    [
        ("b200-hbmpim", ["--no-ring"], 2, "--no-ring"),
        ("b200-hbmpim", ["--policy", "seive"], 2, "sieve"),
        ("b200-hbmpim", ["--gpus", 3, "--batch", 8], 2, "split evenly"),
        ("spimoe-4x8", ["--gpus", 2], 2, "--gpus"),
        ("h100x8", ["--batch", 8], 2, "--plan"),
        ("h100x8", ["--batch", 6, "--plan", "PLAN"], 2, "multiple of 8"),
        ("h100x8", ["--batch", 8, "--plan", "CHANNELS"], 2, "family channels"),
        ("rexpert-die", [], 3, "provision"),
        ("h100", [], 3, "b200-hbmpim"),
    ],
)
def test_what_cannot_be_is_refused(cli, world, cluster_plan, platform, more, code, said):
    named = {"PLAN": cluster_plan, "CHANNELS": world.plan}
    ended = cli(*asked(world, platform), *(named.get(option, option) for option in more))
    assert ended.code == code, ended.err
    assert said in ended.err
    assert ended.out == ""
