"""The statistics folder of TensorRT-LLM (`EXPERT_STATISTIC_PATH`).

`meta_info.json` holds `num_experts` and `num_experts_per_token`; every rank writes `rank<r>.safetensors`
with keys "<iteration>_<layer>" and whole numbers [E], to be summed over ranks. Layer ids are the model's.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ...common.spec import read_mapping
from ..counts import CountLoad, check_counts, idle_experts
from ..model import MoEModel
from .safetensors import read_safetensors

_META = "meta_info.json"


def read_tensorrt_llm(folder: str | Path, model: MoEModel) -> CountLoad:
    """Read a statistics folder: a window for every iteration, summed over ranks.

    Raises BadInput where a file is missing or damaged, experts or layers are not those of the model, or an
    iteration lacks a layer that others have.
    """
    folder = Path(folder)
    experts = _meta(folder, model)
    files = sorted(path for path in folder.glob("rank*.safetensors") if re.fullmatch(r"rank\d+", path.stem))
    if not files:
        raise BadInput(
            f"folder {str(folder)!r} holds no counts",
            allowed="rank0.safetensors, rank1.safetensors, ...",
            fix="set EXPERT_STATISTIC_ITER_RANGE and EXPERT_STATISTIC_PATH, and serve requests",
        )
    counts: dict[tuple[int, int], NDArray[np.int64]] = {}
    for file in files:
        for name, array in read_safetensors(file).items():
            key = re.fullmatch(r"(\d+)_(\d+)", name)
            if key is None or array.shape != (experts,) or array.dtype.kind not in "iu":
                raise BadInput(
                    f"{str(file)!r}: key {name!r} holds {array.dtype} of shape {array.shape}",
                    allowed=f"keys <iteration>_<layer> of whole numbers [{experts}]",
                )
            place = int(key[1]), int(key[2])
            counts[place] = counts.get(place, 0) + array.astype(np.int64)
    return _load(counts, folder, len(files), model)


def _meta(folder: Path, model: MoEModel) -> int:
    meta = read_mapping(folder / _META, "description of the statistics")
    pairs = {"num_experts": model.experts, "num_experts_per_token": model.top_k}
    for key, expected in pairs.items():
        if meta.get(key) != expected:
            raise BadInput(
                f"key {key!r} is {meta.get(key)!r}, {model.name} has {expected}",
                where=str(folder / _META),
                fix="name the model that was recorded",
            )
    return model.experts


def _load(
    counts: dict[tuple[int, int], NDArray[np.int64]], folder: Path, ranks: int, model: MoEModel
) -> CountLoad:
    iterations = sorted({iteration for iteration, _ in counts})
    layers = sorted({layer for _, layer in counts})
    for iteration in iterations:
        missing = [layer for layer in layers if (iteration, layer) not in counts]
        if missing:
            raise BadInput(
                f"iteration {iteration} lacks layer {missing[0]}",
                where=str(folder),
                fix="record again, and let the iterations of the range finish",
            )
    if not iterations:
        raise BadInput(f"the files of {str(folder)!r} are empty", fix="serve requests while recording")
    array = np.array([[counts[iteration, layer] for layer in layers] for iteration in iterations])
    skipped = iterations[-1] - iterations[0] + 1 - len(iterations)
    notes = (
        idle_experts(array.astype(np.float64)),
        f"{skipped} iterations within the recorded range are missing" if skipped else "",
        f"MoE layers without counts are left out: {', '.join(map(str, left_out))}"
        if (left_out := sorted(set(model.moe_layers) - set(layers)))
        else "",
    )
    load = CountLoad(
        counts=array,
        layers=tuple(layers),
        windows=tuple(f"iteration {iteration}" for iteration in iterations),
        model=model.name,
        source=f"TensorRT-LLM expert statistics of {ranks} ranks, in order of time",
        remarks=tuple(note for note in notes if note),
    )
    check_counts(load, model)
    return load
