"""`moeplan trace import`: what engines recorded, as a trace or as counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from . import parameters
from .console import show, warn
from .options import check_outputs, check_suffix
from .trace_text import count_summary, summary

_Recording = Annotated[
    list[Path], typer.Argument(help="A file, a folder, or the files of all ranks of one recording.")
]
_Output = Annotated[
    Path, parameters.output("The trace (.parquet), or counts (.npz) where no token is known.")
]
_Format = Annotated[
    Literal["auto", "arrays", "sglang", "vllm", "tensorrt-llm"],
    typer.Option(help="Who recorded it; auto goes by the files' names."),
]
_Source = Annotated[str | None, typer.Option(help="Where it comes from, for people.")]


def import_recording(
    recording: _Recording,
    model: parameters.ModelName,
    output: _Output,
    format: _Format = "auto",
    source: _Source = None,
) -> None:
    """Turn what an engine recorded into a trace, or into counts where it did not record every token.

    arrays: .npz with the keys experts [tokens, layers, top-k], optionally weights (same shape), request,
    position, step, phase [tokens], layers (absolute ids) and num_experts; .npy of choices, or of counts
    [layers, experts] or [windows, layers, experts]. sglang: .pt dumps of its recorder, all modes (needs
    torch), or answers with routed_experts. vllm: answers with routed_experts, or load statistics (.jsonl).
    tensorrt-llm: the folder of EXPERT_STATISTIC_PATH.
    """
    from ..workload.counts import CountLoad, write_counts
    from ..workload.model import load_model
    from ..workload.readers.formats import read_recording
    from ..workload.trace import write_trace

    shapes = load_model(model)
    inputs: dict[str, str | Path | None] = {f"the recording {path.name}": path for path in recording}
    check_outputs({"--output": output}, {**inputs, "--model": model}, (".parquet", ".npz"))
    read = read_recording(recording, shapes, None if format == "auto" else format)
    if source is not None:
        read = replace(read, source=source)
    if isinstance(read, CountLoad):
        check_suffix(output, (".npz",), "--output", "the recording holds counts, no tokens")
        write_counts(read, output)
        for remark in read.remarks:
            warn(remark)
        show(count_summary(read, output))
    else:
        check_suffix(output, (".parquet",), "--output", "the recording holds tokens")
        write_trace(read, output)
        show(summary(read, output))
