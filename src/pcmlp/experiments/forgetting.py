"""Forgetting: how much worse a model is about earlier policies if it is fitted to the latest policy's data alone.

paper: sections 1 and 4 state that fitting the model to samples of the policy cover avoids catastrophic forgetting /
here: it is measured. After each iteration n of a run, one model is fitted to the rows of all policies 1 ... n (the
cover), and another one to those of policy n alone (the latest). Both have the same network, initial weights and number
of SGD steps. Each fit is made twice: once from the initial weights, and once continued from the fit of the iteration
before, which is how a model forgets. The units of inputs and outputs are always computed from the rows of the cover. In
units of the latest rows alone, earlier states could be very large numbers, and the errors there would be due to the
units.

    error_i = mean over held-out rows of policy i of | (P(s, a) - s') / std |,   std of s' - s over all rows of the seed
    earlier = mean over i < n of error_i,    own = error_n

All rows were collected by the run. The rows of each policy are cut into twenty blocks, and every fifth block is held
out of all fits.
"""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.stages import with_executed_actions
from pcmlp.experiments.experiment import Done, Experiment, Row, Rows, Tables, write_table
from pcmlp.experiments.job import PAPER_SEEDS, Job
from pcmlp.models import Neural
from pcmlp.models.geometry import Chart
from pcmlp.models.neural import NeuralModel, fit_units
from pcmlp.programs import program
from pcmlp.replay import Replay, Transitions, drop_nonfinite
from pcmlp.runs.config import build, seed_keys
from pcmlp.runs.episodes import read
from pcmlp.runs.metrics import read_table
from pcmlp.trees import as_inputs, map_leading

# paper: no such experiment / here: ten iterations with the paper's settings, in which one policy is continued
_STEPS = {"mountain-car": 20_000, "point-umaze": 20_000, "half-cheetah": 40_000}
COVER, LATEST = "cover", "latest"  # whose rows a model is fitted to
FRESH, CONTINUED = "fresh", "continued"  # the weights that a fit begins with
_BLOCKS, _EVERY = 20, 5  # every fifth of twenty blocks is held out


class Log(eqx.Module):
    """All rows of a seed in the order in which they were collected; or of all seeds, with a leading axis."""

    rows: Transitions
    iteration: Int[Array, "*seeds n"]
    held_out: Bool[Array, "*seeds n"]

    def fitted_to(self, n: Int[Array, ""], latest_only: Bool[Array, ""]) -> Replay:
        """Return the rows for a fit after iteration n. All fits have a buffer of the same size, in which the other rows
        are marked as not valid, so one compiled program makes them all."""
        known = (self.iteration == n) | ((self.iteration < n) & ~latest_only)
        chosen = self.rows.valid & known & ~self.held_out
        return Replay(eqx.tree_at(lambda t: t.valid, self.rows, chosen), jnp.zeros((), int))


def jobs() -> list[Job]:
    """Return the runs whose rows are used."""
    own = ("preset=paper", "eval_episodes=5")
    return [Job("forgetting", task, "pcmlp", "pcmlp", steps, own, PAPER_SEEDS) for task, steps in _STEPS.items()]


def read_log(job: Job, done: Done) -> Log | None:
    """Return the rows of a run, with a leading axis of seeds; None if only the run's results are left."""
    if (run := done.run(job)) is None:
        return None
    mdp = build(job.config())[0].world.mdp
    records = list(read(run / "episodes"))
    rows = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts, axis=1)), *(each.rows for each in records))
    iteration = np.concatenate([np.full(each.rows.valid.shape[1], each.iteration) for each in records])
    cleaned = jax.vmap(lambda of_seed: drop_nonfinite(with_executed_actions(of_seed, mdp))[0])(rows)
    held_out = np.stack([hold_out(valid, iteration) for valid in np.asarray(cleaned.valid)])
    return Log(cleaned, jnp.broadcast_to(jnp.asarray(iteration), held_out.shape), jnp.asarray(held_out))


def hold_out(valid: np.ndarray, iteration: np.ndarray) -> np.ndarray:
    """Return which rows are held out: every fifth of twenty equal blocks of each iteration's valid rows. A block has
    consecutive rows: they are almost equal, so single rows between fitted ones would be no test."""
    held_out = np.zeros_like(valid)
    for n in np.unique(iteration):
        rows = np.flatnonzero(valid & (iteration == n))
        block = np.arange(len(rows)) * _BLOCKS // max(len(rows), 1)
        held_out[rows[block % _EVERY == _EVERY - 1]] = True
    return held_out


@program
def fit(
    keys: Key[Array, " seeds"],
    kind: Neural,
    model: NeuralModel,
    log: Log,
    n: Int[Array, ""],
    latest_only: Bool[Array, ""],
) -> NeuralModel:
    """Continue to fit each seed's network, after iteration n."""

    def fit_one(key: Key[Array, ""], model: NeuralModel, log: Log) -> NeuralModel:
        units = fit_units(log.fitted_to(n, jnp.array(False)).data, model.chart)
        return kind.train_network(key, model, log.fitted_to(n, latest_only), units)[0]

    return map_leading(fit_one, keys, model, log)


@program
def measure_errors(keys: Key[Array, " seeds"], model: NeuralModel, log: Log) -> Float[Array, "seeds n"]:
    """Return each seed's errors of one step, NaN at rows that are not held out."""

    def measure_one(key: Key[Array, ""], model: NeuralModel, log: Log) -> Float[Array, " n"]:
        state, action, next_state = log.rows.state, log.rows.action, log.rows.next_state
        # Of all rows, so that all models are measured in the same units.
        unit = fit_units(log.rows, Chart.plain(state.shape[1]))[1].std
        predicted = jax.vmap(model, (None, 0, 0))(key, state, action)
        error = jnp.linalg.norm((predicted - next_state) / unit[None, :], axis=1)
        return jnp.where(log.rows.valid & log.held_out, error, jnp.nan)

    return map_leading(measure_one, keys, model, log)


def compare_fits(job: Job, log: Log) -> Rows:
    """Return a row for each seed, iteration and fit."""
    problem, algo = build(job.config())
    assert isinstance(algo, Deep)
    mdp, keys = problem.world.mdp, seed_keys(job.seeds)
    assert isinstance(algo.model, Neural)
    # A fit takes as many SGD steps as an iteration of the run does in all of its rounds.
    kind = dataclasses.replace(algo.model, steps=algo.rounds * algo.model.steps)
    initial = eqx.filter_vmap(lambda key: kind.init(key, mdp))(keys)
    iteration = np.asarray(log.iteration[0])
    fits = list(itertools.product((FRESH, CONTINUED), (COVER, LATEST)))
    fitted: dict[tuple[str, str], NeuralModel] = dict.fromkeys(fits, initial)
    rows: Rows = []
    for n in range(1, int(iteration.max()) + 1):
        fit_keys = jax.vmap(lambda key, n=n: jr.fold_in(key, n))(keys)  # the same for all fits
        for begins, data in fits:
            before = initial if begins == FRESH else fitted[begins, data]
            fitted[begins, data] = fit(fit_keys, as_inputs(kind), before, log, jnp.array(n), jnp.array(data == LATEST))
            errors = np.asarray(measure_errors(fit_keys, fitted[begins, data], log))
            for seed, of_seed in zip(job.seeds, errors, strict=True):
                of_policies = [float(np.nanmean(of_seed[iteration == i])) for i in range(1, n + 1)]
                earlier = round(float(np.mean(of_policies[:-1])), 5) if n > 1 else ""
                named = {"seed": seed, "iteration": n, "begins": begins, "fitted_to": data}
                rows.append({**named, "error_earlier": earlier, "error_own": round(of_policies[-1], 5)})
        print(f"  {job.where}: models fitted after iteration {n}", flush=True)
    return rows


def errors_of(job: Job, done: Done) -> Rows:
    """Return the errors of the fits to a run: those kept beside it, or new ones if the run still has its rows."""
    table = done.result(job) / "errors.csv"
    if table.exists():
        return [dict(row) for row in read_table(table)]
    if (log := read_log(job, done)) is None:
        return []
    rows = compare_fits(job, log)
    write_table(table, rows)
    return rows


def tables(done: Done) -> Tables:
    """Yield the errors of all fits, and for each task and kind of fit the ratio of errors after the last iteration."""
    errors = [{"task": job.task, **row} for job in done.jobs for row in errors_of(job, done)]
    yield "forgetting", errors
    yield "summary", [summarise(task, begins, errors) for task, begins in dict.fromkeys(map(kind_of, errors))]


def kind_of(row: Row) -> tuple[str, str]:
    """Return the task of a row, and how its fit began."""
    return str(row["task"]), str(row["begins"])


def summarise(task: str, begins: str, errors: Rows) -> Row:
    """Return the mean errors after the last iteration, and the mean and standard deviation over seeds of the ratio: the
    error of the model of the latest data, divided by that of the model of the cover's data."""
    of_kind = [row for row in errors if kind_of(row) == (task, begins)]
    last = max(int(row["iteration"]) for row in of_kind)
    ends = [row for row in of_kind if int(row["iteration"]) == last]

    def column(name: str, data: str) -> np.ndarray:
        return np.array([float(row[name]) for row in ends if row["fitted_to"] == data and row[name] != ""])

    row: Row = {"task": task, "begins": begins, "iterations": last, "seeds": len(ends) // 2}
    for name in ("error_earlier", "error_own"):
        of_cover, of_latest = column(name, COVER), column(name, LATEST)
        ratio = of_latest / of_cover
        spread = round(float(np.std(ratio, ddof=1)), 3) if len(ratio) > 1 else ""
        means = {f"{name}_{data}": mean_of(x) for data, x in ((COVER, of_cover), (LATEST, of_latest))}
        row |= {**means, f"ratio_{name[6:]}": mean_of(ratio), f"ratio_{name[6:]}_std": spread}
    return row


def mean_of(found: np.ndarray) -> float | str:
    """Return the rounded mean; empty if there is nothing to average."""
    return round(float(np.mean(found)), 3) if len(found) else ""


FORGETTING = Experiment(
    name="forgetting",
    title="What a model forgets",
    place="sections 1 and 4",
    shows="error of a model on earlier policies, fitted to the cover or to the latest policy",
    jobs=jobs,
    tables=tables,
)
