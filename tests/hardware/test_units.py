import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.units import (
    BYTES,
    BYTES_PER_S,
    FLOP_PER_S,
    HERTZ,
    TIME,
    Dimension,
    format_bytes,
    format_round_bytes,
    format_s,
    parse,
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("819 GB/s", BYTES_PER_S, 819e9),
        ("3.35 TB/s", BYTES_PER_S, 3.35e12),
        ("400 Gbit/s", BYTES_PER_S, 50e9),  # 400e9 / 8
        ("80 GiB", BYTES, 80 * 1024**3),
        ("3 GB", BYTES, 3e9),
        ("1 kB", BYTES, 1000.0),
        ("1 KB", BYTES, 1000.0),
        ("1 KiB", BYTES, 1024.0),
        ("256 bit", BYTES, 32.0),
        ("64 bytes", BYTES, 64.0),
        ("1.2 us", TIME, 1.2e-6),
        ("1.2 µs", TIME, 1.2e-6),
        ("1.2 μs", TIME, 1.2e-6),
        ("500ms", TIME, 0.5),
        ("2s", TIME, 2.0),
        ("1 min", TIME, 60.0),
        ("0 s", TIME, 0.0),
        ("  .5   ns ", TIME, 0.5e-9),
        ("1e3 ps", TIME, 1e-9),
        ("800 MHz", HERTZ, 8e8),
        ("6.4 GFLOPS", FLOP_PER_S, 6.4e9),
        ("989 TFLOP/s", FLOP_PER_S, 989e12),
        ("624 TOPS", FLOP_PER_S, 624e12),
    ],
)
def test_parse(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "dimension", "problem"),
    [
        ("1e9", BYTES, "the unit is missing"),  # YAML 1.1 reads 1e9 as text
        (1e9, BYTES, "the unit is missing"),
        (0, TIME, "the unit is missing"),
        (True, TIME, "a number with a unit is needed"),
        (None, TIME, "a number with a unit is needed"),
        ("fast", TIME, "does not start with a number"),
        ("nan s", TIME, "does not start with a number"),
        ("", TIME, "does not start with a number"),
        ("-1 s", TIME, "finite and not negative"),
        ("1e999 s", TIME, "finite and not negative"),
        ("80 GB", TIME, "unknown unit 'GB'"),
        ("5 gb/s", BYTES_PER_S, "did you mean 'GB/s'?"),
        ("2 S", TIME, "did you mean 's'?"),
        ("8 Gb", BYTES, "did you mean 'GB'?"),  # gigabits are written Gbit
    ],
)
def test_refused(text: object, dimension: Dimension, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, dimension)
    assert problem in caught.value.what
    assert dimension.name in caught.value.what
    assert repr(text) in caught.value.where
    assert dimension.examples in caught.value.allowed


def test_examples_can_be_read() -> None:
    for dimension in (TIME, BYTES, BYTES_PER_S, FLOP_PER_S, HERTZ):
        for example in dimension.examples.split(", "):
            assert parse(example.strip("'"), dimension) > 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.24e-5, "12.4 us"),
        (999.4e-9, "999 ns"),
        (999.6e-9, "1 us"),  # never "1e+03 ns"
        (3e-12, "0.003 ns"),
        (0.25, "250 ms"),
        (59.96, "60 s"),
        (7200.0, "7200 s"),
        (-2e-6, "-2 us"),
        (math.inf, "inf s"),
    ],
)
def test_format_s(seconds: float, text: str) -> None:
    assert format_s(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1023.9, "1 KiB"),
        (1024, "1 KiB"),
        (28.8 * 1024**3, "28.8 GiB"),
        (3e9, "2.79 GiB"),  # 3e9 / 1024^3 = 2.794
        (3 * 1024**5, "3072 TiB"),
    ],
)
def test_format_bytes(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0.0, "0 B"),
        (1024.0, "1.024 kB"),  # exact in four digits
        (3e9, "3 GB"),
        (62.5e9, "62.5 GB"),
        (2.0**29, "512 MiB"),  # 536.871 MB
        (2.0**30, "1 GiB"),
        (180 * 2.0**30, "180 GiB"),
        (1.5 * 2.0**20, "1.5 MiB"),
        (123_456_789.0, "123.5 MB"),  # round in neither
    ],
)
def test_format_round_bytes(size: float, text: str) -> None:
    assert format_round_bytes(size) == text


@settings(deadline=None, derandomize=True)
@given(st.floats(min_value=1e-12, max_value=1e5))
def test_formatted_time_is_read_back_to_half_a_digit(seconds: float) -> None:
    # Three significant digits: half a unit in the third is at most 1/2 %.
    assert parse(format_s(seconds), TIME) == pytest.approx(seconds, rel=0.0051)


@settings(deadline=None, derandomize=True)
@given(st.floats(min_value=1, max_value=1e15))
def test_formatted_size_is_read_back_to_half_a_digit(size: float) -> None:
    assert parse(format_bytes(size), BYTES) == pytest.approx(size, rel=0.0051)
