"""What vLLM records: routing returned with answers, and load statistics as JSON Lines.

The statistics are those of its open proposal (pull request 41141, format version 1), which may still
change: lines with `record_type` "eplb_load_stats" hold `expert_load` [L][R] by physical slot and `p2l_map`
[L][R], with a row for each MoE layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ..counts import CountLoad, idle_experts
from ..model import MoEModel
from ..trace import RoutingTrace
from .json_lines import read_json_lines
from .physical import check_map, fold_counts
from .responses import read_responses

_STATS: Final = "eplb_load_stats"
_OTHERS: Final = ("eplb_load_meta", "eplb_initial_mapping")
_VERSION: Final = 1


def read_vllm(path: str | Path, model: MoEModel) -> RoutingTrace | CountLoad:
    """Read answers with `routed_experts` as a trace, or load statistics as counts with a window a line.

    Raises BadInput that names file, line and key.
    """
    path = Path(path)
    lines = read_json_lines(path)
    if any(isinstance(line, dict) and "record_type" in line for _, line in lines):
        return _read_statistics(lines, path, model)
    return read_responses([line for _, line in lines], path, model)


def _read_statistics(lines: Sequence[tuple[int, Any]], path: Path, model: MoEModel) -> CountLoad:
    counts, windows = [], []
    for number, record in lines:
        where = f"{path}, line {number}"
        kind = record.get("record_type") if isinstance(record, dict) else None
        if kind in _OTHERS:
            continue
        if kind != _STATS or record.get("version") != _VERSION:
            raise BadInput(
                f"record_type {kind!r}, version {record.get('version')!r}"
                if isinstance(record, dict)
                else "a line must be a mapping",
                where=where,
                allowed=f"{', '.join((_STATS, *_OTHERS))}, version {_VERSION}",
            )
        slots = _table(record, "p2l_map", where, model)
        check_map(slots, model.experts, where)
        load = _table(record, "expert_load", where, model)
        if load.shape != slots.shape:
            raise BadInput(f"'expert_load' has the shape {load.shape}, 'p2l_map' {slots.shape}", where=where)
        counts.append(fold_counts(load[None], slots, model.experts)[0])
        windows.append(f"step {record.get('step')}")
    if not counts:
        raise BadInput(f"{str(path)!r} holds no line of record_type {_STATS}", fix="record longer")
    array = np.stack(counts)
    steps = [record.get("step") for _, record in lines if record["record_type"] == _STATS]
    ordered = all(isinstance(step, int) for step in steps) and steps == sorted(set(steps))
    remark = idle_experts(array)
    order = "in order of time" if ordered else "in the order of lines"
    return CountLoad(
        counts=array,
        layers=model.moe_layers,
        windows=tuple(windows),
        model=model.name,
        source=f"vLLM load statistics, {path.name}, {order}",
        remarks=(remark,) if remark else (),
    )


def _table(record: dict[str, Any], key: str, where: str, model: MoEModel) -> NDArray[Any]:
    """Return numbers [L, R] with a row for every MoE layer."""
    try:
        array = np.asarray(record[key])
    except (KeyError, ValueError) as error:
        raise BadInput(f"key {key!r} must hold lists of equal length", where=where) from error
    if array.ndim != 2 or array.dtype.kind not in "iuf":
        raise BadInput(f"key {key!r} must hold numbers [layers][slots]", where=where)
    if array.shape[0] != len(model.moe_layers):
        raise BadInput(
            f"key {key!r} has {array.shape[0]} layers, {model.name} has {len(model.moe_layers)} MoE layers",
            where=where,
            fix="name the model that was recorded",
        )
    return array
