"""Parts of a Markdown file that a command makes: between `<!-- begin: NAME -->` and `<!-- end: NAME -->`."""

from __future__ import annotations

import re


def replace_block(text: str, name: str, content: str) -> str:
    """Return `text` with the block's content replaced. Raises ValueError where it is not there once."""
    pattern = re.compile(f"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.S)
    replaced, found = pattern.subn(lambda match: match[1] + content.rstrip("\n") + "\n" + match[2], text)
    if found != 1:
        raise ValueError(f"there are {found} blocks {name!r}, there should be one")
    return replaced


def read_block(text: str, name: str) -> str:
    """Return the block's content. Raises ValueError where it is not there exactly once."""
    found = re.findall(f"<!-- begin: {name} -->\n(.*?)\n?<!-- end: {name} -->", text, re.S)
    if len(found) != 1:
        raise ValueError(f"there are {len(found)} blocks {name!r}, there should be one")
    return str(found[0])
