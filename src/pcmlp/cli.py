"""The command line: `pcmlp list`, `pcmlp train`, `pcmlp theory`.

Bad input ends with exit code 2 and one line on stderr, an interrupted run with 130. JAX is imported by what needs it,
so that help is quick; numbers stay text until the configuration parses them, so that every error reads the same.
"""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, Positional, UseAppendAction, arg, subcommand

_BAD_INPUT = 2
_INTERRUPTED = 130


@dataclass(frozen=True)
class List:
    """Tasks, algorithms and experiments, each with a line."""


@dataclass(frozen=True)
class Train:
    """Train an algorithm on a task, all seeds at once, into a run folder."""

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """One of `pcmlp list`."""
    algo: Annotated[str | None, arg(metavar="ALGO")] = None
    """One of `pcmlp list`; the first that is made for the task if not given."""
    seeds: Annotated[tuple[str, ...], arg(metavar="INT [INT ...]")] = ("0", "1", "2", "3")
    """One run for each, in one program."""
    steps: Annotated[str | None, arg(metavar="INT")] = None
    """Env steps of each seed; the preset's if not given."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """The run folder, new or empty; runs/TASK-ALGO if not given."""
    resume: FlagCreatePairsOff[bool] = False
    """Go on with the run in --out after its last checkpoint; where there is none, start it."""
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE [KEY=VALUE ...]")] = ()
    """Any other setting, such as bonus_scale=0 or task.horizon=10; the keys are those of config.json."""


@dataclass(frozen=True)
class LinearMDP:
    """Linear MDPs with a finite class."""

    horizon: Annotated[str, arg(metavar="INT")] = "10"
    """H, steps of an episode."""
    dim: Annotated[str, arg(metavar="INT")] = "5"
    """d, features."""
    epsilon: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """How far from the optimum the best policy of the cover may be."""
    delta: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """The probability of failing."""
    members: Annotated[str, arg(metavar="INT")] = "1024"
    """|Upsilon|, members of the class."""


@dataclass(frozen=True)
class KNR:
    """Kernelized nonlinear regulators."""

    horizon: Annotated[str, arg(metavar="INT")] = "10"
    """H, steps of an episode."""
    dim: Annotated[str, arg(metavar="INT")] = "5"
    """d, features."""
    epsilon: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """How far from the optimum the best policy of the cover may be."""
    delta: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """The probability of failing."""
    radius: Annotated[str, arg(metavar="FLOAT")] = "1"
    """F, the bound on the norm of W."""
    sigma: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """The standard deviation of the noise."""
    state_dim: Annotated[str, arg(metavar="INT")] = "2"
    """d_s, coordinates of a state."""


@dataclass(frozen=True)
class Theory:
    """The parameters N, M, K, c of the two theorems, as the paper states them and corrected."""

    setting: Annotated[LinearMDP, subcommand("linear-mdp")] | Annotated[KNR, subcommand("knr")]


Command = (
    Annotated[List, subcommand("list")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Theory, subcommand("theory")]
)


def main(arguments: list[str] | None = None) -> int:
    """The exit code. tyro ends the process itself for help (0) and for arguments it does not know (2)."""
    words = sys.argv[1:] if arguments is None else arguments
    command = tyro.cli(
        Command,
        args=words,
        prog="pcmlp",
        description="Model-based reinforcement learning that explores (PC-MLP).",
        config=(OmitSubcommandPrefixes,),
    )
    try:
        return run(command, words)
    except KeyboardInterrupt:  # before the run folder was there
        return _INTERRUPTED
    except BrokenPipeError:  # whoever read our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # JAX's word for it
            raise
        return fail(f"not enough memory ({error}); give a smaller task, fewer steps or fewer seeds")
    except ValueError as error:
        from pcmlp.types import ConfigError

        if not isinstance(error, ConfigError):
            raise
        return fail(str(error))


def fail(line: str) -> int:
    print(f"pcmlp: {' '.join(line.split())}", file=sys.stderr)
    return _BAD_INPUT


def run(command: List | Train | Theory, words: list[str]) -> int:
    if isinstance(command, List):
        return show_names()
    if isinstance(command, Theory):
        return show_theory(command.setting)
    return train(command, words)


def show_names() -> int:
    from pcmlp.runs.presets import ALGORITHMS, EXPERIMENTS, algorithms_for
    from pcmlp.tasks import TASKS

    tasks = {name: f"{first_line(options)} [{', '.join(algorithms_for(name))}]" for name, options in TASKS.items()}
    for title, lines in (("tasks", tasks), ("algorithms", ALGORITHMS), ("experiments", EXPERIMENTS)):
        print(f"{title}:")
        for name, line in lines.items():
            print(f"  {name:<18}{line}")
    return 0


def first_line(documented: type) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0]


def show_theory(setting: LinearMDP | KNR) -> int:
    from pcmlp import theory
    from pcmlp.runs.parse import parse_float, parse_int

    def whole(*names: str) -> list[int]:
        return [parse_int(name, getattr(setting, name)) for name in names]

    def real(*names: str) -> list[float]:
        return [parse_float(name, getattr(setting, name)) for name in names]

    if isinstance(setting, LinearMDP):
        title = "linear MDP"
        rows = theory.linear_mdp_table(*whole("horizon", "dim"), *real("epsilon", "delta"), *whole("members"))
    else:
        title = "KNR"
        scale = real("epsilon", "delta", "radius", "sigma")
        rows = theory.knr_table(*whole("horizon", "dim"), *scale, *whole("state_dim"))
    table = Table("symbol", "stated", "corrected", "what it is", title=f"{title}, {shown(setting)}")
    for name, stated, corrected, meaning in rows:
        table.add_row(name, f"{stated:.4g}", f"{corrected:.4g}", meaning)
    Console().print(table)
    return 0


def shown(setting: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in vars(setting).items())


def train(command: Train, words: list[str]) -> int:
    from pcmlp.runs.config import resolve

    settings = [item for items in command.set for item in items]
    config = resolve(command.task, command.algo, command.seeds, command.steps, settings)
    out = command.out or Path("runs") / f"{command.task}-{config.algo}"
    from pcmlp.runs import train as training

    console = Console()
    summary = training.train(config, out, command=shlex.join(["pcmlp", *words]), console=console, resume=command.resume)
    draw(out)
    show_summary(console, summary, out)
    return 0 if summary["status"] == "finished" else _INTERRUPTED


def draw(out: Path) -> None:
    from pcmlp.report.curves import learning_curve
    from pcmlp.report.maps import visit_map

    if (out / "metrics.csv").exists():
        learning_curve(out)
    visit_map(out)


def show_summary(console: Console, summary: dict[str, Any], out: Path) -> None:
    table = Table("seed", "env steps", "return", "success", "env steps to success", title=f"{summary['status']}: {out}")
    for seed in summary["seeds"]:
        cells = (seed[name] for name in ("seed", "env_steps", "final_return", "final_success", "env_steps_to_success"))
        table.add_row(
            *("-" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
        )
    console.print(table)
    spent = f"{summary['wall_s']:.1f} s, of which {summary['compile_s']:.1f} s compiling"
    console.print(f"{spent}; {out}/learning_curve.png, {out}/visit_map.png", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
