"""The command line: its verbs, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from ..common.errors import BadInput, MoeplanError
from . import bench, trace
from .check import check
from .compare import compare
from .console import fail, show
from .demo import demo
from .explain import explain
from .export import export
from .models import models
from .pareto import pareto
from .partition import partition
from .plan import plan
from .platforms import platforms
from .pool import pool
from .provision import provision
from .prune import prune
from .report import report
from .reproduce import reproduce
from .ring import ring
from .signals import stop_on_signals
from .simulate import simulate
from .solvers import solvers
from .sweep_redundancy import sweep_redundancy
from .timeline import timeline
from .validate import validate
from .verbs import Verb, as_written
from .versions import moeplan_version, versions

_EXIT_CODES = """\
[bold]Exit codes[/bold]

0    ok
1    a bug of moeplan (MOEPLAN_DEBUG=1 shows the traceback)
2    wrong usage
3    bad input
4    proven infeasible
5    nothing found within the budget
6    an optional library is missing
130  interrupted; plan, demo and ring keep the best found until then"""

_VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "plan": plan,
    "partition": partition,
    "ring": ring,
    "pool": pool,
    "provision": provision,
    "timeline": timeline,
    "pareto": pareto,
    "simulate": simulate,
    "prune": prune,
    "report": report,
    "compare": compare,
    "reproduce": reproduce,
    "check": check,
    "explain": explain,
    "sweep-redundancy": sweep_redundancy,
    "export": export,
    "validate": validate,
    "models": models,
    "platforms": platforms,
    "solvers": solvers,
    "versions": versions,
}


def _print_version(wanted: bool) -> None:
    if wanted:
        show(moeplan_version())
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Place the experts of a Mixture-of-Experts model on hardware, and prove how good the placement is."""


def build() -> Any:
    """Return the whole command line as one command, to be called with its arguments."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback(epilog=_EXIT_CODES)(_root)
    for name, verb in _VERBS.items():
        app.command(name, cls=Verb)(verb)
    app.add_typer(trace.app(), name="trace", help=trace.__doc__)
    app.add_typer(bench.app(), name="bench", help=bench.__doc__)
    return as_written(typer.main.get_command(app))


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line (default: that of the process) and exit with its code."""
    with stop_on_signals():
        try:
            build()(arguments, prog_name="moeplan")
        except MoeplanError as error:
            code = error.exit_code
            if code == MoeplanError.exit_code:
                _report_bug(error)
            else:
                fail(str(error))
        except MemoryError:
            code = BadInput.exit_code
            fail("this does not fit into memory\nfix: ask for fewer tokens, steps or layers")
        except OSError as error:
            code = BadInput.exit_code
            where = f" {error.filename!r}" if error.filename else ""
            fail(f"cannot read or write{where}: {error.strerror or error}\nfix: check paths and free space")
        except Exception as error:
            code = MoeplanError.exit_code
            _report_bug(error)
        sys.exit(code)


def _report_bug(error: Exception) -> None:
    if os.environ.get("MOEPLAN_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    fail(
        f"this is a bug of moeplan: {type(error).__name__}: {error}\n"
        "fix: report it with the command, what `moeplan versions` prints, and the traceback that "
        "MOEPLAN_DEBUG=1 shows"
    )
