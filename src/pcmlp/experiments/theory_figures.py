"""The pictures of docs/theory.md, docs/framework.md and docs/rivals/lc3-oracle.md, drawn from the tables of `theory`.

Axes on which a power law is a straight line are logarithmic. Runs differ by markers as well as by colours.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pcmlp.experiments.chain_figures import Picture, column, finish, line, plain_numbers, where
from pcmlp.experiments.kernels import DIM, DIMS, WIDTH, WIDTHS, name_kernel
from pcmlp.experiments.verdict import Kept, Table
from pcmlp.report.curves import new_figure

_SOLID, _DASHED = "-", "--"
_FACTORS = {"H": "horizon H", "d": "features d", "1/epsilon": "1/ε", "d_s": "state dimension", "1/sigma": "1/σ"}
_BY = {"success": "success", "gap": "gap ≤ ε", "certificate": "certificate ≤ ε", "share": "90 % of planning"}
_CONTROLS = {"no-bonus": "no bonus", "covariance-off": "covariance=off", "random": "random play"}
_ORACLES = {
    "pcmlp": "PC-MLP: a bonus, ordinary oracle",
    "optimistic": "LC3: optimistic oracle",
    "thompson": "Thompson sampling",
    "no-bonus": "no bonus",
}


class Sweep(NamedTuple):
    """A sweep: its row of `growth`, and its runs of the method and of each control."""

    degree: dict[str, str]
    own: Table
    controls: dict[str, Table]


def draw_growth(kept: Kept) -> Figure:
    """Draw the median steps to a near-optimal policy against what is changed, a panel for each sweep."""
    sweeps = [sweep for sweep in read_sweeps(kept) if np.isfinite(column(sweep.own, "median_steps")).any()]
    rows = -(-len(sweeps) // 2)
    figure = new_figure(1.2 + 2.1 * rows)
    panels = list(figure.subplots(rows, 2, squeeze=False).ravel())
    for axes, sweep in zip(panels, sweeps, strict=False):
        draw_sweep(axes, sweep)
    for axes in panels[len(sweeps) :]:
        axes.remove()
    about = "medians of the seeds; a control has no point where most seeds did not get there"
    return finish(panels[: len(sweeps)], "Steps to a near-optimal policy", about, ncols=2)


def read_sweeps(kept: Kept) -> list[Sweep]:
    """Return the sweeps that have runs."""
    steps, sweeps = kept.table("theory/growth_steps.csv"), []
    for degree in kept.table("theory/growth.csv"):
        rows = where(steps, {name: degree[name] for name in ("factor", "task", "near_optimal")})
        controls = {name: [row for row in rows if is_control(row, end)] for end, name in _CONTROLS.items()}
        beside = [row for some in controls.values() for row in some]
        sweeps.append(Sweep(degree, [row for row in rows if row not in beside], controls))
    return sweeps


def is_control(row: Mapping[str, str], end: str) -> bool:
    """Return whether a run is the control with this label, alone or behind that of the run that it controls."""
    return row["run"].endswith((f"-{end}", f"/{end}"))


def draw_sweep(axes: Axes, sweep: Sweep) -> None:
    """Draw a sweep and its controls."""
    degree, x = sweep.degree, column(sweep.own, "x")
    line(axes, x, column(sweep.own, "median_steps"), _SOLID, 0, "PC-MLP")
    for i, (name, some) in enumerate(sweep.controls.items(), 1):
        line(axes, column(some, "x"), column(some, "median_steps"), _DASHED, i, name)
    if degree["factor"] == "H":
        uniform = column(sweep.own, "steps_of_uniform_play")
        axes.plot(x, uniform, ":", color="black", label="uniform play, expected")
        axes.set_ylim(50, 1e6)  # uniform play would need 10^29 steps
    axes.set(yscale="log", xlabel=_FACTORS[degree["factor"]], ylabel="env steps")
    plain_numbers(axes)
    mark_values(axes, x)
    slope = f"slope {degree['degree'] or '–'} [{degree['low'] or '–'}, {degree['high'] or '–'}]"
    axes.set_title(f"{degree['task']}, {_BY[degree['near_optimal']]}\n{slope}", fontsize=8)


def mark_values(axes: Axes, x: np.ndarray) -> None:
    """Make the axis logarithmic, and write the values that were run below it."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(x, [f"{value:g}" for value in x])


def draw_oracle(kept: Kept) -> Figure:
    """Draw the samples that each method needs, and what both oracles cost and find, against the parameters of W."""
    samples, searches = kept.table("theory/oracle_samples.csv"), kept.table("theory/oracle_search.csv")
    figure = new_figure(6.2)
    needed, seconds, shares = panels = list(figure.subplots(3, 1, sharex=True))
    several = 4 if "share_of_4" in searches[0] else 1  # a small scale has single searches only
    for i, (method, name) in enumerate(_ORACLES.items()):
        rows = where(samples, {"method": method})
        line(needed, column(rows, "parameters"), column(rows, "median_steps"), _SOLID, i, name)
    for i, oracle in enumerate(("ordinary", "optimistic")):
        rows = where(searches, {"oracle": oracle})
        x = column(rows, "parameters")
        line(seconds, x, column(rows, "times_the_ordinary"), _SOLID, i, oracle)
        line(shares, x, column(rows, f"share_of_{several}"), _SOLID, i, oracle)
    needed.set(ylabel="env steps until\n90 % of planning\nin the truth", ylim=(0, None))
    seconds.set(ylabel="seconds of a search\n/ of an ordinary one", ylim=(0, None))
    shares.set(ylabel=f"best of {several} searches\n/ best known value", ylim=(0, 1.05))
    shares.set_xlabel("parameters of W")
    mark_values(shares, np.unique(column(searches, "parameters")))
    return finish(panels, "Two oracles on carts in 1 to 4 dimensions", "samples: medians of the seeds", ncols=2)


def draw_classes(kept: Kept) -> Figure:
    """Draw the errors of the kernel classes against the number of features and the bandwidth."""
    rows = {row["class"]: row for row in kept.table("theory/kernel_classes.csv")}
    figure = new_figure(4.4)
    panels = list(figure.subplots(1, 2, sharey=True))
    sweeps = {
        "random Fourier features D": {float(dim): name_kernel(dim, WIDTH) for dim in DIMS},
        f"bandwidth, D = {DIM}": {width: name_kernel(DIM, width) for width in WIDTHS},
    }
    for axes, (name, classes) in zip(panels, sweeps.items(), strict=True):
        draw_errors(axes, np.array(list(classes)), [rows[label] for label in classes.values()])
        axes.set(yscale="log", xlabel=name)
        mark_values(axes, np.array(list(classes)))
    panels[0].set_ylabel("error in σ; bonus: relative")
    return finish(panels, "Which kernel class learns the pendulum", "the same data for every class", ncols=1)


def draw_errors(axes: Axes, x: np.ndarray, rows: Table) -> None:
    """Draw the errors of some classes."""
    line(axes, x, column(rows, "nearest_error"), _SOLID, 0, "the member nearest to the truth, over the box")
    line(axes, x, column(rows, "held_out_error"), _SOLID, 1, "the fitted member, on states that are visited next")
    line(axes, x, column(rows, "bonus_error"), _DASHED, 2, "the bonus, against that of the exact kernel")


def draw_kernel_gain(kept: Kept) -> Figure:
    """Draw the information gain of the RBF kernel and of its random features against the number of samples."""
    rows = kept.table("theory/kernel_growth.csv")
    figure = new_figure(4.0)
    panels = list(figure.subplots(1, 2))
    for axes, pairs in zip(panels, ("policies", "uniform"), strict=True):
        some = where(rows, {"pairs": pairs})
        x = column(some, "samples")
        line(axes, x, column(some, "kernel"), _SOLID, 0, "exact kernel")
        for i, name in enumerate(name for name in some[0] if name.startswith("features_")):
            line(axes, x, column(some, name), _DASHED, i + 1, f"{name.removeprefix('features_')} random features")
        axes.set(yscale="log", xlabel="samples")
        plain_numbers(axes)
        mark_values(axes, x if pairs == "uniform" else x[[0, 2, 5, -1]])
        axes.set_title({"policies": "samples of policies", "uniform": "uniform samples of the box"}[pairs], fontsize=9)
    panels[0].set_ylabel("information gain (nats)")
    return finish(panels, "The information gain of a kernel", "knr-pendulum", ncols=2)


THEORY_PICTURES = (
    Picture("theory-growth", ("theory/growth_steps.csv", "theory/growth.csv"), draw_growth),
    Picture("theory-oracle", ("theory/oracle_samples.csv", "theory/oracle_search.csv"), draw_oracle),
    Picture("theory-kernels", ("theory/kernel_classes.csv",), draw_classes),
    Picture("theory-kernel-gain", ("theory/kernel_growth.csv",), draw_kernel_gain),
)
