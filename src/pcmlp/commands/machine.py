"""`pcmlp list`, `theory`, `bench` and `doctor`: names and settings, the theorems' parameters, and this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg, subcommand

from pcmlp.commands.base import prepare_device


@dataclass(frozen=True)
class List:
    """List tasks, algorithms, experiments and parts; with a name, the settings of that task, algorithm or part."""

    name: Annotated[Positional[str | None], arg(metavar="[NAME]")] = None
    """A task, gym:ID, an algorithm, a part such as planner.trpo, or FILE.py:NAME; all names if not given."""

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
class LinearMDP:
    """Linear MDPs with a finite class."""

    horizon: Annotated[str, arg(metavar="INT")] = "10"
    """H, steps of an episode."""
    dim: Annotated[str, arg(metavar="INT")] = "5"
    """d, features."""
    epsilon: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """How far from the optimum the best policy of the cover may be."""
    delta: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """The probability of failing."""
    members: Annotated[str, arg(metavar="INT")] = "1024"
    """|Upsilon|, members of the class."""


@dataclass(frozen=True)
class KNR:
    """Kernelized nonlinear regulators."""

    horizon: Annotated[str, arg(metavar="INT")] = "10"
    """H, steps of an episode."""
    dim: Annotated[str, arg(metavar="INT")] = "5"
    """d, features."""
    epsilon: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """How far from the optimum the best policy of the cover may be."""
    delta: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """The probability of failing."""
    radius: Annotated[str, arg(metavar="FLOAT")] = "1"
    """F, the bound on the norm of W."""
    sigma: Annotated[str, arg(metavar="FLOAT")] = "0.1"
    """The standard deviation of the noise."""
    state_dim: Annotated[str, arg(metavar="INT")] = "2"
    """d_s, coordinates of a state."""


@dataclass(frozen=True)
class Theory:
    """Compute the parameters N, M, K, c of the two theorems, as the paper states them and corrected."""

    setting: Annotated[LinearMDP, subcommand("linear-mdp")] | Annotated[KNR, subcommand("knr")]

    def run(self, command: str) -> int:
        """Print the parameters."""
        from pcmlp import theory
        from pcmlp.settings import parse_float, parse_int

        given = vars(self.setting)
        readers = {name: parse_int if name in _WHOLE else parse_float for name in given}
        numbers: dict[str, Any] = {name: readers[name](name, text) for name, text in given.items()}
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


_WHOLE = ("horizon", "dim", "members", "state_dim")


@dataclass(frozen=True)
class Bench:
    """Measure how fast this machine runs the parts of an iteration."""

    out: Annotated[Path | None, arg(metavar="FILE.json")] = None
    """The file for the numbers; if not given, they are only shown."""
    seeds: Annotated[tuple[str, ...], arg(metavar="INT [INT ...]")] = ()
    """Numbers of seeds to time a round with, in addition to one seed; depends on the device if not given."""
    solve: bool = True
    """Time whole runs of mountain-car as well."""
    host: Annotated[str, arg(metavar="TASK")] = ""
    """A task with a simulator, such as half-cheetah, to see where an iteration's time goes."""

    def run(self, command: str) -> int:
        """Measure, show, and write the numbers if asked."""
        prepare_device()
        from pcmlp import bench
        from pcmlp.errors import ConfigError
        from pcmlp.settings import parse_int

        seeds = tuple(parse_int("seeds", text) for text in self.seeds)
        if any(count < 2 for count in seeds):
            raise ConfigError(f"seeds={' '.join(self.seeds)}: one seed is timed anyway; give numbers of at least 2")
        return bench.main(self.out, bench.Sizes(seeds=seeds or None, solve=self.solve, host=self.host))


@dataclass(frozen=True)
class Doctor:
    """Check whether this machine can run pcmlp, and say what is missing."""

    def run(self, command: str) -> int:
        """Run the checks."""
        from pcmlp import doctor

        return doctor.main()
