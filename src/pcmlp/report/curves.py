"""Curves from `metrics.csv`: returns, success, promises against env steps, the vanishing bonus against iterations."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from pcmlp.report import style
from pcmlp.report.reading import Curve, Run, counted, number

_EXPLORING = style.COLOURS[5]
_TITLED = 3  # more runs do not fit into a title
_FLAT = 0.1  # returns that differ by less are drawn as a flat line: a sparse reward's cost of acting is not progress
_WORTH = {"bound": "a bound", "estimate": "an estimate", "heuristic": "a heuristic"}
_FAR_APART = 10  # of budgets: the shorter run would be a line at the left edge


def plot_returns(run: Run) -> Figure:
    """The learning curve: what is deployed, and what explores where that is another policy."""
    panels = _panels(1 + run.has_success)
    _draw_policies(panels[0], run, "return_mean")
    _as_return(panels[0])
    if run.has_success:
        _draw_policies(panels[1], run, "success")
        _as_success(panels[1])
    _against_env_steps(panels)
    returns = run.curve("eval_return_mean")
    if returns:
        panels[0].legend(frameon=False, fontsize=8, loc="best")
    style.title(_figure(panels), _what_is_seen(run, returns), run.made_by)
    return _figure(panels)


def plot_bonus(run: Run) -> Figure | None:
    """The mean bonus of the states that each policy visited; None where none was ever paid."""
    bonus = run.curve("bonus_mean")
    if not bonus or bonus.values.max() <= 0:
        return None
    axes = _panels(1)[0]
    _draw_seeds(axes, bonus.iteration, bonus, style.COLOURS[1], "mean")
    _as_bonus(axes, bonus.values)
    axes.legend(frameon=False, fontsize=8)
    style.title(_figure([axes]), _how_it_fell(bonus), run.made_by)
    return _figure([axes])


def plot_certificate(run: Run) -> Figure | None:
    """What planning promises and what was measured: the gap is what could still be gained; None where nothing is
    promised."""
    promised, gap = run.curve("promised"), run.curve("certificate")
    if not gap:
        return None
    axes = _panels(1)[0]
    measured = Curve(gap.iteration, gap.env_steps, promised.values - gap.values)
    _draw_range(axes, promised.env_steps, promised, style.COLOURS[1], "--", "promised, bonus included")
    _draw_range(axes, measured.env_steps, measured, style.COLOURS[0], "-", f"{run.judged}, measured")
    axes.fill_between(gap.env_steps, measured.mean, promised.mean, hatch="//", alpha=0.1, linewidth=0, color="grey")
    axes.set_ylabel("return\n(mean and range of seeds)")
    _against_env_steps([axes])
    axes.legend(frameon=False, fontsize=8)
    worth = _WORTH.get(str((run.summary.get("certificate") or {}).get("kind")), "of a run under way")
    seen = f"Certificate, {worth}: {number(gap.mean[0])} at first, {number(gap.mean[-1])} at last"
    style.title(_figure([axes]), seen, run.made_by)
    return _figure([axes])


def plot_comparison(runs: dict[str, Run]) -> Figure:
    """Return, success and what the cover has seen, on a map where there is one, of several runs of one task, by
    label."""
    mapped = any(run.curve("coverage") for run in runs.values())
    seen = {"coverage": _as_coverage} if mapped else {"info_gain": _as_information}
    looks = {"eval_return_mean": _as_return, "eval_success": _as_success, **seen}
    shown = [name for name in looks if any(run.shows(name) for run in runs.values())] or ["eval_return_mean"]
    panels = _panels(len(shown))
    for axes, name in zip(panels, shown, strict=True):
        for i, (label, run) in enumerate(runs.items()):
            if run.shows(name):
                curve = run.curve(name)
                _draw_range(axes, curve.env_steps, curve, *style.line(i), label)
        looks[name](axes)
    _against_env_steps(panels, [run.env_steps for run in runs.values()])
    _legend_below(_figure(panels), panels[0])
    style.title(_figure(panels), _who_solved_it(runs), _of_all(runs))
    return _figure(panels)


def plot_bonuses(runs: dict[str, Run]) -> Figure | None:
    """The bonuses of several runs of one task; None where no run paid any."""
    paid = {label: run.curve("bonus_mean") for label, run in runs.items()}
    paid = {label: bonus for label, bonus in paid.items() if bonus and bonus.values.max() > 0}
    if not paid:
        return None
    axes = _panels(1)[0]
    for i, label in enumerate(runs):  # a run has the colour that it has in the comparison
        if label in paid:
            fold = _fold(paid[label])
            _draw_range(axes, paid[label].iteration, paid[label], *style.line(i), f"{label}: {fold}")
    _as_bonus(axes, np.concatenate([bonus.values.ravel() for bonus in paid.values()]))
    _legend_below(_figure([axes]), axes)
    without = len(runs) - len(paid)
    seen = "The bonus paid at each real step" + (f" ({counted(without, 'run')} without any)" if without else "")
    style.title(_figure([axes]), seen, _of_all(runs))
    return _figure([axes])


def _panels(count: int) -> list[Axes]:
    height = {1: 3.6, 2: 4.8}.get(count, 6.2)
    ratios = [3, 2, 2][:count] if count > 1 else [1]
    return list(style.figure(height).subplots(count, 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0])


def _figure(panels: list[Axes]) -> Figure:
    picture = panels[0].figure
    assert isinstance(picture, Figure)
    return picture


def _draw_policies(axes: Axes, run: Run, what: str) -> None:
    """What explores is drawn first, and lighter."""
    exploring, judged = run.curve(f"explore_{what}"), run.curve(f"eval_{what}")
    if run.deploys:
        _draw_range(axes, exploring.env_steps, exploring, _EXPLORING, "--", "exploring policy, mean and range")
    _draw_seeds(axes, judged.env_steps, judged, style.COLOURS[0], f"{run.judged}, mean")


def _draw_seeds(axes: Axes, x: np.ndarray, curve: Curve, colour: str, label: str) -> None:
    """Every seed thin, their mean thick, their range shaded."""
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
    marker = "o" if len(x) <= 12 else ""  # few iterations are points, and the lines between them only guide the eye
    axes.plot(x, curve.mean, dash, color=colour, linewidth=2, marker=marker, markersize=4, label=label)


def _as_return(axes: Axes) -> None:
    axes.set_ylabel("return\n(task reward per episode)")
    low, high = axes.get_ylim()
    if high - low < _FLAT:
        axes.set_ylim((low + high - _FLAT) / 2, (low + high + _FLAT) / 2)


def _as_information(axes: Axes) -> None:
    axes.set_ylabel("information gain of\nthe cover (nats)")


def _as_coverage(axes: Axes) -> None:
    axes.set_ylabel("coverage\n(share of the map)")
    axes.set_ylim(-0.05, 1.05)


def _as_success(axes: Axes) -> None:
    axes.set_ylabel("success\n(share of episodes)")
    axes.set_ylim(-0.05, 1.05)


def _as_bonus(axes: Axes, values: np.ndarray) -> None:
    style.logarithmic(axes)
    paid = values[values > 0]
    axes.set_ylim(paid.min() / 1.3, paid.max() * 1.3)
    style.clean(axes)
    axes.set_ylabel("bonus paid\n(mean per real step)")
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(style.whole_numbers())


def _against_env_steps(panels: list[Axes], budgets: list[float] | None = None) -> None:
    for axes in panels:
        style.clean(axes)
    last = panels[-1]
    last.set_xlabel("environment steps per seed")
    least = min(budgets or [0.0])
    if least > 0 and max(budgets or [0.0]) / least > _FAR_APART:
        last.set_xscale("symlog", linthresh=least / _FAR_APART)
        last.set_xlim(left=0)
    last.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _legend_below(picture: Figure, axes: Axes) -> None:
    """Outside of the panels: with several runs there is no corner without a line."""
    lines, labels = axes.get_legend_handles_labels()
    if lines:
        picture.legend(lines, labels, loc="outside lower left", frameon=False, fontsize=8, ncols=1 + (len(lines) > 4))


def _of_all(runs: dict[str, Run]) -> str:
    tasks = sorted({run.task for run in runs.values()})
    seeds = sorted({len(run.seeds) for run in runs.values()})
    return f"{' / '.join(tasks)}, {' or '.join(map(str, seeds))} seeds, mean and range"


def _what_is_seen(run: Run, returns: Curve) -> str:
    if not returns:
        return "Nothing was evaluated yet"
    seen = f"Return from {number(returns.mean[0])} to {number(returns.mean[-1])} in {returns.env_steps[-1]:,.0f} steps"
    if run.has_success:
        seen += f"; solved {run.num_solved} of {counted(len(run.seeds), 'seed')}"
    return seen


def _who_solved_it(runs: dict[str, Run]) -> str:
    if all(run.reward_free for run in runs.values()):
        return f"Explored with no reward: {counted(len(runs), 'run')}"
    if len(runs) > _TITLED or not any(run.has_success for run in runs.values()):
        return f"Returns of {len(runs)} runs"
    solved = (f"{label} {run.num_solved} of {len(run.seeds)}" for label, run in runs.items() if run.has_success)
    return f"Seeds solved: {', '.join(solved)}"


def _how_it_fell(bonus: Curve) -> str:
    return f"Bonus per step: {_fold(bonus)} at iteration {bonus.iteration[-1]:.0f}"


def _fold(bonus: Curve) -> str:
    below = bonus.below_peak()
    if np.isnan(below):
        return "none is left of its peak"
    return "at its peak" if below < 1.05 else f"{below:.3g}-fold below its peak"
