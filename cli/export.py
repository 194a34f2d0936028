"""`moeplan export`: a plan of replicas as the file that a serving engine loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import BadInput, UsageError
from ..common.files import require_file
from . import parameters
from .console import show, show_json, table
from .options import check_outputs, named_or_preset, show_layers

if TYPE_CHECKING:
    from ..placement.export.engine import Engine
    from ..workload.counts import CountLoad


_Plan = Annotated[
    Path, typer.Argument(help="A plan of replicas (.json); for sglang also counts (.npz) or a trace.")
]
_EngineName = Annotated[
    str, typer.Option(help="sglang, vllm, vllm-ascend, tensorrt-llm or eplb (DeepSeek's arrays).")
]
_Output = Annotated[Path, parameters.output("The file; for vllm .json holds lists, .jsonl a mapping line.")]


def export(
    plan: _Plan,
    engine: _EngineName,
    output: _Output,
    model: parameters.UnshippedModel = None,
    json: parameters.Json = False,
) -> None:
    """Write what an engine loads, and beside it FILE.moeplan.json with launch flags and preconditions.

    The file is read back and held against the engine's rules before it is written. Counts or a trace
    instead of a plan become what SGLang plans from by itself.
    """
    from ..placement.export.engines import export_counts, export_layout, find_engine
    from ..placement.export.layout import layout_of
    from ..placement.export.sidecar import sidecar_path
    from ..workload.model import load_model, model_names

    wanted = find_engine(engine)
    check_outputs(
        {"--output": output, "the sidecar": sidecar_path(output)}, {"the plan": plan, "--model": model}
    )
    if _is_plan(plan):
        document = _read(plan)
        recorded = getattr(document.model, "name", document.model)
        shapes = named_or_preset(load_model, model_names(), model, recorded)
        sidecar = export_layout(layout_of(document), wanted, output, model=shapes, source=plan.name)
    else:
        load = _counts(plan, wanted)
        shapes = named_or_preset(load_model, model_names(), model, load.model)
        if shapes is None:
            raise UsageError("counts need their model", where="--model", fix="name the model")
        sidecar = export_counts(load, output, model=shapes, source=plan.name)
    if json:
        show_json({"output": str(output), "sidecar": str(sidecar_path(output)), **sidecar})
    else:
        _show(sidecar, output, sidecar_path(output))


def _is_plan(path: Path) -> bool:
    require_file(path)
    try:
        with path.open("rb") as stream:
            return stream.read(4) not in (b"PAR1", b"PK\x03\x04")
    except OSError as error:
        raise BadInput(f"cannot read {str(path)!r}: {error.strerror}", fix="check the path") from error


def _read(path: Path) -> Any:
    from ..placement.plan import read_plan

    document = read_plan(path)
    if document.family != "replicas":
        raise BadInput(
            f"{str(path)!r} is a plan of {document.family}, which no serving engine loads",
            allowed="plans of replicas",
            fix="plan for a GPU cluster, as in moeplan plan --platform gpu-cluster",
        )
    return document


def _counts(path: Path, engine: Engine) -> CountLoad:
    from ..workload.counts import count_trace, read_counts
    from ..workload.trace import read_trace

    if engine.name != "sglang":
        raise UsageError(
            f"{engine.name} loads no counts",
            where=str(path),
            fix="plan from them first, then export the plan",
        )
    with path.open("rb") as stream:
        is_trace = stream.read(4) == b"PAR1"
    return count_trace(read_trace(path)) if is_trace else read_counts(path)


def _show(sidecar: dict[str, Any], output: Path, beside: Path) -> None:
    words = {True: "ok", False: "WRONG", None: "warning"}
    rows = ((found["check"], words[found["ok"]], found["detail"]) for found in sidecar["checks"])
    show(table(("check", "result", "detail"), rows, left=3))
    unplanned = sidecar.get("unplanned_layers")
    lines = [f"file:    {output}", f"sidecar: {beside}"]
    if unplanned:
        lines.append(f"not planned, filled in plain order: layers {show_layers(tuple(unplanned))}")
    lines += [f"launch:  {flag}" for flag in sidecar["launch"]["flags"]]
    lines += [f"needs:   {line}" for line in sidecar["preconditions"]]
    lines += [f"note:    {line}" for line in sidecar["notes"]]
    show(*lines)
