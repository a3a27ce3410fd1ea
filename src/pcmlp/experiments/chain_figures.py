"""The pictures of docs/proof.md, drawn from kept results: one for each inequality of the proof.

In every picture the left side of an inequality is a solid line and the right side a dashed one. The inequality holds
where the dashed line is above the solid one. Each run has its own markers, so that the pictures can be read without
colours.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import LogLocator, StrMethodFormatter

from pcmlp import theory
from pcmlp.experiments.chain import LOCK, LOW_RANK
from pcmlp.experiments.theorems import gaps
from pcmlp.experiments.verdict import Kept, Table
from pcmlp.report.curves import COLOURS, clean, integer_ticks, new_figure, set_title
from pcmlp.runs.metrics import read_metrics
from pcmlp.tasks import LowRank

LEFT, RIGHT = "-", "--"
_MARKERS = "os^Dv"
_SCALES = {"proved": "least proved c", "preset": "preset's c"}
_LOCK_PANELS = {
    "digits": "digits that\n$π_n$ enters",
    "bonus_paid": "bonus where\n$π_n$ goes",
    "info_gain": "information\ngain (nats)",
}
_LEARNED = 1e-6  # a smaller gap is drawn as this number on a logarithmic axis


class Picture(NamedTuple):
    """A picture: its file, the results that it needs, and the function that draws it."""

    name: str
    needs: tuple[str, ...]
    draw: Callable[[Kept], Figure]


def column(rows: Sequence[Mapping[str, str]], name: str) -> np.ndarray:
    """Return a column of a table, NaN where a cell is empty."""
    return np.array([float(row[name] or "nan") for row in rows])


def where(rows: Table, cells: Mapping[str, str | theory.Real]) -> Table:
    """Return the rows with these cells; numbers are compared as numbers."""

    def has(row: Mapping[str, str], name: str, wanted: str | theory.Real) -> bool:
        return row[name] == wanted if isinstance(wanted, str) else float(row[name]) == wanted

    return [row for row in rows if all(has(row, name, wanted) for name, wanted in cells.items())]


def line(axes: Axes, x: np.ndarray, y: np.ndarray, side: str, which: int, label: str) -> None:
    """Draw a side of an inequality; `which` is the number of the run."""
    every = max(1, len(x) // 8)
    width, places = (1.8 if side == LEFT else 1.4), (which % every, every)  # markers of equal lines alternate
    axes.plot(
        x, y, side, color=COLOURS[which], linewidth=width, marker=_MARKERS[which], ms=4, markevery=places, label=label
    )


def finish(panels: Sequence[Axes], title: str, subtitle: str, *, ncols: int = 1) -> Figure:
    """Tidy the panels, add the legend of the first one that has any below them, and write the title."""
    figure = panels[0].figure
    assert isinstance(figure, Figure)
    for axes in panels:
        clean(axes)
    lines, labels = next(found for axes in panels if (found := axes.get_legend_handles_labels())[0])
    figure.legend(lines, labels, loc="outside lower left", frameon=False, fontsize=8, ncols=ncols)
    set_title(figure, title, subtitle)
    return figure


def two_panels(height: float = 4.6, *, sharex: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with two panels, one below the other."""
    figure = new_figure(height)
    return figure, list(figure.subplots(2, 1, sharex=sharex))


def plain_numbers(axes: Axes) -> None:
    """Write the ticks of a logarithmic axis with a small range as plain numbers."""
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 4)))
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(StrMethodFormatter("{x:g}"))
    axes.tick_params(which="minor", labelsize=8)


def draw_lock(kept: Kept) -> Figure:
    """Draw the running example: the bonus of each digit after some iterations, and what each policy does."""
    bonuses, run = kept.table("theory/chain_lock_bonus.csv"), kept.table("theory/chain_lock.csv")
    shown = sorted({int(row["iteration"]) for row in bonuses})
    figure = new_figure(6.2)
    halves = figure.add_gridspec(2, 1, height_ratios=[1, 1.6])
    above, below = figure.add_subfigure(halves[0]), figure.add_subfigure(halves[1])
    grids = above.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, n in zip(grids, shown, strict=True):
        image = draw_grid(axes, where(bonuses, {"iteration": n}), column(bonuses, "bonus").max())
        axes.set_title(f"after n = {n}", fontsize=9)
    grids[0].set_ylabel("action", fontsize=9)
    above.colorbar(image, ax=grids, shrink=0.8).ax.tick_params(labelsize=8)
    panels = below.subplots(3, 1, sharex=True)
    for axes, (name, label) in zip(panels, _LOCK_PANELS.items(), strict=True):
        axes.plot(column(run, "iteration"), column(run, name), "o-", color=COLOURS[0], markersize=3, linewidth=1.2)
        axes.set(ylabel=label, ylim=(0, None))
        axes.yaxis.set_major_locator(integer_ticks())
        clean(axes)
    panels[-1].set_xlabel("iteration n")
    set_title(figure, "The lock: the bonus falls where the cover has been", "dark: high bonus; dots: the code")
    return figure


def draw_grid(axes: Axes, rows: Table, largest: float) -> AxesImage:
    """Draw the bonus of every action at every digit, with a dot at the right action."""
    digits, actions = (column(rows, name).astype(int) for name in ("digit", "action"))
    grid = np.zeros((actions.max() + 1, digits.max()))
    grid[actions, digits - 1] = column(rows, "bonus")
    image = axes.imshow(grid, cmap="Greys", vmin=0, vmax=largest)
    right = column(rows, "right") == 1
    axes.scatter(digits[right] - 1, actions[right], marker="o", s=22, facecolors="white", edgecolors="black")
    axes.set_xticks(range(grid.shape[1]), [str(i + 1) for i in range(grid.shape[1])])
    axes.set_yticks(range(grid.shape[0]))
    axes.tick_params(labelsize=8)
    axes.set_xlabel("digit", fontsize=9)
    return image


def draw_model(kept: Kept) -> Figure:
    """Draw the error of the fitted model on the data of the cover, and its bound."""
    rows = kept.table("low_rank/likelihood_error.csv")
    figure = new_figure(3.8)
    axes, x = figure.subplots(), column(rows, "samples")
    line(axes, x, column(rows, "mean_error"), LEFT, 0, "left side: squared error of the model, mean of the fits")
    line(axes, x, column(rows, "largest_error"), LEFT, 1, "left side: the largest error of any fit")
    line(axes, x, column(rows, "bound"), RIGHT, 2, "right side as printed: 2 ln(|Υ|/δ)/M")
    line(axes, x, column(rows, "proved_bound"), RIGHT, 3, "right side that is proved: 8 ln(|Υ|/δ)/M")
    axes.set(xscale="log", yscale="log", xlabel="samples M from the cover", ylabel="E |P̂ − P*|₁² on the cover")
    fits = f"low-rank, {rows[0]['runs']} fits for each M, δ = {rows[0]['delta']}"
    return finish([axes], "Step 1: the model is right where the cover has been", fits)


def draw_optimism(kept: Kept) -> Figure:
    """Draw the smallest promise of a hundred runs, and the optimum that it must not be below."""
    figure, panels = two_panels(sharex=False)
    optima = {row["task"]: float(row["optimum"]) for row in kept.table("certificate/certificate.csv")}
    named = {**_SCALES, "covariance-off": "same bonus, covariance=off", "no-bonus": "no bonus"}
    for axes, task in zip(panels, (LOCK, LOW_RANK), strict=True):
        for i, (label, name) in enumerate(named.items()):
            promised = kept.run(f"certificate/{task}/{label}").curve("promised")
            later = promised.iteration > 0
            x, lowest = promised.iteration[later], promised.values[later].min(axis=1)
            line(axes, x, lowest, RIGHT, i, f"right side: {name}")
        axes.axhline(optima[task], color="black", linewidth=1.8, label="left side: the optimum J*")
        axes.set_yscale("symlog", linthresh=1)
        axes.set(ylim=(-0.1, None), ylabel=f"{task}\nlowest promise")
        axes.xaxis.set_major_locator(integer_ticks())
    panels[-1].set_xlabel("iteration n")
    return finish(panels, "Step 2: a promise should not be below J*", "the lowest promise of 100 seeds", ncols=2)


def draw_covariance(kept: Kept) -> Figure:
    """Draw the range of b-hat / b for growing K, between 1 and 4."""
    rows = kept.table("theory/chain_covariance.csv")
    figure, panels = two_panels(sharex=True)
    for axes, ridge in zip(panels, (1.0, 0.01), strict=True):
        some = where(rows, {"ridge": ridge})
        x = column(some, "samples")
        line(axes, x, column(some, "highest"), LEFT, 0, "largest b̂/b of all repeats")
        line(axes, x, column(some, "lowest"), LEFT, 1, "smallest b̂/b of all repeats")
        for bound, name in ((1, "_not in the legend"), (4, "bounds 1 and 4")):
            axes.axhline(bound, linestyle=RIGHT, color="black", linewidth=1.4, label=name)
        axes.axhline(2, linestyle=":", color="black", linewidth=1, label="2: the limit for K → ∞")
        if (needed := float(some[0]["samples_of_the_lemma"])) <= x.max():
            axes.axvline(needed, linestyle="-.", color="black", linewidth=1, label="the lemma's K")
        axes.set(xscale="log", yscale="log", ylabel=f"b̂/b, λ = {ridge:g}")
        plain_numbers(axes)
    panels[-1].set_xlabel("samples K of each policy")
    about = f"low-rank, {rows[0]['policies']} policies, all pairs, {rows[0]['repeats']} repeats"
    return finish(panels, "Step 3: with many samples, b̂ lies between b and 4b", about, ncols=2)


def draw_regret(kept: Kept) -> Figure:
    """Draw both sides of the regret lemma."""
    rows = kept.table("theory/chain_regret.csv")
    figure, panels = two_panels(5.2)
    named = {**_SCALES, "no-bonus": "no bonus"}
    for axes, task in zip(panels, (LOCK, LOW_RANK), strict=True):
        for i, (label, name) in enumerate(named.items()):
            some = where(rows, {"task": task, "run": label})
            x = column(some, "iterations")
            line(axes, x, column(some, "regret_most"), LEFT, i, f"left side, {name}")
            line(axes, x, column(some, "bound_least"), RIGHT, i, f"right side, {name}")
        axes.set(xscale="log", yscale="log", ylabel=f"{task}\nsum of N gaps")
    panels[-1].set_xlabel("iterations N")
    about = f"most regret and smallest bound of {rows[0]['seeds']} seeds"
    return finish(panels, "Step 4: the regret is below the sum of bonuses", about, ncols=3)


def draw_bonus_sum(kept: Kept) -> Figure:
    """Draw the sum of bonuses, its bound as printed, and the repaired one, for a large and a small ridge."""
    rows = kept.table("theory/chain_bonus_sum.csv")
    ridges = sorted({float(row["ridge"]) for row in rows}, reverse=True)
    figure, panels = two_panels(5.0, sharex=True)
    for axes, ridge in zip(panels, (ridges[0], ridges[-1]), strict=True):
        some = where(rows, {"ridge": ridge})
        x = column(some, "iterations")
        line(axes, x[1:], column(some, "sum_most")[1:], LEFT, 0, "left side: sum of N − 1 expected bonuses")
        line(axes, x, column(some, "printed"), RIGHT, 1, "right side as printed, with c")
        line(axes, x, column(some, "repaired"), RIGHT, 2, "right side repaired, with κ for 2")
        axes.set(xscale="log", yscale="log", ylabel=f"λ = {ridge:g}\nc = {float(some[0]['bonus_scale']):.3g}")
    panels[-1].set_xlabel("iterations N")
    about = "combination-lock, least proved c, largest sum of 10 seeds"
    return finish(panels, "Step 5: bonuses cannot stay large for long", about)


def draw_gap(kept: Kept) -> Figure:
    """Draw what the theorem promises after N iterations, beside what runs reach."""
    rows = kept.table("theory/chain_regret.csv")
    figure = new_figure(4.0)
    axes = figure.subplots()
    for i, (label, name) in enumerate(_SCALES.items()):
        some = where(rows, {"task": LOW_RANK, "run": label})
        gap = np.maximum(column(some, "best_gap_most"), _LEARNED)
        line(axes, column(some, "iterations"), gap, LEFT, i, f"left side: gap of the best policy, {name}")
    many = np.geomspace(1, 1e15, 60)
    bound = np.array([theory.linear_mdp_gap(int(n), LowRank.horizon, LowRank.rank) for n in many])
    line(axes, many, bound, RIGHT, 2, "right side: gap(N) at the theorem's c")
    axes.axhline(LowRank.horizon, linestyle=":", color="black", label="H: above it, a bound says nothing")
    axes.set(xscale="log", yscale="log", xlabel="iterations N", ylabel="gap to the optimum J*")
    about = f"low-rank, the worst of {rows[0]['seeds']} seeds; H = {LowRank.horizon}, d = {LowRank.rank}"
    return finish([axes], "Step 6: what is proved, and what happens", about)


def draw_certificate(kept: Kept) -> Figure:
    """Draw the certificate that a run prints, and the true gap, which it must not be below."""
    figure, panels = two_panels(5.0)
    optima = {row["task"]: float(row["optimum"]) for row in kept.table("certificate/certificate.csv")}
    for axes, task in zip(panels, (LOCK, LOW_RANK), strict=True):
        for i, (label, name) in enumerate(_SCALES.items()):
            place = f"certificate/{task}/{label}"
            gap = gaps(read_metrics(kept.results / place), len(kept.run(place).seeds), optima[task])
            n = 1 + np.arange(len(gap.true))
            true = np.maximum(np.median(gap.true, axis=1), 0)
            line(axes, n, true, LEFT, i, f"left side: true gap, {name}")
            line(axes, n, np.median(gap.certificate, axis=1), RIGHT, i, f"right side: certificate, {name}")
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set(ylim=(-0.01, None), ylabel=f"{task}\nstill to gain")
        axes.xaxis.set_major_locator(integer_ticks())
    panels[-1].set_xlabel("iteration n")
    return finish(panels, "Step 7: the certificate is above what could be gained", "medians of 100 seeds", ncols=2)


_PROMISES = ("proved", "preset", "no-bonus", "covariance-off")
_CERTIFICATES = tuple(f"certificate/{task}/{label}" for task in (LOCK, LOW_RANK) for label in _PROMISES)
_ALL_CERTIFICATES = ("certificate/certificate.csv", *_CERTIFICATES)
PICTURES = (
    Picture("proof-lock", ("theory/chain_lock.csv", "theory/chain_lock_bonus.csv"), draw_lock),
    Picture("proof-1-model", ("low_rank/likelihood_error.csv",), draw_model),
    Picture("proof-2-optimism", _ALL_CERTIFICATES, draw_optimism),
    Picture("proof-3-covariance", ("theory/chain_covariance.csv",), draw_covariance),
    Picture("proof-4-regret", ("theory/chain_regret.csv",), draw_regret),
    Picture("proof-5-bonus-sum", ("theory/chain_bonus_sum.csv",), draw_bonus_sum),
    Picture("proof-6-gap", ("theory/chain_regret.csv",), draw_gap),
    Picture("proof-7-certificate", _ALL_CERTIFICATES, draw_certificate),
)


def draw_pictures(pictures: Sequence[Picture], kept: Kept, folder: Path) -> list[Path]:
    """Write the pictures whose results are kept, and return their paths; an old picture without results is removed."""
    drawn: list[Path] = []
    for picture in pictures:
        file = folder / f"{picture.name}.png"
        file.unlink(missing_ok=True)
        if all(kept.has(place) for place in picture.needs):
            picture.draw(kept).savefig(file, pil_kwargs={"optimize": True})
            drawn.append(file)
    return drawn
