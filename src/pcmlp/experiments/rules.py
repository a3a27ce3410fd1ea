"""The rules by which a claim of the paper is judged: each returns whether it is met, and the numbers that decide.

In the docstrings, "surely" is about the 95 % bootstrap interval over seeds: that of a difference lies above 0, that of
a ratio above 1. The numbers for words such as "few" and "quickly", which the paper does not define, are here.
"""

from collections.abc import Sequence

import numpy as np

from pcmlp.experiments.experiment import last_iteration, slope
from pcmlp.experiments.forgetting import CONTINUED, COVER, LATEST
from pcmlp.experiments.verdict import Finding, Kept
from pcmlp.published import MODEL_BASED, PAPER, dense_table
from pcmlp.report.reading import Run
from pcmlp.report.statistics import Estimate, deviation, mean_difference, mean_interval, ranks
from pcmlp.report.words import format_number, format_percent
from pcmlp.runs.summary import SUCCESS

FEW = 5  # iterations within which a task is solved "within very few model updates", or a bonus vanishes "quickly"
VANISHED = 0.1  # a bonus has vanished below this share of its peak
LEARNED = 0.05  # hand-egg is learned if success is surely above it: chance is 1 %
COVERED = 0.95  # a maze is covered from this share of its free cells on
UNEXPLORED = 0.5  # a maze is not explored below this share of its free cells
AS_FAST = 1.5  # a method is as fast as another if it takes at most this many times as long
POLYNOMIAL = 3.0  # largest slope of ln steps against ln horizon that counts as polynomial growth


def solves_early(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether every seed of every run succeeds within the first iterations."""
    first, said = _first_successes(kept, needs)
    return Finding(bool((first <= FEW).all()), said)


def solves(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether every seed of every run succeeds in some iteration."""
    first, said = _first_successes(kept, needs)
    return Finding(bool(np.isfinite(first).all()), said)


def never_solves(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test that no seed of any run ever succeeds."""
    first, said = _first_successes(kept, needs)
    return Finding(not np.isfinite(first).any(), said)


def _first_successes(kept: Kept, needs: Sequence[str]) -> tuple[np.ndarray, str]:
    """Return the iterations of the first success of all seeds of all runs, and the same in words."""
    firsts = [first_success(kept.run(place)) for place in needs]
    return np.concatenate(firsts), say_each(needs, [_solved(first) for first in firsts])


def say_each(needs: Sequence[str], texts: Sequence[str]) -> str:
    """Return what is said of each run, with its name if there are several."""
    if len(needs) == 1:
        return texts[0]
    return ", ".join(f"{place.partition('/')[2]} {text}" for place, text in zip(needs, texts, strict=True))


def first_success(run: Run) -> np.ndarray:
    """Return the iteration of each seed's first success; infinite for a seed without one."""
    curve = run.curve("eval_success")
    reached = curve.values >= SUCCESS
    return np.where(reached.any(axis=0), curve.iteration[reached.argmax(axis=0)], np.inf)


def _solved(first: np.ndarray) -> str:
    solved = first[np.isfinite(first)]
    return f"{len(solved)} of {len(first)} seeds" + (f" by iteration {solved.max():.0f}" if len(solved) else "")


def bonus_vanishes(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether the mean bonus of a step falls to a small share of its peak within the first iterations."""
    (place,) = needs
    bonus = kept.run(place).curve("bonus_mean")
    low = bonus.mean < VANISHED * bonus.mean.max()
    peak = f"{bonus.mean.max():.3g} at most, {bonus.mean[-1]:.3g} at iteration {bonus.iteration[-1]:.0f}"
    if not low.any():
        return Finding(False, f"{peak}, never below {format_percent(VANISHED)} of the peak")
    when = bonus.iteration[low.argmax()]
    return Finding(bool(when <= FEW), f"{peak}, below {format_percent(VANISHED)} of the peak from iteration {when:.0f}")


def succeeds_more(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether on every task, the first of two runs surely has more success at the end than the second."""
    return _is_more(kept, needs, "eval_success")


def returns_more(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether on every task, the first of two runs surely has a higher return at the end than the second."""
    return _is_more(kept, needs, "eval_return_mean")


def _is_more(kept: Kept, needs: Sequence[str], column: str) -> Finding:
    scores = {place: final(kept, place, column) for place in needs}
    surely = [
        mean_difference([scores[more]], [scores[less]]) for more, less in zip(needs[::2], needs[1::2], strict=True)
    ]
    said = say_each(needs, [format_number(float(of.mean())) for of in scores.values()])
    return Finding(
        all(difference.low > 0 for difference in surely),
        f"{said}; difference {', '.join(map(_show_interval, surely))}",
    )


def is_steadier(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether the first of two runs surely succeeds in more evaluations than the second, counted from each seed's
    first success, on average over the tasks."""
    steady = [_share_after_success(kept.run(place)) for place in needs]
    difference = mean_difference(steady[::2], steady[1::2])
    said = say_each(needs, [f"{share.mean():.2f}" for share in steady])
    return Finding(difference.low > 0, f"{said}; mean difference {_show_interval(difference)}")


def _share_after_success(run: Run) -> np.ndarray:
    """Return each seed's share of successful evaluations from its first success on; 0 without one."""
    curve = run.curve("eval_success")
    since = np.maximum.accumulate(curve.values >= SUCCESS, axis=0)
    return ((curve.values >= SUCCESS) & since).sum(axis=0) / np.maximum(since.sum(axis=0), 1)


def final(kept: Kept, place: str, column: str) -> np.ndarray:
    """Return the last numbers of a run, [seeds]; NaN if a seed has none."""
    found = kept.run(place).final(column)
    return np.array([np.nan]) if found is None else found


def _show_interval(estimate: Estimate) -> str:
    return f"{format_number(estimate.value)} [{format_number(estimate.low)}, {format_number(estimate.high)}]"


def is_learned(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether the success at the end is surely above chance."""
    (place,) = needs
    success = final(kept, place, "eval_success")
    low, high = (float(end[0]) for end in mean_interval(success[None]))
    return Finding(low > LEARNED, f"success {format_percent(success.mean())} [{100 * low:.1f}, {100 * high:.1f}]")


def reaches_published(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether our mean ± standard deviation reaches up to the paper's, or lies above it."""
    (place,) = needs
    returns, quoted = final(kept, place, "eval_return_mean"), dense_table()[kept.run(place).task][PAPER]
    ours, std = float(returns.mean()), deviation(returns)
    said, theirs = (f"{format_number(mean)} ± {format_number(spread)}" for mean, spread in ((ours, std), quoted[:2]))
    return Finding(ours + std >= quoted.mean - quoted.std, f"{said}, the paper's {theirs}")


def ranks_first(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether our mean rank and our median rank over all tasks are better than those of each method of the
    benchmark."""
    means = {}
    for place in needs:
        task = kept.run(place).task
        others = {name: quoted.mean for name, quoted in dense_table()[task].items() if name in MODEL_BASED}
        means[task] = {PAPER: float(final(kept, place, "eval_return_mean").mean()), **others}
    found = ranks(means)
    ours = found.pop(PAPER)
    best = min(rank.mean for rank in found.values()), min(rank.median for rank in found.values())
    said = f"mean rank {ours.mean:.1f}, median {ours.median:.1f}; the benchmark's best {best[0]:.1f} and {best[1]:.1f}"
    return Finding(ours.mean < best[0] and ours.median < best[1], said)


def is_best_in_half(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether on at least half of the tasks, our mean return is above those of TRPO and of the benchmark's
    model-based methods."""
    best = []
    for place in needs:
        task = kept.run(place).task
        others = [quoted.mean for name, quoted in dense_table()[task].items() if name in (*MODEL_BASED, "TRPO")]
        if final(kept, place, "eval_return_mean").mean() > max(others):
            best.append(task)
    said = f"best on {len(best)} of {len(needs)}" + (f": {', '.join(best)}" if best else "")
    return Finding(2 * len(best) >= len(needs), said)


def covers_quickly(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether the policies have entered almost all free cells of the maze after half of the steps."""
    (place,) = needs
    curve = kept.run(place).curve("coverage")
    half = curve.mean[curve.env_steps <= curve.env_steps[-1] / 2][-1]
    return Finding(bool(half >= COVERED), f"{half:.2f} after half of the steps, {curve.mean[-1]:.2f} at the end")


def stays_near_the_start(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether the policies have entered less than half of the free cells of the maze at the end."""
    (place,) = needs
    coverage = final(kept, place, "coverage").mean()
    return Finding(bool(coverage < UNEXPLORED), f"coverage {coverage:.2f} at the end")


def is_as_fast(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether the first run needs about as much time for an env step as each of the others, or less."""
    seconds = {}
    for place in needs:
        run = kept.run(place)
        wall, steps = last_iteration(run.path, len(run.seeds))
        seconds[run.algo] = 1_000 * wall / steps
    ours, *others = seconds.values()
    said = ", ".join(f"{algo} {s:.2f} s" for algo, s in seconds.items())
    return Finding(all(ours <= AS_FAST * other for other in others), f"{said} for 1,000 env steps")


def forgets_without_cover(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether on every task, a model that continues with the latest policy's rows alone is surely worse about
    earlier policies than one that continues with the rows of the cover."""
    said, surely = [], []
    for place in needs[::2]:
        rows = [row for row in kept.table(place) if row["begins"] == CONTINUED]
        last = max(int(row["iteration"]) for row in rows)
        ends = [row for row in rows if int(row["iteration"]) == last]
        cover, latest = (
            np.array([float(row["error_earlier"]) for row in ends if row["fitted_to"] == data])
            for data in (COVER, LATEST)
        )
        low, high = (float(end[0]) for end in mean_interval((latest / cover)[None]))
        said.append(f"{np.mean(latest / cover):.2f} times the error [{low:.2f}, {high:.2f}]")
        surely.append(low > 1)
    return Finding(all(surely), say_each(needs[1::2], said))


def grows_polynomially(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether every seed opens the locks of all lengths, and ln steps against ln horizon has a small slope."""
    runs = [kept.run(place) for place in needs]
    steps = np.array([run.steps_to_success for run in runs])
    medians = [
        {"H": run.config["task"]["horizon"], "steps": np.median(of)} for run, of in zip(runs, steps, strict=True)
    ]
    said = ", ".join(f"{row['steps']:,.0f} at H = {row['H']}" for row in medians)
    if not np.isfinite(steps).all():
        return Finding(False, f"{said}; {np.isinf(steps).sum()} seeds opened none")
    grade = float(slope(medians, "H", "steps"))
    return Finding(grade <= POLYNOMIAL, f"median env steps {said}; slope {grade:.2f}")


def is_near_optimal(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether every seed of every run comes close to the optimum; `needs` has a table and a run by turns."""
    said = []
    for table, run in zip(needs[::2], needs[1::2], strict=True):
        (row,) = [row for row in kept.table(table) if row["algorithm"] == run.split("/")[-1]]
        said.append(next(text for name, text in row.items() if name.startswith("within")))
    close = [text.split(" of ") for text in said]
    return Finding(all(near == seeds for near, seeds in close), say_each(needs[1::2], said))


def stays_under_bound(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether in every row of the table, at least 90 % of the runs lie under the bound, which is for δ = 0.1."""
    (place,) = needs
    shares = [float(row["share_under_bound"]) for row in kept.table(place)]
    return Finding(
        min(shares) >= 0.9, f"in each of {len(shares)} rows, {format_percent(min(shares))} of the runs or more"
    )


def needs_no_optimism(kept: Kept, needs: Sequence[str]) -> Finding:
    """Test whether PC-MLP is good on every seed in every dimension, and whether the searches that an oracle needs grow
    by a larger factor for the optimistic oracle than for the ordinary one."""
    samples, search = map(kept.table, needs)
    near = [row["near"].split(" of ") for row in samples if row["method"] == "pcmlp"]
    needed = {
        oracle: [float(row["searches_needed"] or "inf") for row in search if row["oracle"] == oracle]
        for oracle in ("ordinary", "optimistic")
    }
    growth = {oracle: numbers[-1] / numbers[0] for oracle, numbers in needed.items()}
    counts = {
        oracle: ", ".join("more" if np.isinf(n) else format_number(n) for n in numbers)
        for oracle, numbers in needed.items()
    }
    parameters = ", ".join(row["parameters"] for row in search if row["oracle"] == "ordinary")
    said = f"PC-MLP is near on {', '.join(' of '.join(of) for of in near)} seeds; searches needed with {parameters} "
    said += f"parameters: optimistic {counts['optimistic']}, ordinary {counts['ordinary']}"
    enough = all(good == seeds for good, seeds in near)
    # NaN, where an oracle never finds enough, is not above anything.
    return Finding(enough and growth["optimistic"] > 1.0 and growth["optimistic"] > growth["ordinary"], said)
