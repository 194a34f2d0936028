"""`moeplan trace record`: run a Hugging Face model, and write down what its routers choose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..common.errors import BadInput
from . import parameters
from .console import show
from .options import check_outputs
from .trace_text import summary

_Checkpoint = Annotated[
    str, typer.Argument(help="Folder of a Hugging Face checkpoint (safetensors), or its name on the hub.")
]
_Prompts = Annotated[
    Path,
    typer.Option(help='A prompt a line (.txt), or lines {"prompt": text} or {"tokens": [ids]} (.jsonl).'),
]
_NewTokens = Annotated[int, typer.Option(min=0, help="Tokens to generate after every prompt, greedily.")]
_Device = Annotated[str, typer.Option(help="Where the model runs: cpu, cuda, cuda:1.")]
_Name = Annotated[str | None, typer.Option(help="Name of the model (default: of its folder).")]
_Source = Annotated[str | None, typer.Option(help="Where the prompts come from, for people.")]


def record(
    checkpoint: _Checkpoint,
    prompts: _Prompts,
    output: parameters.TraceOutput,
    new_tokens: _NewTokens = 64,
    device: _Device = "cpu",
    name: _Name = None,
    source: _Source = None,
) -> None:
    """Record the routing of any decoder-only Mixture-of-Experts model of transformers.

    Needs the extra `transformers`. Prompts run one by one; the last token of an answer is never routed.
    """
    from ..workload.readers.transformers import load_model_and_tokenizer, record_trace
    from ..workload.trace import write_trace

    check_outputs({"--output": output}, {"--prompts": prompts}, (".parquet",))
    lines = _lines(prompts)
    model, tokenizer = load_model_and_tokenizer(checkpoint, device)
    trace = record_trace(
        model,
        [_tokens(line, tokenizer, f"{prompts}, line {number}") for number, line in lines],
        new_tokens=new_tokens,
        name=name or Path(checkpoint).resolve().name.lower(),
        source=source or f"{prompts.name} on {type(model).__name__}, greedy decoding",
    )
    write_trace(trace, output)
    show(summary(trace, output))


def _lines(path: Path) -> list[tuple[int, Any]]:
    """Return (line number, text or mapping) of every prompt."""
    from ..common.files import read_text
    from ..workload.readers.json_lines import read_json_lines

    if path.suffix.lower() in (".json", ".jsonl"):
        found = read_json_lines(path)
    else:
        text = read_text(path, "prompts")
        found = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not found:
        raise BadInput(f"{str(path)!r} holds no prompts", fix="write a prompt a line")
    return found


def _tokens(line: Any, tokenizer: Any, where: str) -> list[int]:
    if isinstance(line, dict) and "tokens" in line:
        ids = line["tokens"]
        if isinstance(ids, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
            return ids
        raise BadInput("'tokens' must be a list of token ids", where=where)
    text = line.get("prompt") if isinstance(line, dict) else line
    if not isinstance(text, str):
        raise BadInput("no prompt", where=where, allowed='a text, {"prompt": text} or {"tokens": [ids]}')
    if tokenizer is None:
        raise BadInput(
            "the checkpoint has no tokenizer for texts", where=where, fix='give {"tokens": [ids]} instead'
        )
    return [int(one) for one in tokenizer(text)["input_ids"]]
