"""Kernel regulators: Algorithm 1 with random Fourier features, compared with the exact kernel.

paper: sections 1 and 3 take P from a reproducing kernel Hilbert space, where phi may have infinitely many coordinates.
With K samples of each policy, all in X, the bonus and the information gain need the kernel k only:

    lambda phi^T Sigma_n^-1 phi = k(x, x) - k(x, X) (k(X, X) + lambda K I)^-1 k(X, x)
    ln det(I + (Sigma_n - lambda I) / lambda) = ln det(I + k(X, X) / (lambda K))

Random Fourier features have E phi(x)^T phi(y) = k(x, y). So the left sides tend to the right ones as features are
added, and their distance shows how many features are enough. For the RBF kernel in n dimensions, the largest gain of N
samples grows like (ln N)^(n + 1) (Srinivas et al. 2010).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from pcmlp import theory
from pcmlp.algorithms.framework import PCMLP, learn
from pcmlp.experiments.experiment import Done, Row, Rows, Tables, slope, solved_columns
from pcmlp.experiments.job import NO_BONUS, NO_COVER, SEEDS, Job, Scale
from pcmlp.experiments.theorems import gaps, make_row
from pcmlp.features import Fourier, FourierFeatures
from pcmlp.models import KNR, nearest_member
from pcmlp.models.knr import KNRTransition, constrained_least_squares
from pcmlp.replay import Transitions
from pcmlp.runs.certificate import proved_scale
from pcmlp.runs.config import RunConfig, build, resolve, seed_keys
from pcmlp.runs.metrics import read_metrics
from pcmlp.types import MDP, Features

_KNR, _PENDULUM, _RBF = "pcmlp-knr", "knr-pendulum", "knr-rbf"
_STEPS = 360
DIMS, DIM = (20, 50, 100, 200), 100  # features of the sweep, and of the sweep of bandwidths
WIDTHS, WIDTH = (0.5, 1.0, 2.0, 4.0, 16.0), 2.0  # bandwidths, in stds of the box
_DEGREES = (1, 2, 3)
_CONTROLS = {"no-bonus": NO_BONUS, "covariance-off": NO_COVER}
_CERTIFIED, _CERTIFIED_STEPS = ("theorem", "proved", "preset"), 120  # four policies
_CHEAP = ("planner.num_plans=25", "planner.elites=3", "eval_episodes=1", "eval_every=0")


# The runs


def classes() -> dict[str, tuple[str, ...]]:
    """Return the settings of each class of models: the task's own, kernels of many sizes and widths, and
    polynomials."""
    made: dict[str, tuple[str, ...]] = {"own": ()}
    made |= {name_kernel(dim, WIDTH): _fourier(dim, WIDTH) for dim in DIMS}
    made |= {name_kernel(DIM, width): _fourier(DIM, width) for width in WIDTHS}
    return made | {f"degree-{k}": ("features.name=polynomial", f"features.degree={k}") for k in _DEGREES}


def name_kernel(dim: int, width: float) -> str:
    """Return the name of a class of random Fourier features."""
    return f"features-{dim}" if width == WIDTH else f"bandwidth-{width:g}"


def _fourier(dim: int, width: float) -> tuple[str, ...]:
    return ("features.name=fourier", f"features.dim={dim}", f"features.bandwidth={width:g}")


def jobs() -> list[Job]:
    """Return the runs: the classes, the controls, and the certificates."""
    kernel = _fourier(DIM, WIDTH)
    runs = {
        _PENDULUM: classes() | {label: (*kernel, off) for label, off in _CONTROLS.items()},
        _RBF: {"own": ()} | {label: (off,) for label, off in _CONTROLS.items()},
    }
    learned = [_job(task, label, _KNR, settings) for task, made in runs.items() for label, settings in made.items()]
    played = [_job(task, "random", "random", ()) for task in runs]
    certified = [certified_job(task, label) for task in runs for label in _CERTIFIED]
    return [*learned, *played, *certified]


def _job(task: str, label: str, algo: str, settings: tuple[str, ...]) -> Job:
    return Job("theory", task, label, algo, _STEPS, settings)


def certified_job(task: str, label: str) -> Job:
    """Return a hundred runs with certificates: `theorem` has the theorem's c and ridge 1, `proved` the least c that is
    proved with the preset's ridge, `preset` the defaults."""
    changed: tuple[str, ...] = ()
    if label != "preset":
        changed = _proved_settings(resolve(task, _KNR, (0,), _CERTIFIED_STEPS, _CHEAP), label)
    return Job("theory", task, f"certificate-{label}", _KNR, _CERTIFIED_STEPS, (*_CHEAP, *changed), tuple(range(100)))


def _proved_settings(config: RunConfig, label: str) -> tuple[str, ...]:
    problem, algo = build(config)
    assert isinstance(algo, PCMLP)
    ridge = theory.RIDGE if label == "theorem" else algo.ridge
    c = proved_scale(dataclasses.replace(algo, ridge=ridge), problem.world.mdp, config.num_iterations)
    return (f"bonus_scale={c!r}", f"ridge={ridge:g}")


def tables(done: Done) -> Tables:
    """Yield `kernel_learning`, which shows what is learned with each class of models, and `kernel_certificate`.

    J* is not known, and no planner finds the swing-up in the true dynamics without a bonus. In its place is the mean
    return of the runs with the task's own class, which is at most J*. So a certificate below the gap to it is also
    below the true gap.
    """
    learned: Rows = []
    certified: Rows = []
    named = {job.name for job in jobs()}  # other modules have runs of these tasks too
    for task in (_PENDULUM, _RBF):
        runs = {label: job for label, job in done.jobs_of(task).items() if job.name in named}
        best = best_known(done, runs["own"]) if "own" in runs else None
        for label, job in runs.items():
            summary = done.summary(job)
            if not label.startswith("certificate-"):
                learned.append(solved_columns(job, summary))
            elif best is not None:
                gap = gaps(read_metrics(done.result(job)), len(job.seeds), best)
                row = make_row(job, gap, summary["certificate"]["kind"], best)
                certified.append({**row, "optimum_is": "the mean return of the runs `own`: at most J*"})
    for name, rows in (("kernel_learning", learned), ("kernel_certificate", certified)):
        if rows:
            yield name, rows


def best_known(done: Done, job: Job) -> float:
    """Return the mean final return of a run's seeds."""
    return float(np.mean([seed["final_return"] for seed in done.summary(job)["seeds"]]))


# Without runs: the classes on the same data


class Data(NamedTuple):
    """The pairs that policies visited, [policies * K, n], in order, and the next states."""

    mdp: MDP
    pairs: Float[np.ndarray, "m n"]
    next_state: Float[np.ndarray, "m s"]
    per_policy: int  # K
    ridge: float

    def phi(self, features: Features) -> Float[np.ndarray, "m d"]:
        """Return the features of all pairs."""
        return self._map(features)

    def means(self) -> Float[np.ndarray, "m s"]:
        """Return the true means of the next states."""
        return self._map(self.truth.mean)

    @property
    def truth(self) -> KNRTransition:
        """The true dynamics."""
        assert isinstance(self.mdp.transition, KNRTransition)
        return self.mdp.transition

    @property
    def sigma(self) -> float:
        """The std of the noise."""
        return float(self.truth.sigma)

    def _map(self, function: Features) -> Float[np.ndarray, "m k"]:
        size = self.mdp.states.size
        made = jax.vmap(function)(jnp.asarray(self.pairs[:, :size]), jnp.asarray(self.pairs[:, size:]))
        return np.asarray(made, np.float64)


def explored(scale: Scale, count: int) -> list[Data]:
    """Return the data of each seed of a run that explores `knr-pendulum` with the kernel's features."""
    seeds = SEEDS[:count]
    job = Job("theory", _PENDULUM, "data", _KNR, _STEPS, (*_fourier(DIM, WIDTH), "eval_every=0"), seeds)
    config = Scale(scale.name, iterations=scale.iterations, tiny=scale.tiny).apply(job).config()
    problem, algo = build(config)
    assert isinstance(algo, PCMLP)
    visits = [rows for _, _, rows in learn(seed_keys(seeds), algo, problem, config.num_iterations)]
    both = [np.concatenate([rows.state, rows.action], axis=2) for rows in visits]
    pairs, ends = (np.concatenate(x, axis=1) for x in (both, [rows.next_state for rows in visits]))
    mdp, K = problem.world.mdp, both[0].shape[1]
    return [Data(mdp, pairs[i], ends[i], K, float(algo.ridge)) for i in range(len(seeds))]


def measure_classes(scale: Scale) -> Rows:
    """Compare all classes on the same data: how near each comes to the truth, how well it predicts the data of another
    seed, and how far its bonus and its information gain are from those of the exact kernel."""
    data = explored(scale, scale.size("lemma_runs", 4))
    rows: Rows = []
    for label, settings in classes().items():
        config = resolve(_PENDULUM, _KNR, (0,), _STEPS, settings)
        problem, algo = build(config)
        assert isinstance(algo, PCMLP)
        assert isinstance(algo.model, KNR)
        assert isinstance(config.algorithm, PCMLP)
        phi, radius, drawn = algo.features, algo.model.radius, config.algorithm.features
        assert callable(phi)
        assert radius is not None
        near = nearest_member(problem.world.mdp, phi, radius)
        assert near is not None
        width = drawn.bandwidth if isinstance(drawn, Fourier) else None
        pairs = zip(data, data[1:] + data[:1], strict=True)  # data of a seed, and held-out data of the next one
        found = [compare(own, other, phi, radius, width) for own, other in pairs]
        mean = {name: float(np.mean([x[name] for x in found])) for name in found[0]}
        distance = {"nearest_error": near.error, "nearest_largest": near.largest}  # over the box, in units of sigma
        row = {"class": label, "features": near.W.shape[1], "F": radius, **distance, **mean, "seeds": len(data)}
        rows.append({name: "" if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()})
    return rows


def compare(own: Data, other: Data, phi: Features, radius: float, width: float | None) -> dict[str, float]:
    """Return the error of a fit on held-out data, in units of sigma, and the distances from the exact kernel of this
    bandwidth; NaN for features that approximate no kernel."""
    mine, held_out, weight = own.phi(phi), other.phi(phi), own.ridge * own.per_policy
    W = constrained_least_squares(jnp.asarray(mine, jnp.float32), jnp.asarray(own.next_state), radius)
    errors = np.linalg.norm(held_out @ np.asarray(W, np.float64).T - other.means(), axis=1)
    row = {
        "held_out_error": float(np.sqrt(np.mean(errors**2))) / own.sigma,
        "info_gain": information_gain(mine @ mine.T, weight),
        "kernel_info_gain": math.nan,
        "bonus_error": math.nan,  # mean distance from the exact kernel's bonus, as a share of its mean
    }
    if width is None:
        return row
    assert isinstance(phi, FourierFeatures)
    X, Y = (x.pairs / np.asarray(phi.units, np.float64) for x in (own, other))
    exact, across = rbf(X, X, width), rbf(Y, X, width)
    bonus = np.sqrt(posterior_variance(np.ones(len(Y)), across, exact, weight))
    drawn = np.sqrt(posterior_variance(np.sum(held_out**2, axis=1), held_out @ mine.T, mine @ mine.T, weight))
    error = float(np.mean(np.abs(drawn - bonus)) / np.mean(bonus))
    return {**row, "kernel_info_gain": information_gain(exact, weight), "bonus_error": error}


def measure_growth(scale: Scale) -> Rows:
    """Return how the information gain grows with the number N of samples, for the exact kernel and for features of it:
    for the pairs of a run's policies, and for uniform pairs of the box, which are more diverse than those of any
    policy.

    `power` is the slope of ln(gain) against ln(ln(N)) from the row before to this one. For large N it is known to be at
    most n + 1 = 5.
    """
    run = explored(scale, 1)[0]
    states, actions = run.mdp.boxes
    sizes = [n for n in (30, 100, 300, 1_000, 3_000) if n <= max(100, scale.size("lemma_samples", 3_000))]
    low, high = (np.concatenate([a, b]) for a, b in ((states.low, actions.low), (states.high, actions.high)))
    uniform = np.random.default_rng(0).uniform(low, high, (sizes[-1], low.size))
    steps = range(1, len(run.pairs) // run.per_policy + 1)
    rows: Rows = []
    made = {"policies": (run.pairs, [run.per_policy * n for n in steps]), "uniform": (uniform, sizes)}
    for source, (pairs, counts) in made.items():
        before: Row | None = None
        for count in counts:
            logs = {"samples": count, "ln_samples": math.log(count), **gains(run._replace(pairs=pairs[:count]))}
            power = slope([before, logs], "ln_samples", "kernel") if before else ""
            rows.append({"pairs": source, **logs, "power": power})
            before = logs
    return rows


def gains(data: Data) -> dict[str, float]:
    """Return the information gain of the exact kernel, and of random features of it."""
    weight, example = data.ridge * data.per_policy, Transitions.example(*data.mdp.boxes)
    drawn = {dim: Fourier(dim=dim, bandwidth=WIDTH).draw(jr.key(0), data.mdp, example) for dim in (20, 100, 400)}
    units = next(phi.units for phi in drawn.values() if isinstance(phi, FourierFeatures))
    X = data.pairs / np.asarray(units, np.float64)
    found = {"kernel": information_gain(rbf(X, X, WIDTH), weight)}
    for dim, phi in drawn.items():
        values = data.phi(phi)
        smaller = values.T @ values if len(values) > dim else values @ values.T
        found[f"features_{dim}"] = information_gain(smaller, weight)
    return found


# The kernel form


def rbf(x: Float[np.ndarray, "m n"], y: Float[np.ndarray, "k n"], bandwidth: float) -> Float[np.ndarray, "m k"]:
    """Return exp(-|x - y|^2 / (2 bandwidth^2)), the kernel that Fourier features approximate."""
    squares = np.sum(x**2, axis=1)[:, None] + np.sum(y**2, axis=1)[None, :] - 2 * x @ y.T
    return np.exp(-np.maximum(squares, 0.0) / (2 * bandwidth**2))


def posterior_variance(
    own: Float[np.ndarray, " q"], across: Float[np.ndarray, "q m"], among: Float[np.ndarray, "m m"], weight: float
) -> Float[np.ndarray, " q"]:
    """Return k(x, x) - k(x, X) (k(X, X) + weight I)^-1 k(X, x) of each x, which is lambda phi^T Sigma^-1 phi for
    weight = lambda K."""
    solved = np.linalg.solve(among + weight * np.eye(len(among)), across.T)
    return np.maximum(own - np.sum(across * solved.T, axis=1), 0.0)


def information_gain(among: Float[np.ndarray, "m m"], weight: float) -> float:
    """Return ln det(I + k(X, X) / weight)."""
    return float(np.linalg.slogdet(np.eye(len(among)) + among / weight)[1])


MEASURED: dict[str, Callable[[Scale], Rows]] = {"kernel_classes": measure_classes, "kernel_growth": measure_growth}
