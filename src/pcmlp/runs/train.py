"""`pcmlp train`: open or resume a run, show its progress, and write the summary however it ends."""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.pc_pg import PCPG
from pcmlp.imagine import unknown_functions
from pcmlp.models import KNR, nearest_member
from pcmlp.models.knr import Regulators
from pcmlp.runs.callbacks import Callback, TensorBoard, listening, say, show_progress
from pcmlp.runs.certificate import check_threshold, describe_threshold, standing
from pcmlp.runs.checkpoint import ENDED, changed_machine, check_same, is_finished, latest_checkpoint
from pcmlp.runs.compiling import Compiling
from pcmlp.runs.config import RunConfig, build, to_json
from pcmlp.runs.expect import describe_time
from pcmlp.runs.folder import Lock, RunFolder, check_free
from pcmlp.runs.group import iterate_runs
from pcmlp.runs.logged import before_log, check_same_data, describe_logged, load_logged
from pcmlp.runs.metrics import Row
from pcmlp.runs.run import Run
from pcmlp.runs.summary import read_summary
from pcmlp.runs.weights_biases import WeightsAndBiases, check_wandb
from pcmlp.signals import stop_when_asked
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import Algorithm, Problem, World


def train(
    config: RunConfig,
    out: Path,
    *,
    command: str = "",
    console: Console | None = None,
    resume: bool = False,
    trust_code: bool = True,
    tensorboard: bool = False,
    wandb: str | None = None,
    stop_when_certified: float | None = None,
    callbacks: Sequence[Callback] = (),
    shared_device: bool = False,
) -> dict[str, Any]:
    """Run a configuration into the folder `out` and return the summary; bad input writes nothing.

    With `resume`, an existing run continues after its last checkpoint; a finished run is left unchanged. With
    `stop_when_certified`, the run ends after the first iteration in which no seed's certificate is above this number.
    `wandb` is a project of Weights & Biases. `shared_device` says that other runs use the device at the same time; the
    summary keeps it.
    """
    console = console or Console()
    check_threshold(config, stop_when_certified)
    if wandb is not None:
        check_wandb(wandb)
    run = open_run(config, out, resume, trust_code)
    if run is None:
        say(console, f"{out}: already finished; nothing to resume")
        return read_summary(out)
    run.command, run.threshold = command, stop_when_certified
    run.shared_device |= shared_device
    sent = send_to(wandb, run, console)
    announce(run, console, [*callbacks, *sent])
    if tensorboard:
        run.callbacks.append(TensorBoard(out / "tensorboard", config.seeds, run.rows, console))
    train_runs([run], console)
    tell_outcome(run, console)
    return run.summary


def send_to(project: str | None, run: Run, console: Console) -> list[Callback]:
    """Return the callback that sends the run's numbers to a project of Weights & Biases, if there is one."""
    try:
        return [] if project is None else [WeightsAndBiases(run.folder.path, run.config, project, console)]
    except BaseException:
        run.lock.close()
        raise


def announce(run: Run, console: Console, callbacks: Sequence[Callback] = (), group: int = 1) -> None:
    """Print the lines before a run that is one of a group of so many; let it show its progress and call callbacks."""
    for line in opening_lines(run, run.folder.path):
        say(console, line)
    compiling = Compiling(run.config, "train", group)
    progress = show_progress(console, run.num_iterations, run.done or 0, compiling.announce())
    run.callbacks = [compiling, progress, *callbacks]


def train_runs(runs: Sequence[Run], console: Console) -> None:
    """Iterate the runs as a group until all have ended, and write their summaries, however they end. A run that fails
    keeps its `failure`."""
    ended: str | None = None  # a status of all runs
    signals = stop_when_asked(partial(say, console), lambda: [run.conclude("interrupted") for run in runs])
    with contextlib.ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.opened())
        asked = stack.enter_context(signals)
        try:
            with listening([callback for run in runs for callback in run.callbacks]):
                iterate_runs(runs, asked)
        except (KeyboardInterrupt, BrokenPipeError):  # a second signal, or closed output
            ended = "interrupted"
        except Exception as error:  # of all runs
            for run in runs:
                run.failure = run.failure or error
        for run in runs:
            try:
                run.conclude(ended or run.status)
            except Exception as error:
                run.failure = run.failure or error


def tell_outcome(run: Run, console: Console) -> None:
    """Print the notes about a run that has ended, and how to continue it; raise its failure, if it has one."""
    for line in outcome_notes(run.rows[-len(run.config.seeds) :]):
        say(console, line)
    if isinstance(run.world, GymnasiumWorld) and run.world.faults.total:
        say(console, str(run.world.faults))
    if run.failure is not None:
        raise run.failure
    if run.summary["status"] not in ENDED and run.command:
        flags = ["--resume", *(["--trust-code"] if run.config.code else [])]
        new = (flag for flag in flags if flag not in run.command.split())
        say(console, " ".join(["to go on:", run.command, *new]))


def open_run(
    config: RunConfig, out: Path, resume: bool, trust_code: bool = True, problem: Problem | None = None
) -> Run | None:
    """Return a run in a new folder, or the existing run, resumed; None if it is finished. A `problem` that another run
    of the same task has built is used again."""
    if not (resume and (out / "config.json").exists()):
        check_free(out)
        problem, algorithm = build(config, problem)
        logged = load_logged(config, algorithm, problem.world.mdp)
        return Run(config, problem, algorithm, *RunFolder.create(out, to_json(config)), logged=logged)
    check_same_data(config, out)
    check_same(config, out, trust_code)
    problem, algorithm = build(config, problem)
    if is_finished(out, config):
        return None
    logged = load_logged(config, algorithm, problem.world.mdp)
    lock = Lock(out)
    try:
        run = Run(config, problem, algorithm, RunFolder(out), lock, logged=logged)
        before = before_log(algorithm, run.world.mdp, config, logged)
        run.restore(latest_checkpoint(config, algorithm, run.world.mdp, out, before))
    except BaseException:
        lock.close()
        raise
    return run


def opening_lines(run: Run, out: Path) -> list[str]:
    """Return the lines that a run prints before it starts."""
    config, before = run.config, run.before
    seeds = f"{len(config.seeds)} seed{'s' if len(config.seeds) > 1 else ''}"
    each = f"{config.num_iterations} iterations of {config.steps_per_iteration:g} env steps"
    resumed = "" if run.done is None else f", continuing after iteration {run.done}"
    lines = [f"{config.task_name}, {config.algo}: {seeds}, {each}, into {out}{resumed}"]
    if time := describe_time(config, run.world, config.num_iterations - (run.done or 0)):
        lines.append(time)
    lines += describe_logged(config, run.logged)
    lines += [
        *world_notes(run.world, isinstance(run.algorithm, Deep)),
        *reward_free_notes(config.algorithm, run.problem),
        *class_notes(run.algorithm, run.problem),
    ]
    if before is not None and (changes := changed_machine(before)):
        lines.append(f"the results may differ in the last bits from an uninterrupted run ({', '.join(changes)})")
    if run.threshold is not None:
        lines.append(describe_threshold(run.threshold, standing(config, run.algorithm, run.problem)))
    return lines


def world_notes(world: World, learns_model: bool = True) -> list[str]:
    """Return notes for the user about a simulator."""
    if not isinstance(world, GymnasiumWorld):
        return []
    learned = " and ".join(unknown_functions(world.mdp))
    if not learned or not learns_model:
        return world.notes
    line = f"{learned}: not given as a function of (state, action, next_state), so learned from the samples"
    return [*world.notes, line]


def outcome_notes(rows: Sequence[Row]) -> list[str]:
    """Return notes about learned rewards and ends whose error is unknown, given the last row of each seed: the cell is
    empty if all rewards are equal, or no episode has ended."""
    lines = []
    for column, none in (("reward_error", "no two different rewards were"), ("end_error", "no end of an episode was")):
        blind = [row for row in rows if row.get("outcome_skipped") == 0 and row.get(column) is None]
        if blind:
            by = "" if len(blind) == len(rows) else f" by {len(blind)} of {len(rows)} seeds"
            steps = max(row["env_steps"] for row in blind)
            lines.append(
                f"{none} seen in {steps:,} steps{by}: {column} is empty, and what was learned is not reliable yet"
            )
    return lines


def reward_free_notes(algorithm: Algorithm, problem: Problem) -> list[str]:
    """Return a line about what a reward-free run explores for, and where to see the result."""
    if not (isinstance(algorithm, Deep | PCPG) and algorithm.reward_free):
        return []
    use = "used for planning what to deploy" if isinstance(algorithm, Deep) else "used to choose from the cover"
    line = f"reward-free: explores for the bonus alone; the task's reward is {use}, not explored for"
    if problem.pays_for_moving:
        line = "reward-free: explores for the bonus and for the task's own reward, which only pays for moving"
    ends = ", and the goal does not end an episode of exploring" if problem.goal_ends else ""
    seen = "; coverage in metrics.csv is the share of the map that was entered" if problem.map is not None else ""
    return [f"{line}{ends}{seen}"]


def class_notes(algorithm: Algorithm, problem: Problem) -> list[str]:
    """Return a line for a class of regulators that does not contain the truth: how far away it is, and what that costs.

    If two Gaussians have means x sigma apart, their total variation is at most x / 2. So a member that errs by x
    wherever policies go misjudges the value of a policy by at most H^2 x / 2, and the policy that is best in it loses
    at most twice that. Here x is a mean over the box; policies may go where the error is larger.
    """
    if not (isinstance(algorithm, PCMLP) and isinstance(algorithm.model, Regulators) and algorithm.model.features):
        return []
    near = nearest_member(problem.world.mdp, algorithm.model.features, algorithm.model.radius)
    if near is None or near.is_truth:
        return []
    horizon = problem.world.mdp.horizon
    away = f"its nearest member errs by {near.error:.3g} sigma (root mean square; {near.largest:.3g} at most)"
    loss = min(horizon, horizon**2 * near.error)
    cost = f"may cost {loss:.3g} of a return of {horizon} (at most H^2 x {near.error:.3g})"
    remedy = "other features or a larger model.radius" if isinstance(algorithm.model, KNR) else "other features"
    return [
        f"the class of models does not contain the truth: over the task's box, {away}; errors of this size {cost}, "
        f"however many samples there are; give {remedy}"
    ]
