"""What a run says of itself before it starts and when it has ended: lines for people."""

from pathlib import Path

from rich.console import Console

from pcmlp.imagine import unknowns
from pcmlp.runs.config import RunConfig
from pcmlp.runs.options import RECORDS, CoverConfig, DeepConfig
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import AbstractWorld, Task


def say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def heading(config: RunConfig, out: Path, done: int | None) -> str:
    runs = f"{len(config.seeds)} seed{'s' if len(config.seeds) > 1 else ''}"
    each = f"{config.num_iterations} iterations of {config.steps_per_iteration:g} env steps"
    resumed = "" if done is None else f", going on after iteration {done}"
    return f"{config.task_name}, {config.algo}: {runs}, {each}, into {out}{resumed}"


def notes_of(world: AbstractWorld, algo: str = "pcmlp") -> list[str]:
    """What a simulator's user should know of it."""
    if not isinstance(world, GymnasiumWorld):
        return []
    if algo in RECORDS:  # model-free: what the samples say of reward and end is all it takes
        return world.notes
    learned = " and ".join(unknowns(world.mdp))
    said = f"{learned}: not given as a function of (state, action, next_state), so learned from the samples"
    return [*world.notes, said] if learned else world.notes


def faults_of(world: AbstractWorld) -> str:
    """How a simulator has misbehaved, if it has."""
    return str(world.faults) if isinstance(world, GymnasiumWorld) and world.faults.total else ""


def reward_free_note(config: RunConfig, task: Task) -> list[str]:
    """What a reward-free run explores for, and how to see what came of it."""
    if not (isinstance(config, DeepConfig | CoverConfig) and config.reward_free):
        return []
    for_it = "planned for" if isinstance(config, DeepConfig) else "what the deployed policy of the cover is chosen by"
    said = f"reward-free: explores for the bonus alone; the task's reward is {for_it} but not explored for"
    if task.for_moving:
        said = "reward-free: explores for the bonus and for the task's own reward, which is for moving alone and stays"
    ends = ", and its goal ends no episode of exploring" if task.goal_ends else ""
    seen = "; coverage in metrics.csv is the share of the map that was entered" if task.map is not None else ""
    return [f"{said}{ends}{seen}"]
