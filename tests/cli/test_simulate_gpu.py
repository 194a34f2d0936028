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


def test_what_does_not_fit_is_warned_of(cli, world):
    """Tiny: 4 layers x 4 heads x 128 elements x 2 bytes are 4096 of a token; 64 x 10^6 of them are 262 GB."""
    asked_for = (*asked(world, "b200-hbmpim"), "--batch", 64, "--context", 10**6)
    ended = cli(*asked_for, "--json")
    out = json.loads(ended.out)
    assert out["fits"] is False
    # Three steps; the weights are less than 10 MB.
    assert out["memory_bytes"] == pytest.approx(64 * (10**6 + 3) * 4096, abs=1e7)
    assert out["capacity_bytes"] == load_platform("b200-hbmpim").gpu.memory_bytes
    assert "warning: weights and caches need 262.2 GB of the GPU" in ended.err
    assert "2 GPUs have room" in ended.err
    ended = cli(*asked_for, "--gpus", 2, "--json")
    assert json.loads(ended.out)["fits"] is True
    assert "warning" not in ended.err


def test_what_a_rank_holds(cli, world, cluster_plan):
    out = json.loads(cli(*asked(world, "h100x8"), "--batch", 8, "--plan", cluster_plan, "--json").out)
    # Two slots of three layers of 3 x 256 x 128 weights, two embeddings of 1000 x 256, four layers of
    # attention of 4 x 256 x 256, one dense layer of 512, three routers, 2 bytes each; and 1024 tokens.
    weights = 2 * 3 * 3 * 256 * 128 + 2 * 1000 * 256 + 4 * 4 * 256 * 256 + 3 * 256 * 512 + 3 * 256 * 8
    assert out["memory_bytes"] == 2 * weights + 1024 * 4096
    assert out["fits"] is True
    far = (*asked(world, "h100x8"), "--batch", 64, "--context", 10**7, "--plan", cluster_plan)
    assert "need 327.7 GB of one of 8 GPUs" in cli(*far).err


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
        ("b200-hbmpim", ["--prefill-tokens", 10], 2, "--prefill-tokens"),
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
