"""How much memory planning takes, told in advance, and what smaller setting fits a limit.

An estimate adds up the arrays that planning makes, by their shapes: the trace while it is read, the decode
steps, what stays of every planned layer, and what a layer under way needs beside that (its drawn steps while
they are counted, and two states of a search). What the interpreter and the libraries take is a constant,
measured. Symbols as in the families' modules: S steps, B batch, K choices, E experts, N sites, M links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from ..common.errors import BadInput, UsageError
from ..workload.stream import IN_MEMORY_BYTES
from ..workload.trace_format import ROW_GROUP_ROWS as _GROUP_ROWS
from .channels.problem import Settings as ChannelSettings
from .cores.problem import Settings as CoreSettings

Family = Literal["channels", "cores", "replicas"]

#: Interpreter, libraries and compiled kernels of a plan, measured on Linux with Python 3.11.
BASE_BYTES: Final = 300 * 2**20
#: What decoding and checking a row group takes a choice: the column, a sorted copy and two masks.
_CHECKED_BYTES = 6
#: A trace's rows beside their choices: request, position, step, phase and the order of requests.
_ROW_BYTES = 40
#: Counting drawn steps takes so many bytes a choice: step, slot, key and order of 8 each, and copies of them.
_COUNTED_BYTES = 46
#: And counting by source rank: the indices of four axes, and copies of those that are not dropped.
_SOURCED_BYTES = 80
_CHOICE = 2  # int16
#: Scenarios that drift makes of a load at least.
_SCENARIOS = 48


@dataclass(frozen=True)
class Ask:
    """What is to be planned, as far as memory goes.

    - `layers`: to plan; `trace_layers`, `trace_tokens`: of the whole trace (0 tokens: counts are given).
    - `sites`: channels, cores or ranks; `links`, `route_links`: of the machine's topology, the latter over
      all pairs of sites.
    - `held_out`: whether as many steps are held out as are profiled.
    - `by_source`: replicas of counts by source rank; `drift`: whether replicas plan against it.
    - `jobs`: layers under way at a time.
    """

    family: Family
    experts: int
    top_k: int
    layers: int
    sites: int
    batch: int = 32
    steps: int = 128
    jobs: int = 1
    links: int = 0
    route_links: int = 0
    trace_tokens: int = 0
    trace_layers: int = 0
    held_out: bool = True
    by_source: bool = False
    drift: bool = False

    @property
    def choices(self) -> int:
        """Routed tokens of one layer's profile, S B K."""
        return self.steps * self.batch * self.top_k

    @property
    def parts(self) -> int:
        """Loads: the profile, and what is held out."""
        return 2 if self.held_out else 1


@dataclass(frozen=True)
class Estimate:
    """Bytes at the fullest moment, in parts.

    `reading` is over when planning begins; `traffic`, `kept` (of all layers) and `working` (of the layers
    under way together) come at once.
    """

    base_bytes: float
    reading_bytes: float
    traffic_bytes: float
    kept_bytes: float
    working_bytes: float

    @property
    def total_bytes(self) -> float:
        """The most at a time."""
        planning = self.traffic_bytes + self.kept_bytes + self.working_bytes
        return self.base_bytes + max(self.reading_bytes, planning)


def estimate(ask: Ask) -> Estimate:
    """Return what planning takes. Raises UsageError on a size below 1."""
    for name in ("experts", "top_k", "layers", "sites", "batch", "steps", "jobs"):
        if getattr(ask, name) < 1:
            raise UsageError(f"{name} must be at least 1, not {getattr(ask, name)}")
    kept, working = _FAMILIES[ask.family](ask)
    return Estimate(
        BASE_BYTES,
        _reading(ask),
        _traffic(ask),
        kept * ask.layers,
        working * min(ask.jobs, ask.layers),
    )


def check_memory(limit_bytes: float, ask: Ask) -> Estimate:
    """Return the estimate where it is within the limit.

    Raises BadInput before anything is read or planned where it is not, naming the largest smaller setting
    that fits: fewer jobs; where one job is too many, fewer steps; where one step is, a smaller batch.
    """
    found = estimate(ask)
    if found.total_bytes <= limit_bytes:
        return found
    raise BadInput(
        f"planning would take about {_size(found.total_bytes)}, allowed are {_size(limit_bytes)}",
        where=f"{_size(found.base_bytes)} for the program, {_size(found.reading_bytes)} to read the trace, "
        f"or {_size(found.traffic_bytes)} of decode steps, {_size(found.kept_bytes)} of results and "
        f"{_size(found.working_bytes)} of {min(ask.jobs, ask.layers)} layers under way",
        fix=_remedy(limit_bytes, ask),
    )


def smaller(limit_bytes: float, ask: Ask) -> Ask | None:
    """Return the largest setting below `ask` that fits, None where none does.

    Jobs are given up first, since the plan stays the same; then steps; then tokens of a step.
    """
    for candidate in _smaller(limit_bytes, ask):
        if estimate(candidate).total_bytes <= limit_bytes:
            return candidate
    return None


def _smaller(limit_bytes: float, ask: Ask) -> Iterator[Ask]:
    """Yield the best candidate of every kind: the largest value that fits, or 1."""

    def largest(most: int, at: Callable[[int], Ask]) -> Ask:
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            if estimate(at(middle)).total_bytes <= limit_bytes:
                low = middle
            else:
                high = middle - 1
        return at(low)

    yield largest(min(ask.jobs, ask.layers), lambda jobs: replace(ask, jobs=jobs))
    yield largest(ask.steps, lambda steps: replace(ask, jobs=1, steps=steps))
    yield largest(ask.batch, lambda batch: replace(ask, jobs=1, steps=1, batch=batch))


def _remedy(limit_bytes: float, ask: Ask) -> str:
    fits = smaller(limit_bytes, ask)
    if fits is None:
        least = estimate(replace(ask, jobs=1, steps=1, batch=1))
        return (
            f"allow at least {_size(least.total_bytes)}, which --jobs 1 --steps 1 --batch 1 take; "
            f"as asked it is {_size(estimate(ask).total_bytes)}"
        )
    changes = [
        f"--{name} {getattr(fits, name)}"
        for name in ("jobs", "steps", "batch")
        if getattr(fits, name) != getattr(ask, name)
    ]
    return f"{' '.join(changes)} takes about {_size(estimate(fits).total_bytes)}; or allow more"


def _reading(ask: Ask) -> float:
    """A small trace is read whole and split in two halves; of a large one a few row groups are held."""
    width = ask.trace_layers * ask.top_k
    rows = min(ask.trace_tokens, _GROUP_ROWS)
    checked = rows * width * (_CHOICE + _CHECKED_BYTES)
    whole = ask.trace_tokens * width * _CHOICE
    if whole > IN_MEMORY_BYTES:
        reading = _traffic(ask) + 2.0 * checked + ask.trace_tokens * _ROW_BYTES
    else:
        reading = max(whole + checked, ask.parts * whole + _traffic(ask)) + ask.trace_tokens * _ROW_BYTES
    return max(reading, _traffic(ask) + _counting(ask)) if ask.family == "replicas" else reading


def _counting(ask: Ask) -> float:
    """Steps become counts, those of all layers of a load at once, before the first layer is planned."""
    if ask.by_source:
        return (
            ask.choices * ask.layers * _SOURCED_BYTES + 8.0 * ask.steps * ask.sites * ask.layers * ask.experts
        )
    return ask.trace_layers * (8.0 * ask.choices + 20.0 * ask.steps * ask.experts)


def _traffic(ask: Ask) -> float:
    """Decode steps of all layers of the trace, and the machine's routes where it has any."""
    machine = 4.0 * ask.route_links + 12.0 * ask.sites**2 if ask.route_links else 0.0
    return ask.parts * ask.trace_layers * ask.choices * _CHOICE + machine


def _channels(ask: Ask) -> tuple[float, float]:
    times = ChannelSettings().times(ask.choices)
    recorded, drawn = ask.steps, ask.steps * (1 + times)
    tables = _slot_tables(ask, drawn) if times else 0.0
    tables += ask.parts * (_slot_tables(ask, recorded) + ask.choices * _CHOICE)
    kept = tables + 8.0 * ask.sites**2 + 4.0 * ask.experts
    drawing = drawn * ask.batch * ask.top_k * _COUNTED_BYTES + 28.0 * ask.experts * drawn
    chosen = 4.0 * recorded * ask.batch * (2 * ask.experts)  # of the published cliques
    searching = 2.0 * _channel_state(ask, drawn)
    routes = 16.0 * ask.route_links + 40.0 * ask.sites**2
    return kept, max(drawing, chosen, searching, routes)


def _slot_tables(ask: Ask, steps: int) -> float:
    """`Slots` of so many steps."""
    return steps * (12.0 * ask.experts + ask.batch * (4 * ask.top_k + 1))


def _channel_state(ask: Ask, steps: int) -> float:
    """`State` of the kernels: loads, who lives where, and what crosses links."""
    return steps * (
        10.0 * ask.sites + 2.0 * ask.batch * ask.sites + 12.0 * ask.links + 4.0 * ask.sites + 80.0
    )


def _cores(ask: Ask) -> tuple[float, float]:
    every = ask.steps * (1 + CoreSettings().resample)
    kept = ask.parts * (8.0 * ask.steps * ask.experts + ask.choices * _CHOICE)
    kept += 4.0 * every * (ask.experts + 1)
    counting = max(24.0 * ask.choices, 36.0 * ask.experts * every)
    # A key for every pair of choices of a token, in the published co-activation.
    pairs = ask.steps * ask.batch * (8.0 * ask.top_k**2 + 16.0 * ask.top_k) + 8.0 * ask.experts**2
    searching = every * (4.0 * ask.experts + 4.0 * ask.sites * 2.5) + 12.0 * every * ask.experts
    return kept, max(counting, pairs, searching)


def _replicas(ask: Ask) -> tuple[float, float]:
    wide = ask.sites if ask.by_source else 1
    times = 1
    if ask.drift:
        times = 2 * max(1, -(-_SCENARIOS // (2 * ask.steps)))
    counts = 8.0 * ask.steps * wide * ask.experts
    # Counted once for all layers, and copied into every layer's question.
    kept = 2.0 * ask.parts * counts + (times * counts if ask.drift else 0.0)
    followed = 1 if not ask.by_source else ask.sites
    state = 8.0 * times * ask.steps * (3 * ask.sites + 4 * followed)
    return kept, 3.0 * state + (3.0 * times * counts if ask.drift else 0.0) + 4.0 * ask.experts * ask.sites


def _size(size: float) -> str:
    """Bytes for people; hardware's units are another room's."""
    for unit, factor in (("KiB", 2.0**10), ("MiB", 2.0**20)):
        if size < 1023.5 * factor:
            return f"{size / factor:.0f} {unit}"
    return f"{size / 2.0**30:.2f} GiB"


_FAMILIES: Final[dict[str, Callable[[Ask], tuple[float, float]]]] = {
    "channels": _channels,
    "cores": _cores,
    "replicas": _replicas,
}
