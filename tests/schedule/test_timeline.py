"""Execution of task graphs: times by hand, and what holds for every graph."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.schedule.timeline import execute, list_order, list_schedule

from .graphs import RESOURCES, graph_of, task_graphs, times

checked = settings(deadline=None, derandomize=True, max_examples=80)
SERIAL = dict.fromkeys(RESOURCES, "all")


def test_two_resources_by_hand():
    # a: load 0-4, then store 9-10; b: the two products 4-7 and 7-9 (the longer first by its longer chain).
    graph = graph_of(
        ("load", 4, "a", ""),
        ("small", 2, "b", "load"),
        ("large", 3, "b", "load"),
        ("store", 1, "a", "small large"),
    )
    timeline = list_schedule(graph)
    assert times(timeline) == {"load": (0, 4), "large": (4, 7), "small": (7, 9), "store": (9, 10)}
    assert timeline.makespan_s == 10
    assert [graph.names[task] for task in timeline.critical_path] == ["load", "large", "small", "store"]
    assert timeline.busy_share == {"a": 0.5, "b": 0.5, "c": 0.0}
    assert graph.longest_chain_s == 4 + 3 + 1


def test_a_task_waits_until_all_its_resources_are_free():
    # x holds a for 3, y holds b for 5; both needs a and b, and leaves a idle from 3 to 5.
    graph = graph_of(("x", 3, "a", ""), ("y", 5, "b", ""), ("both", 1, "a b", "x"))
    assert times(list_schedule(graph)) == {"x": (0, 3), "y": (0, 5), "both": (5, 6)}


def test_tasks_without_a_resource_wait_for_none():
    graph = graph_of(("x", 3, "a", ""), ("free", 7, "", ""), ("join", 0, "", "x free"))
    assert times(list_schedule(graph)) == {"x": (0, 3), "free": (0, 7), "join": (7, 7)}


def test_equal_urgency_goes_by_position_and_a_priority_overrules():
    graph = graph_of(("x", 2, "a", ""), ("y", 2, "a", ""))
    assert list_order(graph) == (0, 1)
    assert list_order(graph, [0.0, 1.0]) == (1, 0)


def test_a_list_schedule_may_lose_by_not_waiting():
    # At 0 only x can start on a; urgent, ready at 1, then waits until 10. Waiting gives 1 + 1 + 20 = 22.
    graph = graph_of(
        ("x", 10, "a", ""), ("ready", 1, "b", ""), ("urgent", 1, "a", "ready"), ("tail", 20, "c", "urgent")
    )
    assert list_schedule(graph).makespan_s == 10 + 1 + 20
    assert (
        execute(graph, [graph.names.index(name) for name in ("ready", "urgent", "x", "tail")]).makespan_s
        == 22
    )


def test_devices_merge_resources_and_a_task_holds_the_merged_one_once():
    graph = graph_of(("x", 3, "a b", ""), ("y", 4, "b", ""), ("z", 5, "c", ""))
    merged = graph.on_devices({"a": "ab", "b": "ab"})
    assert merged.resources == ("ab", "c")
    assert merged.holds == ((0,), (0,), (1,))
    assert merged.busy_s.tolist() == [7, 5]
    assert list_schedule(merged).makespan_s == 7


def test_backwards_turns_the_arrows():
    graph = graph_of(("x", 1, "a", ""), ("y", 2, "b", "x"), ("z", 3, "c", "x"))
    back = graph.backwards()
    assert back.names == ("z", "y", "x")
    assert back.before == ((), (), (0, 1))


def test_nothing_to_do_takes_no_time():
    graph = graph_of()
    timeline = list_schedule(graph)
    assert (timeline.makespan_s, timeline.critical_path, graph.longest_chain_s) == (0.0, (), 0.0)
    assert timeline.busy_share == {"a": 0.0, "b": 0.0, "c": 0.0}


def test_a_cycle_is_named():
    with pytest.raises(UsageError, match="wait for each other: x -> y"):
        graph_of(("x", 1, "a", "y"), ("y", 1, "a", "x"))


def test_unknown_resource_is_named():
    with pytest.raises(UsageError, match="'x' needs 'd'"):
        graph_of(("x", 1, "d", ""))


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_impossible_durations_are_refused(seconds):
    with pytest.raises(UsageError, match="task 'x' takes"):
        graph_of(("x", seconds, "a", ""))


def test_impossible_orders_are_refused():
    graph = graph_of(("x", 1, "a", ""), ("y", 1, "b", "x"))
    with pytest.raises(UsageError, match="'y' before 'x'"):
        execute(graph, [1, 0])
    with pytest.raises(UsageError, match="each of the 2 tasks once"):
        execute(graph, [0, 0])


def test_arrays_are_read_only():
    timeline = list_schedule(graph_of(("x", 1, "a", "")))
    for array in (timeline.start_s, timeline.end_s, timeline.graph.duration_s):
        assert not array.flags.writeable


@checked
@given(task_graphs())
def test_every_timeline_respects_dependencies_and_resources(graph):
    timeline = list_schedule(graph)
    for task, earlier in enumerate(graph.before):
        assert all(timeline.end_s[other] <= timeline.start_s[task] for other in earlier)
    for resource in range(len(graph.resources)):
        on_it = [task for task in timeline.order if resource in graph.holds[task]]
        assert all(timeline.end_s[x] <= timeline.start_s[y] for x, y in pairwise(on_it))
    assert (timeline.end_s - timeline.start_s == graph.duration_s).all()


@checked
@given(task_graphs())
def test_no_timeline_is_shorter_than_its_longest_chain_or_busiest_resource(graph):
    makespan_s = list_schedule(graph).makespan_s
    assert makespan_s >= graph.longest_chain_s
    assert makespan_s >= graph.busy_s.max()
    assert makespan_s <= graph.duration_s.sum()


@checked
@given(task_graphs())
def test_one_device_takes_the_sum_of_what_holds_it(graph):
    everything = replace(graph, holds=((0,),) * graph.tasks)
    assert list_schedule(everything).makespan_s == graph.duration_s.sum()
    # Merging resources of the same tasks keeps those that hold nothing free of them.
    merged = graph.on_devices(SERIAL)
    held_s = sum(seconds for seconds, held in zip(graph.duration_s, graph.holds, strict=True) if held)
    assert merged.busy_s.tolist() == [held_s]


@checked
@given(task_graphs())
def test_critical_path_is_gapless(graph):
    timeline = list_schedule(graph)
    path = timeline.critical_path
    assert timeline.start_s[path[0]] == 0.0
    assert all(timeline.end_s[x] == timeline.start_s[y] for x, y in pairwise(path))
    assert graph.duration_s[list(path)].sum() == timeline.makespan_s


@checked
@given(task_graphs(), st.data())
def test_in_the_same_order_nothing_gets_slower_by_less_work(graph, data):
    # Only with the order kept: a list schedule may choose another one, and lose (Graham's anomalies).
    order, before_s = list_order(graph), list_schedule(graph).makespan_s
    task = data.draw(st.integers(0, graph.tasks - 1))
    fewer = tuple(() if index == task else earlier for index, earlier in enumerate(graph.before))
    assert execute(replace(graph, before=fewer), order).makespan_s <= before_s
    shorter = graph.duration_s * (np.arange(graph.tasks) != task)
    assert execute(replace(graph, duration_s=shorter), order).makespan_s <= before_s


@checked
@given(task_graphs())
def test_going_backwards_twice_is_going_forwards(graph):
    twice = graph.backwards().backwards()
    assert (twice.names, twice.holds, twice.before) == (graph.names, graph.holds, graph.before)
    assert graph.backwards().longest_chain_s == graph.longest_chain_s
