"""The command line, `pcmlp COMMAND` (the commands are in `pcmlp.commands`).

Exit codes: 0 for success; 1 and one line on stderr if a run cannot continue; 2 and one line for bad input; 75 for a run
that was asked to stop and did so after an iteration; 130 for a run that was stopped during an iteration. After 1, 75
and 130 a run can be resumed. Only a command that needs JAX imports it, so that help is quick.
"""

import contextlib
import dataclasses
import functools
import io
import operator
import os
import re
import shlex
import sys
import tempfile
import traceback
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitSubcommandPrefixes, Positional, subcommand

import pcmlp
from pcmlp import signals
from pcmlp.commands import BAD_INPUT, FAILED, INTERRUPTED
from pcmlp.commands.others import Bench, Doctor, List, Report, Theory, Watch
from pcmlp.commands.paper import Paper
from pcmlp.commands.runs import Eval, Export, Plan, Train
from pcmlp.commands.tune import Tune
from pcmlp.errors import ConfigError, RunStopped, describe, first_line, printable, similar


@dataclass(frozen=True)
class Completion:
    """Print the script that completes commands and flags with the Tab key.

    For example:
      source <(pcmlp completion bash)                              # in this shell
      pcmlp completion fish > ~/.config/fish/completions/pcmlp.fish
    """

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """Your shell."""

    def run(self, command: str) -> int:
        """Print the script."""
        parse(["--tyro-print-completion", self.shell])  # ends the process
        return 0


COMMANDS: dict[str, type] = {
    "list": List,
    "train": Train,
    "tune": Tune,
    "eval": Eval,
    "plan": Plan,
    "export": Export,
    "paper": Paper,
    "report": Report,
    "watch": Watch,
    "bench": Bench,
    "theory": Theory,
    "doctor": Doctor,
    "completion": Completion,
}
_ABOUT = """Model-based reinforcement learning that explores (PC-MLP).

For example:
  pcmlp train mountain-car --seeds 0 1 --steps 400     # train two seeds, into runs/mountain-car-pcmlp
  pcmlp report runs/mountain-car-pcmlp                 # one page about the run
  pcmlp train --help                                   # the flags of a command; pcmlp --version prints the version
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code.

    `--help` ends the process. So does a signal, unless the caller gives the arguments.
    """
    own = arguments is None
    with signals.handled(ends_process=own):
        try:
            code = run(sys.argv[1:] if arguments is None else arguments)
        except (KeyboardInterrupt, Exception) as error:  # an import may replace KeyboardInterrupt by another error
            ended = isinstance(error, KeyboardInterrupt) or signals.is_ending()
            code = INTERRUPTED if ended else fail_unexpectedly(error)
        if own and code == INTERRUPTED:  # at once: a normal exit may wait for threads
            sys.stdout.flush()
            signals.end_process()
    return code


def run(words: list[str]) -> int:
    """Run a command and return its exit code."""
    if words[:1] in (["--version"], ["-V"]):
        print(f"pcmlp {pcmlp.__version__}")
        return 0
    try:
        check_words(words)
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            command = parse(words)
        return command.run(shlex.join(["pcmlp", *words]))
    except SystemExit as stop:
        if not stop.code:  # help
            raise
        return fail(one_line(printed.getvalue(), words[0]))
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ConfigError as error:
        return fail(str(error))
    except RunStopped as error:
        return fail(str(error), FAILED)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # JAX's name for this error
            raise
        remedy = "give fewer --seeds, or less of replay_size, planner.streams or model.sizes; --resume continues"
        return fail(f"not enough memory ({first_line(error)}); {remedy}", FAILED)


def fail_unexpectedly(error: BaseException) -> int:
    """Write the traceback of an unexpected error to a file, print one line, and return the exit code."""
    details = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pcmlp-error-", suffix=".txt", delete=False) as file:
            file.write(details)
        place = f"the details are in {file.name}"
    except OSError:
        place = f"it was raised in {details.splitlines()[-2].strip()}"
    return fail(f"unexpected error, {describe(error)[:300]}; {place}; please report it", FAILED)


def parse(words: list[str]) -> Any:
    """Return the command that the words give; tyro prints an error and exits if they are wrong."""
    each = [Annotated[kind, subcommand(name)] for name, kind in COMMANDS.items()]
    union: Any = functools.reduce(operator.or_, each)
    return tyro.cli(
        union,
        args=words,
        prog="pcmlp",
        description=_ABOUT,
        config=(OmitSubcommandPrefixes,),
    )


def check_words(words: list[str]) -> None:
    """Raise if there is no command, or a command or flag that does not exist; name the nearest one."""
    if not words:
        raise ConfigError(f"no command was given; give one of {', '.join(COMMANDS)}, such as pcmlp train mountain-car")
    verb, *rest = words
    if verb in ("-h", "--help") or verb.startswith("--tyro-"):
        return
    if verb not in COMMANDS:
        near = similar(verb, [*COMMANDS, "--help", "--version"])
        hint = f"; the nearest is {near}" if near else ""
        raise ConfigError(f"{verb}: unknown command{hint} (pcmlp --help shows them all)")
    flags, positional = arguments_of(COMMANDS[verb])
    for word in rest:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag[2:] in positional:
            raise ConfigError(f"{flag}: not a flag; give the value without it (pcmlp {verb} --help shows examples)")
        if re.match("-+[a-zA-Z]", flag) and flag not in flags:
            raise ConfigError(f"{flag}: unknown flag; {meant(flag, flags)} (pcmlp {verb} --help shows them all)")


def meant(flag: str, flags: list[str]) -> str:
    """Return what to give instead of a flag that does not exist."""
    if flag in ("--gpu", "--cuda", "--device"):
        return "JAX chooses the device; set the environment variable JAX_PLATFORMS to cpu or cuda to choose another"
    near = similar(flag, flags)
    if near is None and "--set" in flags:
        return f"a setting is given as --set {flag.lstrip('-').replace('-', '_')}=VALUE"
    return f"the nearest is {near}" if near else "leave it out"


def arguments_of(command: type) -> tuple[list[str], list[str]]:
    """Return the flags of a command, with those of commands below it, and the names of arguments without a flag."""
    flags, positional = ["-h", "--help"], []
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        below = [each for option in typing.get_args(hint) for each in typing.get_args(option)[:1]]
        if dataclasses.is_dataclass(below[0] if below else None):
            flags += [flag for each in below for flag in arguments_of(each)[0]]
        elif Positional in getattr(hint, "__metadata__", ()):
            positional.append(name)
        else:
            flags += [f"--{name}".replace("_", "-"), *([f"--no-{name}"] if hint is bool else [])]
    return flags, positional


def one_line(box: str, verb: str) -> str:
    """Return tyro's box about missing or superfluous words as one line. Where the terminal cannot show borders, a box
    has rules of dashes."""
    lines = [re.sub("^-+$", "", line.strip("│╭╮╰╯─ ")) for line in box.splitlines()[1:]]
    lines = lines[1:] if lines[:1] == [""] else lines
    message = " ".join(lines[: lines.index("")] if "" in lines else lines)
    known = re.search("Available subcommands: (.*)", "\n".join(lines))
    below = rf"\1: not expected here; give one of {known[1]}" if known else None
    for pattern, better in (
        (r"Unrecognized options: (\S+=\S+?),?( .*)?$", r"\1: not expected here; give a setting as --set \1"),
        (r"Unrecognized options: (\S+?),?( .*)?$", below or r"\1: not expected here; a value comes after its flag"),
        (r"Missing from pcmlp \w+: ((--\S+ )?\S+) (.*?)\.? \(required\)$", r"\1 is missing: \3"),
        (r"Missing value for argument '(.*?)'.*", r"\1: its value is missing"),
        (r"Expected one of {(.*)}\.?", r"a word is missing; give one of \1"),
    ):
        message = re.sub(pattern, better, message)
    message = re.sub(r"(is missing: )(\w)", lambda found: found[1] + found[2].lower(), message)
    return f"{message.removesuffix('.')} (pcmlp {verb} --help shows examples)"


def fail(line: str, code: int = BAD_INPUT) -> int:
    """Print one line to stderr and return the exit code. The library names Python arguments, this line their flags."""
    line = printable(" ".join(line.split()))
    for argument, flag in (
        (r"\b(give|such as) (algo|objective|seeds|steps)=", r"\1 --\2 "),
        (r"\banother (algo|out)\b", r"another --\1"),
        (r"\b(resume|search)=True\b", r"--\1"),
        (r"\btrust_code=True\b", "--trust-code"),
        (r"^(data|iteration|minari|objective|out|port|reward|space|success|terminal|trials|wandb)=", r"--\1 "),
        (r"^(data|minari|video): ", r"--\1: "),
    ):
        line = re.sub(argument, flag, line)
    print(f"pcmlp: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
