"""What the expert distribution recorder of SGLang dumps (`/dump_expert_distribution_record`).

Every dump has a row for each hidden layer of the model, dense layers included (their rows are empty).
`stat` and `stat_approx`: one file, `logical_count` [B, layers, E], one row a forward pass in a ring of
B rows, so that rows are not in order of time and unused rows are zero. `per_pass` and `per_token`: one
file a rank, `records` and `last_physical_to_logical_map` [layers, R]; what they count and choose are
physical slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ..counts import CountLoad, idle_experts
from ..model import MoEModel
from ..trace import RoutingTrace
from .physical import fold_counts
from .sglang_dump import Dump, dump_files, hidden_rows, integer, load_dump, recorded_map
from .sglang_tokens import read_tokens


def read_sglang(paths: Sequence[str | Path], model: MoEModel) -> RoutingTrace | CountLoad:
    """Read the dumps of one recording: files, or folders of .pt files.

    `per_token` gives a trace; `stat` counts with a window for every recorded pass; `per_pass` counts
    with a window for every pass, in order, summed over ranks. Layers of the model that recorded nothing
    are left out, with a remark.

    Raises BadInput that names file, record and layer; MissingLibrary without torch.
    """
    dumps = [load_dump(file) for file in dump_files(paths)]
    kinds = {_kind(file, dump): file for file, dump in dumps}
    if len(kinds) > 1:
        raise BadInput(
            f"the files are of different modes of the recorder: {', '.join(sorted(kinds))}",
            where=", ".join(str(kinds[kind]) for kind in sorted(kinds)),
            fix="import the dumps of one recording at a time",
        )
    kind = next(iter(kinds))
    if kind == "stat":
        return _read_stat(dumps, model)
    return _read_per_pass(dumps, model) if kind == "per_pass" else read_tokens(dumps, model)


def _kind(path: Path, dump: dict[str, Any]) -> str:
    if "logical_count" in dump:
        return "stat"
    records = dump.get("records")
    if not isinstance(records, list) or "last_physical_to_logical_map" not in dump:
        raise BadInput(
            f"{str(path)!r} is no dump of SGLang's recorder",
            where=f"its keys are: {', '.join(sorted(dump)) or 'none'}",
            allowed="logical_count, or records with last_physical_to_logical_map",
        )
    if not records or not all(isinstance(record, dict) for record in records):
        raise BadInput(
            f"{str(path)!r} holds no records", fix="send requests between start and dump of the recording"
        )
    return "per_token" if "topk_ids_of_layer" in records[0] else "per_pass"


def _read_stat(dumps: list[Dump], model: MoEModel) -> CountLoad:
    counts, windows = [], []
    for path, dump in dumps:
        array = np.asarray(dump["logical_count"])
        if array.ndim not in (2, 3) or array.dtype.kind not in "iuf" or array.shape[-1] != model.experts:
            raise BadInput(
                f"{str(path)!r}: 'logical_count' is {array.dtype} of shape {array.shape}",
                allowed=f"numbers [passes, {model.layers}, {model.experts}]",
                fix="name the model that was recorded",
            )
        array = array.reshape(-1, *array.shape[-2:])
        used = array[:, _moe_rows(array, model, str(path))]
        rows = np.flatnonzero(used.any(axis=(1, 2)))
        counts.append(used[rows])
        windows += [f"{path.name} row {row}" for row in rows]
    remark = "windows stand in the order of the recorder's ring, which need not be that of time"
    return _load(np.concatenate(counts), windows, model, ("stat", dumps), (remark,))


def _moe_rows(array: NDArray[Any], model: MoEModel, where: str) -> NDArray[np.int64]:
    """Rows of the MoE layers in [passes, layers, ...]; counts in any other row betray another model."""
    rows = hidden_rows(array.shape[1:], model, where)
    dense = sorted(set(range(model.layers)) - set(model.moe_layers))
    busy = [layer for layer in dense if array[:, layer].any()]
    if busy:
        raise BadInput(
            f"layer {busy[0]} is dense in {model.name}, but has counts",
            where=where,
            fix="name the model that was recorded",
        )
    return rows


def _read_per_pass(dumps: list[Dump], model: MoEModel) -> CountLoad:
    slots = recorded_map(dumps, model)
    passes: dict[int, NDArray[Any]] = {}
    seen: set[tuple[int, int]] = set()
    for path, dump in dumps:
        for number, record in enumerate(dump["records"]):
            where = f"{path}, record {number}"
            if record.get("gatherer_key", "primary") != "primary":
                continue
            key = integer(record, "forward_pass_id", where), integer(record, "rank", where)
            if key in seen:
                raise BadInput(
                    f"pass {key[0]} of rank {key[1]} is recorded twice",
                    where=where,
                    fix="import the files of one recording",
                )
            seen.add(key)
            counted = np.asarray(record.get("global_physical_count"))
            if counted.shape != slots.shape or counted.dtype.kind not in "iu":
                raise BadInput(
                    f"'global_physical_count' is {counted.dtype} of shape {counted.shape}",
                    where=where,
                    allowed=f"whole numbers of shape {slots.shape}, as the map",
                )
            passes[key[0]] = passes.get(key[0], 0) + counted.astype(np.int64)
    order = sorted(passes)
    physical = np.stack([passes[number] for number in order])
    rows = _moe_rows(physical, model, str(dumps[0][0].parent))
    counts = fold_counts(physical[:, rows], slots[rows], model.experts)
    return _load(counts, [f"pass {number}" for number in order], model, ("per_pass", dumps), ())


def _load(
    counts: NDArray[Any],
    windows: list[str],
    model: MoEModel,
    origin: tuple[str, list[Dump]],
    remarks: tuple[str, ...],
) -> CountLoad:
    mode, dumps = origin
    recorded: NDArray[np.bool_] = np.asarray(counts.any(axis=(0, 2)))
    if not recorded.any():
        raise BadInput(
            "the recording holds no counts",
            where=str(dumps[0][0]),
            fix="send requests between start and dump of the recording",
        )
    counts = counts[:, recorded]
    silent = [layer for layer, has in zip(model.moe_layers, recorded, strict=True) if not has]
    notes = [*remarks, idle_experts(counts)]
    if silent:
        notes.append(f"MoE layers without counts are left out: {', '.join(map(str, silent))}")
    return CountLoad(
        counts=counts,
        layers=tuple(layer for layer, has in zip(model.moe_layers, recorded, strict=True) if has),
        windows=tuple(windows),
        model=model.name,
        source=f"SGLang recorder, mode {mode}, {dumps[0][0].name}"
        + (f" and {len(dumps) - 1} more" if len(dumps) > 1 else ""),
        remarks=tuple(note for note in notes if note),
    )
