"""A plan's memory is held against a limit before anything is read."""

from dataclasses import replace

import numpy as np
import pytest

from moeplan.cli.memory import refuse_beyond
from moeplan.cli.planning import Request
from moeplan.cli.traffic import Replay
from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.memory import Ask, estimate
from moeplan.placement.planning import Search
from moeplan.workload.model import load_model


@pytest.fixture
def request_of(world, tmp_path):
    def make(platform="spimoe-4x8", trace=world.trace, **changes):
        asked = Request(
            model=load_model(str(world.model)),
            platform=load_platform(platform),
            trace=trace,
            replay=Replay(batch=8, steps=12, seed=0, held_out=0.5),
            layers=None,
            search=Search(),
            jobs=2,
            output=tmp_path / "plan.json",
            report=None,
        )
        return replace(asked, **changes)

    return make


@pytest.mark.parametrize("memory", [None, "0", " 0 "])
def test_no_limit_asks_for_nothing(request_of, memory):
    assert refuse_beyond(memory, request_of(trace=None), "channels") is None


def test_the_question_is_that_of_the_files(request_of):
    topology = load_platform("spimoe-4x8").topology
    assert topology is not None
    # tests/cli/conftest.py: 1280 tokens, layers 1 to 3, 8 experts, top-2
    ask = Ask(
        "channels", experts=8, top_k=2, layers=3, sites=32, batch=8, steps=12, jobs=2, links=topology.links,
        route_links=len(topology.route_links), trace_tokens=1280, trace_layers=3, held_out=True,
    )  # fmt: skip
    assert refuse_beyond("8 GiB", request_of(), "channels") == estimate(ask)
    some = replace(ask, layers=2, held_out=False)
    changed = request_of(layers="1-2", replay=Replay(8, 12, 0, 0.0))
    assert refuse_beyond("8 GiB", changed, "channels") == estimate(some)


@pytest.mark.parametrize(("solver", "told"), [("cpsat", True), ("annealing", False)])
def test_what_the_estimate_leaves_out_is_said(request_of, capsys, solver, told):
    refuse_beyond("8 GiB", request_of(search=Search(solver)), "channels")
    assert ("leaves out the model that cpsat builds" in capsys.readouterr().err) is told


def test_ranks_come_from_the_platform_or_from_options(request_of):
    request = request_of("gpu-cluster")
    ask = Ask("replicas", 8, 2, 3, 32, batch=8, steps=12, jobs=2, trace_tokens=1280, trace_layers=3)
    assert refuse_beyond("8 GiB", request, "replicas") == estimate(ask)
    assert refuse_beyond("8 GiB", request, "replicas", sites=64) == estimate(replace(ask, sites=64))


def test_counts_in_place_of_a_trace(request_of, tmp_path):
    path = tmp_path / "counts.npy"
    np.save(path, np.ones((5, 3, 8)))
    ask = Ask("replicas", 8, 1, 3, 32, batch=1, steps=5, jobs=2)
    assert refuse_beyond("8 GiB", request_of("gpu-cluster", trace=None), "replicas", load=path) == estimate(
        ask
    )


def test_too_little_is_refused_before_anything_is_written(request_of):
    request = request_of()
    with pytest.raises(BadInput, match="would take about") as caught:
        refuse_beyond("100 MiB", request, "channels")
    assert caught.value.exit_code == 3
    assert not request.output.exists()


@pytest.mark.parametrize("memory", ["lots", "8", "0.1 B"])
def test_what_is_no_size(request_of, memory):
    with pytest.raises(UsageError):
        refuse_beyond(memory, request_of(), "channels")


def test_a_plan_without_a_trace(request_of):
    with pytest.raises(UsageError, match="trace"):
        refuse_beyond("1 GiB", request_of(trace=None), "cores")
