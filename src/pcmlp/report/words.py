"""The sentences and formatted numbers about runs, in headlines, tables and titles."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcmlp.report.reading import Run
from pcmlp.report.statistics import deviation
from pcmlp.settings import flatten

_NAMED = 3  # with more runs, a sentence names only the extremes
_OWN_COLUMN = ("algo", "seeds", "steps", "task.name")  # settings that the table shows elsewhere
_STEPPING = ("workers", "timeout", "max_faults")  # settings that change how a task is stepped, not the task itself
_NOT_FINITE = "not a number at the end"
_CERTIFICATES = {"bound": "a bound", "estimate": "an estimate", "heuristic": "a heuristic"}


def count_of(count: int, noun: str) -> str:
    """Return "1 run", "2 runs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_number(x: float) -> str:
    """Return a formatted return: at most two decimals, and no minus sign before a zero."""
    return f"{x:,.0f}" if abs(x) >= 1_000 else f"{round(x, 2) + 0.0:.4g}"


def format_percent(share: float | np.floating) -> str:
    """Return a share between 0 and 1 in percent."""
    return f"{100 * share:.0f} %"


def describe_run(run: Run) -> str:
    """Return the line under a picture's title."""
    return f"{run.task}, {run.algo}, {count_of(len(run.seeds), 'seed')}"


def certificate_kind(run: Run) -> str:
    """Return the standing of the run's certificate."""
    certificate = run.summary.get("certificate") or {}
    return _CERTIFICATES.get(str(certificate.get("kind")), "of a run in progress")


def median_steps(run: Run, *, sustained: bool = False) -> str:
    """Return the median env steps to success over all seeds, counting those that never succeeded as infinite."""
    median = np.median(run.steps_to_sustained_success if sustained else run.steps_to_success)
    return f"{median:,.0f}" if np.isfinite(median) else f"more than {run.env_steps:,.0f}"


def final_return(run: Run) -> str:
    """Return the mean and the standard deviation over seeds of the last evaluation."""
    final = run.final("eval_return_mean")
    if final is None:
        return _NOT_FINITE if run.shows("eval_return_mean") else "–"
    spread = f" ± {format_number(deviation(final))}" if len(run.seeds) > 1 else ""
    return format_number(final.mean()) + spread


def headline(runs: dict[str, Run]) -> str:
    """Describe the results of the runs of one task, by label; only runs with the same task settings are compared."""
    if len(runs) == 1:
        return _headline_of_one(next(iter(runs.values())))
    alike: dict[str, dict[str, Run]] = {}
    settings = _differing_task_settings(list(runs.values()))
    for (label, run), setting in zip(runs.items(), settings, strict=True):
        alike.setdefault(setting, {})[label] = run
    largest_first = sorted(alike.items(), key=lambda item: -len(item[1]))
    return " ".join(_headline_of_several(setting, some) for setting, some in largest_first)


def _headline_of_one(run: Run) -> str:
    returns, bonus = run.curve("eval_return_mean"), run.curve("bonus_mean")
    fell = bonus and bonus.fold_below_peak() >= 1.05
    last = f", and its bonus fell {bonus.fold_below_peak():.3g}-fold below its peak" if fell else ""
    if run.reward_free:
        return f"On {run.task}, with no reward, {run.algo} {_exploration(run)}{last}."
    if not returns:
        return f"{run.algo} on {run.task}: nothing has been evaluated yet."
    final = run.final("eval_return_mean")
    end = _NOT_FINITE if final is None else format_number(final.mean())
    change = f"the return of its {run.evaluated_policy} went from {format_number(returns.mean[0])} to {end}"
    first = f"solved {_solved_seeds(run)}" if run.has_success else f"took {run.env_steps:,.0f} env steps"
    return f"On {run.task}, {run.algo} {first}; {change}{last}."


def _headline_of_several(setting: str, runs: dict[str, Run]) -> str:
    task = next(iter(runs.values())).task + (f" with {setting}" if setting else "")
    free = {label: run for label, run in runs.items() if run.reward_free}
    paid = {label: run for label, run in runs.items() if label not in free}
    parts = _compare_success(paid) if any(run.has_success for run in paid.values()) else _compare_returns(paid)
    parts += [f"{label}{', with no reward,' if paid else ''} {_exploration(run)}" for label, run in free.items()]
    where = f"On {task}" + ("" if paid else ", with no reward")
    return f"{where}, {'; '.join(parts)}." if parts else f"{where}, nothing has been evaluated yet."


def _exploration(run: Run) -> str:
    """Describe the coverage of a reward-free run, and the success of plans made after it."""
    share = run.final("coverage")
    entered = f"entered {format_percent(share.mean())} of the map" if share is not None else ""
    explored = entered or (f"explored {run.explored}" if run.explored else f"took {run.env_steps:,.0f} env steps")
    if run.planned_success is None:
        return explored
    return f"{explored} and then reached {format_percent(run.planned_success)} of the places planned for in its model"


def _compare_success(runs: dict[str, Run]) -> list[str]:
    def rank(item: tuple[str, Run]) -> tuple[float, float]:
        run = item[1]
        return -run.num_solved / max(1, len(run.seeds)), float(np.median(run.steps_to_success))

    ranked = sorted(runs.items(), key=rank)
    if len(runs) <= _NAMED:
        return [f"{label} solved {_solved_seeds(run)}" for label, run in ranked]
    every = [(label, run) for label, run in ranked if run.num_solved == len(run.seeds)]
    none = [label for label, run in ranked if run.num_solved == 0]
    parts = [f"{label} solved {_solved_seeds(run)}" for label, run in ranked if 0 < run.num_solved < len(run.seeds)]
    if every:
        fewest = median_steps(every[0][1])
        first = ", ".join(label for label, run in every if median_steps(run) == fewest)
        solved = f"{len(every)} of {count_of(len(runs), 'run')} solved every seed"
        parts = [f"{solved}, {first} in the fewest env steps (median {fewest})", *parts]
    return [*parts, f"{', '.join(none)} solved none"] if none else parts


def _compare_returns(runs: dict[str, Run]) -> list[str]:
    finals = {label: run.final("eval_return_mean") for label, run in runs.items()}
    means = {label: float(final.mean()) for label, final in finals.items() if final is not None}
    ranked = sorted(means, key=lambda label: -means[label])
    broken = [label for label, run in runs.items() if label not in means and run.shows("eval_return_mean")]
    parts = [f"{label} ends with a return of {final_return(runs[label])}" for label in ranked]
    if len(ranked) > _NAMED:
        best, worst = ranked[0], ranked[-1]
        parts = [f"{best} has the highest return ({final_return(runs[best])})"]
        parts += [f"{worst} the lowest ({final_return(runs[worst])})"]
    return [*parts, f"{', '.join(broken)} ends with a return that is {_NOT_FINITE}"] if broken else parts


def _solved_seeds(run: Run) -> str:
    seeds = f"{run.num_solved} of {count_of(len(run.seeds), 'seed')}"
    if run.num_solved:
        return f"{seeds} (median {median_steps(run)} env steps)"
    return f"{seeds} in {run.env_steps:,.0f} env steps"


def differing_settings(runs: Sequence[Run]) -> list[str]:
    """Return, for each run of a task, its unusual settings, as `--set` takes them.

    A setting is unusual if at most half of the runs of the same algorithm share it; one of the task, of all runs.
    """
    flat = [_as_text(run.config) for run in runs]

    def is_usual(i: int, key: str) -> bool:
        peers = [
            peer for peer, run in zip(flat, runs, strict=True) if run.algo == runs[i].algo or key.startswith("task.")
        ]
        return sum(peer.get(key) == flat[i][key] for peer in peers) > len(peers) / 2

    return [
        " ".join(f"{key}={value}" for key, value in one.items() if key not in _OWN_COLUMN and not is_usual(i, key))
        for i, one in enumerate(flat)
    ]


def _differing_task_settings(runs: Sequence[Run]) -> list[str]:
    """Return, for each run, the settings of its task that are not the same in all runs."""
    flat = [_as_text({key: value for key, value in run.config["task"].items() if key not in _STEPPING}) for run in runs]
    keys = dict.fromkeys(key for one in flat for key in one)
    differ = [key for key in keys if len({one.get(key) for one in flat}) > 1]
    return [" ".join(f"{key}={one[key]}" for key in differ if key in one) for one in flat]


def _as_text(config: dict[str, Any]) -> dict[str, str]:
    return {
        key: f"{value:g}" if isinstance(value, float) else str(value).lower() for key, value in flatten(config).items()
    }
