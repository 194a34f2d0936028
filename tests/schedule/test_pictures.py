"""Pictures and traces of timelines: what is drawn, the same bytes each time, and well-formed files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput
from moeplan.schedule.chrome_trace import trace_events, write_chrome_trace
from moeplan.schedule.gantt import LANES, gantt_svg, gantt_text, lanes
from moeplan.schedule.timeline import list_schedule, task_graph

from .graphs import graph_of, task_graphs

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def made():
    """x on a 0-4, y on b 4-10, z on a and c 10-12 (in microseconds)."""
    graph = graph_of(("x", 4e-6, "a", ""), ("y", 6e-6, "b", "x"), ("z", 2e-6, "a c", "y"))
    return {"all <at> once": list_schedule(graph)}


def test_svg_draws_every_task_on_every_resource_it_holds(made):
    root = ElementTree.fromstring(gantt_svg(made, title="R&D", expected_s=6e-6))
    hints = [element.text for element in root.iter(f"{SVG}title")]
    assert hints == ["R&D", "x: 4 us", "z: 2 us", "y: 6 us", "z: 2 us"]
    assert root.find(f"{SVG}desc").text == "all <at> once: 12 us"
    bars = [r for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    # 820 pixels for 12 us from 120 on: x 0-4, z 10-12 (on a), y 4-10, z (on c).
    assert [float(bar.get("x")) for bar in bars] == pytest.approx(
        [120, 120 + 820 * 10 / 12, 120 + 820 * 4 / 12, 120 + 820 * 10 / 12], abs=0.01
    )
    (expected,) = [p for p in root.iter(f"{SVG}path") if p.get("class") == "expected"]
    assert expected.get("d").startswith("M530 ")  # 120 + 820 / 2


def test_svg_joins_bars_too_narrow_to_point_at():
    graph = graph_of(*((f"t{i}", 1e-6, "a", "") for i in range(1000)))
    root = ElementTree.fromstring(gantt_svg({"many": list_schedule(graph)}, title="many"))
    (joined,) = [p for p in root.iter(f"{SVG}path") if p.get("fill")]
    assert joined.get("d").count("M") == 1000


def test_only_the_busiest_resources_are_drawn():
    import networkx as nx

    graph, names = nx.DiGraph(), [f"r{i}" for i in range(12)]
    for i, name in enumerate(names):
        graph.add_node(f"t{i}", duration_s=1.0 + (i * 5) % 12, kind="work", resources=(name,))
    timeline = list_schedule(task_graph(graph, names))
    # Durations 1, 6, 11, 4, 9, 2, 7, 12, 5, 10, 3, 8: all but 1, 2, 3 and 4 are shown.
    assert lanes(timeline) == [1, 2, 4, 6, 7, 8, 9, 11]
    assert len(lanes(timeline)) == LANES
    assert "the busiest 8 of 12 resources" in gantt_svg({"wide": timeline}, title="wide")


def test_terminal_by_hand(made):
    # 12 columns of 1 us.
    lines = gantt_text(made, width=12).plain.splitlines()
    assert lines[0] == "all <at> once: 12 us"
    assert [line.split() for line in lines[1:4]] == [
        ["a", "wwww······ww"],
        ["b", "····wwwwww··"],
        ["c", "··········ww"],
    ]
    assert lines[4].split() == ["w", "work"]


def test_trace_by_hand(made):
    events = trace_events(made)["traceEvents"]
    tasks = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"], e["pid"], e["tid"]) for e in tasks] == [
        ("x", 0.0, 4.0, 1, 1),
        ("y", 4.0, 6.0, 1, 2),
        ("z", 10.0, 2.0, 1, 1),
        ("z", 10.0, 2.0, 1, 3),
    ]
    assert all(event["args"]["critical"] for event in tasks)
    named = {(e["name"], e["args"]["name"]) for e in events if e["ph"] == "M" and "name" in e["args"]}
    assert named == {("process_name", "all <at> once"), *(("thread_name", name) for name in "abc")}


def test_trace_file_is_json_and_repeats(made, tmp_path):
    write_chrome_trace(made, tmp_path / "a.json")
    write_chrome_trace(made, tmp_path / "b.json")
    assert json.loads((tmp_path / "a.json").read_text()) == trace_events(made)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_trace_that_cannot_be_written_leaves_nothing(made, tmp_path):
    with pytest.raises(BadInput, match="cannot write"):
        write_chrome_trace(made, tmp_path / "gone" / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_timeline_can_be_drawn():
    nothing = {"nothing": list_schedule(graph_of())}
    ElementTree.fromstring(gantt_svg(nothing, title="nothing"))
    assert "nothing: 0 s" in gantt_text(nothing).plain
    assert [event["ph"] for event in trace_events(nothing)["traceEvents"]] == ["M"] * 7


@settings(deadline=None, derandomize=True, max_examples=50)
@given(task_graphs(durations=st.floats(0, 1e-4)))
def test_events_of_a_thread_never_overlap(graph):
    events = [e for e in trace_events({"any": list_schedule(graph)})["traceEvents"] if e["ph"] == "X"]
    for tid in {event["tid"] for event in events}:
        # Viewers count in whole nanoseconds.
        spans = sorted((round(e["ts"] * 1e3), round(e["dur"] * 1e3)) for e in events if e["tid"] == tid)
        for (start, length), (following, _) in pairwise(spans):
            assert start + length <= following


@settings(deadline=None, derandomize=True, max_examples=50)
@given(task_graphs(durations=st.floats(0, 1e-4)))
def test_pictures_repeat_byte_for_byte_and_are_well_formed(graph):
    timelines = {"one": list_schedule(graph), "two": list_schedule(graph)}
    drawn = gantt_svg(timelines, title="twice")
    assert drawn == gantt_svg(timelines, title="twice")
    ElementTree.fromstring(drawn)
