"""Points in processes of their own, and the folder that keeps them."""

import dataclasses

import pytest

from moeplan.benchmarks.scale.jobs import grid, model_of, pim_machine, prepare, write_tokens
from moeplan.benchmarks.scale.point import Failed, Finished, Measured, Point
from moeplan.benchmarks.scale.runner import run
from moeplan.benchmarks.scale.store import Store
from moeplan.common.errors import BadInput

TINY = Point("count", "tokens", experts=64, layers=2, tokens=5_000)
DONE = Finished(TINY, Measured(1.5, 2.0, {"count": 1.5}, 10, 30, 3))


def test_a_point_runs_in_a_process_and_is_read_back(tmp_path):
    told = []
    (finished,) = run([TINY], told.append, store=Store(tmp_path))
    assert told == [finished]
    outcome = finished.outcome
    assert isinstance(outcome, Measured)
    assert set(outcome.phases_s) == {"count", "statistics"}
    assert outcome.cpu_s == pytest.approx(sum(outcome.phases_s.values()))
    assert outcome.peak_bytes >= outcome.held_bytes > 0
    # What is kept is not measured again: the same numbers come back.
    assert run([TINY], told.append, store=Store(tmp_path)) == [finished]


def test_a_point_that_cannot_be_posed_has_a_reason():
    # 16 choices of 8 experts cannot be distinct.
    (finished,) = run([Point("cores", "steps", experts=8, top_k=16, steps=2, batch=2)], lambda _: None)
    assert isinstance(finished.outcome, Failed)
    assert finished.outcome.reason


def test_a_point_that_takes_too_long_is_given_up():
    (finished,) = run([TINY], lambda _: None, limit_s=0.01)
    assert isinstance(finished.outcome, Failed)
    assert "still running" in finished.outcome.reason


def test_the_store_keeps_measurements_and_not_failures(tmp_path):
    store = Store(tmp_path / "new")
    assert store.read(TINY) is None
    store.write(Finished(TINY, Failed("no memory")))
    assert store.read(TINY) is None
    store.write(DONE)
    assert store.read(TINY) == DONE
    assert store.read(dataclasses.replace(TINY, tokens=5_001)) is None


def test_a_damaged_file_is_named(tmp_path):
    store = Store(tmp_path)
    store.write(DONE)
    (path,) = tmp_path.iterdir()
    path.write_text("{}")
    with pytest.raises(BadInput, match=path.name):
        store.read(TINY)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="folder"):
        Store(tmp_path / "file" / "below").write(DONE)


def test_grids_are_as_square_as_they_can_be():
    assert [grid(n) for n in (8, 16, 32, 128, 512, 7)] == [(2, 4), (4, 4), (4, 8), (8, 16), (16, 32), (1, 7)]


def test_a_written_trace_has_the_sizes_asked_for(tmp_path):
    from moeplan.workload.trace import read_trace

    write_tokens(TINY, tmp_path / "t.parquet")
    trace = read_trace(tmp_path / "t.parquet")  # checks that choices are distinct
    assert trace.experts.shape == (5_000, 2, 8)
    assert trace.num_experts == 64


def test_the_machine_has_the_sites_asked_for_and_room_for_the_model():
    point = Point("channels", "sites", sites=64, experts=32, layers=2)
    machine, model = pim_machine(point), model_of(point)
    assert machine.topology is not None
    assert machine.topology.sites == 64
    assert machine.site_memory_bytes * 64 >= model.expert_bytes * 32 * 2


@pytest.mark.parametrize("family", ["channels", "cores", "replicas", "partition", "ring"])
def test_every_family_runs_through_its_phases(family):
    point = Point(family, "steps", experts=16, sites=8, steps=2, batch=4, top_k=2, moves=20)
    job, made = prepare(point), []
    for _, call in job.phases:
        call(made)
    names = [name for name, _ in job.phases]
    assert names[0] == "pose"
    assert names[-1] == "search"
    assert made
