"""Power laws through points that were made from one, and by hand."""

import math

import pytest

from moeplan.benchmarks.scale.fit import fit


def test_an_exact_power_law_is_found_without_error():
    law = fit([1, 2, 4, 8], [3 * x**1.5 for x in (1, 2, 4, 8)])
    assert law.exponent == pytest.approx(1.5)
    assert law.last == pytest.approx(1.5)
    assert law.error == pytest.approx(0.0, abs=1e-7)
    value, low, high = law.at(100.0)
    assert value == pytest.approx(3 * 1000.0)
    assert (low, high) == (pytest.approx(value), pytest.approx(value))


def test_exponent_and_error_by_hand():
    # log x = -1, 0, 1 and log y = 0, 0, 3: slope (0 + 3) / 2, mean 1, residuals 0.5, -1, 0.5.
    # Standard error sqrt((0.25 + 1 + 0.25) / (3 - 2) / 2).
    law = fit([math.exp(-1), 1.0, math.e], [1.0, 1.0, math.exp(3)])
    assert law.exponent == pytest.approx(1.5)
    assert law.level == pytest.approx(1.0)
    assert law.centre == pytest.approx(1.0)
    assert law.error == pytest.approx(math.sqrt(0.75))
    assert law.last == pytest.approx(3.0)


def test_interval_of_a_new_observation_by_hand():
    law = fit([math.exp(-1), 1.0, math.e], [1.0, 1.0, math.exp(3)])
    # One degree of freedom: t = 12.7062. At log x = 2: spread sqrt(1.5) * sqrt(1 + 1/3 + 4/2).
    width = 12.7062047 * math.sqrt(1.5) * math.sqrt(1 + 1 / 3 + 2)
    value, low, high = law.at(math.exp(2))
    assert math.log(value) == pytest.approx(1.0 + 1.5 * 2)
    assert math.log(low) == pytest.approx(4.0 - width, rel=1e-6)
    assert math.log(high) == pytest.approx(4.0 + width, rel=1e-6)


def test_two_points_have_an_exponent_but_no_error():
    law = fit([10, 100], [1.0, 10.0])
    assert law.exponent == pytest.approx(1.0)
    assert law.error is None
    assert law.at(1000.0) == (pytest.approx(100.0), 0.0, math.inf)


def test_points_may_come_in_any_order():
    assert fit([8, 2, 4], [64, 4, 16]) == fit([2, 4, 8], [4, 16, 64])


@pytest.mark.parametrize(("x", "y"), [([], []), ([5], [1.0]), ([5, 5], [1.0, 2.0]), ([5, 10], [1.0, 0.0])])
def test_nothing_to_fit(x, y):
    assert fit(x, y) is None
