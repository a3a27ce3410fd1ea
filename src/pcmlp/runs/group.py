"""Runs of equal programs, iterated together as one program over the seeds of all of them.

On a GPU, more seeds in one program are nearly free, while processes side by side slow each other down
(benchmarks/README.md). A method and its controls differ only in inputs of the program (`bonus_scale`, `covariance`,
...), so each seed gets the inputs of its own run. In everything else, a run in a group is like a run alone: it has its
own folder, configuration, evaluations and checkpoints, and it may leave the group at any time. A run alone is a group
of one.

The random numbers of a seed depend only on its key and the iteration, so the results are those of the run alone. On a
CPU, where the seeds of a stage are computed one after another, this is true bit for bit (tests/test_groups.py). On a
GPU, where the size of a product decides how it is summed, it is true up to rounding.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
from jaxtyping import Array

from pcmlp.algorithms.certificate import promised
from pcmlp.algorithms.deep import Deep
from pcmlp.errors import RunStopped
from pcmlp.parts import NAMES
from pcmlp.programs import brief_program
from pcmlp.runs.certificate import has_certificate
from pcmlp.runs.compiling import program_key
from pcmlp.runs.config import RunConfig
from pcmlp.runs.evaluate import Evaluator
from pcmlp.runs.run import Run, evaluated_policies
from pcmlp.settings import to_record
from pcmlp.tasks.host import to_host
from pcmlp.trees import join_seeds, split_seeds
from pcmlp.types import Iteration, Learner

_join, _split = brief_program(join_seeds), brief_program(split_seeds)


def group_key(config: RunConfig) -> str | None:
    """Return a text that is the same for runs that can be iterated together; None for a run that is always alone.

    The runs of a group have equal programs. They also have the same task, noise and steps, because they share the world
    and are evaluated at the same iterations.
    """
    if not isinstance(config.algorithm, Deep):
        return None
    shared = to_record(config.task, NAMES), config.algorithm.noise, config.steps, config.eval_every
    return f"{program_key(config)} {shared}"


def iterate_runs(runs: Sequence[Run], asked: Callable[[], bool]) -> None:
    """Run the remaining iterations of a group, as long as `asked` returns False. A run that fails keeps its `failure`
    and leaves the group; one that is ahead of the others waits for them."""
    fresh = [run for run in runs if run.learner is None]
    for run in fresh:
        run.start()
    _evaluate(fresh, [run.learner for run in fresh if run.learner is not None], 0)
    for run in fresh:
        _attempt(run, run.finish_start)
    first = 1 + min(run.done or 0 for run in runs)
    for n in range(first, runs[0].num_iterations + 1):
        if asked():
            break
        if members := [run for run in runs if run.goes_on() and (run.done or 0) == n - 1]:
            _iterate(members, n)
    for run in runs:
        if run.failure is None:
            _attempt(run, run.save)


def _iterate(runs: Sequence[Run], n: int) -> None:
    """Run iteration n of all runs, and let each of them finish it."""
    try:
        iterations = _compute(runs[0], n) if len(runs) == 1 else _compute_together(runs, n)
        _evaluate(runs, [iteration.learner for iteration in iterations], n)
    except RunStopped as error:  # the world failed
        if len(runs) > 1:  # each run alone, so that only those fail whose actions it cannot take
            for run in runs:
                _iterate([run], n)
        else:
            runs[0].save()  # the iterations before the failure
            runs[0].failure = error
        return
    for run, iteration in zip(runs, iterations, strict=True):
        _attempt(run, partial(run.finish_iteration, n, iteration))


def _compute(run: Run, n: int) -> list[Iteration]:
    """Return the iteration of a run that is alone."""
    assert run.learner is not None
    iteration = run.algorithm.iterate(run.keys, run.world, run.learner, n)
    return [_with_promises(run, run.keys, iteration, n)]


def _compute_together(runs: Sequence[Run], n: int) -> list[Iteration]:
    """Return the iteration of each run, computed for the seeds of all runs at once, in the world of the first."""
    first, counts = runs[0], [len(run.config.seeds) for run in runs]
    assert isinstance(first.algorithm, Deep)
    each = [run.algorithm for run in runs for _ in run.config.seeds if isinstance(run.algorithm, Deep)]
    keys = join_seeds([run.keys for run in runs])
    learner = _join([run.learner for run in runs if run.learner is not None])
    iteration = first.algorithm.iterate(keys, first.world, learner, n, each)
    iteration = _with_promises(first, keys, iteration, n, each)
    learned = _split((iteration.learner, iteration.metrics), counts)
    real = split_seeds((iteration.samples, to_host(iteration.walked)), counts)  # a simulator's are on the host
    return [Iteration(*own, *steps) for own, steps in zip(learned, real, strict=True)]


def _with_promises(run: Run, keys: Array, iteration: Iteration, n: int, each: Sequence[Deep] = ()) -> Iteration:
    """Return the iteration with the promised return of each seed, if its certificate needs it."""
    mdp = run.world.mdp
    if not has_certificate(run.config, mdp, evaluated=run.evaluates(n)):
        return iteration
    promises = promised(keys, run.algorithm, mdp, iteration.learner, n, each)
    return iteration._replace(metrics={**iteration.metrics, **promises})


def _evaluate(runs: Sequence[Run], learners: Sequence[Learner], n: int) -> None:
    """Evaluate the policies of all runs together, if that is due. On a CPU each run evaluates by itself, which takes as
    long and gives the same bits as a run alone."""
    if len(runs) < 2 or not runs[0].evaluates(n) or jax.default_backend() == "cpu":
        return
    policies = [evaluated_policies(learner) for learner in learners]
    for name in runs[0].evaluators:
        Evaluator.prepare([run.evaluators[name] for run in runs], [each[name] for each in policies])


def _attempt(run: Run, do: Callable[[], object]) -> None:
    try:
        do()
    except BrokenPipeError:  # closed output ends all runs
        raise
    except Exception as error:  # RunStopped, or an error of a callback
        run.failure = error
