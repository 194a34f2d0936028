"""The best order against brute force, and bounds by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.placement.result import Budget, Stop
from moeplan.schedule.optimal import forth_and_back, lower_bound, optimal
from moeplan.schedule.timeline import TaskGraph, execute, list_schedule

from .graphs import graph_of, task_graphs

BUDGET = Budget(time_s=None, iterations=20_000)
# At 0 only x can start on a, and whoever does not wait for urgent loses: 31 against 22.
TRAP = (("x", 10, "a", ""), ("ready", 1, "b", ""), ("urgent", 1, "a", "ready"), ("tail", 20, "c", "urgent"))


def brute_force_s(graph: TaskGraph) -> float:
    """Shortest makespan over all orders that respect dependencies."""
    best = float("inf")
    for order in itertools.permutations(range(graph.tasks)):
        position = {task: index for index, task in enumerate(order)}
        if all(position[other] < position[task] for task in order for other in graph.before[task]):
            best = min(best, execute(graph, order).makespan_s)
    return best


def test_bound_of_a_chain():
    bound = lower_bound(graph_of(("x", 1, "a", ""), ("y", 2, "b", "x"), ("z", 3, "c", "y")))
    assert (bound.value_s, bound.by) == (1 + 2 + 3, "longest chain of tasks")


def test_bound_of_a_resource_adds_what_comes_before_and_after_it():
    bound = lower_bound(
        graph_of(("r", 1, "b", ""), ("x", 4, "a", "r"), ("y", 4, "a", "r"), ("z", 2, "b", "x y"))
    )
    assert (bound.value_s, bound.by) == (1 + 4 + 4 + 2, "work on a")


def test_bound_interrupts_what_no_order_may_interrupt():
    # long runs 0-1 and 2-6, short 1-2: ends 6 + 5 and 2 + 8. In truth short first and long 2-7: 7 + 5.
    graph = graph_of(
        ("long", 5, "a", ""),
        ("five", 5, "b", "long"),
        ("r", 1, "c", ""),
        ("short", 1, "a", "r"),
        ("eight", 8, "c", "short"),
    )
    assert (lower_bound(graph).value_s, lower_bound(graph).by) == (11.0, "work on a")
    assert brute_force_s(graph) == 12.0


def test_waiting_is_found_and_proven():
    found = optimal(graph_of(*TRAP), budget=BUDGET)
    assert (found.listed.makespan_s, found.timeline.makespan_s) == (31.0, 22.0)
    assert (found.stop, found.gap) == (Stop.OPTIMAL, 0.0)
    assert found.list_gap == pytest.approx(9 / 31)


def test_a_list_schedule_that_meets_the_bound_is_proven_without_search():
    graph = graph_of(("x", 1, "a", ""), ("y", 2, "a", "x"))
    found = optimal(graph, budget=BUDGET)
    assert found.stop is Stop.OPTIMAL
    assert found.timeline is found.listed


def test_the_same_budget_of_iterations_gives_the_same_order():
    tasks = [(f"m{i}", 3 + i % 5, "a", "") for i in range(8)] + [
        (f"n{i}", 2 + i % 3, "a b" if i % 4 == 0 else "b", f"m{i}") for i in range(8)
    ]
    budget = Budget(time_s=None, iterations=50)
    first, second = (optimal(graph_of(*tasks), budget=budget, seed=7) for _ in range(2))
    assert first.timeline.order == second.timeline.order
    assert first.bound == second.bound


@settings(deadline=None, derandomize=True, max_examples=60)
@given(task_graphs(most=6))
def test_optimum_equals_brute_force(graph):
    best_s = brute_force_s(graph)
    found = optimal(graph, budget=BUDGET)
    assert found.timeline.makespan_s == best_s
    assert lower_bound(graph).value_s <= found.bound.value_s <= best_s
    # Ticks are 1e-8 of the makespan, and six tasks lose at most one each.
    assert found.bound.value_s >= best_s * (1 - 1e-7)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(task_graphs(most=14, durations=st.floats(0, 1e-4)))
def test_optimum_lies_between_bounds_and_list_schedule(graph):
    found = optimal(graph, budget=BUDGET)
    makespan_s, slack = found.timeline.makespan_s, 1 + 1e-12
    assert makespan_s <= found.listed.makespan_s
    assert graph.longest_chain_s <= makespan_s * slack
    assert graph.busy_s.max() <= makespan_s * slack
    assert found.bound.value_s <= makespan_s * slack


@settings(deadline=None, derandomize=True, max_examples=60)
@given(task_graphs(most=30))
def test_forth_and_back_never_loses(graph):
    listed = list_schedule(graph)
    assert lower_bound(graph).value_s <= forth_and_back(listed).makespan_s <= listed.makespan_s


@settings(deadline=None, derandomize=True, max_examples=60)
@given(task_graphs(most=30))
def test_bound_is_at_least_chain_and_busiest_resource(graph):
    assert lower_bound(graph).value_s >= max(graph.longest_chain_s, graph.busy_s.max())
