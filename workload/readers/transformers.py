"""Routing of a Hugging Face model, recorded while it runs: hooks on what its experts are given.

Since transformers 5 every Mixture-of-Experts block calls `experts(hidden_states, indices, weights)`, so a
hook before `experts` sees exactly the choices that are computed, whatever the router's rule. Older blocks
loop over a list of experts; there the output of `gate` or `router` is read: indices where it gives them,
else logits, of which the largest are taken for the families whose rule is that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput, MissingLibrary
from ..trace import RoutingTrace

_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TOP_K: Final = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_k", "top_k_experts")
_LOGIT_ROUTERS: Final = ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "qwen3_next")
_INSTALL: Final = "pip install 'moeplan[transformers]'"


@dataclass
class _Recorder:
    """Choices of the current forward pass: per absolute layer id, indices and weights [tokens, K]."""

    top_k: int
    seen: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def before_experts(self, layer: int) -> Callable[..., None]:
        """Return a hook that reads the arguments of an `experts` module."""

        def hook(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._keep(layer, [*arguments, *named.values()])

        return hook

    def after_router(self, layer: int, logits: bool) -> Callable[..., None]:
        """Return a hook that reads what a router gives, unless `experts` has told already."""

        def hook(_: Any, __: Any, output: Any) -> None:
            given = list(output) if isinstance(output, tuple | list) else [output]
            if not self._keep(layer, given) and logits and layer not in self.seen:
                scores = given[0].reshape(-1, given[0].shape[-1]).float().softmax(-1)
                weights, indices = scores.topk(self.top_k, dim=-1)
                self.seen[layer] = indices, weights

        return hook

    def _keep(self, layer: int, given: list[Any]) -> bool:
        """Keep the integer tensor [..., K] among `given`, and the weights beside it."""
        tensors = [item for item in given if hasattr(item, "is_floating_point") and item.ndim >= 2]
        indices = next((t for t in tensors if not t.is_floating_point() and t.shape[-1] == self.top_k), None)
        if indices is None:
            return False
        flat = indices.reshape(-1, self.top_k)
        scores = (t for t in tensors if t.is_floating_point() and t.shape[-1] == self.top_k)
        weights = next((t.reshape(-1, self.top_k) for t in scores if t.numel() == flat.numel()), None)
        self.seen[layer] = flat, weights
        return True


def record_trace(
    model: Any, prompts: Sequence[Sequence[int]], *, new_tokens: int, name: str, source: str = ""
) -> RoutingTrace:
    """Run `prompts` one by one, generate up to `new_tokens` greedily after each, and record every choice.

    `model` is a decoder-only model of transformers; its weights and mode are left as they are but for
    `eval()`. The last token of an answer is never fed back, so it has no choices. Phases are prefill and
    answer.

    Raises MissingLibrary without torch, BadInput where the model routes nothing that the hooks can see, or a
    prompt is empty or holds an id out of the vocabulary.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingLibrary("recording needs torch, which is not installed", fix=_INSTALL) from error
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    experts, top_k = _number(config, _EXPERTS), _number(config, _TOP_K)
    _check_prompts(prompts, config)
    recorder = _Recorder(top_k)
    pieces: list[tuple[NDArray[Any], NDArray[Any] | None]] = []
    lengths, starts, layers = [], [], None
    model.eval()
    with _hooks(model, recorder), torch.inference_mode():
        for prompt in prompts:
            before = len(pieces)
            for seen in _passes(model, recorder, prompt, new_tokens, torch):
                layers = layers or sorted(seen)
                pieces.append(_stack(seen, layers))
            lengths.append(sum(len(piece[0]) for piece in pieces[before:]))
            starts.append(len(prompt))
    if layers is None:
        raise _unseen(model)
    position = np.concatenate([np.arange(length) for length in lengths])
    weights = [piece[1] for piece in pieces if piece[1] is not None]
    return RoutingTrace(
        experts=np.concatenate([piece[0] for piece in pieces]),
        weights=np.concatenate(weights) if len(weights) == len(pieces) else None,
        request=np.repeat(np.arange(len(prompts)), lengths),
        position=position,
        phase=np.where(position < np.repeat(starts, lengths), 0, 2).astype(np.int8),
        model=name,
        layers=tuple(layers),
        num_experts=experts,
        top_k=top_k,
        source=source or f"hooks on {type(model).__name__}, greedy decoding",
    )


def load_model_and_tokenizer(path: str, device: str) -> tuple[Any, Any]:
    """Load a causal language model from safetensors (pickled weights and remote code are refused).

    The tokenizer is None where the folder has none. Raises MissingLibrary, or BadInput that says why.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingLibrary("recording needs transformers, which is not installed", fix=_INSTALL) from error
    version = tuple(int(part) for part in re.findall(r"\d+", transformers.__version__)[:2])
    kind = "dtype" if version >= (4, 56) else "torch_dtype"
    try:
        loader = transformers.AutoModelForCausalLM
        model = loader.from_pretrained(path, use_safetensors=True, **{kind: "auto"}).to(device)
    except Exception as error:  # the library raises OSError, ValueError, RuntimeError and its own
        raise BadInput(
            f"cannot load the model {path!r}: {str(error).strip().splitlines()[0]}",
            allowed="a causal language model of transformers with safetensors weights",
            fix="name the folder of the checkpoint, or its name on the hub",
        ) from error
    try:
        return model, transformers.AutoTokenizer.from_pretrained(path)
    except Exception:  # absent, or of a kind that this release does not know
        return model, None


def _number(config: Any, keys: tuple[str, ...]) -> int:
    for key in keys:
        value = getattr(config, key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise BadInput(
        f"{getattr(config, 'model_type', 'the model')!r} is no Mixture-of-Experts model",
        where="its configuration",
        allowed=f"one of the keys {', '.join(keys)}",
    )


def _check_prompts(prompts: Sequence[Sequence[int]], config: Any) -> None:
    size = int(getattr(config, "vocab_size", 2**31))
    if not prompts:
        raise BadInput("there are no prompts", fix="give at least one")
    for number, prompt in enumerate(prompts):
        wrong = [token for token in prompt if not 0 <= token < size]
        if wrong or not len(prompt):
            raise BadInput(
                f"token id {wrong[0]} is not in the vocabulary" if wrong else "the prompt is empty",
                where=f"prompt {number}",
                allowed=f"token ids 0 to {size - 1}",
            )


@contextmanager
def _hooks(model: Any, recorder: _Recorder) -> Iterator[None]:
    """Hook every `experts` and every router that lies in a numbered layer; take the hooks away at the end."""
    by_logits = getattr(model.config, "model_type", "") in _LOGIT_ROUTERS
    handles = []
    for path, module in model.named_modules():
        place = re.search(r"(?:^|\.)layers\.(\d+)\.(?:.*\.)?(experts|gate|router)$", path)
        if place is None:
            continue
        layer = int(place[1])
        if place[2] == "experts":
            handles.append(module.register_forward_pre_hook(recorder.before_experts(layer), with_kwargs=True))
        else:
            handles.append(module.register_forward_hook(recorder.after_router(layer, by_logits)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _passes(
    model: Any, recorder: _Recorder, prompt: Sequence[int], new_tokens: int, torch: Any
) -> list[dict[int, tuple[Any, Any]]]:
    """Feed a prompt and generate greedily; return what each forward pass recorded."""
    passes = []

    def after_model(*_: Any) -> None:
        if not recorder.seen:
            raise _unseen(model)
        passes.append(dict(recorder.seen))
        recorder.seen.clear()

    tokens = torch.tensor([list(prompt)], device=model.device)
    handle = model.register_forward_hook(after_model)
    recorder.seen.clear()
    try:
        # One new token is what the prompt's own pass gives.
        model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max(new_tokens, 1),
            do_sample=False,
            num_beams=1,
            pad_token_id=0,
        )
    finally:
        handle.remove()
    return passes


def _stack(
    seen: dict[int, tuple[Any, Any]], layers: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Return indices and weights [tokens, L, K] of one pass. Raises BadInput where layers differ."""
    sizes = {tuple(indices.shape) for indices, _ in seen.values()}
    if sorted(seen) != layers or len(sizes) != 1:
        raise BadInput(
            "not every layer routed every token of a forward pass",
            allowed="blocks that route all tokens to the same number of experts",
        )
    indices = np.stack([seen[layer][0].cpu().numpy() for layer in layers], axis=1)
    if any(seen[layer][1] is None for layer in layers):
        return indices, None
    return indices, np.stack([seen[layer][1].float().cpu().numpy() for layer in layers], axis=1)


def _unseen(model: Any) -> BadInput:
    return BadInput(
        f"{type(model).__name__} routed nothing that can be recorded",
        allowed="blocks whose module 'experts' is given indices, or whose 'gate' or 'router' gives them",
        fix="use transformers 5 or newer, without custom kernels (use_kernels=False)",
    )
