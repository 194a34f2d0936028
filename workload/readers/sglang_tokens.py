"""Mode `per_token` of SGLang's recorder: every token's choices, as physical slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ...common.files import fingerprint
from ..model import MoEModel
from ..trace import RoutingTrace
from .physical import logical_choices
from .sglang_dump import Dump, hidden_rows, integer, recorded_map

_WIDTH: Final = 8  # choices that the recorder keeps of a token, whatever the model's top-k
_PHASES: Final = {1: 0, 2: 2}  # forward modes extend and decode, as phases prefill and answer


@dataclass(frozen=True)
class _Pass:
    """The tokens of one forward pass of one rank."""

    number: int
    rank: int
    mode: int
    choices: NDArray[Any]  # [tokens, MoE layers, width] physical slots
    positions: NDArray[np.int64]
    lengths: list[int] | None  # tokens of every sequence of an extend pass
    where: str


@dataclass
class _Requests:
    """Which request a token belongs to: the recorder does not say, so positions must."""

    count: int = 0
    live: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)

    def assign(self, one: _Pass) -> NDArray[np.int64]:
        """Return request ids [tokens].

        A sequence of an extend pass is a request. A decoded token continues the one sequence of its rank
        that ended at the position before; where none or several did, it starts a request of its own.
        """
        tokens = one.positions.size
        ids, ends = self.live.get(one.rank, (np.empty(0, np.int64), np.empty(0, np.int64)))
        if one.mode != 2:
            lengths = one.lengths if one.lengths and sum(one.lengths) == tokens else [1] * tokens
            request = self.count + np.repeat(np.arange(len(lengths)), lengths)
            self.count += len(lengths)
            last = np.cumsum(lengths) - 1
            self.live[one.rank] = (
                np.concatenate([ids, request[last]]),
                np.concatenate([ends, one.positions[last]]),
            )
            return request
        request = self.count + np.arange(tokens)
        before, of_token = one.positions - 1, np.argsort(ends, kind="stable")
        ordered = ends[of_token]
        first = np.searchsorted(ordered, before, side="left")
        alone = np.searchsorted(ordered, before, side="right") - first == 1
        asked = np.searchsorted(np.sort(before), before, side="right") - np.searchsorted(
            np.sort(before), before, side="left"
        )
        alone &= asked == 1
        request[alone] = ids[of_token[first[alone]]]
        self.count += tokens
        self.live[one.rank] = (request, one.positions)
        return request


def read_tokens(dumps: list[Dump], model: MoEModel) -> RoutingTrace:
    """Read `per_token` files, one a rank, as one trace of logical choices.

    Padding tokens and dense layers are left out, and so are passes that repeat what another rank recorded
    (ranks without attention data parallelism see the same tokens). `step` counts the recorded passes.
    Raises BadInput that names file, record and layer.
    """
    if model.top_k > _WIDTH:
        raise BadInput(
            f"SGLang's recorder keeps {_WIDTH} choices of a token, {model.name} makes {model.top_k}",
            fix="record with --expert-distribution-recorder-mode stat or per_pass",
        )
    slots = recorded_map(dumps, model)
    rows = hidden_rows(slots.shape, model, str(dumps[0][0]))
    passes = [_pass(dump, number, rows, model) for dump in dumps for number in range(len(dump[1]["records"]))]
    told = [one for one in passes if one is not None]
    kept = _distinct(sorted(told, key=lambda one: one.number))
    if not kept:
        raise BadInput(
            "the recording holds no tokens",
            where=str(dumps[0][0]),
            fix="send requests between start and dump of the recording",
        )
    silent = np.all([(one.choices < 0).all(axis=(0, 2)) for one in kept], axis=0)
    heard = ~silent
    experts = [
        logical_choices(_whole(one, heard), slots[rows][heard], one.where).astype(np.int16) for one in kept
    ]
    requests = _Requests()
    step = {number: step for step, number in enumerate(sorted({one.number for one in kept}))}
    sizes = [one.positions.size for one in kept]
    modes = {one.mode for one in kept}
    source = f"SGLang recorder, mode per_token, {len(dumps)} ranks"
    if len(kept) < len(told):
        source += f"; {len(told) - len(kept)} passes that repeat another rank's are left out"
    return RoutingTrace(
        experts=np.concatenate(experts),
        request=np.concatenate([requests.assign(one) for one in kept]),
        position=np.concatenate([one.positions for one in kept]),
        step=np.repeat([step[one.number] for one in kept], sizes),
        phase=np.repeat([_PHASES[one.mode] for one in kept], sizes) if modes <= set(_PHASES) else None,
        model=model.name,
        layers=tuple(int(layer) for layer in rows[heard]),
        num_experts=model.experts,
        top_k=model.top_k,
        source=source,
    )


def _pass(dump: Dump, number: int, rows: NDArray[np.int64], model: MoEModel) -> _Pass | None:
    """Read one record; None where it holds no token."""
    path, data = dump
    record = data["records"][number]
    where = f"{path}, record {number}"
    topk = np.asarray(record.get("topk_ids_of_layer"))
    if topk.ndim != 3 or topk.shape[::2] != (model.layers, _WIDTH) or topk.dtype.kind not in "iu":
        raise BadInput(
            f"'topk_ids_of_layer' is {topk.dtype} of shape {topk.shape}",
            where=where,
            allowed=f"whole numbers [{model.layers}, tokens, {_WIDTH}]",
            fix="name the model that was recorded; import the files of mode per_token together",
        )
    positions = np.asarray(record.get("positions", []))
    if positions.shape != topk.shape[1:2] or (positions.size and positions.dtype.kind not in "iu"):
        raise BadInput(f"'positions' must hold {topk.shape[1]} whole numbers", where=where)
    choices = topk[rows].transpose(1, 0, 2)
    beyond = choices[:, :, model.top_k :]
    if (beyond > 0).any():
        raise BadInput(
            f"tokens chose more than the {model.top_k} experts of {model.name}",
            where=where,
            fix="name the model that was recorded",
        )
    real = (choices >= 0).any(axis=(1, 2))
    lengths = record.get("extend_seq_lens")
    if not real.any():
        return None
    return _Pass(
        number=integer(record, "forward_pass_id", where),
        rank=integer(record, "rank", where),
        mode=integer(record, "forward_mode", where),
        choices=choices[real][:, :, : model.top_k],
        positions=positions[real].astype(np.int64),
        lengths=[int(length) for length in lengths] if isinstance(lengths, list) else None,
        where=where,
    )


def _distinct(passes: list[_Pass]) -> list[_Pass]:
    """Leave out passes whose tokens and choices another rank recorded under the same number."""
    kept: dict[str, _Pass] = {}
    for one in passes:
        kept.setdefault(fingerprint(one.number, one.positions, np.ascontiguousarray(one.choices)), one)
    return list(kept.values())


def _whole(one: _Pass, heard: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the choices in the layers that were recorded; none of a token may be missing."""
    choices = one.choices[:, heard]
    missing = choices < 0
    if missing.any():
        token, layer, _ = np.unravel_index(int(missing.argmax()), missing.shape)
        raise BadInput(
            f"choices of token {token} are missing in one of its layers",
            where=f"{one.where}, MoE layer {layer} of those recorded",
            fix="record again without two-batch overlap, which the recorder does not support",
        )
    return choices
