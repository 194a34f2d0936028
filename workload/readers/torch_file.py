"""PyTorch files (.pt): tensors and plain values only, as numpy arrays.

A .pt file is a pickle, and an unguarded pickle runs any code it likes. It is loaded with the
weights-only guard of torch or not at all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from ...common.errors import BadInput, MissingLibrary
from ...common.files import require_file

_SAFE_TORCH: Final = (2, 6)  # before it, the weights-only guard could be walked around (CVE-2025-32434)
_INSTALL: Final = "pip install 'moeplan[torch]'"


def load_torch_file(path: str | Path) -> Any:
    """Load dictionaries, lists, numbers, texts and tensors; tensors come as numpy arrays on the CPU.

    Raises MissingLibrary without a torch whose weights-only guard holds, BadInput where the file is
    missing, damaged, or holds anything else.
    """
    path = Path(path)
    require_file(path)
    torch = _torch(path)
    try:
        return _plain(torch.load(path, map_location="cpu", weights_only=True), torch)
    except BadInput as error:
        raise BadInput(f"{str(path)!r}: {error.what}") from error
    except Exception as error:  # unpickling and damage end in many kinds
        if "weights_only" in str(error) or "Unsupported" in str(error):
            raise BadInput(
                f"{str(path)!r} holds more than tensors and plain values, and was not loaded",
                allowed="dictionaries, lists, numbers, texts and tensors",
                fix="do not open it with anything else unless you trust who made it",
            ) from error
        raise BadInput(
            f"{str(path)!r} is not a whole PyTorch file", fix="copy it again, or record it anew"
        ) from error


def _torch(path: Path) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingLibrary(
            f"reading {path.name!r} needs torch, which is not installed", fix=_INSTALL
        ) from error
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < _SAFE_TORCH:
        raise MissingLibrary(
            f"reading {path.name!r} needs torch 2.6 or newer, not {torch.__version__}: "
            "older ones can be made to run code by a file",
            fix=f"{_INSTALL} --upgrade",
        )
    return torch


def _plain(value: Any, torch: Any) -> Any:
    if isinstance(value, torch.Tensor):
        try:
            tensor = value.detach().cpu()
            return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        except (RuntimeError, TypeError) as error:
            raise BadInput(f"a tensor of kind {value.dtype} cannot be read") from error
    if isinstance(value, dict):
        return {key: _plain(item, torch) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, torch) for item in value]
    return value
