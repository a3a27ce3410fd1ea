"""Pictures of the columns of `metrics.csv`, by env steps or iteration; and the look of all pictures and lines."""

import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

from pcmlp.report.reading import Curve, Run
from pcmlp.report.statistics import mean_interval
from pcmlp.report.words import certificate_kind, count_of, describe_run, format_number

# Okabe and Ito's colours, which most colour-blind readers can tell apart; dashes tell lines apart where they overlap.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", ":", "-.")
FAR_APART = 10  # if budgets differ by this ratio, the shorter run would be a line at the left edge
_GREY = "#555555"
_WIDTH = 5.6  # inches: 9-point letters stay readable when a phone shows the picture
_LETTERS_PER_INCH = 10.5  # of a title
_NAMED = 3  # most runs that fit into a title
_FLAT = 0.1  # smaller differences of returns are drawn as a flat line: the cost of acting is not progress
_PANELS = {
    "eval_return_mean": "return\n(task reward per episode)",
    "eval_success": "success\n(share of episodes)",
    "coverage": "coverage\n(share of the map;\ndark: 95 % interval)",
    "info_gain": "information gain of\nthe cover (nats)",
}


def plot_curves(runs: dict[str, Run], columns: Sequence[str] = tuple(_PANELS)) -> Figure:
    """Draw runs of one task, by label: return, success, and coverage or, without a map, information gain; or only some
    of these `columns`.

    A single run is drawn with each seed, and with its exploring policy if that is not the deployed one.
    """
    shown = [name for name in columns if any(run.shows(name) for run in runs.values())] or ["eval_return_mean"]
    shown = [name for name in shown if not (name == "info_gain" and "coverage" in shown)]
    figure, panels = _add_panels(len(shown))
    for axes, name in zip(panels, shown, strict=True):
        for i, (label, run) in enumerate(runs.items()):
            curve, exploring = run.curve(name), run.curve(f"explore_{name.removeprefix('eval_')}")
            if name == "coverage" and curve:
                _draw_interval(axes, curve, line_style(i)[0])
            if run.shows(name) and len(runs) > 1:
                _draw_line(axes, curve.env_steps, curve, *line_style(i), label)
            elif run.shows(name):
                _draw_line(axes, exploring.env_steps, exploring, COLOURS[5], "--", "exploring policy, mean and range")
                who = run.evaluated_policy if name.startswith("eval_") else "all policies"
                _draw_seeds(axes, curve.env_steps, curve, COLOURS[0], f"{who}, mean")
        axes.set_ylabel(_PANELS[name])
        low, high = axes.get_ylim()
        if name in ("eval_success", "coverage"):
            axes.set_ylim(-0.05, 1.05)
        elif name == "eval_return_mean" and high - low < _FLAT:
            axes.set_ylim((low + high - _FLAT) / 2, (low + high + _FLAT) / 2)
    _finish_by_env_steps(panels, [run.env_steps for run in runs.values()])
    _add_legend(figure, panels[0], below=len(runs) > 1)
    set_title(figure, _title_curves(runs), _describe_runs(runs))
    return figure


def plot_bonus(runs: dict[str, Run]) -> Figure | None:
    """Draw the mean bonus at the states that each policy visited, by label of the run; None if no bonus was paid."""
    bonuses = {label: run.curve("bonus_mean") for label, run in runs.items()}
    paid = {label: bonus for label, bonus in bonuses.items() if bonus and bonus.values.max() > 0}
    if not paid:
        return None
    figure, (axes,) = _add_panels(1)
    title = "The bonus paid at each real step"
    for i, (label, bonus) in enumerate(bonuses.items()):  # numbered as in `plot_curves`, so a run keeps its colour
        if len(runs) == 1:
            _draw_seeds(axes, bonus.iteration, bonus, COLOURS[1], "mean")
            title = f"Bonus per step: {_describe_fall(bonus)} at iteration {bonus.iteration[-1]:.0f}"
        elif label in paid:
            _draw_line(axes, bonus.iteration, bonus, *line_style(i), f"{label}: {_describe_fall(bonus)}")
    values = np.concatenate([bonus.values[bonus.values > 0] for bonus in paid.values()])
    axes.set(yscale="log", ylim=(values.min() / 1.3, values.max() * 1.3))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(StrMethodFormatter("{x:g}"))
    axes.tick_params(which="minor", colors=_GREY, labelsize=8)
    clean(axes)
    axes.set(xlabel="iteration", ylabel="bonus paid\n(mean per real step)")
    axes.xaxis.set_major_locator(integer_ticks())
    _add_legend(figure, axes, below=len(runs) > 1)
    unpaid = len(runs) - len(paid)
    set_title(figure, title + (f" ({count_of(unpaid, 'run')} without any)" if unpaid else ""), _describe_runs(runs))
    return figure


def plot_certificate(run: Run) -> Figure | None:
    """Draw the promised and the measured return; the gap is the most that can still be gained.

    None if nothing was promised.
    """
    promised, gap = run.curve("promised"), run.curve("certificate")
    if not gap:
        return None
    figure, (axes,) = _add_panels(1)
    evaluated = promised.values[np.isin(promised.iteration, gap.iteration)]  # only evaluated iterations have a gap
    measured = Curve(gap.iteration, gap.env_steps, evaluated - gap.values)
    _draw_line(axes, promised.env_steps, promised, COLOURS[1], "--", "promised, bonus included")
    _draw_line(axes, measured.env_steps, measured, COLOURS[0], "-", f"{run.evaluated_policy}, measured")
    high = evaluated.mean(axis=1)
    axes.fill_between(gap.env_steps, measured.mean, high, hatch="//", alpha=0.1, linewidth=0, color="grey")
    axes.set_ylabel("return\n(mean and range of seeds)")
    _finish_by_env_steps([axes])
    _add_legend(figure, axes)
    gaps = f"{format_number(gap.mean[0])} at first, {format_number(gap.mean[-1])} at last"
    set_title(figure, f"Certificate, {certificate_kind(run)}: {gaps}", describe_run(run))
    return figure


def _add_panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = new_figure({1: 3.6, 2: 4.8}.get(count, 6.2))
    ratios = [3, 2, 2][:count]
    return figure, list(figure.subplots(count, 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0])


def _draw_seeds(axes: Axes, x: np.ndarray, curve: Curve, colour: str, label: str) -> None:
    """Draw every seed thin, their mean thick and their range shaded."""
    seeds = curve.values.shape[1]
    for i, values in enumerate(curve.values.T if seeds > 1 else ()):
        name = "each seed" if i == 0 else "_not in the legend"
        axes.plot(x, values, color=colour, alpha=0.4, linewidth=0.8, label=name)
    _draw_line(axes, x, curve, colour, "-", f"{label} of {seeds} seeds" if seeds > 1 else label.removesuffix(", mean"))


def _draw_line(axes: Axes, x: np.ndarray, curve: Curve, colour: str, dash: str, label: str) -> None:
    """Draw the mean over seeds, with their range shaded, if there is anything to draw."""
    if not curve:
        return
    low, high = curve.values.min(axis=1), curve.values.max(axis=1)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    marker = "o" if len(x) <= 12 else ""  # with few iterations, the lines between points only guide the eye
    axes.plot(x, curve.mean, dash, color=colour, linewidth=2, marker=marker, markersize=4, label=label)


def _draw_interval(axes: Axes, curve: Curve, colour: str) -> None:
    """Shade the bootstrap interval of the mean over seeds, darker than their range; nothing for a single seed."""
    if curve.values.shape[1] > 1:
        axes.fill_between(curve.env_steps, *mean_interval(curve.values), color=colour, alpha=0.2, linewidth=0)


def _finish_by_env_steps(panels: Sequence[Axes], budgets: Sequence[float] = (0.0,)) -> None:
    for axes in panels:
        clean(axes)
    last, least = panels[-1], min(budgets)
    last.set_xlabel("environment steps per seed")
    if least > 0 and max(budgets) / least > FAR_APART:
        last.set_xscale("symlog", linthresh=least / FAR_APART)
        last.set_xlim(left=0)
    last.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _add_legend(figure: Figure, axes: Axes, *, below: bool = False) -> None:
    """Add the legend; with several runs `below` the panels, because no corner is free of lines."""
    lines, labels = axes.get_legend_handles_labels()
    if below and lines:
        figure.legend(lines, labels, loc="outside lower left", frameon=False, fontsize=8, ncols=1 + (len(lines) > 4))
    elif lines:
        axes.legend(frameon=False, fontsize=8)


def _describe_runs(runs: dict[str, Run]) -> str:
    if len(runs) == 1:
        return describe_run(next(iter(runs.values())))
    tasks = sorted({run.task for run in runs.values()})
    seeds = sorted({len(run.seeds) for run in runs.values()})
    return f"{' / '.join(tasks)}, {' or '.join(map(str, seeds))} seeds, mean and range"


def _title_curves(runs: dict[str, Run]) -> str:
    if all(run.reward_free for run in runs.values()):
        return f"Explored with no reward: {count_of(len(runs), 'run')}"
    if len(runs) == 1:
        (run,) = runs.values()
        if not (returns := run.curve("eval_return_mean")):
            return "Nothing has been evaluated yet"
        first, last = format_number(returns.mean[0]), format_number(returns.mean[-1])
        title = f"Return from {first} to {last} in {returns.env_steps[-1]:,.0f} steps"
        return title + (f"; solved {run.num_solved} of {count_of(len(run.seeds), 'seed')}" if run.has_success else "")
    if len(runs) > _NAMED or not any(run.has_success for run in runs.values()):
        return f"Returns of {len(runs)} runs"
    solved = (f"{label} {run.num_solved} of {len(run.seeds)}" for label, run in runs.items() if run.has_success)
    return f"Seeds solved: {', '.join(solved)}"


def _describe_fall(bonus: Curve) -> str:
    fold = bonus.fold_below_peak()
    if np.isnan(fold):
        return "none left"
    return "at its peak" if fold < 1.05 else f"{fold:.3g}-fold below its peak"


def look_of(i: int) -> tuple[int, int]:
    """Return the indices of line i's colour and dash; no pair repeats within 24 lines."""
    rounds = i // math.lcm(len(COLOURS), len(DASHES))
    return i % len(COLOURS), (i + rounds) % len(DASHES)


def line_style(i: int) -> tuple[str, str]:
    """Return the colour and dash of line i in a picture."""
    colour, dash = look_of(i)
    return COLOURS[colour], DASHES[dash]


def new_figure(height: float) -> Figure:
    """Return an empty figure, without pyplot: no window, and no state shared between pictures."""
    return Figure(figsize=(_WIDTH, height), dpi=150, layout="constrained")


def clean(axes: Axes) -> None:
    """Give axes a light grid and two grey spines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    shrink_labels(axes)
    axes.tick_params(colors=_GREY)


def shrink_labels(axes: Axes) -> None:
    """Set the sizes of the labels of axes and ticks."""
    axes.tick_params(labelsize=8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(9)


def integer_ticks() -> MaxNLocator:
    """Return a locator for iterations."""
    return MaxNLocator(integer=True, steps=[1, 2, 5, 10])


def set_title(figure: Figure, title: str, subtitle: str) -> None:
    """Write a title at the left, and a smaller subtitle below it."""
    lines = textwrap.wrap(title, int(_LETTERS_PER_INCH * _WIDTH))
    figure.suptitle("\n".join([*lines, ""]), fontsize=11, fontweight="bold", x=0.01, ha="left")
    below = 1 - (0.08 + 0.185 * len(lines)) / figure.get_figheight()
    figure.text(0.01, below, subtitle, fontsize=9, color=_GREY, ha="left", va="top")
