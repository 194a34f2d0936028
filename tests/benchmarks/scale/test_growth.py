"""What a study says of made-up points; no clock runs here."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from moeplan.benchmarks.scale.extrapolate import Target, beyond, block
from moeplan.benchmarks.scale.grid import STUDIED, VALUES, points
from moeplan.benchmarks.scale.growth import growths, point_dict
from moeplan.benchmarks.scale.picture import draw
from moeplan.benchmarks.scale.point import AXES, Failed, Finished, Measured, Point

MIB = 2**20


def made(axis, family, sizes, time, memory, held=100 * MIB):
    return [
        Finished(
            Point(family, axis, **{axis: x}),
            Measured(
                time(x), 2 * time(x), {"pose": time(x) / 4, "search": 0.75 * time(x)}, held, held + memory(x)
            ),
        )
        for x in sizes
    ]


LINEAR = made("steps", "cores", (32, 64, 128, 256), lambda s: 0.01 * s, lambda s: s * MIB)
SQUARE = made("experts", "channels", (64, 128, 256), lambda e: 1e-4 * e**2, lambda e: 2 * MIB)


def found(finished):
    return {(g.axis, g.family, g.what): g for g in growths(finished)}


def test_exponents_of_time_phases_and_memory():
    grown = found(LINEAR + SQUARE)
    assert grown["steps", "cores", "time"].fit.exponent == pytest.approx(1.0)
    assert grown["steps", "cores", "search"].fit.exponent == pytest.approx(1.0)
    assert grown["steps", "cores", "memory"].fit.exponent == pytest.approx(1.0)
    assert grown["experts", "channels", "time"].fit.exponent == pytest.approx(2.0)
    assert grown["experts", "channels", "memory"].fit.exponent == pytest.approx(0.0, abs=1e-9)
    assert grown["steps", "cores", "time"].value == pytest.approx(2.56)


def test_what_grows_faster_than_its_axis_is_called_so():
    grown = found(LINEAR + SQUARE)
    assert grown["experts", "channels", "time"].faster
    assert not grown["experts", "channels", "memory"].faster
    assert not any(grown["steps", "cores", what].faster for what in ("time", "pose", "search", "memory"))


def test_a_fixed_cost_does_not_hide_the_growth_of_the_last_step():
    # 10 s of fixed cost: the whole exponent is small, that of the last doubling nearly 2.
    steep = made("steps", "cores", (32, 64, 128, 256, 512), lambda s: 10.0 + 1e-3 * s**2, lambda s: MIB)
    grown = found(steep)["steps", "cores", "time"]
    assert grown.fit.exponent < grown.fit.last
    assert grown.faster


def test_two_points_are_no_verdict():
    two = made("steps", "cores", (32, 64), lambda s: 1e-3 * s**2, lambda s: MIB)
    assert found(two)["steps", "cores", "time"].fit.exponent == pytest.approx(2.0)
    assert not found(two)["steps", "cores", "time"].faster


def test_figures_too_small_for_a_clock_are_left_out():
    tiny = made("steps", "cores", (32, 64, 128), lambda s: 1e-6 * s, lambda s: 1024)
    assert growths(tiny) == []


def test_failed_points_are_kept_apart():
    failed = Finished(Point("cores", "steps", steps=512), Failed("it does not fit into memory"))
    assert found([*LINEAR, failed])["steps", "cores", "time"].largest == 256
    row = point_dict(failed)
    assert row["reason"] == "it does not fit into memory"
    assert row["size"] == 512


def test_a_point_as_plain_values():
    row = point_dict(LINEAR[0])
    assert (row["family"], row["axis"], row["size"]) == ("cores", "steps", 32)
    assert row["grown_bytes"] == 32 * MIB
    assert row["phases_s"] == {"pose": pytest.approx(0.08), "search": pytest.approx(0.24)}


def test_memory_never_shrinks_below_nothing():
    assert Measured(1.0, 1.0, {}, held_bytes=5, peak_bytes=3).grown_bytes == 0


def test_a_target_on_the_law_and_the_check_of_the_largest_point():
    target = Target("steps", "cores", "time", 1e6, "a million steps")
    (far,) = beyond(LINEAR, [target])
    assert far.value == pytest.approx(1e4)
    assert far.exponent == pytest.approx(1.0)
    assert far.check == pytest.approx(1.0)
    dearer = [*LINEAR[:-1], replace(LINEAR[-1], outcome=Measured(2 * 2.56, 1.0))]
    assert beyond(dearer, [target])[0].check == pytest.approx(2.0)
    assert block([far])[0] == "a million steps:"
    assert "2.78 h" in block([far])[1]


def test_memory_on_paper_by_hand():
    finished = made("sites", "replicas", (64, 128, 256), lambda n: 0.01 * n, lambda n: n * MIB)
    (far,) = beyond(finished, [Target("sites", "replicas", "memory", 1e4, "ranks")])
    # Counts [64, 512] twice; three states of [64, 10^4] thrice and [64, 1, 2] twice; who holds what.
    counts, states = 2 * 8 * 64 * 512, 3 * 8 * 64 * (3 * 10**4 + 4)
    assert far.paper == counts + states + 4 * 512 * 10**4
    assert far.value == pytest.approx(1e4 * MIB)
    (time,) = beyond(finished, [Target("sites", "replicas", "time", 1e4, "ranks")])
    assert time.paper is None


def test_a_target_without_points_is_left_out():
    assert beyond(LINEAR, [Target("sites", "replicas", "time", 1e4, "ranks")]) == []


def test_the_picture_has_the_same_bytes_for_the_same_points(tmp_path):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    draw(LINEAR + SQUARE, one)
    draw(LINEAR + SQUARE, two)
    assert one.read_bytes() == two.read_bytes()
    text = "".join(ElementTree.parse(one).getroot().itertext())
    assert "cores: 1.00" in text
    assert "channels: 2.00" in text


def test_every_axis_runs_over_its_values_for_every_family_it_means_something_to():
    every = points()
    assert {p.axis for p in every} == set(AXES)
    for axis in AXES:
        for family in STUDIED[axis]:
            sizes = [p.size for p in every if (p.axis, p.family) == (axis, family)]
            assert sizes == list(VALUES[axis])


def test_the_ends_of_the_axes():
    ends = {axis: (VALUES[axis][0], VALUES[axis][-1]) for axis in AXES}
    assert ends["tokens"] == (10**5, 10**7)
    assert ends["experts"] == (64, 1024)
    assert ends["sites"] == (8, 512)


def test_a_quick_study_is_the_beginning_of_the_whole():
    quick = points(("experts",), quick=True)
    assert [p for p in points(("experts",)) if p in quick] == quick
    assert len(quick) < len(points(("experts",)))
