"""`moeplan provision`."""

from __future__ import annotations

import json

import pytest

from moeplan.cli.provision import default_steps

SMALL = ("--batch", 8, "--context", 4096, "--steps", 1)


def answer(cli, *arguments):
    ended = cli("provision", *arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_published_stage_times(cli):
    # ReXpert Table XI at 8 requests and 4K; 1 % for printed digits.
    found = answer(cli, "--model", "qwen3.5-35b-a3b", *SMALL, "--union", 50.1)
    assert (found["dies"], found["gpus"]) == (25, 10.81)
    assert found["per_token"]["attention_s"] == pytest.approx(6.06e-6, rel=0.01)
    assert found["per_token"]["ffn_s"] == pytest.approx(1.93e-6, rel=0.01)
    assert found["per_token"]["homogeneous_s"] == pytest.approx(24.3e-6, rel=0.01)
    assert found["gain"] == pytest.approx(4.0, rel=0.01)
    # A step gives each of the eight requests a token.
    assert found["step"]["tpot_s"] == pytest.approx(8 * found["per_token"]["tpot_s"])
    assert found["step"]["tpot_s"] == max(found["step"]["attention_s"], found["step"]["ffn_s"])
    assert found["target"] is None


def test_smallest_pools_meet_the_target(cli):
    found = answer(cli, "--model", "qwen3.5-35b-a3b", *SMALL, "--union", 50.1, "--tpot-target", "100us")
    target = found["target"]
    assert target["tpot_s"] <= 100e-6
    # The pool of the platform takes 48.5 us with 10.81 GPUs, so 100 us take 524 / 100 of one: six.
    assert target["gpus"] == 6
    assert (target["dies"], target["limits"]["dies"]) == (25, "memory")


def test_a_target_below_a_pass_says_what_it_leaves_out(cli):
    asked = ("provision", "--model", "qwen3.5-35b-a3b", *SMALL, "--union", 50.1, "--tpot-target")
    far = cli(*asked, "1us", "--json")
    # A pass takes 4 slices of 3 x 2048 columns of 2.5 ns, and a batch 40 of them after 1 us of attention.
    assert "61.4 us to stream by" in far.err
    assert "2,459 batches of 8 requests" in far.err
    assert json.loads(far.out)["target"]["batches_under_way"] == 2459
    near = cli(*asked, "100us")
    assert "stream by" not in near.err
    # 97 us of attention on six GPUs, less than the target, and 2,457.6 us: 25.5 targets.
    assert "26 batches under way at once" in near.out


def test_many_requests_are_counted_on_fewer_steps():
    assert [default_steps(batch) for batch in (1, 512, 4096, 5000, 16384)] == [8, 8, 8, 6, 2]


def test_order_of_reduction(cli):
    first, reversed_ = (
        answer(cli, "--model", "glm-5.2", *SMALL, "--union", 52, "--order", order)
        for order in ("ep-first", "tp-first")
    )
    assert first["penalty"] == pytest.approx(5.7, rel=0.15)

    def package(found):
        return next(row["bytes_per_s"] for row in found["demands"] if "package" in row["level"])

    assert package(reversed_) / package(first) == pytest.approx(first["penalty"])


def test_a_trace_is_counted(cli, world):
    found = answer(cli, "--model", world.model, "--batch", 8, "--context", 16, "--trace", world.trace)
    assert 2 <= found["union"] <= 8
    levels = {row["level"]: row for row in found["demands"]}
    assert levels["die NoC, busiest link"]["bytes_per_s"] > 0
    # Three layers of eight experts of 3 x 256 x 128 bytes fit into one die.
    assert (found["dies"], found["least_dies"]) == (1, 1)


def test_for_people(cli):
    ended = cli("provision", "--model", "glm-5.2", *SMALL, "--union", 52, "--tpot-target", "2ms")
    assert ended.code == 0, ended.err
    for words in (
        "543 dies",
        "pace of the pipeline",
        "package D2D",
        "no slice fits",
        "smallest pools for 2 ms",
    ):
        assert words in ended.out


def test_same_seed_same_bytes(cli):
    once, again = (cli("provision", "--model", "qwen3-30b-a3b", *SMALL, "--json").out for _ in range(2))
    assert once == again


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model", "glm-5.2", *SMALL, "--platform", "rexpert-pool-35b"), 4, "at least 543 dies"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--dies", 24), 4, "at least 25 dies"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--platform", "rexpert-die"), 3, "no GPU for attention"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--platform", "h20"), 3, "no near-memory dies"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--union", 300), 2, "cannot activate 300"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--union", 7.9), 2, "8 to 64"),
        (("--model", "qwen3.5-35b-a3b", "--batch", 65536, "--context", 1), 2, "--batch"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--tpot-target", "2"), 2, "unit is missing"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--tpot-target", "0s"), 2, "cannot be met"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--gpus", "0"), 2, "cannot run on 0.0 GPUs"),
        (("--model", "qwen3.5-35b-a3b", *SMALL, "--trace", "none.parquet"), 3, "none.parquet"),
    ],
)
def test_what_cannot_be_is_refused(cli, arguments, code, words):
    ended = cli("provision", *arguments)
    assert ended.code == code
    assert words in ended.err
    assert ended.out == ""


def test_caches_that_do_not_fit_are_warned_of(cli):
    big = ("--batch", 64, "--context", 131072, "--steps", 1, "--gpus", 1)
    ended = cli("provision", "--model", "qwen3.5-35b-a3b", *big, "--union", 168.6)
    # 40 x 1024 bytes x 131072 x 64 are 344 GB, and an H20 has 96.
    assert "fill 4 GPUs" in ended.err
