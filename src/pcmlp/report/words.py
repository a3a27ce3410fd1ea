"""What tables and headlines say of runs, from their numbers alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcmlp.report.reading import Run, counted, number, percent
from pcmlp.report.statistics import interquartile_mean

_NAMED = 3  # runs in a sentence; of more, only the extremes
_ELSEWHERE = ("algo", "seeds", "steps", "task.name")  # have a column of their own
_STEPPING = ("workers", "timeout", "max_faults")  # of a task: how it is stepped, not what it is
_BROKEN = "not a number at the end"


def headline(runs: dict[str, Run]) -> str:
    """What happened in the runs of one task, by label. Only runs of the same task settings are compared."""
    if len(runs) == 1:
        return _of_one(next(iter(runs.values())))
    alike: dict[str, dict[str, Run]] = {}
    settings = _settings_of_task(list(runs.values()))
    for (label, run), setting in zip(runs.items(), settings, strict=True):
        alike.setdefault(setting, {})[label] = run
    sets = sorted(alike.items(), key=lambda item: -len(item[1]))
    return " ".join(_of_some(setting, some) for setting, some in sets)


def _settings_of_task(runs: Sequence[Run]) -> list[str]:
    """Of each run, those in which the runs differ."""
    flat = [_flat({key: value for key, value in run.config["task"].items() if key not in _STEPPING}) for run in runs]
    differ = [key for key in dict.fromkeys(key for one in flat for key in one) if len({o.get(key) for o in flat}) > 1]
    return [" ".join(f"{key}={one[key]}" for key in differ if key in one) for one in flat]


def _of_some(setting: str, runs: dict[str, Run]) -> str:
    task = next(iter(runs.values())).task + (f" with {setting}" if setting else "")
    free = {label: run for label, run in runs.items() if run.reward_free}
    paid = {label: run for label, run in runs.items() if label not in free}
    said = _who_solved(paid) if any(run.has_success for run in paid.values()) else _who_returned(paid)
    said += [f"{label}{', with no reward,' if paid else ''} {_explored(run)}" for label, run in free.items()]
    where = f"On {task}" + ("" if paid else ", with no reward")
    return f"{where}, {'; '.join(said)}." if said else f"{where} nothing was evaluated yet."


def _explored(run: Run) -> str:
    """What a run with no reward is for: where it has been, and what was reached afterwards."""
    share = run.final("coverage")
    seen = (
        f"entered {percent(share.mean())} of the map" if share is not None else f"took {run.env_steps:,.0f} env steps"
    )
    if run.reached is None:
        return seen
    return f"{seen} and then reached {percent(run.reached)} of what was planned for in its model"


def _who_solved(runs: dict[str, Run]) -> list[str]:
    ranked = sorted(runs.items(), key=lambda item: (-_share(item[1]), np.median(item[1].steps_to_success)))
    if len(runs) <= _NAMED:
        return [f"{label} solved {_solved_in(run)}" for label, run in ranked]
    every = [(label, run) for label, run in ranked if run.num_solved == len(run.seeds)]
    none = [label for label, run in ranked if run.num_solved == 0]
    said = [f"{label} solved {_solved_in(run)}" for label, run in ranked if 0 < run.num_solved < len(run.seeds)]
    if every:
        fewest = median_steps(every[0][1])
        first = ", ".join(label for label, run in every if median_steps(run) == fewest)
        solved = f"{len(every)} of {counted(len(runs), 'run')} solved every seed"
        said = [f"{solved}, {first} in the fewest env steps (median {fewest})", *said]
    return [*said, f"{', '.join(none)} solved none"] if none else said


def _share(run: Run) -> float:
    """Of its seeds that were solved."""
    return run.num_solved / max(1, len(run.seeds))


def _who_returned(runs: dict[str, Run]) -> list[str]:
    finals = {label: run.final("eval_return_mean") for label, run in runs.items()}
    means = {label: float(final.mean()) for label, final in finals.items() if final is not None}
    ranked = sorted(means, key=lambda label: -means[label])
    broken = [label for label, run in runs.items() if label not in means and run.shows("eval_return_mean")]
    said = [f"{label} ends with a return of {final_return(runs[label])}" for label in ranked]
    if len(ranked) > _NAMED:
        best, worst = ranked[0], ranked[-1]
        said = [f"{best} has the highest return ({final_return(runs[best])})"]
        said += [f"{worst} the lowest ({final_return(runs[worst])})"]
    return [*said, f"{', '.join(broken)} ends with a return that is {_BROKEN}"] if broken else said


def _of_one(run: Run) -> str:
    returns, bonus = run.curve("eval_return_mean"), run.curve("bonus_mean")
    fell = bonus and bonus.below_peak() >= 1.05
    last = f", and its bonus fell {bonus.below_peak():.3g}-fold below its peak" if fell else ""
    if run.reward_free:
        return f"On {run.task}, with no reward, {run.algo} {_explored(run)}{last}."
    if not returns:
        return f"{run.algo} on {run.task}: nothing was evaluated yet."
    final = run.final("eval_return_mean")
    end = _BROKEN if final is None else number(final.mean())
    said = f"the return of its {run.judged} went from {number(returns.mean[0])} to {end}"
    first = f"solved {_solved_in(run)}" if run.has_success else f"took {run.env_steps:,.0f} env steps"
    return f"On {run.task}, {run.algo} {first}; {said}{last}."


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
    final = run.final("eval_return_mean")
    if final is None:
        return _BROKEN if run.shows("eval_return_mean") else "–"
    spread = f" ± {number(final.std())}" if len(run.seeds) > 1 else ""
    return number(final.mean()) + spread


def middle_return(run: Run) -> str:
    """The interquartile mean over seeds and its interval."""
    final = run.final("eval_return_mean")
    if final is None:
        return "–"
    value, low, high = interquartile_mean([final])
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
