"""The commands of the command line: a dataclass for each, with its flags and its `run` method.

Numbers stay text until they are parsed with the settings, so that all errors have the same form. JAX is imported only
when a command runs, so that help is quick.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import FlagCreatePairsOff, arg

from pcmlp.signals import EXIT_CODE

FAILED = 1
BAD_INPUT = 2
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again later
INTERRUPTED = EXIT_CODE

Switch = FlagCreatePairsOff[bool]  # without a --no- form
Int = Annotated[str, arg(metavar="INT")]
Ints = Annotated[tuple[str, ...], arg(metavar="INT [INT ...]")]
Float = Annotated[str, arg(metavar="FLOAT")]


def unset(metavar: str, default: str) -> Any:
    """Return the placeholder of a flag and, in words, what applies if the flag is not given."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def prepare_device(doing: str) -> None:
    """Set JAX up for computing: the compilation cache, and a clear error if the device that was asked for is
    missing."""
    prepare_jax(doing)
    from pcmlp.runs.cache import check_device

    check_device()


def prepare_jax(doing: str, *, tiny: bool = False) -> None:
    """Set JAX up, but do not touch the device, which may be for other processes.

    Importing takes seconds, so `doing` is shown first. `tiny` programs are not optimised, because that would
    take longer than running them.
    """
    with show_loading(doing):
        from pcmlp.runs import config  # noqa: F401 (imports nearly all that a command needs)
        from pcmlp.runs.cache import prepare

        prepare(tiny=tiny)


def show_loading(doing: str) -> AbstractContextManager[object]:
    """Show a line while JAX is imported, unless it already is."""
    return nullcontext() if "jax" in sys.modules else show_waiting(f"{doing}: loading JAX")


def show_waiting(line: str) -> AbstractContextManager[object]:
    """Show what takes a while: on a terminal for as long as it takes, elsewhere as a line."""
    console = Console()
    if console.is_terminal:
        return console.status(line)
    print(line, flush=True)
    return nullcontext()


def cell(value: int | float | None) -> str:
    """Return a number for a table."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
