"""`pcmlp paper`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pcmlp.commands import INTERRUPTED, Switch, prepare_jax, unset
from pcmlp.signals import finish_iterations


@dataclass(frozen=True)
class Paper:
    """Make figures and tables of the paper: their runs, their tables, and the page of all results.

    For example:
      pcmlp paper sparse --scale quick
      pcmlp paper all --scale smoke
      pcmlp paper all --plan
    """

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME|all")]
    """Experiments of `pcmlp list`, or all of them."""
    scale: Annotated[str, arg(metavar="smoke|quick|full")] = "full"
    """full: as reported, for a GPU. quick: minutes on two cores. smoke: only checks that everything runs."""
    engine: Annotated[str, arg(metavar="local|ray")] = "local"
    """local: on this machine. ray: on the machines of a Ray cluster."""
    jobs: Annotated[str | None, unset("INT", "from the memory of the device and the cores")] = None
    """Processes at a time, on this machine or on each GPU of the Ray cluster; timed runs are alone."""
    address: Annotated[str | None, unset("HOST:PORT", "a cluster on this machine is started")] = None
    """The address of the Ray cluster."""
    results: Annotated[Path | None, unset("DIR", "results, or results-SCALE")] = None
    """The folder for the kept files, the tables and the page."""
    runs: Annotated[Path | None, unset("DIR", "runs/experiments, or runs/experiments-SCALE")] = None
    """The folder for the runs."""
    only: Annotated[tuple[str, ...], unset("TASK/LABEL [TASK/LABEL ...]", "all")] = ()
    """Only these runs of the experiments."""
    seeds: Annotated[tuple[str, ...] | None, unset("INT [INT ...]", "those of the experiments")] = None
    """Other seeds."""
    plan: Switch = False
    """Only print the runs and how long they are expected to take."""
    protocol: Switch = False
    """Only write the settings and seeds of all runs, which are fixed from then on, into protocol.json."""

    def run(self, command: str) -> int:
        """Run what is not finished, then make the tables and the page."""
        if self.engine == "ray" or self.plan or self.protocol:  # a GPU is for other processes
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if self.engine == "ray":
            finish_iterations()
        prepare_jax("paper", tiny=self.scale == "smoke")
        from pcmlp.errors import ConfigError
        from pcmlp.experiments.paper import paper, print_plan, write_protocols
        from pcmlp.settings import parse_int

        seeds = None if self.seeds is None else [parse_int("seeds", seed) for seed in self.seeds]
        jobs = None if self.jobs is None else parse_int("jobs", self.jobs)
        if self.protocol:
            if self.only or seeds is not None or self.plan:
                raise ConfigError("--protocol: takes all runs and seeds; leave out --only, --seeds and --plan")
            print(*write_protocols(self.names, scale=self.scale, results=self.results, runs=self.runs), sep="\n")
            return 0
        if self.plan:
            print_plan(self.names, scale=self.scale, jobs=jobs, results=self.results, only=self.only, seeds=seeds)
            return 0
        try:
            page = paper(
                self.names,
                scale=self.scale,
                engine=self.engine,
                jobs=jobs,
                address=self.address,
                results=self.results,
                runs=self.runs,
                only=self.only,
                seeds=seeds,
            )
        except KeyboardInterrupt:
            print("stopped; the same command continues, and repeats no finished run")
            return INTERRUPTED
        print(page)
        return 0
