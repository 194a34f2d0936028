"""`moeplan versions`: what a bug report needs."""

from __future__ import annotations

from importlib import metadata

from . import parameters
from .console import show, show_json, table

_OPTIONAL = ("distributed", "ray", "torch", "transformers")


def versions(
    json: parameters.Json = False,
) -> None:
    """Print the versions of moeplan, Python, the libraries and the kind of machine."""
    found = _versions()
    if json:
        show_json(found)
    else:
        show(table(("what", "version"), found.items(), left=2))


def moeplan_version() -> str:
    """Return the version of moeplan."""
    return metadata.version("moeplan")


def _versions() -> dict[str, str]:
    import os
    import platform

    return {
        "moeplan": moeplan_version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **{name: _installed(name) for name in _libraries()},
    }


def _libraries() -> list[str]:
    """Names of what moeplan requires, as its own metadata say, and of what it can use."""
    from re import match

    required = [line for line in metadata.requires("moeplan") or [] if "extra ==" not in line]
    names = [found[0] for line in required if (found := match(r"[\w.-]+", line))]
    return [*names, *_OPTIONAL]


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
