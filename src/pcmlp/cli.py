"""The command line, `pcmlp COMMAND` (the commands are in `pcmlp.commands`).

Exit codes: 0 for success; 1 and one line on stderr if a run cannot continue; 2 and one line for bad input; 75 for a run
that was asked to stop and did so after an iteration; 130 for a run that was stopped during an iteration. After 1, 75
and 130 a run can be resumed. Only a command that needs JAX imports it, so that help is quick.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from typing import Any

import tyro
from tyro.conf import OmitSubcommandPrefixes

from pcmlp.commands import Command
from pcmlp.commands.base import BAD_INPUT, FAILED, INTERRUPTED


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; help ends the process itself."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            command = parse(words)
    except SystemExit as stop:
        if not stop.code:  # help
            raise
        return fail(one_line(printed.getvalue()))
    try:
        return command.run(shlex.join(["pcmlp", *words]))
    except KeyboardInterrupt:  # before the run folder existed
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, RuntimeError) as error:
        from pcmlp.errors import RunStopped, first_line

        if isinstance(error, RunStopped):
            return fail(str(error), FAILED)
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # JAX's name for this error
            raise
        remedy = "give fewer --seeds, or less of replay_size, planner.streams or model.sizes; --resume continues"
        return fail(f"not enough memory ({first_line(error)}); {remedy}", FAILED)
    except ValueError as error:
        from pcmlp.errors import ConfigError

        if not isinstance(error, ConfigError):
            raise
        return fail(str(error))


def parse(words: list[str]) -> Any:
    """Return the command that the words give; tyro prints an error and exits if they are wrong."""
    return tyro.cli(
        Command,
        args=words,
        prog="pcmlp",
        description="Model-based reinforcement learning that explores (PC-MLP).",
        config=(OmitSubcommandPrefixes,),
    )


def one_line(box: str) -> str:
    """Return tyro's box about unknown arguments as one line, without its borders and without help on the flags it
    names. Where the terminal cannot show borders, a box has rules of dashes."""
    lines = [re.sub("^-+$", "", line.strip("│╭╮╰╯─ ")) for line in box.splitlines()[1:]]
    lines = lines[1:] if lines[:1] == [""] else lines
    message = " ".join(lines[: lines.index("")]) if "" in lines else " ".join(lines)
    named = dict.fromkeys(line.split()[0] for line in lines if line.startswith("--"))
    given = {word.split("=")[0].rstrip(",") for word in message.split()}
    meant = [name for name in named if name not in given]  # leaves out a flag of the same name in another command
    hint = f"; perhaps you meant {' or '.join(meant)}" if meant else ""
    return f"{message.removesuffix('.')}{hint}; pcmlp --help shows the commands"


def fail(line: str, code: int = BAD_INPUT) -> int:
    """Print one line to stderr and return the exit code. The library names Python arguments, this line their flags."""
    flags = re.sub(r"\b(give|such as) (algo|seeds|steps)=", r"\1 --\2 ", " ".join(line.split()))
    print(f"pcmlp: {flags}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
