"""The decode steps that a plan is made and measured on, from the options that say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..common.errors import BadInput, UsageError
from .options import parse_layers
from .watching import watch

if TYPE_CHECKING:
    from ..placement.plan import Split
    from ..workload.load import Load
    from ..workload.model import MoEModel
    from ..workload.stream import TraceStream
    from ..workload.trace import RoutingTrace

SplitBy = Literal["request", "time"]


@dataclass(frozen=True)
class Replay:
    """How a trace becomes decode steps.

    `held_out` is the share of the trace that no solver sees (0.0: nothing), or the path of another trace
    of the same model; `by` says how a share is chosen.
    """

    batch: int
    steps: int
    seed: int
    held_out: float | Path
    by: SplitBy = "request"


@dataclass(frozen=True, eq=False)
class Traffic:
    """Profile and held-out steps, where each comes from, and how one trace was split.

    A source is "" where nothing is held out; `split` is ("whole", 0.0) there, and with another trace.
    """

    profile: Load
    held_out: Load | None
    sources: tuple[str, str]
    split: tuple[Split, float] = ("whole", 0.0)

    def layers(self, wanted: str | None) -> tuple[int, ...]:
        """Absolute ids of the layers to plan: those of the trace, or of an option such as "3-5,8".

        Raises UsageError where the trace lacks one, BadInput where the held-out trace does.
        """
        known = self.profile.layers
        layers = known if wanted is None else parse_layers(wanted, known, "the trace")
        missing = [layer for layer in layers if self.held_out and layer not in self.held_out.layers]
        if missing:
            raise BadInput(
                f"the held-out trace has no layer {missing[0]}",
                where=self.sources[1],
                fix="hold out a trace with the same layers, or name those that both have with --layers",
            )
        return layers


def parse_held_out(text: str) -> float | Path:
    """Read a share ("0.5"), or the path of another trace."""
    try:
        return float(text)
    except ValueError:
        return Path(text)


def read_traffic(trace: Path, model: MoEModel, how: Replay, layers: str | None = None) -> Traffic:
    """Read and replay a trace, a file or a folder of its parts.

    A trace that is small is read whole and checked; of a large one only the rows that are replayed, and
    only `layers` (such as "3-5,8"). Raises BadInput where it does not fit the model, or is too short.
    """
    whole = _open(trace, model, layers)
    source = f"{trace.name}: {whole.source}"
    if how.held_out == 0.0:
        return Traffic(_replay(whole, how, trace.name), None, (source, ""))
    if isinstance(how.held_out, Path):
        if how.held_out.resolve() == trace.resolve():
            raise UsageError(
                "the held-out trace is the profiled one: its score would say nothing",
                where="--held-out",
                fix="name another trace, or a share such as 0.5",
            )
        other = _open(how.held_out, model, layers, other=True)
        return Traffic(
            _replay(whole, how, trace.name),
            _replay(other, how, how.held_out.name),
            (source, f"{how.held_out.name}: {other.source}"),
        )
    profile, held_out = _split(whole, how.held_out, how)
    return Traffic(
        _replay(profile, how, f"profile part of {trace.name}"),
        _replay(held_out, how, f"held-out part of {trace.name}"),
        (source, source),
        (how.by, how.held_out),
    )


def _open(
    path: Path, model: MoEModel, layers: str | None, *, other: bool = False
) -> RoutingTrace | TraceStream:
    """A trace that fits the model; a held-out one may lack layers, which `Traffic.layers` complains of."""
    from ..workload.stream import open_trace
    from ..workload.trace import check_model

    stream = open_trace(path)
    check_model(stream, model)
    if not stream.is_large:
        return stream.read()
    if layers is None:
        return stream
    known = tuple(sorted({*stream.layers, *model.moe_layers})) if other else stream.layers
    wanted = [layer for layer in parse_layers(layers, known, "the trace") if layer in stream.layers]
    return stream.with_layers(wanted) if wanted else stream


def _split(
    whole: RoutingTrace | TraceStream, fraction: float, how: Replay
) -> tuple[RoutingTrace, RoutingTrace] | tuple[TraceStream, TraceStream]:
    from ..workload.replay import split
    from ..workload.stream import TraceStream
    from ..workload.stream_replay import split_stream

    if isinstance(whole, TraceStream):
        return split_stream(whole, fraction, by=how.by, seed=how.seed)
    return split(whole, fraction, by=how.by, seed=how.seed)


def _replay(trace: RoutingTrace | TraceStream, how: Replay, where: str) -> Load:
    from ..workload.replay import replay
    from ..workload.stream import TraceStream
    from ..workload.stream_replay import replay_stream

    try:
        if isinstance(trace, TraceStream):
            with watch(f"replaying {where}", how.batch * how.steps) as on_progress:
                return replay_stream(
                    trace, batch=how.batch, steps=how.steps, seed=how.seed, on_progress=on_progress
                )
        return replay(trace, batch=how.batch, steps=how.steps, seed=how.seed)
    except BadInput as error:
        raise BadInput(
            error.what, where=error.where or where, allowed=error.allowed, fix=error.fix
        ) from error
