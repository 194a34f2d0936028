"""What CBC's log proves, when it is all that there is."""

from __future__ import annotations

import pytest

from moeplan.placement.search.cbc import dual_bound


@pytest.mark.parametrize(
    ("log", "bound"),
    [
        # 5.0838010 is printed as 5.084: the bound may not be above 5.0835.
        ("Lower bound:                    5.084\n", 5.0835),
        # Six significant digits without trailing zeros: 1234.5 stands for anything from 1234.495 on.
        ("Continuous objective value is 1234.5 - 0.00 seconds\n", 1234.495),
        ("Continuous objective value is 1.23457e+06 - 0.00 seconds\n", 1_234_565.0),
        ("Continuous objective value is 0 - 0.00 seconds\n", 0.0),
        ("Continuous objective value is 7\nLower bound:   8.000\n", 7.9995),
        ("", 0.0),
    ],
)
def test_half_a_digit_is_given_away(log, bound):
    assert dual_bound(log) == pytest.approx(bound, rel=1e-12)
