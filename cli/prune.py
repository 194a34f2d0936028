"""`moeplan prune`: adaptive routing on a trace, and its calibration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import UsageError
from . import parameters
from .console import show, show_json, table
from .options import check_outputs
from .pruning import VariantName, Window, apply, calibrated, prepare, read

if TYPE_CHECKING:
    from ..workload.cognitive import TokenRule
    from ..workload.pruning import PruningSettings

_INPUT, _ROUTING, _SEARCH, _OUTPUT = "What to prune", "How to prune", "How to calibrate", "What to write"

_Model = Annotated[str, parameters.model(_INPUT)]
_Platform = Annotated[str, parameters.platform(_INPUT, which=" with PIM channels")]
_Trace = Annotated[Path, parameters.trace(_INPUT, help="Routing trace (.parquet) with router weights.")]
_Plan = Annotated[
    Path | None,
    typer.Option(
        help="Where experts live (default: uniform LPT on the profile part).", rich_help_panel=_INPUT
    ),
]
_Batch = Annotated[int, parameters.batch(_INPUT)]
_Steps = Annotated[int, parameters.steps(_INPUT, help="Decode steps to measure.")]
_HeldOut = Annotated[
    float,
    typer.Option(
        help="Share of the trace that figures are measured on; the rest is the profile (0: all is both).",
        rich_help_panel=_INPUT,
    ),
]
_Layers = Annotated[str | None, parameters.layers(_INPUT)]
_AssumeWeights = Annotated[float | None, parameters.assume_weights(_INPUT, lacking="weights")]
_ThinkShare = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="For a trace without phases: this share of every request thinks, the rest answers.",
        rich_help_panel=_INPUT,
    ),
]
_Seed = Annotated[int, parameters.seed("Of split and replay.", _INPUT)]

_Alpha = Annotated[
    float | None, typer.Option(help="One threshold for all layers and phases.", rich_help_panel=_ROUTING)
]
_AlphaThink = Annotated[
    str | None,
    typer.Option(
        metavar="A|A,A,A",
        help="Threshold in the think phase (shallow, middle, deep layers).",
        rich_help_panel=_ROUTING,
    ),
]
_AlphaAnswer = Annotated[
    str | None,
    typer.Option(metavar="A|A,A,A", help="The same in the answer phase.", rich_help_panel=_ROUTING),
]
_KMin = Annotated[
    str, typer.Option(metavar="K|K,K,K", help="Experts that every token keeps.", rich_help_panel=_ROUTING)
]
_Cognitive = Annotated[
    int, typer.Option(min=0, help="Cognitive experts of a layer.", rich_help_panel=_ROUTING)
]
_Boost = Annotated[
    float, typer.Option(help="How much their weights grow in the think phase.", rich_help_panel=_ROUTING)
]
_Mark = Annotated[
    str | None,
    typer.Option(
        metavar="PHASE|FROM-TO|PHASE:FROM-TO",
        help="Tokens of the profile part by which cognitive experts are told (default: think).",
        rich_help_panel=_ROUTING,
    ),
]
_Congestion = Annotated[
    bool,
    typer.Option("--congestion", help="Drop experts from congested channels.", rich_help_panel=_ROUTING),
]

_Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help="Search a grid for the Pareto front of kept routing mass and time.",
        rich_help_panel=_SEARCH,
    ),
]
_Variant = Annotated[
    VariantName | None, typer.Option(help="Which grid (default: static).", rich_help_panel=_SEARCH)
]
_Keep = Annotated[
    float | None,
    typer.Option(
        help="Take the fastest settings that keep this share of routing mass.", rich_help_panel=_SEARCH
    ),
]

_Output = Annotated[Path | None, parameters.output("The pruned trace.", _OUTPUT)]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def prune(
    model: _Model,
    platform: _Platform,
    trace: _Trace,
    plan: _Plan = None,
    batch: _Batch = 32,
    steps: _Steps = 32,
    held_out: _HeldOut = 0.5,
    layers: _Layers = None,
    assume_weights: _AssumeWeights = None,
    think_share: _ThinkShare = None,
    seed: _Seed = 0,
    alpha: _Alpha = None,
    alpha_think: _AlphaThink = None,
    alpha_answer: _AlphaAnswer = None,
    k_min: _KMin = "1",
    cognitive: _Cognitive = 0,
    boost: _Boost = 1.0,
    mark: _Mark = None,
    congestion: _Congestion = False,
    calibrate: _Calibrate = False,
    variant: _Variant = None,
    keep: _Keep = None,
    output: _Output = None,
    json: _Json = False,
) -> None:
    """Drop experts that add little to a token, and say what that saves on a PIM machine.

    Time is that of the experts of a decode step, channels and network, on held-out steps. With --calibrate,
    settings are searched on the profile part.
    """
    from ..hardware.platform import load_platform
    from ..workload.model import load_model

    given = _Given(alpha, alpha_think, alpha_answer, k_min, boost, cognitive, congestion)
    _check_use(calibrate, given, keep, output, variant)
    rule = parse_rule(mark or "think")
    if mark is not None and cognitive == 0 and variant not in ("boost", "all"):
        raise UsageError(
            "--mark tells cognitive experts, and none are asked for", fix="give --cognitive, or leave it out"
        )
    settings = None if calibrate else parse_settings(given)
    check_outputs({"--output": output}, {"--trace": trace, "--plan": plan, "--model": model}, (".parquet",))
    shapes, machine = load_model(model), load_platform(platform)
    whole = read(trace, shapes, layers, assume_weights, think_share)
    bench = prepare(whole, shapes, machine, plan, rule, Window(batch, steps, seed, held_out))
    if settings is not None:
        answer = apply(bench, settings, output)
    else:
        answer = calibrated(bench, variant or "static", keep, output)
    answer = {
        "model": shapes.name,
        "platform": machine.name,
        "placement": bench.placement,
        "measured_on": "held-out steps" if held_out else "steps of the whole trace",
        **answer,
    }
    if json:
        show_json(answer)
    else:
        _show(answer, output)


@dataclass(frozen=True)
class _Given:
    """The options that say how to prune."""

    alpha: float | None
    think: str | None
    answer: str | None
    k_min: str
    boost: float
    cognitive: int
    congestion: bool


def _check_use(
    calibrate: bool, given: _Given, keep: float | None, output: Path | None, variant: VariantName | None
) -> None:
    nothing = _Given(None, None, None, "1", 1.0, 0, False)
    if calibrate and given != nothing:
        raise UsageError(
            "--calibrate searches for the settings, and some were given", fix="leave out one or the other"
        )
    if given.cognitive and given.boost == 1.0 and not given.congestion:
        raise UsageError(
            "cognitive experts are favoured by --boost and spared by --congestion, and neither is given",
            fix="give one, or leave out --cognitive",
        )
    if not calibrate and given == nothing:
        raise UsageError(
            "nothing says how to prune",
            fix="give --alpha, --alpha-think, --alpha-answer or --congestion, or search with --calibrate",
        )
    for option, value in (("--keep", keep), ("--variant", variant)):
        if not calibrate and value is not None:
            raise UsageError(f"{option} goes with --calibrate", fix="leave it out, or add --calibrate")
    if calibrate and output is not None and keep is None:
        raise UsageError(
            "calibration finds many settings, and -o writes one trace",
            fix="say with --keep which share of routing mass must stay",
        )


def parse_settings(given: _Given) -> PruningSettings:
    """Read the settings. Raises UsageError that names the option."""
    from ..workload.pruning import PruningSettings

    floors = _three(given.k_min, "--k-min", int)
    return PruningSettings(
        uniform=given.alpha,
        think=_three(given.think, "--alpha-think", float) if given.think else None,
        answer=_three(given.answer, "--alpha-answer", float) if given.answer else None,
        k_min=(int(floors[0]), int(floors[1]), int(floors[2])),
        boost=given.boost,
        cognitive=given.cognitive,
        congestion=given.congestion,
    )


def _three(text: str, option: str, kind: type[int] | type[float]) -> tuple[float, float, float]:
    """One number for all depths, or three."""
    try:
        values = [kind(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) == 1:
        values *= 3
    if len(values) != 3:
        raise UsageError(
            f"{text!r} is not understood",
            where=option,
            allowed="one number, or three for shallow, middle and deep layers",
            fix=f"for example {option} {'2 or 3,2,2' if kind is int else '0.4 or 0.3,0.4,0.5'}",
        )
    return values[0], values[1], values[2]


def parse_rule(text: str) -> TokenRule:
    """Read "think", "0-31" or "think:0-31" (positions in a request, both ends included)."""
    from ..workload.cognitive import TokenRule

    phase, _, span = text.rpartition(":")
    if not phase and "-" not in span:
        phase, span = span, ""
    try:
        first, last = (int(part) for part in span.split("-")) if span else (0, None)
    except ValueError as error:
        raise UsageError(
            f"{text!r} marks no tokens", where="--mark", fix="for example think, 0-31 or think:0-31"
        ) from error
    return TokenRule(phase or None, first, last)  # type: ignore[arg-type]  # it checks the phase


def _show(answer: dict[str, Any], output: Path | None) -> None:
    before_s, steps = answer["j_before_s"], answer["measured_on"]
    title = f"experts of {answer['model']} on {answer['platform']}, {answer['placement']}"
    if "front" in answer:
        title += f"; searched on profile steps, speed-up over nothing dropped on {steps}"
        other = "held-out" if steps.startswith("held-out") else "whole-trace"
        columns = (
            "settings", "profile mass", "profile experts", "profile J us",
            f"{other} mass", f"{other} J us", "speed-up",
        )  # fmt: skip
        rows = [
            (
                describe(point["settings"]),
                f"{point['kept_mass']:.2%}",
                f"{point['experts_per_token']:.2f}",
                f"{point['j_s'] * 1e6:,.1f}",
                f"{point['held_out']['kept_mass']:.2%}",
                f"{point['held_out']['j_s'] * 1e6:,.1f}",
                f"{before_s / point['held_out']['j_s']:.2f}",
            )
            for point in answer["front"]
        ]
        show(table(columns, rows, title=title))
        if answer["chosen"]:
            show(f"chosen: {describe(answer['chosen']['settings'])}")
        else:
            show(
                "next: --keep SHARE takes the fastest of these that keeps that share of profile mass, "
                "and -o writes its trace"
            )
    else:
        title += f"; measured on {steps}"
        effect = [
            ("J us", f"{before_s * 1e6:,.1f}", f"{answer['j_after_s'] * 1e6:,.1f}"),
            (
                "experts per token",
                f"{answer['experts_per_token_before']:.2f}",
                f"{answer['experts_per_token']:.2f}",
            ),
            ("routing mass", "100.00%", f"{answer['kept_mass']:.2%}"),
        ]
        show(table(("", "before", "after"), effect, title=title), f"speed-up: {answer['speed_up']:.2f}")
    if output is not None:
        show(f"trace: {output}")


def describe(settings: dict[str, Any]) -> str:
    """Settings in a few words."""
    words = []
    if settings["uniform"] is not None:
        words.append(f"alpha {settings['uniform']:g}")
    for name in ("think", "answer"):
        if settings[name] is not None:
            words.append(f"{name} " + "/".join(f"{alpha:.3g}" for alpha in settings[name]))
    floors = settings["k_min"]
    words.append("k_min " + "/".join(map(str, floors if len(set(floors)) > 1 else floors[:1])))
    if settings["boost"] > 1.0:
        words.append(f"boost {settings['boost']:g} of {settings['cognitive']}")
    if settings["congestion"]:
        words.append("congestion")
    return ", ".join(words) if words[1:] else "nothing dropped"
