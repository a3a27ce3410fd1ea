"""Experiments beyond the paper's figures: the effect of each part of Deep PC-MLP, the rivals on tasks that they
are known to learn, and the combination lock."""

from typing import Any

import numpy as np

from pcmlp.experiments.experiment import Done, Experiment, Tables, per_run
from pcmlp.experiments.job import Job
from pcmlp.experiments.section7 import ACROBOT, CAR, CHEETAH, CLIPPED, MAZE, NO_BONUS, NO_COVER
from pcmlp.experiments.tables import Row, machine_columns, return_row, slope, solved_row, steps_to_success
from pcmlp.tasks import CombinationLock

# controls: ten seeds. The two classic tasks are solved by going far; the maze shows whether the cover matters. There,
# four runs show the effect of our deviations: imagined states without bounds, imagined episodes that begin only at the
# world's own starts, an exploring policy that continues from iteration to iteration, and all three together. The
# controls of the classic tasks collect fifteen episodes per policy, so that thirty thousand steps make ten policies.

_MANY = "samples_per_policy=3000"
_CONTROLS: dict[str, tuple[str, int, tuple[str, ...]]] = {  # run -> method, steps, settings
    f"{MAZE}/pcmlp": ("pcmlp", 10_000, ()),
    f"{MAZE}/no-bonus": ("pcmlp", 20_000, (NO_BONUS,)),
    f"{MAZE}/covariance-off": ("pcmlp", 20_000, (NO_COVER,)),
    f"{MAZE}/unbounded": ("pcmlp", 10_000, ("bounded=false",)),
    f"{MAZE}/own-starts": ("pcmlp", 10_000, ("replay_starts=0",)),
    f"{MAZE}/one-policy": ("pcmlp", 10_000, ("fresh=false",)),
    f"{MAZE}/plain": ("pcmlp", 10_000, ("bounded=false", "replay_starts=0", "fresh=false")),
    f"{CAR}/pcmlp": ("pcmlp", 3_000, ()),
    f"{ACROBOT}/pcmlp": ("pcmlp", 2_000, ()),
    f"{CAR}/no-bonus": ("pcmlp", 30_000, (NO_BONUS, _MANY)),
    f"{CAR}/covariance-off": ("pcmlp", 30_000, (NO_COVER, _MANY)),
    f"{ACROBOT}/no-bonus": ("pcmlp", 30_000, (NO_BONUS, _MANY)),
    f"{ACROBOT}/covariance-off": ("pcmlp", 30_000, (NO_COVER, _MANY)),
    f"{CAR}/pcmlp-mppi": ("pcmlp-mppi", 4_000, ()),
    f"{ACROBOT}/pcmlp-mppi": ("pcmlp-mppi", 4_000, ()),
}


def control_jobs() -> list[Job]:
    """Return the runs of `controls`."""
    named = [(*name.split("/"), *made) for name, made in _CONTROLS.items()]
    return [Job("controls", task, label, algo, steps, settings) for task, label, algo, steps, settings in named]


CONTROLS = Experiment(
    name="controls",
    title="What each part of Deep PC-MLP changes",
    place="section 7.1; our deviations",
    shows="what each part of Deep PC-MLP changes on mountain-car, acrobot, a maze",
    jobs=control_jobs,
    tables=per_run(solved_row, "controls"),
)

# own_tasks: each rival on a task that it learns in its own paper or library. This shows that our implementation works,
# so that a failure on other tasks is meaningful. Three seeds.

_SMALL_SEARCH = (  # small enough for a CPU
    *("planner.num_plans=100", "planner.elites=10", "planner.iterations=3", "planner.particles=5"),
    *("planner.plan_length=20", "model.sizes=64,64", "model.steps=500", "eval_episodes=2"),
)
_MEDIUM_SEARCH = (  # as many plans as in mbrl-lib, one particle for each network, two episodes per policy
    *("samples_per_policy=2000", "planner.num_plans=350", "planner.elites=35", "planner.particles=5"),
    "eval_episodes=1",
)
# a search that only clips to the bounds, with short fits and networks that are too confident about unseen states
_CLIPPED = ("model.steps=1000", "model.decay=1e-4", *CLIPPED)
_PLAIN = ("planner.normed=false", "bounded=false")  # critics and imagined states as in MBPO's paper
_PENDULUM, _HOPPER = "gym:InvertedPendulum-v5", "hopper-et"


def rival_jobs() -> list[Job]:
    """Return the runs of `own_tasks`."""

    def job(task: str, algo: str, steps: int, settings: tuple[str, ...] = (), label: str | None = None) -> Job:
        return Job("own_tasks", task, label or algo, algo, steps, settings, (0, 1, 2))

    return [
        job("cart-pole", "pets", 2_000, _SMALL_SEARCH),
        job("pendulum", "trpo", 40_000),
        job("pendulum", "sac", 4_000),
        job("pendulum", "pets-gt", 200),
        job("gym:Pendulum-v1", "trpo", 40_000),
        job("gym:Pendulum-v1", "sac", 4_000),
        job(_PENDULUM, "mbpo", 10_000),
        job(_PENDULUM, "mbpo", 10_000, _PLAIN, label="mbpo-plain-critics"),
        job(_HOPPER, "mbpo", 60_000, ("eval_episodes=5",)),
        job(_HOPPER, "mbpo", 60_000, ("eval_episodes=5", *_PLAIN), label="mbpo-plain-critics"),
        job(CHEETAH, "pets", 20_000, (*_MEDIUM_SEARCH, "model.steps=6000")),  # per episode as in the preset
        job(CHEETAH, "pets", 20_000, (*_MEDIUM_SEARCH, *_CLIPPED), label="pets-clipped"),
        job(CHEETAH, "slbo", 40_000),
        # the preset has one episode per policy; the task is solved within three
        job(CAR, "rnd", 600, ("eval_episodes=20",), label="rnd-one-episode"),
    ]


def _rival_row(job: Job, summary: dict[str, Any]) -> Row:
    return {**return_row(job, summary), **machine_columns(summary)}


OWN_TASKS = Experiment(
    name="own_tasks",
    title="Rivals on tasks of their own",
    place="the rivals' own papers",
    shows="each rival on a task that it is known to learn",
    jobs=rival_jobs,
    tables=per_run(_rival_row, "own_tasks"),
)

# combination_lock (section 5, polynomial sample complexity): uniform play opens a lock of H digits with probability
# A^-H. The controls get the whole budget, with fifty episodes per policy, which makes two hundred policies.

_LOCK, _LINEAR = "combination-lock", "pcmlp-linear"
_HORIZONS, _ACTIONS = (5, 10, 20, 40), 5
_FIFTY = "samples_per_policy=1000"
_LOCK_CONTROLS = {
    "random": ("random", (_FIFTY,)),
    "no-bonus": (_LINEAR, (NO_BONUS, _FIFTY)),
    "covariance-off": (_LINEAR, (NO_COVER, _FIFTY)),
}


def lock_jobs() -> list[Job]:
    """Return the runs of `combination_lock`."""
    return [
        *(_lock_job(horizon) for horizon in _HORIZONS),
        *(
            Job("combination_lock", _LOCK, label, algo, 200_000, settings)
            for label, (algo, settings) in _LOCK_CONTROLS.items()
        ),
    ]


def _lock_label(horizon: int) -> str:
    return _LINEAR if horizon == CombinationLock.horizon else f"horizon-{horizon}"


def _lock_job(horizon: int) -> Job:
    settings = () if horizon == CombinationLock.horizon else (f"task.horizon={horizon}",)
    return Job("combination_lock", _LOCK, _lock_label(horizon), _LINEAR, 2 * _ACTIONS * horizon**2, settings)


def _growth_row(horizon: int, summary: dict[str, Any]) -> Row:
    needed = steps_to_success(summary)
    return {
        "horizon": horizon,
        "seeds_opened": int(np.isfinite(needed).sum()),
        "median_steps": np.median(needed),
        "least_steps": needed.min(),
        "most_steps": needed.max(),
        "steps_of_uniform_play": float(_ACTIONS) ** horizon * horizon,
    }


def lock_tables(done: Done) -> Tables:
    """Yield the table of solved locks, and the growth of the steps: the slope of their logarithms is the degree."""
    found = done.jobs_of(_LOCK)
    labels = [label for label in (_LINEAR, *_LOCK_CONTROLS) if label in found]
    yield "who_opens_it", [solved_row(found[label], done.summary(found[label])) for label in labels]
    rows = [_growth_row(h, done.summary(found[_lock_label(h)])) for h in _HORIZONS if _lock_label(h) in found]
    degree = slope(rows, "horizon", "median_steps")
    yield "growth", [{**row, "log_log_slope": degree} for row in rows]


COMBINATION_LOCK = Experiment(
    name="combination_lock",
    title="The combination lock",
    place="section 5, polynomial sample complexity",
    shows="who opens a lock of 20 digits; steps by number of digits",
    jobs=lock_jobs,
    tables=lock_tables,
)
