"""One layer's graph: makespans worked out by hand in every mode, and what max(...) expects of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.schedule.layer import (
    ALL_CHANNELS,
    COMPUTE,
    LINK,
    MEMORY,
    MODES,
    PIM,
    FixedWork,
    GpuExperts,
    LayerWork,
    PimExperts,
    estimate,
    in_mode,
    layer_digraph,
    layer_graph,
)
from moeplan.schedule.optimal import optimal
from moeplan.schedule.timeline import list_schedule

from .graphs import times

# Control takes 1 + 1 + 2 until the decision, 1 + 1 for the two kernels, 1 + 1 at the end: 8.
FIXED = FixedWork(
    router_s=1, metadata_s=1, scheduler_s=2, launch_s=1, commands_s=1, permutation_s=1, aggregation_s=1
)


def on_gpu(*experts: tuple[float, float], early: bool = False) -> GpuExperts:
    """Experts 0, 1, ... as (load, GEMM)."""
    loads, gemms = zip(*experts, strict=True) if experts else ((), ())
    return GpuExperts(np.arange(len(experts)), loads, gemms, [early] * len(experts))


def on_pim(*experts: tuple[float, float, float], channels: tuple[int, ...] = ()) -> PimExperts:
    """Experts 100, 101, ... as (send, compute, read back)."""
    sends, computes, reads = zip(*experts, strict=True) if experts else ((), (), ())
    where = channels or [ALL_CHANNELS] * len(experts)
    return PimExperts(100 + np.arange(len(experts)), sends, computes, reads, where)


def makespan_s(work: LayerWork, mode: str) -> float:
    return list_schedule(in_mode(layer_graph(work), mode)).makespan_s


ONE_EACH = LayerWork(FIXED, on_gpu((4, 2)), on_pim((1, 5, 1)))


def test_overlapped_by_hand():
    # Decided at 4. Memory: send 4-5, weights 5-9, read 10-11. Compute: commands 4-5 (their chain is longer
    # than that of launch 5-6), GEMM 9-11. PIM: 4-11. Permutation 11-12, aggregation 12-13.
    at = times(list_schedule(layer_graph(ONE_EACH)))
    assert at["router"] == (0, 1)
    assert at["metadata"] == (1, 2)
    assert at["scheduler"] == (2, 4)
    assert (at["PIM commands"], at["launch"]) == ((4, 5), (5, 6))
    assert (at["send 100"], at["PIM 100"], at["read 100"]) == ((4, 5), (5, 10), (10, 11))
    assert (at["weights 0"], at["GEMM 0"]) == ((5, 9), (9, 11))
    assert (at["permutation"], at["aggregation"]) == ((11, 12), (12, 13))


def test_per_device_by_hand():
    # The GPU from 4 on: commands 4-5, send 5-6, weights 6-10, launch 10-11 while PIM works 6-11; at 11 the
    # GEMM (2 + 1 + 1 to the end) goes before the read (1 + 1 + 1): 11-13, 13-14; then 14-15, 15-16.
    assert makespan_s(ONE_EACH, "per-device") == 16


def test_serial_is_the_sum():
    assert makespan_s(ONE_EACH, "serial") == 8 + (4 + 2) + (1 + 5 + 1)


def test_expectation_leaves_out_control_and_waiting():
    # Compute: GEMM 2; memory: 4 + 1 + 1; PIM: 1 + 5 + 1. Executed: 13, which is 86 % more.
    expected = estimate(layer_graph(ONE_EACH))
    assert expected == (0, 6, 7)
    assert expected.total_s == 7


def test_attention_counts_for_pim_and_comes_first():
    work = dataclasses.replace(ONE_EACH, fixed=dataclasses.replace(FIXED, attention_s=10, projections_s=3))
    assert estimate(layer_graph(work)) == (0, 6 + 3, 7 + 10)
    assert makespan_s(work, "overlapped") == 3 + 10 + 13


def test_collectives_delay_what_needs_them():
    # Decided at 1 + 2 + 1 + 2 = 6; dispatch 4-9: the send waits for it (9-10), weights do not (6-10): at 9
    # memory is taken until 10, so send 10-11, PIM 11-16, read 16-17, permutation 18, combine 25, sum 26.
    fixed = dataclasses.replace(FIXED, all_gather_s=2, dispatch_s=5, combine_s=7)
    at = times(list_schedule(layer_graph(dataclasses.replace(ONE_EACH, fixed=fixed))))
    assert (at["all-gather"], at["dispatch"]) == ((1, 3), (4, 9))
    assert (at["weights 0"], at["GEMM 0"], at["send 100"]) == ((6, 10), (10, 12), (10, 11))
    assert (at["combine"], at["aggregation"]) == ((18, 25), (25, 26))
    assert estimate(layer_graph(dataclasses.replace(ONE_EACH, fixed=fixed))).t_comm_s == 2 + 5 + 7


def test_early_weights_load_while_the_scheduler_decides():
    # Late: weights 4-8, GEMM 8-10, end 12. Early: weights 1-5, launch 4-5, GEMM 5-7, end 9.
    fixed = dataclasses.replace(FIXED, commands_s=0)
    assert makespan_s(LayerWork(fixed, on_gpu((4, 2)), on_pim()), "overlapped") == 12
    assert makespan_s(LayerWork(fixed, on_gpu((4, 2), early=True), on_pim()), "overlapped") == 9


def test_early_weights_may_be_in_the_way():
    # Memory is taken 1-5, so the send starts at 5 instead of 4, and PIM, which is critical, ends at 12.
    work = dataclasses.replace(ONE_EACH, gpu=on_gpu((4, 2), early=True))
    assert makespan_s(work, "overlapped") == 14


def test_shared_experts_start_after_the_router_and_only_the_sum_waits_for_them():
    # Shared weights 1-4 (before the decision), GEMM at 5 in the free compute: nothing of 13 changes.
    fixed = dataclasses.replace(FIXED, shared_load_s=3, shared_gemm_s=2)
    at = times(list_schedule(layer_graph(dataclasses.replace(ONE_EACH, fixed=fixed))))
    assert at["shared weights"] == (1, 4)
    assert at["aggregation"] == (12, 13)


def test_a_long_shared_gemm_misleads_the_list_schedule_and_not_the_optimum():
    # At 4 the shared GEMM (9 + 1 to the end) goes before the commands (9): 4-13, commands 13-14, PIM 14-19,
    # read 19-20, permutation 20-21, sum 21-22. Commands first: 4-5, launch 5-6, shared 6-15, GEMM 15-17,
    # permutation 17-18, sum 18-19; and 4 + 1 + 1 + 9 + 2 + 1 + 1 of compute cannot end before.
    fixed = dataclasses.replace(FIXED, shared_load_s=3, shared_gemm_s=9)
    found = optimal(layer_graph(dataclasses.replace(ONE_EACH, fixed=fixed)))
    assert found.listed.makespan_s == 22
    assert (found.timeline.makespan_s, found.bound.value_s) == (19, 19)


def test_one_row_buffer_keeps_the_gpu_from_memory_while_banks_compute():
    # Both have 8 to go at 5; weights come first: 5-9, PIM 9-14, read 14-15, end 17.
    work = dataclasses.replace(ONE_EACH, second_row_buffer=False)
    assert makespan_s(work, "overlapped") == 17


def test_channels_work_side_by_side_and_leave_the_memory_alone():
    # Two experts of 1 + 5 + 1 on channels 3 and 7: both 4-11, as one alone; on all channels 4-18 at least.
    experts = ((1, 5, 1), (1, 5, 1))
    apart = LayerWork(FIXED, on_gpu(), on_pim(*experts, channels=(3, 7)))
    assert layer_graph(apart).resources == (COMPUTE, MEMORY, LINK, "PIM 3", "PIM 7")
    assert makespan_s(dataclasses.replace(apart, fixed=FIXED), "overlapped") == 4 + 7 + 2
    assert estimate(layer_graph(apart)) == (0, 0, 7)
    together = LayerWork(FIXED, on_gpu(), on_pim(*experts))
    assert estimate(layer_graph(together)) == (0, 4, 14)
    same = LayerWork(FIXED, on_gpu(), on_pim(*experts, channels=(3, 3)))
    assert estimate(layer_graph(same)) == (0, 0, 14)


def test_attention_occupies_every_channel():
    fixed = dataclasses.replace(FIXED, attention_s=10)
    apart = LayerWork(fixed, on_gpu(), on_pim((1, 5, 1), (1, 2, 1), channels=(3, 7)))
    assert estimate(layer_graph(apart)).t_pim_s == 10 + 7


def test_no_experts_still_have_a_pim_lane():
    graph = layer_graph(LayerWork(FIXED, on_gpu(), on_pim()))
    assert graph.resources == (COMPUTE, MEMORY, LINK, PIM)
    assert estimate(graph) == (0, 0, 0)


def test_edges_are_those_of_figure_8():
    graph = layer_digraph(ONE_EACH)
    assert set(graph.predecessors("GEMM 0")) == {"weights 0", "launch", "dispatch"}
    assert set(graph.predecessors("weights 0")) == {"scheduler"}
    assert set(graph.predecessors("send 100")) == {"scheduler", "dispatch"}
    assert set(graph.predecessors("PIM 100")) == {"send 100", "PIM commands"}
    assert set(graph.predecessors("permutation")) >= {"GEMM 0", "read 100"}
    assert set(graph.predecessors("aggregation")) == {"combine", "shared GEMM"}
    assert set(graph.predecessors("shared weights")) == {"router"}


def test_unknown_mode_is_refused():
    with pytest.raises(UsageError, match="no mode 'parallel'"):
        in_mode(layer_graph(ONE_EACH), "parallel")


def test_columns_must_fit_and_ids_differ():
    with pytest.raises(UsageError, match="differ in shape"):
        GpuExperts([0, 1], [1.0], [1.0, 1.0], [False, False])
    with pytest.raises(UsageError, match="listed twice"):
        GpuExperts([0, 0], [1.0, 1.0], [1.0, 1.0], [False, False])


seconds = st.floats(0, 1e-4)


@st.composite
def layers(draw) -> LayerWork:
    fixed = FixedWork(**{field.name: draw(seconds) for field in dataclasses.fields(FixedWork)})
    gpu = on_gpu(*draw(st.lists(st.tuples(seconds, seconds), max_size=6)), early=draw(st.booleans()))
    pim = draw(st.lists(st.tuples(seconds, seconds, seconds), max_size=6))
    channels = tuple(draw(st.integers(0, 3)) for _ in pim) if draw(st.booleans()) else ()
    return LayerWork(fixed, gpu, on_pim(*pim, channels=channels), draw(st.booleans()))


@settings(deadline=None, derandomize=True, max_examples=100)
@given(layers())
def test_no_execution_is_faster_than_expected_and_serial_is_the_sum(work):
    graph, slack = layer_graph(work), 1 + 1e-12
    expected_s = estimate(graph).total_s
    for mode in MODES:
        made_s = makespan_s(work, mode)
        assert expected_s <= made_s * slack
        assert graph.longest_chain_s <= made_s
    assert makespan_s(work, "serial") == pytest.approx(graph.duration_s.sum(), rel=1e-12)
