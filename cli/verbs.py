"""What all verbs share on the command line: help that is printed as it is written, errors in plain words."""

from __future__ import annotations

from typing import Any, Final

from rich.markup import escape
from typer import BadParameter
from typer.core import TyperCommand

#: What pydantic, which reads the options, puts before what is wrong.
_LEAKED: Final = "Value error, "


class Verb(TyperCommand):
    """A verb whose errors about its options do not say which library found them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options. Raises BadParameter that says what was given and what is allowed."""
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            error.message = error.message.removeprefix(_LEAKED)
            raise


def as_written(command: Any) -> Any:
    """Return a built command whose help, with that of all its verbs, keeps brackets such as `[tokens]`.

    Rich would take them for markup and print nothing in their place. Epilogs stay: they are markup.
    """
    for part in (command, *command.params):
        for name in ("help", "short_help"):
            text = getattr(part, name, None)
            if isinstance(text, str):
                setattr(part, name, escape(text))
    for verb in getattr(command, "commands", {}).values():
        as_written(verb)
    return command
