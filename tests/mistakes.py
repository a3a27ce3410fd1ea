"""Mistakes of a newcomer, each with words of the line that it gets.

`python tests/mistakes.py > docs/mistakes.md` writes the page.

Nothing here compiles or trains. The Python lines run without the type checks of the tests, as they do for a user.
"""

import contextlib
import functools
import io
import json
import os
import sys
import tempfile
from pathlib import Path

COMMANDS = [
    ("trian", "the nearest is train"),
    ("", "such as pcmlp train mountain-car"),
    ("help", "--help"),
    ("--verison", "--version"),
    ("train", "TASK is missing"),
    ("train moutain-car", "mountain-car"),
    ("train Mountain_Car", "mountain-car"),
    ("train Pendulum-v1", "did you mean gym:Pendulum-v1"),
    ("train hopper", "hopper-et"),
    ("train --task mountain-car", "give the value without it"),
    ("train task.py", "task.py:NAME"),
    ("train task.py:Corridr", "the nearest is Corridor"),
    ("train mountain-car --algo pclmp", "the nearest is pcmlp"),
    ("train mountain-car --algo PCMLP", "the nearest is pcmlp"),
    ("train mountain-car --algo pcmlp-linear", "give --algo pcmlp"),
    ("train mountain-car --algo", "its value is missing"),
    ("train mountain-car sac", "a value comes after its flag"),
    ("train mountain-car --sedes 0", "the nearest is --seeds"),
    ("train mountain-car --seeds 0,1,2", "--seeds 0 1 2"),
    ("train mountain-car --seeds 1 1", "give each seed once"),
    ("train mountain-car --timesteps 1000", "the nearest is --steps"),
    ("train mountain-car --steps 10k", "1e5"),
    ("train mountain-car --steps 100", "give 200 or more"),
    ("train mountain-car --device cuda", "JAX_PLATFORMS"),
    ("train mountain-car --bonus-scale 0", "--set bonus_scale=VALUE"),
    ("train mountain-car bonus_scale=0", "--set bonus_scale=0"),
    ("train mountain-car --set relabel=0.5", "declares no goals"),
    ("train mountain-car --set bonus_scale 0", "bonus_scale=0.1"),
    ("train mountain-car --set bonus=0", "bonus_scale"),
    ("train mountain-car --set bonus_scale=high", "0.1 or auto"),
    ("train mountain-car --algo pets --set bonus_scale=auto", "leave it out"),
    ("train combination-lock --set bonus_scale=auto", "give one such as 0.1"),
    ("train mountain-car --set deploys=best", "exploring, newest, imagined, proven"),
    ("train mountain-car --set horizon=100", "task.horizon"),
    ("train mountain-car --set steps=1000", "give --steps 1000"),
    ("train mountain-car --set planner=sac", "planner.name"),
    ("train mountain-car --set planner.name=cem", "trpo or sac"),
    ("train mountain-car --set model.sizes=64x64", "64,64"),
    ("train mountain-car --set reward_free=yes", "true or false"),
    ("train gym:MountainCarContinuous-v0 --set task.reward=climb.py:climb", "finite everywhere in the observation"),
    ("train dmc:cartpol-swingup", "dmc:cartpole-swingup"),
    ("train gym:FetchReech-v4", "FetchReach-v4"),
    ("train gym:Pendulum-v1 --set task.action_scale=2", "leave out action_scale"),
    ("train mountain-car --out full", "give a new or empty folder"),
    ("train mountain-car --data cars", "give one like"),
    ("train mountain-car --wandb me/cars", "leave out"),
    ("tune mountain-car --seeds 0 1", "give others, such as --seeds 100 101"),
    ("tune mountain-car --space bonus_scal=0.1:1", "the nearest is bonus_scale"),
    ("tune mountain-car --space deploys", "give deploys=LOW:HIGH or deploys=A,B"),
    ("eval mountain-car", "runs/TASK-ALGO"),
    ("eval maze --iteration 7", "give 6"),
    ("eval maze --iteration newest", "from 0, or last"),
    ("report", "no folder was given"),
    ("report runs", "give a run folder"),
    ("list pcmpl", "the nearest is pcmlp"),
    ("paper spares", "the nearest is sparse"),
    ("paper sparse --jobs 0", "give 1 or more"),
    ("paper sparse --protocol --scale quick", "leave out --scale quick"),
    ("export runs/mountain-car-pcmlp", "--minari NAME is missing"),
    ("theory lin", "linear-mdp"),
]
PYTHON = [
    ('DeepPCMLP("Pendulum-v1")', "did you mean gym:Pendulum-v1"),
    ('DeepPCMLP("moutain-car")', "mountain-car"),
    ('DeepPCMLP("mountain-car", algo="sac")', "give pcmlp"),
    ('DeepPCMLP("mountain-car", horizon="100")', "give a whole number"),
    ('DeepPCMLP("mountain-car", seed=[0, 1])', "give a whole number"),
    ('DeepPCMLP("mountain-car", device="cuad")', "auto, cpu, cuda"),
    ('DeepPCMLP("mountain-car", settings="bonus_scale=0")', "give a dict"),
    ('DeepPCMLP("mountain-car", settings={"bonus_scle": 0.1})', "bonus_scale"),
    ('DeepPCMLP("mountain-car", settings={"rounds": 2.5})', "not a whole number"),
    ('DeepPCMLP("mountain-car").learn(10)', "give 200 or more"),
    ('DeepPCMLP("mountain-car").learn(2000, callback="print")', "give a function"),
    ('DeepPCMLP("mountain-car").evaluate(0)', "give 1 or more"),
    ('DeepPCMLP.load("missing.safetensors")', "give a file that `save` wrote"),
    ('Deep(rounds="2")', "not the string '2'"),
    ("Deep(bonus_scale=-1.0)", "give 0"),
    ('Deep(bonus_scale="high")', "give a number or auto"),
]
ABOUT = """# Mistakes

Some things that are easily mistyped or misused, each with the line that answers it. Bad input always gets one line,
which names what is wrong and what to do, before anything is compiled or written. The exit code of a command is then 2;
Python raises a `ConfigError`. `python tests/mistakes.py` prints this page and `tests/test_mistakes.py` compares it.
"""


CLIMB = """import jax.numpy as jnp

def climb(state, action, next_state):
    return -jnp.log(0.45 - next_state[0])
"""


@functools.cache
def maze():
    """The configuration of a run."""
    from pcmlp.runs.config import resolve, to_json

    return to_json(resolve("point-umaze"))


def write_maze(run):
    """What `--iteration` reads of a run before its policies."""
    (run / "policy").mkdir(parents=True)
    (run / "config.json").write_text(maze())
    for n in (0, 3, 6):
        (run / "policy" / f"{n:06d}.safetensors").touch()


@contextlib.contextmanager
def place():
    """A folder with what some of the mistakes name, as the current one."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("full").mkdir()
        Path("full/notes.txt").touch()
        Path("task.py").write_text("class Corridor: pass\n")
        Path("climb.py").write_text(CLIMB)
        write_maze(Path("maze"))
        try:
            yield
        finally:
            os.chdir(before)


def command_line(words):
    """The line that a command gets."""
    from pcmlp.cli import main

    with place(), contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(words.split())
    assert (code, out.getvalue(), said.getvalue().count("\n")) == (2, "", 1), (words, code, out.getvalue())
    return said.getvalue().strip()


def python_lines():
    """The line that each piece of Python gets."""
    from pcmlp import ConfigError, Deep, DeepPCMLP

    lines = {}
    for code, _ in PYTHON:
        try:
            eval(code, {"Deep": Deep, "DeepPCMLP": DeepPCMLP})
        except ConfigError as error:
            lines[code] = str(error)
    return lines


def row(given, line):
    """A row of the page."""
    given, line = (text.replace("|", "\\|") for text in (given, line))
    return f"| `{given}` | {line.replace('`', '')} |"


def command_row(words, line):
    """The row of a command; without `pcmlp`, because tests/test_docs.py checks the commands that a page recommends."""
    return row(words or "(nothing)", line)


def page():
    """The page as it should be."""
    commands = [command_row(words, command_line(words)) for words, _ in COMMANDS]
    python = [row(code, line) for code, line in python_lines().items()]
    first = ["| after `pcmlp` | line |", "|---|---|", *commands]
    second = ["| code | line |", "|---|---|", *python]
    return "\n".join([ABOUT, "## On the command line", "", *first, "", "## In Python", "", *second, ""])


if __name__ == "__main__":
    import jax  # noqa: F401 (once it is imported, a command does not say that it loads it)

    print(json.dumps(python_lines()) if sys.argv[1:] == ["python"] else page(), end="")
