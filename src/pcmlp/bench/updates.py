"""Updates of the planners per second, for several seeds at once, alone and in processes side by side.

Each process measures one planner with more and more seeds. All processes begin each measurement together, after all of
them have compiled it. On a CPU a plan has fewer updates (and, for SAC, proportionally fewer imagined episodes), so that
the measurement takes seconds; the rate of updates hardly depends on their number.
"""

import contextlib
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Barrier, BrokenBarrierError
from typing import Any, NamedTuple

from jaxtyping import Array, Key

from pcmlp.algorithms.deep import Deep
from pcmlp.bench.clock import compile_call, peak_memory_mb, time_call
from pcmlp.bench.parts import Stage, mountain_car, paper_round, prepare_stages
from pcmlp.experiments import mps
from pcmlp.experiments.gpu import find_gpu
from pcmlp.experiments.pool import share_gpu
from pcmlp.experiments.share import variables_set
from pcmlp.planners import SAC, TRPO
from pcmlp.runs.cache import prepare
from pcmlp.trees import as_inputs, map_leading
from pcmlp.types import MDP, Planner

_LATE_S = 600.0  # a process that has not compiled by then has a problem


@dataclass(frozen=True)
class Case:
    """A measurement of one process."""

    planner: Planner
    seeds: tuple[int, ...]  # numbers of seeds, increasing
    net: tuple[int, ...]
    samples: int
    seconds: float

    @property
    def updates(self) -> int:
        """The updates of one plan of one seed."""
        assert isinstance(self.planner, TRPO | SAC)
        return self.planner.updates


class Rate(NamedTuple):
    """A measured rate of one process, or of several together."""

    updates_per_s: float  # of all seeds
    peak_memory_mb: float  # of one process


def measure_rates(case: Case, jobs: int) -> dict[str, dict[str, float] | None]:
    """Return by number of seeds the updates per second of `jobs` processes together, and the memory of the largest;
    None where a process died, perhaps for lack of memory."""
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(jobs)
    pipes, processes = [], []
    with share_device(jobs):
        for _ in range(jobs):
            ours, theirs = context.Pipe(duplex=False)
            processes.append(context.Process(target=serve, args=(case, together, theirs), daemon=True))
            processes[-1].start()
            theirs.close()  # otherwise the death of the process would not close the pipe
            pipes.append(ours)
        measured = {str(count): receive_all(pipes) for count in case.seeds}
        for process in processes:
            process.join()
    return {count: None if rates is None else add_rates(rates)._asdict() for count, rates in measured.items()}


@contextlib.contextmanager
def share_device(jobs: int) -> Iterator[None]:
    """Let processes that are started in this block share a GPU: with MPS if it is there, else they take turns."""
    gpu = find_gpu() if jobs > 1 else None
    if gpu is None:
        yield
    elif why := mps.why_missing():
        print(f"{why}: the processes take turns", flush=True)
        yield
    else:
        with share_gpu(gpu, jobs) as variables, variables_set(variables()):
            yield


def receive_all(pipes: Sequence[Connection]) -> list[Rate] | None:
    """Return the next measurement of every process; None if one has died."""
    try:
        return [Rate(*pipe.recv()) for pipe in pipes]
    except EOFError:
        return None


def add_rates(rates: Sequence[Rate]) -> Rate:
    """Return the rate of all processes together."""
    return Rate(sum(rate.updates_per_s for rate in rates), max(rate.peak_memory_mb for rate in rates))


def serve(case: Case, together: Barrier, answers: Connection) -> None:
    """Measure a case in a process of its own."""
    prepare()
    try:
        for count in case.seeds:
            call = compile_plan(case, count)
            time_call(call)  # compiles
            together.wait(_LATE_S)
            times = [time_call(call)]
            while sum(times) < case.seconds:
                times.append(time_call(call))
            answers.send((count * case.updates / statistics.median(times), peak_memory_mb()))
    except BrokenBarrierError:  # another process died
        pass
    finally:
        together.abort()


def compile_plan(case: Case, seeds: int) -> Callable[[], Any]:
    """Return a compiled function that plans for several seeds."""
    algo, world = paper_round(case.net, case.samples, 1, case.planner), mountain_car()
    keys, stages = prepare_stages(algo, world, seeds)

    def run(keys: Key[Array, " seeds"], algo: Deep, mdp: MDP, stages: Stage) -> Any:
        def plan(key: Key[Array, ""], stage: Stage) -> Any:
            return algo.planner.plan(key, stage.imagined(algo, mdp, True), stage.policy)

        return map_leading(plan, keys, stages)

    return compile_call(run, keys, as_inputs(algo), world.mdp, stages)
