"""Task graphs for the tests: written down in a line each, or drawn at random."""

from __future__ import annotations

import networkx as nx
from hypothesis import strategies as st

from moeplan.schedule.timeline import TaskGraph, task_graph

RESOURCES = ("a", "b", "c")
WHOLE_SECONDS = st.integers(0, 9)


def graph_of(*tasks: tuple[str, float, str, str], resources: tuple[str, ...] = RESOURCES) -> TaskGraph:
    """Tasks as (name, seconds, "resources", "names of tasks before")."""
    graph = nx.DiGraph()
    for name, seconds, held, _ in tasks:
        graph.add_node(name, duration_s=seconds, kind="work", resources=tuple(held.split()))
    graph.add_edges_from((other, name) for name, _, _, before in tasks for other in before.split())
    return task_graph(graph, resources)


def times(timeline) -> dict[str, tuple[float, float]]:
    """Start and end of every task by name."""
    spans = zip(timeline.start_s.tolist(), timeline.end_s.tolist(), strict=True)
    return dict(zip(timeline.graph.names, spans, strict=True))


@st.composite
def task_graphs(draw, most: int = 12, durations=WHOLE_SECONDS) -> TaskGraph:
    """Up to `most` tasks on three resources, each holding none to all of them."""
    tasks = []
    for index in range(draw(st.integers(1, most))):
        held = draw(st.sets(st.sampled_from(RESOURCES)))
        before = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        tasks.append(
            (
                f"t{index}",
                float(draw(durations)),
                " ".join(sorted(held)),
                " ".join(f"t{i}" for i in sorted(before)),
            )
        )
    return graph_of(*tasks)
