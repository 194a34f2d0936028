"""`moeplan simulate`: its JSON, its switches, and what it refuses."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def inputs(world):
    return ("--platform", "spimoe-4x8", "--model", world.model, "--trace", world.trace, "--batch", 8)


@pytest.fixture
def answer(cli, inputs):
    def ask(*options):
        ended = cli(
            "simulate", *inputs, "--steps", 3, "--profile-steps", 8, "--context", 2000, *options, "--json"
        )
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    return ask


def test_json(answer):
    said = answer()
    assert (said["family"], said["batch"], said["context"], said["steps"]) == ("spimoe", 8, 2000, 3)
    assert said["layers_run"] == [1, 2, 3]
    assert said["tokens_per_s"] == pytest.approx(8 / said["tpot_s"])
    assert sum(said["parts"].values()) == pytest.approx(said["serial_s"])
    assert said["serial_s"] - said["overlapped_s"] == pytest.approx(said["tpot_s"])
    assert len(said["parts"]) == 17 + 5 + 1
    assert 0.0 < said["pipeline_efficiency"] <= 1.0
    gpu = said["baseline"]
    assert gpu["platform"] == "a100-80g"
    assert sum(gpu["parts"].values()) == pytest.approx(gpu["tpot_s"])
    assert said["speed_up"] == pytest.approx(gpu["tpot_s"] / said["tpot_s"])
    # 4 layers x 4 heads x 128 elements x 2 bytes; about 96 GB are free.
    assert said["kv_cache"]["capacity_tokens"] == pytest.approx(96e9 / 4096, rel=0.01)
    # Chunks of 128: prompt, first and last (80 tokens) paragraph, and 7 of the 13 between them.
    assert said["kv_cache"]["cached_tokens"] == 128 + 128 + 80 + 7 * 128
    assert said["features"]["pruning"] is False  # no router weights in the trace
    assert said["hit_rate"] is not None


def test_all_switched_off_is_what_the_switches_give(answer):
    off = ("--no-pruning", "--partition", "none", "--no-sparse", "--no-eviction", "--no-ring")
    said, plain = answer("--assume-weights", 0.5), answer("--assume-weights", 0.5, *off)
    assert said["switched_off"] == plain["switched_off"]
    assert said["switched_off"]["tpot_s"] == plain["tpot_s"] > said["tpot_s"]
    assert said["switched_off"]["speed_up"] == plain["speed_up"]
    # 96 GB over 4096 bytes a token and 8 requests: room for 2.9 million tokens each, 7 of 13 paragraphs stay
    assert answer("--context", 3_500_000)["switched_off"] is None


def test_switches(answer):
    whole = answer("--partition", "none")
    assert answer("--no-sparse", "--partition", "none")["parts"]["block_scores_s"] == 0.0
    assert answer("--no-eviction")["kv_cache"]["cached_tokens"] == 2000
    assert answer("--no-ring", "--partition", "none")["tpot_s"] > whole["tpot_s"]
    equal = answer("--no-dynamic", "--sub-batches", 2)
    assert (equal["features"]["partition"], equal["sub_batches"]) == ("static", 2.0)
    assert answer("--kv-spread", "chunks")["features"]["kv_spread"] == "chunks"
    fewer = answer("--assume-weights", 0.5, "--alpha", 0.9, "--k-min", 1, "--partition", "none")
    assert fewer["pruning"]["experts_per_token"] == 1.0
    assert fewer["parts"]["ffn1_s"] < whole["parts"]["ffn1_s"]
    kept = answer("--assume-weights", 0.5, "--no-pruning", "--partition", "none")
    assert kept["pruning"] is None
    assert kept["tpot_s"] == whole["tpot_s"]
    assert answer("--layers", "2")["layers_run"] == [2]


def test_a_plan_says_where_experts_live(answer, world):
    said = answer("--plan", world.plan)
    assert said["placement"].startswith("plan by ")
    assert said["tpot_s"] != answer("--solver", "ep")["tpot_s"]


def test_the_same_answer_twice(cli, inputs):
    asked = ("simulate", *inputs, "--steps", 2, "--profile-steps", 8, "--json")
    assert cli(*asked).out == cli(*asked).out


def test_table(cli, inputs):
    ended = cli("simulate", *inputs, "--steps", 2, "--profile-steps", 8)
    assert ended.code == 0
    assert all(word in ended.out for word in ("qkv_projection", "time per token", "a100-80g", "sub-batches"))
    assert "no router weights" in ended.err
    assert "saved by overlap" in ended.out
    assert "17 operator stages, 5 transfers over the NoC, and the head" in " ".join(ended.out.split())
    pruned = cli("simulate", *inputs, "--steps", 2, "--profile-steps", 8, "--assume-weights", 0.5)
    assert "of 2 experts a token" in pruned.out
    assert "from congested channels" in pruned.out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--context", 10**7), 3, "KV capacity"),
        (("--context", 10**8), 2, "--context"),
        (("--platform", "b200-hbmpim"), 2, "--profile-steps"),
        (("--model", "qwen3-30b-a3b"), 3, "does not fit"),
        (("--model", "qwen3.5-35b-a3b", "--context", 10**7), 3, "gated delta nets"),
        (("--baseline", "spimoe-4x8"), 3, "no GPU"),
        (("--solver", "nobody"), 2, "nobody"),
        (("--solver", "eplb", "--trace", "MISSING"), 2, "'eplb' is a solver of replicas"),
        (("--solver", "lpt", "--plan", "PLAN"), 2, "--plan and --solver"),
        (("--no-dynamic", "--partition", "oracle"), 2, "contradict"),
        (("--no-pruning", "--k-min", 1), 2, "--k-min has no effect with --no-pruning"),
        (("--no-pruning", "--alpha", 0.5), 2, "--alpha has no effect with --no-pruning"),
        (("--sub-batches", 2), 2, "--sub-batches has no effect with the partition dynamic"),
        (("--plan", "PLAN", "--layout", "rows"), 2, "--layout has no effect with --plan"),
        (("--plan", "PLAN", "--budget", "1s"), 2, "--budget has no effect with --plan"),
        (("--layers", "0"), 2, "layer 0"),
        (("--held-out", 1.5), 2, "between 0 and 1"),
        (("--assume-weights", 0.5, "--k-min", 3), 2, "k_min"),
        (("--plan", "MISSING"), 3, "does not exist"),
    ],
)
def test_refusals(cli, inputs, world, tmp_path, options, code, said):
    named = {"PLAN": world.plan, "MISSING": tmp_path / "missing.json"}
    asked = [named.get(option, option) for option in options]
    ended = cli("simulate", *inputs, "--steps", 2, "--profile-steps", 4, *asked)
    assert ended.code == code, ended.err
    assert said in ended.err
    assert ended.out == ""


def test_a_plan_of_another_model(cli, inputs, world, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(world.model.read_text().replace("hidden_size: 256", "hidden_size: 512"))
    ended = cli("simulate", *inputs, "--model", other, "--plan", world.plan)
    assert ended.code == 3
    assert "the plan places tiny" in ended.err
