"""The commands that make no run: `pcmlp list`, `report`, `watch`, `theory`, `bench` and `doctor`."""

import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg, subcommand

from pcmlp.commands import Float, Int, Switch, prepare_device, show_waiting, unset
from pcmlp.signals import print_to_stderr


@dataclass(frozen=True)
class List:
    """List tasks, algorithms, experiments and parts; with a name, the settings of that task, algorithm or part.

    For example:
      pcmlp list
      pcmlp list pcmlp
    """

    name: Annotated[Positional[str | None], unset("[NAME]", "list all names")] = None
    """A task, gym:ID, an algorithm, a part such as planner.trpo, or FILE.py:NAME."""

    def run(self, command: str) -> int:
        """Print the names, or the settings of one."""
        from pcmlp import listing

        if self.name is None:
            print("\n".join(listing.name_lines()))
        else:
            console = Console(markup=False, emoji=False, highlight=False)
            for item in listing.settings_of_name(self.name):
                console.print(item)
        return 0


@dataclass(frozen=True)
class Report:
    """Make one page about one run or several: report.html.

    For example:
      pcmlp report runs/mountain-car-pcmlp
      pcmlp report runs --figures
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN_OR_FOLDER")]
    """Run folders, or folders of them."""
    out: Annotated[Path | None, unset("FILE_OR_DIR", "the folder that those given have in common")] = None
    """The page, if it ends in .html, or the folder for it."""
    figures: Switch = False
    """Write figures and tables for papers as well, into figures beside the page."""

    def run(self, command: str) -> int:
        """Write the page, and the figures if asked."""
        use_cpu_only()
        left_out: list[str] = []
        # In a pipe, only the page's path is printed.
        with show_waiting("reading the runs and drawing the page") if sys.stdout.isatty() else nullcontext():
            from pcmlp.report.page import report

            page = report(list(self.paths), self.out, say=left_out.append)
        for line in left_out:
            print_to_stderr(line)
        print(page)
        if self.figures:
            from pcmlp.report.figures import write_figures
            from pcmlp.report.reading import read_readable_runs

            made = write_figures(read_readable_runs(list(self.paths)).runs, page.parent / "figures")
            print(f"{page.parent / 'figures'}: {len(made)} files")
        return 0


@dataclass(frozen=True)
class Watch:
    """Serve the same page while runs are in progress, on this machine only.

    For example:
      pcmlp watch runs
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN_OR_FOLDER")]
    """A run folder, or a folder that contains runs or will contain them."""
    port: Int = "8642"
    """The port on 127.0.0.1; 0: any free port."""

    def run(self, command: str) -> int:
        """Serve the page until Ctrl-C."""
        use_cpu_only()
        from pcmlp.report.watch import watch
        from pcmlp.settings import parse_int

        watch(self.folder, parse_int("port", self.port))
        return 0


def use_cpu_only() -> None:
    """Keep JAX from using an accelerator, which a run may need."""
    os.environ["JAX_PLATFORMS"] = "cpu"


@dataclass(frozen=True)
class Numbers:
    """The numbers that both theorems take."""

    horizon: Int = "10"
    """H, steps of an episode."""
    dim: Int = "5"
    """d, features."""
    epsilon: Float = "0.1"
    """How far from the optimum the best policy of the cover may be."""
    delta: Float = "0.1"
    """The probability of failing."""


@dataclass(frozen=True)
class LinearMDP(Numbers):
    """Linear MDPs with a finite class.

    For example:
      pcmlp theory linear-mdp --horizon 10 --dim 5
    """

    members: Int = "1024"
    """|Upsilon|, members of the class."""


@dataclass(frozen=True)
class KNR(Numbers):
    """Kernelized nonlinear regulators.

    For example:
      pcmlp theory knr --horizon 10 --sigma 0.1
    """

    radius: Float = "1"
    """F, the bound on the norm of W."""
    sigma: Float = "0.1"
    """The standard deviation of the noise."""
    state_dim: Int = "2"
    """d_s, coordinates of a state."""


_WHOLE = ("horizon", "dim", "members", "state_dim")


@dataclass(frozen=True)
class Theory:
    """Compute the parameters N, M, K, c of the two theorems, as the paper states them and corrected.

    For example:
      pcmlp theory linear-mdp --horizon 10 --dim 5
      pcmlp theory knr --horizon 10 --sigma 0.1
    """

    setting: Annotated[LinearMDP, subcommand("linear-mdp")] | Annotated[KNR, subcommand("knr")]

    def run(self, command: str) -> int:
        """Print the parameters."""
        from pcmlp import theory
        from pcmlp.settings import parse_float, parse_int

        given: dict[str, str] = vars(self.setting)
        numbers: dict[str, Any] = {
            name: (parse_int if name in _WHOLE else parse_float)(name, text) for name, text in given.items()
        }
        if isinstance(self.setting, LinearMDP):
            title, rows = "linear MDP", theory.linear_mdp_table(**numbers)
        else:
            title, rows = "KNR", theory.knr_table(**numbers)
        shown = " ".join(f"{name}={text}" for name, text in given.items())
        table = Table("symbol", "stated", "corrected", "what it is", title=f"{title}, {shown}")
        for name, stated, corrected, meaning in rows:
            table.add_row(name, f"{stated:.4g}", f"{corrected:.4g}", meaning)
        Console().print(table)
        return 0


@dataclass(frozen=True)
class Bench:
    """Measure how fast this machine runs the parts of an iteration.

    For example:
      pcmlp bench --out bench.json
      pcmlp bench updates --jobs 4
    """

    parts: Annotated[Positional[tuple[str, ...]], unset("[PART ...]", "all")] = ()
    """What to measure: solved, updates, round, mppi, pets or robot."""
    out: Annotated[Path | None, unset("FILE.json", "the numbers are only shown")] = None
    """The file for the numbers, written after each part; parts that it already contains are not measured again."""
    seeds: Annotated[tuple[str, ...], unset("INT [INT ...]", "2 4 on a CPU, 4 16 64 elsewhere")] = ()
    """Numbers of seeds to time a round with, in addition to one seed."""
    jobs: Int = "1"
    """Also measure updates in this many processes at once."""

    def run(self, command: str) -> int:
        """Measure, show, and write the numbers if asked."""
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU is also for processes that are measured
        prepare_device("bench")
        from pcmlp import bench
        from pcmlp.errors import ConfigError
        from pcmlp.settings import parse_int

        seeds, jobs = tuple(parse_int("seeds", text) for text in self.seeds), parse_int("jobs", self.jobs)
        if any(count < 2 for count in seeds):
            raise ConfigError(f"seeds={' '.join(self.seeds)}: one seed is timed anyway; give numbers of at least 2")
        return bench.main(self.out, self.parts, bench.Sizes(seeds=seeds or None, jobs=jobs))


@dataclass(frozen=True)
class Doctor:
    """Check whether this machine can run pcmlp, and say what is missing.

    For example:
      pcmlp doctor
      pcmlp doctor --train
    """

    train: Switch = False
    """Also train something tiny, resume it and evaluate it; this takes about half a minute."""

    def run(self, command: str) -> int:
        """Run the checks."""
        with show_waiting(f"checking this machine{', about half a minute' if self.train else ''}"):
            from pcmlp import doctor

            findings = doctor.examine(train=self.train)
        return doctor.show(findings)
