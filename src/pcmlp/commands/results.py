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
    """full: as reported, for a GPU. quick: minutes on two cores. smoke: only checks that everything runs."""
    engine: Annotated[str, arg(metavar="local|ray")] = "local"
    """local: one run after another in this process. ray: on the machines of a Ray cluster."""
    address: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """The address of the Ray cluster; if not given, a cluster on this machine is started."""
    results: Annotated[Path | None, arg(metavar="DIR")] = None
    """The folder for the kept files, the tables and the page; results, or results-SCALE, if not given."""
    runs: Annotated[Path | None, arg(metavar="DIR")] = None
    """The folder for the runs; runs/experiments, or runs/experiments-SCALE, if not given."""
    only: Annotated[tuple[str, ...], arg(metavar="TASK/LABEL [TASK/LABEL ...]")] = ()
    """Only these runs of the experiments."""
    seeds: Annotated[tuple[str, ...] | None, arg(metavar="INT [INT ...]")] = None
    """Seeds to use instead of those of the experiments."""

    def run(self, command: str) -> int:
        """Run what is not finished, then make the tables and the page."""
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
            print("stopped; the same command continues, and repeats no finished run")
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
    """Serve the same page while runs are in progress, on this machine only."""

    folder: Annotated[Positional[Path], arg(metavar="RUN_OR_FOLDER")]
    """A run folder, or a folder that contains runs or will contain them."""
    port: Annotated[str, arg(metavar="INT")] = "8642"
    """The port on 127.0.0.1; 0: any free port."""

    def run(self, command: str) -> int:
        """Serve the page until Ctrl-C."""
        use_cpu_only()
        from pcmlp.report.watch import watch
        from pcmlp.settings import parse_int

        watch(self.folder, parse_int("port", self.port))
        return 0
