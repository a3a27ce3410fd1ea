"""Learning curves from `metrics.csv`: the best policy's return and the vanishing bonus, against env steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from pcmlp.report import style
from pcmlp.runs.folder import read_config, read_metrics


@dataclass(frozen=True)
class Curve:
    """A column of `metrics.csv` over the iterations where it is defined."""

    env_steps: np.ndarray  # [iterations], the mean over seeds: draws from d_pi take a random number of steps
    values: np.ndarray  # [iterations, seeds]


def read_curve(run: Path, column: str) -> Curve:
    metrics = {name: np.array(values) for name, values in read_metrics(run).items()}
    seeds = list(dict.fromkeys(metrics["seed"]))
    whole = len(metrics["seed"]) // len(seeds) if seeds else 0  # iterations that every seed has a row of
    size = whole * len(seeds)
    values = metrics.get(column, np.full(len(metrics["seed"]), np.nan))[:size].reshape(whole, len(seeds))
    steps = metrics["env_steps"][:size].reshape(whole, len(seeds)).mean(axis=1)
    defined = np.isfinite(values).all(axis=1)
    return Curve(steps[defined], values[defined])


def learning_curve(run: Path) -> Path:
    """`learning_curve.png` in the run folder."""
    config = read_config(run)
    returns, bonus = read_curve(run, "eval_return_mean"), read_curve(run, "bonus_mean")
    picture = style.figure(7.0, 5.6)
    above, below = picture.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_seeds(above, returns, style.COLOURS[0], "return")
    above.set_ylabel("return of the best policy\n(task reward per episode)")
    _draw_seeds(below, bonus, style.COLOURS[1], "bonus")
    below.set_ylabel("bonus paid\n(mean per real step)")
    if bonus.values.size and bonus.values.min() > 0:
        style.logarithmic(below)
    _finish((above, below))
    style.title(
        picture, _what_is_seen(returns, bonus), f"{config['task']['name']}, {config['algo']}, {_seeds(returns)}"
    )
    return style.save(picture, run / "learning_curve.png")


def compare(runs: dict[str, Path], path: Path, seen: str = "Return and exploration of several runs") -> Path:
    """The curves of several runs, by label, in one picture."""
    picture = style.figure(7.5, 5.8)
    above, below = picture.subplots(2, 1, sharex=True)
    for i, (label, run) in enumerate(runs.items()):
        look = (style.COLOURS[i % len(style.COLOURS)], style.DASHES[i % len(style.DASHES)])
        returns = read_curve(run, "eval_return_mean")
        final = f"{returns.values[-1].mean():.2f}" if returns.values.size else "nothing yet"
        _draw_spread(above, returns, *look, f"{label}: {final} at the end")
        _draw_spread(below, read_curve(run, "info_gain"), *look, label)
    above.set_ylabel("return of the best policy\n(task reward per episode)")
    below.set_ylabel("information gain\n(what the cover has seen, in nats)")
    _finish((above, below))
    above.legend(frameon=False, fontsize=9)
    config = read_config(next(iter(runs.values())))
    counts = {_seeds(read_curve(run, "eval_return_mean")) for run in runs.values()}
    style.title(picture, seen, f"{config['task']['name']}, {' / '.join(sorted(counts))}, mean and range")
    return style.save(picture, path)


def _draw_seeds(axes: Axes, curve: Curve, colour: str, what: str) -> None:
    """Every seed thin, their mean thick, their range shaded."""
    if not curve.values.size:
        return
    one = "each seed"
    for values in curve.values.T:
        axes.plot(curve.env_steps, values, color=colour, alpha=0.35, linewidth=0.8, label=one)
        one = "_not in the legend"
    _draw_spread(axes, curve, colour, "-", f"mean {what} of {curve.values.shape[1]} seeds")
    axes.legend(frameon=False, fontsize=9)


def _draw_spread(axes: Axes, curve: Curve, colour: str, dash: str, label: str) -> None:
    if not curve.values.size:
        return
    low, high = curve.values.min(axis=1), curve.values.max(axis=1)
    axes.fill_between(curve.env_steps, low, high, color=colour, alpha=0.15, linewidth=0)
    marker = "o" if len(curve.env_steps) == 1 else ""
    axes.plot(curve.env_steps, curve.values.mean(axis=1), dash, color=colour, linewidth=2, marker=marker, label=label)


def _finish(panels: Sequence[Axes]) -> None:
    for axes in panels:
        style.clean(axes)
        axes.margins(x=0.02)
    panels[-1].set_xlabel("environment steps per seed")
    panels[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _what_is_seen(returns: Curve, bonus: Curve) -> str:
    if not returns.values.size:
        return "Nothing was evaluated yet"
    first, last = returns.values[0].mean(), returns.values[-1].mean()
    seen = f"Return from {first:.2f} to {last:.2f} in {returns.env_steps[-1]:,.0f} steps"
    if bonus.values.size and bonus.values[0].mean() > 0:
        left = bonus.values[-1].mean() / bonus.values[0].mean()
        seen += f"; {left:.0%} of the first bonus is left"
    return seen


def _seeds(curve: Curve) -> str:
    count = curve.values.shape[1] if curve.values.size else 0
    return f"{count} seed{'' if count == 1 else 's'}"
