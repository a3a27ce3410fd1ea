"""Pictures of the columns of `metrics.csv`: returns, success and certificates by env steps, bonuses by iteration."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from pcmlp.report import style
from pcmlp.report.reading import Curve, Run
from pcmlp.report.words import certificate_kind, count_of, describe_run, format_number

FAR_APART = 10  # if budgets differ by this ratio, the shorter run would be a line at the left edge
_EXPLORING = style.COLOURS[5]
_NAMED = 3  # most runs that fit into a title
_FLAT = 0.1  # smaller differences of returns are drawn as a flat line: the cost of acting is not progress
_LABELS = {
    "return": "return\n(task reward per episode)",
    "success": "success\n(share of episodes)",
    "coverage": "coverage\n(share of the map)",
    "info_gain": "information gain of\nthe cover (nats)",
}


def plot_returns(run: Run) -> Figure:
    """Draw the learning curve of the deployed policy, and of the exploring policy if it is a different one."""
    figure, panels = _panels(1 + run.has_success)
    _draw_policies(panels[0], run, "return_mean")
    _label_panel(panels[0], "return")
    if run.has_success:
        _draw_policies(panels[1], run, "success")
        _label_panel(panels[1], "success")
    _finish_by_env_steps(panels)
    if run.curve("eval_return_mean"):
        panels[0].legend(frameon=False, fontsize=8, loc="best")
    style.set_title(figure, _title_returns(run), describe_run(run))
    return figure


def plot_bonus(run: Run) -> Figure | None:
    """Draw the mean bonus at the states that each policy visited; None if no bonus was paid."""
    bonus = run.curve("bonus_mean")
    if not bonus or bonus.values.max() <= 0:
        return None
    figure, (axes,) = _panels(1)
    _draw_seeds(axes, bonus.iteration, bonus, style.COLOURS[1], "mean")
    _finish_bonus(axes, bonus.values)
    axes.legend(frameon=False, fontsize=8)
    title = f"Bonus per step: {_fall(bonus)} at iteration {bonus.iteration[-1]:.0f}"
    style.set_title(figure, title, describe_run(run))
    return figure


def plot_certificate(run: Run) -> Figure | None:
    """Draw the promised and the measured return; the gap is the most that can still be gained.

    None if nothing was promised.
    """
    promised, gap = run.curve("promised"), run.curve("certificate")
    if not gap:
        return None
    figure, (axes,) = _panels(1)
    measured = Curve(gap.iteration, gap.env_steps, promised.values - gap.values)
    _draw_range(axes, promised.env_steps, promised, style.COLOURS[1], "--", "promised, bonus included")
    _draw_range(axes, measured.env_steps, measured, style.COLOURS[0], "-", f"{run.evaluated_policy}, measured")
    axes.fill_between(gap.env_steps, measured.mean, promised.mean, hatch="//", alpha=0.1, linewidth=0, color="grey")
    axes.set_ylabel("return\n(mean and range of seeds)")
    _finish_by_env_steps([axes])
    axes.legend(frameon=False, fontsize=8)
    gaps = f"{format_number(gap.mean[0])} at first, {format_number(gap.mean[-1])} at last"
    style.set_title(figure, f"Certificate, {certificate_kind(run)}: {gaps}", describe_run(run))
    return figure


def plot_comparison(runs: dict[str, Run]) -> Figure:
    """Draw several runs of one task, by label: return, success, and coverage or, without a map, information gain."""
    mapped = any(run.curve("coverage") for run in runs.values())
    columns = {"eval_return_mean": "return", "eval_success": "success"}
    columns |= {"coverage": "coverage"} if mapped else {"info_gain": "info_gain"}
    shown = [name for name in columns if any(run.shows(name) for run in runs.values())] or ["eval_return_mean"]
    figure, panels = _panels(len(shown))
    for axes, name in zip(panels, shown, strict=True):
        for i, (label, run) in enumerate(runs.items()):
            if run.shows(name):
                curve = run.curve(name)
                _draw_range(axes, curve.env_steps, curve, *style.line_style(i), label)
        _label_panel(axes, columns[name])
    _finish_by_env_steps(panels, [run.env_steps for run in runs.values()])
    _add_legend_below(figure, panels[0])
    style.set_title(figure, _title_comparison(runs), _describe_runs(runs))
    return figure


def plot_bonuses(runs: dict[str, Run]) -> Figure | None:
    """Draw the bonuses of several runs of one task, by label; None if no run has a bonus."""
    bonuses = {label: run.curve("bonus_mean") for label, run in runs.items()}
    paid = {label: bonus for label, bonus in bonuses.items() if bonus and bonus.values.max() > 0}
    if not paid:
        return None
    figure, (axes,) = _panels(1)
    for i, label in enumerate(runs):  # numbered as in `plot_comparison`, so that a run keeps its colour
        if label in paid:
            bonus = paid[label]
            _draw_range(axes, bonus.iteration, bonus, *style.line_style(i), f"{label}: {_fall(bonus)}")
    _finish_bonus(axes, np.concatenate([bonus.values.ravel() for bonus in paid.values()]))
    _add_legend_below(figure, axes)
    unpaid = len(runs) - len(paid)
    title = "The bonus paid at each real step" + (f" ({count_of(unpaid, 'run')} without any)" if unpaid else "")
    style.set_title(figure, title, _describe_runs(runs))
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = style.new_figure({1: 3.6, 2: 4.8}.get(count, 6.2))
    ratios = [3, 2, 2][:count] if count > 1 else [1]
    return figure, list(figure.subplots(count, 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0])


def _draw_policies(axes: Axes, run: Run, name: str) -> None:
    """Draw the exploring policy first and lighter, then the evaluated one over it."""
    exploring, evaluated = run.curve(f"explore_{name}"), run.curve(f"eval_{name}")
    if run.deploys:
        _draw_range(axes, exploring.env_steps, exploring, _EXPLORING, "--", "exploring policy, mean and range")
    _draw_seeds(axes, evaluated.env_steps, evaluated, style.COLOURS[0], f"{run.evaluated_policy}, mean")


def _draw_seeds(axes: Axes, x: np.ndarray, curve: Curve, colour: str, label: str) -> None:
    """Draw every seed thin, their mean thick and their range shaded."""
    seeds = curve.values.shape[1]
    for i, values in enumerate(curve.values.T if seeds > 1 else ()):
        name = "each seed" if i == 0 else "_not in the legend"
        axes.plot(x, values, color=colour, alpha=0.4, linewidth=0.8, label=name)
    _draw_range(axes, x, curve, colour, "-", f"{label} of {seeds} seeds" if seeds > 1 else label.removesuffix(", mean"))


def _draw_range(axes: Axes, x: np.ndarray, curve: Curve, colour: str, dash: str, label: str) -> None:
    if not curve:
        return
    low, high = curve.values.min(axis=1), curve.values.max(axis=1)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    marker = "o" if len(x) <= 12 else ""  # with few iterations, the lines between points only guide the eye
    axes.plot(x, curve.mean, dash, color=colour, linewidth=2, marker=marker, markersize=4, label=label)


def _label_panel(axes: Axes, what: str) -> None:
    axes.set_ylabel(_LABELS[what])
    low, high = axes.get_ylim()
    if what in ("success", "coverage"):
        axes.set_ylim(-0.05, 1.05)
    elif what == "return" and high - low < _FLAT:
        axes.set_ylim((low + high - _FLAT) / 2, (low + high + _FLAT) / 2)


def _finish_bonus(axes: Axes, values: np.ndarray) -> None:
    style.set_log_scale(axes)
    paid = values[values > 0]
    axes.set_ylim(paid.min() / 1.3, paid.max() * 1.3)
    style.clean(axes)
    axes.set(xlabel="iteration", ylabel="bonus paid\n(mean per real step)")
    axes.xaxis.set_major_locator(style.integer_ticks())


def _finish_by_env_steps(panels: Sequence[Axes], budgets: Sequence[float] = (0.0,)) -> None:
    for axes in panels:
        style.clean(axes)
    last, least = panels[-1], min(budgets)
    last.set_xlabel("environment steps per seed")
    if least > 0 and max(budgets) / least > FAR_APART:
        last.set_xscale("symlog", linthresh=least / FAR_APART)
        last.set_xlim(left=0)
    last.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _add_legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend outside of the panels: with several runs, no corner is free of lines."""
    lines, labels = axes.get_legend_handles_labels()
    if lines:
        figure.legend(lines, labels, loc="outside lower left", frameon=False, fontsize=8, ncols=1 + (len(lines) > 4))


def _describe_runs(runs: dict[str, Run]) -> str:
    tasks = sorted({run.task for run in runs.values()})
    seeds = sorted({len(run.seeds) for run in runs.values()})
    return f"{' / '.join(tasks)}, {' or '.join(map(str, seeds))} seeds, mean and range"


def _title_returns(run: Run) -> str:
    returns = run.curve("eval_return_mean")
    if not returns:
        return "Nothing has been evaluated yet"
    first, last = format_number(returns.mean[0]), format_number(returns.mean[-1])
    title = f"Return from {first} to {last} in {returns.env_steps[-1]:,.0f} steps"
    return title + (f"; solved {run.num_solved} of {count_of(len(run.seeds), 'seed')}" if run.has_success else "")


def _title_comparison(runs: dict[str, Run]) -> str:
    if all(run.reward_free for run in runs.values()):
        return f"Explored with no reward: {count_of(len(runs), 'run')}"
    if len(runs) > _NAMED or not any(run.has_success for run in runs.values()):
        return f"Returns of {len(runs)} runs"
    solved = (f"{label} {run.num_solved} of {len(run.seeds)}" for label, run in runs.items() if run.has_success)
    return f"Seeds solved: {', '.join(solved)}"


def _fall(bonus: Curve) -> str:
    fold = bonus.fold_below_peak()
    if np.isnan(fold):
        return "none left"
    return "at its peak" if fold < 1.05 else f"{fold:.3g}-fold below its peak"
