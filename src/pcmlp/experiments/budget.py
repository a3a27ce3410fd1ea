"""The expected time of experiments, before anything runs, from the kept summaries of earlier runs.

    seconds = compile_s + (wall_s - compile_s) * (work of the job / work of the earlier run) * (cost of their seeds)

The work of a run is the number of its imagined steps, or of its real steps if its method imagines none; evaluation is
included. Seeds cost n^0.2 on a GPU, where 16 take 1.75 times as long as one (benchmarks/README.md), and n on a CPU,
where they run one after another. Of the earlier runs of the same method, one on this device is preferred, then one with
the same parts, then one of the same task, then one of similar work. A run that shared its device is not used.
"""

import heapq
import math
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pcmlp.errors import ConfigError
from pcmlp.experiments.gpu import find_gpu
from pcmlp.experiments.job import FULL, Job, is_finished
from pcmlp.runs.callbacks import show_time
from pcmlp.runs.checkpoint import ENDED
from pcmlp.runs.config import RunConfig
from pcmlp.runs.config_file import load_config
from pcmlp.runs.expect import evaluated_steps
from pcmlp.runs.summary import device, read_summary

_GPU_SEEDS = 0.2  # 16^0.2 = 1.74


class Earlier(NamedTuple):
    """An earlier run whose time is known."""

    where: str
    config: RunConfig
    device: str
    wall_s: float
    compile_s: float


class Estimate(NamedTuple):
    """The expected time of a job, and the earlier run that it comes from."""

    seconds: float
    earlier: Earlier
    is_here: bool  # whether that run was on a device like this one

    def describe(self, task: str) -> str:
        """Describe where the estimate comes from."""
        place = "this device" if self.is_here else f"another device, {self.earlier.device}"
        other = "" if self.earlier.config.task_name == task else ", another task"
        return f"{place}{other}: {self.earlier.where}"


def expected_seconds(job: Job, results: Path) -> float | None:
    """Return the seconds that a job takes alone on this device; None if no run of its method is known."""
    found = estimate(job, results)
    return None if found is None else found.seconds


def estimate(job: Job, results: Path) -> Estimate | None:
    """Estimate the time of a job from the runs that are kept in `results`, or in the folder of full scale."""
    config, here = job.config(), find_device()
    known = [*read_earlier(results), *(read_earlier(FULL.results) if results != FULL.results else ())]
    same = [earlier for earlier in known if earlier.config.algo == config.algo]
    if not same:
        return None

    def distance(earlier: Earlier) -> tuple[bool, bool, bool, float]:
        other = earlier.config
        return (
            earlier.device != here,
            other.part_names() != config.part_names(),
            other.task_name != config.task_name,
            abs(math.log(count_work(config) / count_work(other))),
        )

    earlier = min(same, key=distance)
    scale = count_work(config) / count_work(earlier.config)
    scale *= cost_of_seeds(config, earlier.device) / cost_of_seeds(earlier.config, earlier.device)
    seconds = earlier.compile_s + max(earlier.wall_s - earlier.compile_s, 0.0) * scale
    return Estimate(seconds, earlier, earlier.device == here)


def find_device() -> str:
    """Return the kind of device that runs would use, as a summary names it; a GPU is not touched."""
    gpu = find_gpu()
    return device() if gpu is None else f"gpu ({gpu.name})"


def count_work(config: RunConfig) -> float:
    """Return the imagined steps of one seed, or its real steps if there are none; with evaluation."""
    algorithm, horizon = config.algorithm, config.task.horizon
    per_action, per_iteration = algorithm.imagined_steps(horizon)
    actions = config.steps + evaluated_steps(config)
    return float(actions * per_action + config.num_iterations * per_iteration) or float(actions)


def cost_of_seeds(config: RunConfig, device: str) -> float:
    """Return how much longer all seeds take than one."""
    count = len(config.seeds)
    return float(count) if device.startswith("cpu") else count**_GPU_SEEDS


@lru_cache(maxsize=8)
def read_earlier(results: Path) -> list[Earlier]:
    """Return the finished runs below a folder that were alone on their device; read once in a process."""
    return list(_read_earlier(results))


def _read_earlier(results: Path) -> Iterator[Earlier]:
    for path in sorted(results.rglob("summary.json")):
        try:
            summary, config = read_summary(path.parent), load_config(path.parent)
            times = summary["device"], float(summary["wall_s"]), float(summary["compile_s"])
        except (ConfigError, KeyError, TypeError):  # damaged, or of another version: it is no help here
            continue
        if summary.get("status") in ENDED and not summary.get("shared_device"):
            yield Earlier(path.parent.relative_to(results).as_posix(), config, *times)


def describe_plan(jobs: Sequence[Job], results: Path, lanes: int = 1, alone: Collection[str] = ()) -> Iterator[str]:
    """Yield a line for each job with its expected minutes, then the total. Jobs of the experiments `alone` are timed,
    so they have no neighbours."""
    width = max((len(str(job.where)) for job in jobs), default=0)
    shared: list[float] = []
    timed: list[float] = []
    unknown = elsewhere = 0
    for job in jobs:
        name = f"{job.where!s:{width}}  {len(job.seeds):3} seeds"
        if is_finished(job.config(), results / job.where):
            yield f"{name}   finished"
            continue
        found = estimate(job, results)
        if found is None:
            unknown += 1
            yield f"{name}    unknown   no earlier run of {job.algo}"
            continue
        elsewhere += not found.is_here
        (timed if job.experiment in alone else shared).append(found.seconds)
        yield f"{name} {found.seconds / 60:6.1f} min  {found.describe(job.task)}"
    todo = len(shared) + len(timed) + unknown
    yield f"{len(jobs)} runs: {len(jobs) - todo} finished, {todo} to run"
    if shared or timed:
        yield f"about {show_time(math.fsum(shared + timed))} one after another, on {find_device()}"
    if (shared or timed) and lanes > 1:
        whole = show_time(schedule(shared, lanes) + math.fsum(timed))
        yield f"about {whole} with --jobs {lanes}, if runs side by side are as fast as alone"
    if elsewhere:
        yield f"{elsewhere} estimates are from another device, and may be wrong by a factor of ten"
    if unknown:
        yield f"{unknown} runs are unknown, and not part of the total"


def schedule(seconds: Sequence[float], lanes: int) -> float:
    """Return when the last job ends if the longest begin first, each in the lane that is free first."""
    ends = [0.0] * lanes
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)
