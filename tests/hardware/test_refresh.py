import pytest

from moeplan.common.errors import UsageError
from moeplan.hardware.refresh import NO_REFRESH, Operation, Refresh


def test_without_refresh_work_takes_its_time() -> None:
    assert NO_REFRESH.stretch(12.5) == 12.5


def test_on_average_a_constant_share_is_lost() -> None:
    # 8 of 100 s for the refresh and 2 around it: a tenth of the time, so work takes 1 / 0.9 as long.
    refresh = Refresh(rule="average", interval_s=100.0, cycle_s=8.0, guard_s=2.0)
    assert refresh.stretch(9.0) == pytest.approx(10.0)
    assert refresh.stretch(900.0) == pytest.approx(1000.0)


def test_interrupting_refreshes_are_counted() -> None:
    # Every 100 s for 10 s. 100 s of work end just in time; one more waits for a refresh; the second
    # refresh comes after 90 more.
    refresh = Refresh(rule="interrupt", interval_s=100.0, cycle_s=10.0)
    assert [refresh.stretch(busy) for busy in (100.0, 101.0, 189.0, 191.0)] == [100.0, 111.0, 199.0, 211.0]


def test_operations_wait_where_they_would_miss_the_deadline() -> None:
    # Rows of 30 s, estimated at 35: three start by 65, none after; the rest waits for the refresh at 100.
    refresh = Refresh(rule="deadline", interval_s=100.0, cycle_s=10.0, guard_s=5.0)

    def end_s(*operations: Operation) -> float:
        return max(refresh.ends([operations]))

    assert end_s(Operation(30.0, 3, True)) == 90.0
    assert end_s(Operation(30.0, 4, True)) == 140.0
    # Fills are not over-estimated: 10 s more fit.
    assert end_s(Operation(30.0, 3, True), Operation(10.0, 1, False)) == 100.0
    assert end_s(Operation(30.0, 3, True), Operation(10.0, 1, True)) == 120.0
    # What fits only before the first refresh starts right after the others: at 110 and at 210.
    assert end_s(Operation(95.0, 3, False)) == 305.0
    assert end_s(Operation(0.0, 5, False)) == 0.0


def test_vectors_follow_each_other() -> None:
    refresh = Refresh(rule="deadline", interval_s=100.0, cycle_s=10.0, guard_s=5.0)
    row = Operation(30.0, 1, True)
    assert list(refresh.ends([[row], [row, row], [row]])) == [30.0, 90.0, 140.0]


def test_bad_refresh_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown refresh rule"):
        Refresh(rule="sometimes")
    with pytest.raises(UsageError, match="shorter than the interval"):
        Refresh(rule="average", interval_s=1e-6, cycle_s=2e-6)
    with pytest.raises(UsageError, match="of every inf s"):
        Refresh(rule="deadline")
