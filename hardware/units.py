"""Quantities as people write them: "819 GB/s", "80 GiB", "1.2 us" to SI floats, and back.

Decimal prefixes count in 1000 (k, K, M, G, T, P), binary ones in 1024 (Ki, Mi, Gi, Ti). Units are
case-sensitive, because "ms" is no "Ms". A number without a unit is refused, so that "1e9", which
YAML 1.1 reads as text, and 1000000000 mean the same: an error that says which unit is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..common.errors import UsageError

_SMALL = {"p": 1e-12, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "": 1.0}  # both micro signs
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_DECIMALS = tuple((prefix, factor) for prefix, factor in _DECIMAL.items() if prefix != "K")  # to write: k
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Dimension:
    """What a quantity measures: its name with an article, its units in SI, and how to write it."""

    name: str
    units: Mapping[str, float]
    examples: str


def _units(prefixes: Mapping[str, float], *names: str, factor: float = 1.0) -> dict[str, float]:
    return {prefix + name: scale * factor for prefix, scale in prefixes.items() for name in names}


_SIZES = {
    **_units(_DECIMAL | _BINARY, "B"),
    **_units({"": 1.0}, "byte", "bytes"),
    **_units(_DECIMAL | _BINARY, "bit", factor=1 / 8),
}

TIME = Dimension(
    "a time",
    MappingProxyType({**_units(_SMALL, "s"), "min": 60.0, "h": 3600.0}),
    "'1.2 us', '45 ns', '500ms', '2 s', '1 min'",
)
BYTES = Dimension("a size", MappingProxyType(_SIZES), "'80 GB', '96 GiB', '1 KiB', '256 bit'")
BYTES_PER_S = Dimension(
    "a bandwidth",
    MappingProxyType({f"{unit}/s": factor for unit, factor in _SIZES.items()}),
    "'819 GB/s', '3.35 TB/s', '400 Gbit/s'",
)
FLOP_PER_S = Dimension(
    "a computing rate",
    MappingProxyType(_units(_DECIMAL, "FLOP/s", "FLOPS", "OP/s", "OPS")),
    "'6.4 GFLOPS', '989 TFLOP/s', '624 TOPS'",
)
HERTZ = Dimension("a frequency", MappingProxyType(_units(_DECIMAL, "Hz")), "'800 MHz', '1.2 GHz'")


def parse(text: object, dimension: Dimension) -> float:
    """Return the quantity in SI units (s, bytes, bytes/s, FLOP/s, Hz).

    Raises UsageError where `text` is not a finite number >= 0 with a unit of that dimension.
    """
    problem = "the unit is missing"
    if isinstance(text, str):
        match = _QUANTITY.fullmatch(text.strip())
        unit = "".join(match[2].split()) if match else ""
        if match and unit in dimension.units:
            value = float(match[1]) * dimension.units[unit]
            if 0.0 <= value < math.inf:
                return value
            problem = "it must be finite and not negative"
        elif match and unit:
            problem = f"unknown unit {unit!r}{_other_case(unit, dimension)}"
        elif not match:
            problem = "it does not start with a number"
    elif isinstance(text, bool) or not isinstance(text, int | float):
        problem = "a number with a unit is needed"
    raise UsageError(
        f"not {dimension.name}: {problem}", where=f"reading {text!r}", allowed=f"such as {dimension.examples}"
    )


def format_s(seconds: float) -> str:
    """Write a time with three significant digits: 1.24e-5 as "12.4 us", 7200 as "7200 s"."""
    for unit, factor in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds and abs(seconds) < 999.5 * factor:
            return f"{_digits(seconds / factor)} {unit}"
    return f"{_digits(seconds)} s"


def format_bytes(size: float) -> str:
    """Write a size with three significant digits and a binary prefix: 3 * 2**30 as "3 GiB"."""
    for unit, factor in (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30)):
        if abs(size) < 1023.5 * factor:
            return f"{_digits(size / factor)} {unit}"
    return f"{_digits(size / 2.0**40)} TiB"


def format_round_bytes(size: float) -> str:
    """Write a size by the prefix that makes it round: 3e9 as "3 GB", 2**29 as "512 MiB".

    Decimal where four significant digits are exact, else binary where they are, else four decimal digits.
    """
    decimal = _scaled(size, _DECIMALS)
    binary = decimal if decimal[1] == size else _scaled(size, tuple(_BINARY.items()))
    return f"{(binary if binary[1] == size else decimal)[0]}B"


def _scaled(size: float, prefixes: tuple[tuple[str, float], ...]) -> tuple[str, float]:
    """Four significant digits under the largest of ascending prefixes that is not above; and their value."""
    prefix, factor = next(((p, f) for p, f in reversed(prefixes) if abs(size) >= f), prefixes[0])
    digits = f"{size / factor:.4g}"
    return f"{digits} {prefix}", float(digits) * factor


def _digits(value: float) -> str:
    """Three significant digits, all of them before the point from 1000 on."""
    return f"{value:.0f}" if 999.5 <= abs(value) < math.inf else f"{value:.3g}"


def _other_case(unit: str, dimension: Dimension) -> str:
    known = next((name for name in dimension.units if name.lower() == unit.lower()), None)
    return f", did you mean {known!r}?" if known else ""
