"""Each rival where its own paper, or its library, shows it learning, so that losing elsewhere says something.

(paper: none; the rivals' own papers. Three seeds.)

    pcmlp paper own_tasks
    pcmlp paper own_tasks --only cart-pole/pets             # one run
"""

from typing import Any

from pcmlp.experiments.experiment import Experiment, main, per_run
from pcmlp.experiments.job import CLIPPED_PLANS, Job
from pcmlp.experiments.tables import Row, machine_of, return_row

NAME = "own_tasks"
SEEDS = (0, 1, 2)
# A search small enough for a CPU.
_SMALL = (
    "planner.num_plans=100",
    "planner.elites=10",
    "planner.iterations=3",
    "planner.particles=5",
    "planner.plan_length=20",
    "model.sizes=64,64",
    "model.steps=500",
    "eval_episodes=2",
)
# As many plans as mbrl-lib has, one particle for each net, two episodes a policy.
_MEDIUM = (
    "samples_per_policy=2000",
    "planner.num_plans=350",
    "planner.elites=35",
    "planner.particles=5",
    "eval_episodes=1",
)
# with short fits and nets that are too sure of what they have not seen
_CLIPPED = ("model.steps=1000", "model.decay=1e-4", *CLIPPED_PLANS)
# critics and imagined states as in the paper of MBPO
_PLAIN = ("planner.normed=false", "bounded=false")


def job(task: str, algo: str, steps: int, settings: tuple[str, ...] = (), label: str | None = None) -> Job:
    return Job(NAME, task, label or algo, algo, steps, settings, SEEDS)


def jobs() -> list[Job]:
    return [
        job("cart-pole", "pets", 2_000, _SMALL),
        job("pendulum", "trpo", 40_000),
        job("pendulum", "sac", 4_000),
        job("pendulum", "pets-gt", 200),
        job("gym:Pendulum-v1", "trpo", 40_000),
        job("gym:Pendulum-v1", "sac", 4_000),
        job("gym:InvertedPendulum-v5", "mbpo", 10_000),
        job("gym:InvertedPendulum-v5", "mbpo", 10_000, _PLAIN, label="mbpo-plain-critics"),
        job("hopper-et", "mbpo", 60_000, ("eval_episodes=5",)),
        job("hopper-et", "mbpo", 60_000, ("eval_episodes=5", *_PLAIN), label="mbpo-plain-critics"),
        job("half-cheetah", "pets", 20_000, (*_MEDIUM, "model.steps=6000")),  # the preset's, for each episode
        job("half-cheetah", "pets", 20_000, (*_MEDIUM, *_CLIPPED), label="pets-clipped"),
        job("half-cheetah", "slbo", 40_000),
        # its preset, an episode a policy: solved within three
        job("mountain-car", "rnd", 600, ("eval_episodes=20",), label="rnd-one-episode"),
    ]


def row_of(job: Job, summary: dict[str, Any]) -> Row:
    return {**return_row(job, summary), **machine_of(summary)}


EXPERIMENT = Experiment(
    name=NAME,
    title="Rivals on tasks of their own",
    place="the rivals' own papers",
    shows="each rival on a task that it is known to learn",
    jobs=jobs,
    tables=per_run(row_of, NAME),
)

if __name__ == "__main__":
    main(EXPERIMENT)
