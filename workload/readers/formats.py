"""Which reader a recording wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from ...common.errors import BadInput, UsageError
from ..counts import CountLoad, read_counts
from ..model import MoEModel
from ..trace import RoutingTrace
from .arrays import read_arrays, read_count_array, read_plain
from .kinds import kind_of

Format = Literal["arrays", "sglang", "vllm", "tensorrt-llm"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)


def read_recording(
    paths: Sequence[str | Path], model: MoEModel, format: Format | None = None
) -> RoutingTrace | CountLoad:
    """Read files of one recording: a trace where every token is known, else counts.

    `format` None tells it from the names: .npz and .npy are arrays; .pt, or a folder of them, is SGLang's
    recorder; a folder with meta_info.json is TensorRT-LLM's; .json and .jsonl are answers or statistics of
    vLLM (answers of SGLang read the same).

    Raises UsageError where the format takes one file only, BadInput for faulty files.
    """
    for path in map(Path, paths):
        if kind_of(path) == "trace":
            raise BadInput(f"{str(path)!r} is a Parquet file", fix="a trace of moeplan is used as it is")
    format = format if format is not None else guess(paths)
    if format == "sglang" and not all(Path(path).suffix in (".json", ".jsonl") for path in paths):
        from .sglang import read_sglang

        return read_sglang(paths, model)
    if len(paths) != 1:
        raise UsageError(
            f"{len(paths)} files of format {format}",
            allowed="one; only the recorder of SGLang writes a file for every rank",
            fix="import them one by one",
        )
    path = Path(paths[0])
    if format == "tensorrt-llm":
        from .tensorrt_llm import read_tensorrt_llm

        return read_tensorrt_llm(path, model)
    if format in ("vllm", "sglang"):
        from .vllm import read_vllm

        return read_vllm(path, model)
    return read_plain(path, model) if path.suffix == ".npy" else read_arrays(path, model)


def guess(paths: Sequence[str | Path]) -> Format:
    """Tell the format of a recording from its first path. Raises BadInput where that is missing."""
    path = Path(paths[0])
    if path.is_dir():
        return "tensorrt-llm" if (path / "meta_info.json").exists() else "sglang"
    if not path.exists():
        raise BadInput(f"{str(path)!r} does not exist", fix="check the path")
    known: dict[str, Format] = {".pt": "sglang", ".json": "vllm", ".jsonl": "vllm"}
    return known.get(path.suffix.lower(), "arrays")


def read_load(path: str | Path, model: MoEModel | None = None) -> CountLoad:
    """Read counts to plan from: a file of `moeplan trace import` (.npz), or a plain array (.npy).

    With a model, experts and layers must be the model's. Raises BadInput that names the file.
    """
    from ..counts import check_counts

    path = Path(path)
    if path.suffix.lower() == ".npy":
        return read_count_array(path, model=model)
    load = read_counts(path)
    if model is not None:
        check_counts(load, model)
    return load
