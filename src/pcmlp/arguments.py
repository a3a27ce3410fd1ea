"""What the command line takes. Numbers stay text until the configuration parses them: every error reads the same.

Nothing here imports JAX, so that help is quick.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg, subcommand


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
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE [KEY=VALUE ...]")] = ()
    """Any other setting, such as bonus_scale=0 or task.horizon=10; the keys are those of config.json."""
    reward_free: FlagCreatePairsOff[bool] = False
    """Explore with no task reward."""
    resume: FlagCreatePairsOff[bool] = False
    """Go on with the run in --out after its last checkpoint; where there is none, start it."""
    stop_when_certified: Annotated[str | None, arg(metavar="EPS")] = None
    """End at the first iteration whose certificate is at most EPS for every seed: no more than that is left to gain."""
    tensorboard: FlagCreatePairsOff[bool] = False
    """Write every number of metrics.csv for TensorBoard as well."""


@dataclass(frozen=True)
class Eval:
    """Evaluate the deployed policies of a run, or those of a plan under its reward."""

    run: Annotated[Positional[Path], arg(metavar="RUN_OR_PLAN")]
    """The folder."""
    episodes: Annotated[str, arg(metavar="INT")] = "20"
    """Of each seed."""
    trust_code: FlagCreatePairsOff[bool] = False
    """Import the files of code that the run or plan names as its reward, termination or success, if it names any."""
    seed: Annotated[str | None, arg(metavar="INT")] = None
    """Of the evaluation's random numbers; those of the run's own evaluations if not given."""
    video: FlagCreatePairsOff[bool] = False
    """Write an episode of the first seed's policy as video.mp4."""


@dataclass(frozen=True)
class Plan:
    """Plan for a new reward in the model that a run has learned, with no new samples."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    reward: Annotated[str | None, arg(metavar="FILE.py:NAME")] = None
    """A function of (state, action, next_state) by jax.numpy; the task's own reward if not given."""
    terminal: Annotated[str | None, arg(metavar="FILE.py:NAME")] = None
    """Where an episode ends, such a function as well; as the task ends if not given."""
    success: Annotated[str | None, arg(metavar="FILE.py:NAME")] = None
    """What `eval` counts as success: an episode with a step at which this function is true."""
    success_return: Annotated[str | None, arg(metavar="FLOAT")] = None
    """What `eval` counts as success otherwise: an episode with at least this return."""
    seeds: Annotated[tuple[str, ...], arg(metavar="INT [INT ...]")] = ()
    """Some of the run's; all of them if not given."""
    attempts: Annotated[str | None, arg(metavar="INT")] = None
    """Fresh policies to plan from; the best in the imagination is kept."""
    rounds: Annotated[str | None, arg(metavar="INT")] = None
    """Calls of the planner for each of them."""
    search: FlagCreatePairsOff[bool] = False
    """Plan at every step of the episode instead, among what the exploring policy would do: for a reward on the way."""
    num_plans: Annotated[str | None, arg(metavar="INT")] = None
    """Imagined episodes that a search chooses from."""
    plan_length: Annotated[str | None, arg(metavar="INT")] = None
    """Steps of each of them."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """The folder for the policies, new or empty; RUN-plan-NAME or RUN-search-NAME if not given."""
    trust_code: FlagCreatePairsOff[bool] = False
    """Import the file of code that the run itself names as its reward or termination, if it names one."""


@dataclass(frozen=True)
class Export:
    """The episodes that a run has collected, as a Minari dataset."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    minari: Annotated[str, arg(metavar="NAME")]
    """Of the dataset, such as pcmlp/mountain-car-v0; it goes where Minari keeps them (MINARI_DATASETS_PATH)."""


@dataclass(frozen=True)
class Paper:
    """Figures and tables of the paper: their runs, their tables, and the page of all results."""

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME|all")]
    """Experiments of `pcmlp list`, or all of them."""
    scale: Annotated[str, arg(metavar="smoke|quick|full")] = "full"
    """full: as reported, a GPU is wanted. quick: minutes on two cores. smoke: whether all of it runs."""
    engine: Annotated[str, arg(metavar="local|ray")] = "local"
    """local: one run after another in this process. ray: on the machines of a Ray cluster."""
    address: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """Of the Ray cluster; one on this machine is started if not given."""
    results: Annotated[Path | None, arg(metavar="DIR")] = None
    """Where the kept files, the tables and the page go; results, or results-SCALE, if not given."""
    runs: Annotated[Path | None, arg(metavar="DIR")] = None
    """Where the runs go; runs/experiments, or runs/experiments-SCALE, if not given."""
    only: Annotated[tuple[str, ...], arg(metavar="TASK/LABEL [TASK/LABEL ...]")] = ()
    """Some of their runs."""
    seeds: Annotated[tuple[str, ...] | None, arg(metavar="INT [INT ...]")] = None
    """In the place of their own."""


@dataclass(frozen=True)
class Report:
    """One page about one run or several: report.html."""

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN_OR_FOLDER")]
    """Run folders, or folders of them."""
    figures: FlagCreatePairsOff[bool] = False
    """Write PDFs, PNGs and tables for papers as well, into figures beside the page."""


@dataclass(frozen=True)
class Watch:
    """The same page while runs go on, on this machine alone."""

    folder: Annotated[Positional[Path], arg(metavar="RUN_OR_FOLDER")]
    """A run folder, or a folder that runs are in or will be in."""
    port: Annotated[str, arg(metavar="INT")] = "8642"
    """Of 127.0.0.1; 0 is any that is free."""


@dataclass(frozen=True)
class Bench:
    """How fast this machine runs the parts of an iteration."""

    out: Annotated[Path | None, arg(metavar="FILE.json")] = None
    """Where the numbers go; shown only if not given."""
    seeds: Annotated[tuple[str, ...], arg(metavar="INT [INT ...]")] = ()
    """How many seeds at once to time a round of, besides one; by the device if not given."""
    solve: bool = True
    """Whether to time whole runs as well."""
    host: Annotated[str, arg(metavar="TASK")] = ""
    """A task in a simulator, such as half-cheetah, to see where the time of an iteration of four seeds goes."""


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


@dataclass(frozen=True)
class Doctor:
    """Whether this machine can run pcmlp, and what is missing."""


Command = (
    Annotated[List, subcommand("list")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Plan, subcommand("plan")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Paper, subcommand("paper")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Watch, subcommand("watch")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Theory, subcommand("theory")]
    | Annotated[Doctor, subcommand("doctor")]
)
