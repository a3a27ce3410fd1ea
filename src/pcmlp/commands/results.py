"""`pcmlp paper`, `report` and `watch`: experiments and the pages about them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from pcmlp.commands.base import INTERRUPTED, prepare_device, use_cpu_only


@dataclass(frozen=True)
class Paper:
    """Make figures and tables of the paper: their runs, their tables, and the page of all results."""

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME|all")]
    """Experiments of `pcmlp list`, or all of them."""
    scale: Annotated[str, arg(metavar="smoke|quick|full")] = "full"
    """full: as reported, for a GPU. quick: minutes on two cores. smoke: whether all of it runs."""
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
    """In place of their own."""

    def run(self, command: str) -> int:
        """Run what is not finished, make the tables and the page."""
        if self.engine == "ray":  # a GPU is for the processes of the cluster
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        prepare_device(tiny=self.scale == "smoke")
        from pcmlp.experiments.paper import paper
        from pcmlp.settings import parse_int

        try:
            page = paper(
                self.names,
                scale=self.scale,
                engine=self.engine,
                address=self.address,
                results=self.results,
                runs=self.runs,
                only=self.only,
                seeds=None if self.seeds is None else [parse_int("seeds", seed) for seed in self.seeds],
            )
        except KeyboardInterrupt:
            print("stopped; the same command goes on with it, and does nothing twice")
            return INTERRUPTED
        print(page)
        return 0


@dataclass(frozen=True)
class Report:
    """Make one page about one run or several: report.html."""

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN_OR_FOLDER")]
    """Run folders, or folders of them."""
    figures: FlagCreatePairsOff[bool] = False
    """Write figures and tables for papers as well, into figures beside the page."""

    def run(self, command: str) -> int:
        """Write the page, and the figures if asked."""
        use_cpu_only()
        from pcmlp.report.page import report

        page = report(list(self.paths))
        print(page)
        if self.figures:
            from pcmlp.report.figures import write_figures
            from pcmlp.report.reading import read_runs

            made = write_figures(read_runs(list(self.paths)), page.parent / "figures")
            print(f"{page.parent / 'figures'}: {len(made)} files")
        return 0


@dataclass(frozen=True)
class Watch:
    """Serve the same page while runs go on, on this machine alone."""

    folder: Annotated[Positional[Path], arg(metavar="RUN_OR_FOLDER")]
    """A run folder, or a folder that runs are in or will be in."""
    port: Annotated[str, arg(metavar="INT")] = "8642"
    """Of 127.0.0.1; 0 is any that is free."""

    def run(self, command: str) -> int:
        """Serve the page until Ctrl-C."""
        use_cpu_only()
        from pcmlp.report.watch import watch
        from pcmlp.settings import parse_int

        watch(self.folder, parse_int("port", self.port))
        return 0
