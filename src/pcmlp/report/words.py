"""What tables and headlines say of runs, from their numbers alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcmlp.report.reading import Run, counted, number
from pcmlp.report.statistics import interquartile_mean

_NAMED = 3  # runs in a sentence; of more, only the extremes
_ELSEWHERE = ("algo", "seeds", "steps", "task.name")  # have a column of their own


def headline(runs: dict[str, Run]) -> str:
    """What happened in the runs of one task, by label."""
    if len(runs) == 1:
        return _of_one(next(iter(runs.values())))
    task = next(iter(runs.values())).task
    said = _who_solved(runs) if any(run.has_success for run in runs.values()) else _who_returned(runs)
    return f"On {task}, {'; '.join(said)}." if said else f"On {task} nothing was evaluated yet."


def _who_solved(runs: dict[str, Run]) -> list[str]:
    ranked = sorted(runs.items(), key=lambda item: (-_share(item[1]), np.median(item[1].steps_to_success)))
    if len(runs) <= _NAMED:
        return [f"{label} solved {_solved_in(run)}" for label, run in ranked]
    every = [(label, run) for label, run in ranked if run.num_solved == len(run.seeds)]
    none = [label for label, run in ranked if run.num_solved == 0]
    said = [f"{label} solved {_solved_in(run)}" for label, run in ranked if 0 < run.num_solved < len(run.seeds)]
    if every:
        label, run = every[0]
        first = f"{len(every)} of {counted(len(runs), 'run')} solved every seed, {label} in the fewest env steps"
        said = [f"{first} (median {median_steps(run)})", *said]
    return [*said, f"{', '.join(none)} solved none"] if none else said


def _share(run: Run) -> float:
    """Of its seeds that were solved."""
    return run.num_solved / max(1, len(run.seeds))


def _who_returned(runs: dict[str, Run]) -> list[str]:
    evaluated = [(label, run) for label, run in runs.items() if run.curve("eval_return_mean")]
    ranked = sorted(evaluated, key=lambda item: -item[1].curve("eval_return_mean").mean[-1])
    if len(ranked) <= _NAMED:
        return [f"{label} ends with a return of {final_return(run)}" for label, run in ranked]
    (best, most), (worst, least) = ranked[0], ranked[-1]
    return [f"{best} has the highest return ({final_return(most)})", f"{worst} the lowest ({final_return(least)})"]


def _of_one(run: Run) -> str:
    returns, bonus = run.curve("eval_return_mean"), run.curve("bonus_mean")
    if not returns:
        return f"{run.algo} on {run.task}: nothing was evaluated yet."
    said = f"the return of its {run.judged} went from {number(returns.mean[0])} to {number(returns.mean[-1])}"
    first = f"On {run.task}, {run.algo} "
    first += f"solved {_solved_in(run)}; " if run.has_success else f"took {run.env_steps:,.0f} env steps; "
    if bonus and bonus.below_peak() >= 1.05:
        said += f", and its bonus fell {bonus.below_peak():.3g}-fold below its peak"
    return f"{first}{said}."


def _solved_in(run: Run) -> str:
    seeds = f"{run.num_solved} of {counted(len(run.seeds), 'seed')}"
    return (
        f"{seeds} (median {median_steps(run)} env steps)"
        if run.num_solved
        else f"{seeds} in {run.env_steps:,.0f} env steps"
    )


def median_steps(run: Run) -> str:
    """Over all seeds: one that never succeeds took longer than it was given."""
    median = np.median(run.steps_to_success)
    return f"{median:,.0f}" if np.isfinite(median) else f"more than {run.env_steps:,.0f}"


def final_return(run: Run) -> str:
    """Mean and standard deviation over seeds."""
    returns = run.curve("eval_return_mean")
    if not returns:
        return "–"
    spread = f" ± {number(returns.values[-1].std())}" if len(run.seeds) > 1 else ""
    return number(returns.mean[-1]) + spread


def middle_return(run: Run) -> str:
    """The interquartile mean over seeds and its interval."""
    returns = run.curve("eval_return_mean")
    if not returns:
        return "–"
    value, low, high = interquartile_mean([returns.values[-1]])
    return number(value) + (f" [{number(low)}, {number(high)}]" if np.isfinite(low) else "")


def differing(runs: Sequence[Run]) -> list[str]:
    """For each run of one task, the settings that most runs of its algorithm do not have; of the task's, most runs."""
    flat = [_flat(run.config) for run in runs]

    def usual(i: int, key: str) -> bool:
        same = [other for other, run in zip(flat, runs, strict=True) if run.algo == runs[i].algo or key[:5] == "task."]
        alike = sum(other.get(key) == flat[i][key] for other in same)
        return alike > len(same) / 2

    return [
        " ".join(f"{key}={value}" for key, value in settings.items() if key not in _ELSEWHERE and not usual(i, key))
        for i, settings in enumerate(flat)
    ]


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """As `--set` has them."""
    settings = {}
    for key, value in config.items():
        if isinstance(value, dict):
            settings |= _flat(value, f"{prefix}{key}.")
        else:
            settings[f"{prefix}{key}"] = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return settings
