"""The parameters N, M, K, c of the two detailed theorems (paper: appendix A.4), as stated and corrected.

    linear MDPs   20 H^3 d sqrt(ln(1 + N) / N) <= epsilon           M >= 2 N ln(|Upsilon| N / delta)
    KNRs          10 H^2 c sqrt(d ln(1 + N) / N) <= epsilon         M >= 9 N^2 (F^2 + F B)^2 ln^2(N / delta)
    both          K >= 32 N^2 ln(8 N d / delta) / lambda^2          lambda = 1

The proofs need these inequalities, and the closed forms printed below them do not always satisfy them. `*_stated` are
those closed forms, `*_corrected` the smallest numbers that satisfy the inequalities; docs/theory.md derives each
correction. The numbers are plain Python numbers, because the smallest N is far larger than in any run.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcmlp.errors import ConfigError

RIDGE = 1.0  # lambda of both theorems; the elliptical potential lemma is false for a small lambda
_LARGEST_EXPONENT = 60  # a larger N is refused: M and K grow like N^2 and must fit into a float
_LARGEST = 1e12  # inputs must be between 1 / _LARGEST and _LARGEST, for the same reason

Real = int | float  # the type checks of the tests do not accept an int as a float
Row = tuple[str, float, float, str]


@dataclass(frozen=True)
class Parameters:
    """The inputs (N, M, K, c, lambda) of Algorithm 1, and the state bound B where there is one."""

    N: int
    M: int
    K: int
    c: float
    ridge: float = RIDGE
    B: float | None = None

    @property
    def samples(self) -> int:
        """The number of draws from d_pi in all iterations: N M to fit models and N K to estimate covariances."""
        return self.N * (self.M + self.K)

    def env_steps_bound(self, horizon: int) -> int:
        """Return a bound on the env steps: a draw from d_pi takes at most a whole episode."""
        return self.samples * horizon


# Linear MDPs


def linear_mdp_gap(N: int, horizon: int, dim: int) -> float:
    """Return the suboptimality that the proof guarantees after N iterations, with its c <= 2 H sqrt(d): 20 H^3 d ..."""
    return suboptimality(N, horizon, dim, 2 * horizon * math.sqrt(dim))


def linear_mdp_error(N: int, M: int, delta: Real, members: int) -> float:
    """Return N eps_stat of the maximum-likelihood lemma, for all N iterations at once: must be at most 1."""
    return model_error(N, M, delta, math.log(members))


def model_error(N: int, M: int, delta: Real, log_members: Real) -> float:
    """Return `linear_mdp_error` of a class of which only ln |Upsilon|, or what replaces it, is known."""
    return 2 * N * (log_members + math.log(N / delta)) / M


def linear_mdp_scale(horizon: int, dim: int, ridge: Real = RIDGE, error: Real = 1) -> float:
    """Return c = H sqrt(lambda d + N eps_stat) of the optimism lemma; the theorem has lambda = N eps_stat = 1."""
    return horizon * math.sqrt(ridge * dim + error)


def linear_mdp_run_scale(horizon: int, dim: int, ridge: Real, N: int, K: int, delta: Real, log_members: Real) -> float:
    """Return (H / 2) sqrt(lambda d + 2 ln(|Upsilon| N / delta) / K), not in the paper: the c with which a run is
    optimistic if it fits its models to the same samples as its covariance (docs/theory.md, the certificate)."""
    return horizon / 2 * math.sqrt(ridge * dim + 2 * (log_members + math.log(N / delta)) / K)


def linear_mdp_stated(horizon: int, dim: int, epsilon: Real, delta: Real, members: int) -> Parameters:
    """Return the closed forms of the theorem for linear MDPs."""
    _check_linear_mdp(horizon, dim, epsilon, delta, members)
    x = horizon**6 * dim**2 / epsilon**2
    N = _at_least_one(80 * x * math.log(40 * x))
    M = _at_least_one(2 * N * math.log(members * N / delta))
    return Parameters(N, M, covariance_samples(N, dim, delta), linear_mdp_scale(horizon, dim))


def linear_mdp_corrected(horizon: int, dim: int, epsilon: Real, delta: Real, members: int) -> Parameters:
    """Return the smallest N, M and K with which the proof for linear MDPs holds."""
    _check_linear_mdp(horizon, dim, epsilon, delta, members)
    N = smallest(lambda n: linear_mdp_gap(n, horizon, dim) <= epsilon)
    M = smallest(lambda m: linear_mdp_error(N, m, delta, members) <= 1)
    return Parameters(N, M, covariance_samples(N, dim, delta), linear_mdp_scale(horizon, dim))


# Kernelized nonlinear regulators


def knr_scale_stated(horizon: int, radius: Real, sigma: Real, state_dim: int) -> float:
    """Return c at the end of the theorem's proof, 8 H F sqrt(d_s) / sigma."""
    return 8 * horizon * radius * math.sqrt(state_dim) / sigma


def knr_scale(horizon: int, radius: Real, sigma: Real, ridge: Real = RIDGE) -> float:
    """Return c = (H / sigma) sqrt(4 lambda F^2 + 1) of the lemma, with N eps_stat = 1; the theorem: lambda = 1."""
    return horizon * math.sqrt(4 * ridge * radius**2 + 1) / sigma


def knr_gap(N: int, horizon: int, dim: int, radius: Real, sigma: Real, state_dim: int) -> float:
    """Return the suboptimality that the proof guarantees, at the larger c of its last lines and of the lemma."""
    scale = max(knr_scale_stated(horizon, radius, sigma, state_dim), knr_scale(horizon, radius, sigma))
    return suboptimality(N, horizon, dim, scale)


def state_bound_stated(radius: Real, sigma: Real, state_dim: int, samples: Real, delta: Real) -> float:
    """Return B of the lemma on the states' norms; its Gaussian tail lacks a factor 2."""
    return radius + sigma * math.sqrt(state_dim * math.log(state_dim * samples / delta))


def state_bound(radius: Real, sigma: Real, state_dim: int, samples: Real, delta: Real) -> float:
    """Return B with |s'_i| <= B for all `samples` with probability 1 - delta, by the tail exp(-t^2 / 2)."""
    return radius + sigma * math.sqrt(2 * state_dim * math.log(state_dim * samples / delta))


def knr_required_fit_samples(N: int, delta: Real, radius: Real, bound: Real) -> float:
    """Return 9 N^2 (F^2 + F B)^2 ln^2(N / delta); with a smaller M, N eps_stat > 1."""
    return 9 * N**2 * (radius**2 + radius * bound) ** 2 * math.log(N / delta) ** 2


def knr_stated(
    horizon: int, dim: int, epsilon: Real, delta: Real, radius: Real, sigma: Real, state_dim: int
) -> Parameters:
    """Return the closed forms in the proof of the theorem for KNRs, which itself gives only orders of magnitude."""
    _check_knr(horizon, dim, epsilon, delta, radius, sigma, state_dim)
    x = horizon**6 * radius**2 * state_dim * dim / (sigma**2 * epsilon**2)
    N = _at_least_one(12800 * x * math.log(6400 * x))
    noise = sigma**2 * radius**2 * state_dim
    main = (8 * radius**4 + 9 * noise * math.log(2 * state_dim * N / delta)) * math.log(N / delta) ** 2 * N**2
    M = _at_least_one(main + 18 * noise * math.log(main + 18 * noise))
    B = state_bound_stated(radius, sigma, state_dim, N * M, delta / 2)
    c = knr_scale_stated(horizon, radius, sigma, state_dim)
    return Parameters(N, M, covariance_samples(N, dim, delta), c, B=B)


def knr_corrected(
    horizon: int, dim: int, epsilon: Real, delta: Real, radius: Real, sigma: Real, state_dim: int
) -> Parameters:
    """Return the smallest N, M, K and c with which the proof for KNRs holds, with the corrected state bound."""
    _check_knr(horizon, dim, epsilon, delta, radius, sigma, state_dim)
    N = smallest(lambda n: knr_gap(n, horizon, dim, radius, sigma, state_dim) <= epsilon)

    def bound(M: int) -> float:
        return state_bound(radius, sigma, state_dim, N * M, delta / 2)  # the other delta / 2 is for SGD

    # B grows like ln M, so M >= f(M) holds for all large M; bisection finds the only crossing.
    M = smallest(lambda m: m >= knr_required_fit_samples(N, delta, radius, bound(m)))
    return Parameters(N, M, covariance_samples(N, dim, delta), knr_scale(horizon, radius, sigma), B=bound(M))


def sgd_rate_stated(radius: Real, bound: Real, samples: int) -> float:
    """Return the step size of the dimension-free SGD lemma (appendix B)."""
    return radius**2 / ((radius + bound) * math.sqrt(samples))


def sgd_rate(radius: Real, bound: Real, samples: int) -> float:
    """Return the step size that minimises `sgd_regret`: F / ((F + B) sqrt(M))."""
    return radius / ((radius + bound) * math.sqrt(samples))


def sgd_regret(rate: Real, radius: Real, bound: Real, samples: int) -> float:
    """Return online gradient descent's bound on sum_i (f_i(W_i) - f_i(W)), f_i = |W x_i - y_i|^2 / 2, |W|_F <= F."""
    return radius**2 / (2 * rate) + rate * samples * (radius + bound) ** 2 / 2


# Both


def suboptimality(N: int, horizon: int, dim: int, scale: Real) -> float:
    """Return 10 H^2 c sqrt(d ln(1 + N / lambda) / N): the proved gap of the best of N policies."""
    return 10 * horizon**2 * scale * math.sqrt(dim * math.log(1 + N / RIDGE) / N)


def potential_factor(ridge: Real, most: float = math.inf) -> float:
    """Return kappa(x) = x / ln(1 + x) at x = min{1 / lambda, most}, which replaces the 2 of the potential lemma: sum_n
    min{w_n, most} <= kappa(x) I_N for its traces w_n. The sum of bonuses has most = (H / c)^2 (docs/theory.md)."""
    x = min(1 / ridge, most)
    return x / math.log1p(x)


def covariance_samples(N: int, dim: int, delta: Real, ridge: Real = RIDGE) -> int:
    """Return K of the lemma on the concentration of the inverse covariance (appendix B)."""
    return math.ceil(32 * N**2 * math.log(8 * N * dim / delta) / ridge**2)


def smallest(holds: Callable[[int], bool]) -> int:
    """Return the smallest n >= 1 with `holds(n)`, for a condition that stays true once it holds."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2  # holds(low) is false, or low is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# Tables for the command line


def linear_mdp_table(horizon: int, dim: int, epsilon: Real, delta: Real, members: int) -> list[Row]:
    """Return rows (name, stated, corrected, what it is)."""
    given = (horizon, dim, epsilon, delta, members)
    both = (linear_mdp_stated(*given), linear_mdp_corrected(*given))
    return [
        *_common_rows(both, horizon),
        _row("gap", [linear_mdp_gap(p.N, horizon, dim) for p in both], f"what N guarantees; needs <= {epsilon:g}"),
        _row("N eps_stat", [linear_mdp_error(p.N, p.M, delta, members) for p in both], "what M gives; needs <= 1"),
    ]


def knr_table(
    horizon: int, dim: int, epsilon: Real, delta: Real, radius: Real, sigma: Real, state_dim: int
) -> list[Row]:
    """Return rows (name, stated, corrected, what it is)."""
    given = (horizon, dim, epsilon, delta, radius, sigma, state_dim)
    both = (knr_stated(*given), knr_corrected(*given))
    gaps = [knr_gap(p.N, horizon, dim, radius, sigma, state_dim) for p in both]
    bounds = [state_bound(radius, sigma, state_dim, p.N * p.M, delta / 2) for p in both]
    needed = [p.M / knr_required_fit_samples(p.N, delta, radius, B) for p, B in zip(both, bounds, strict=True)]
    return [
        *_common_rows(both, horizon),
        _row("B", [p.B or 0.0 for p in both], "bound on |s'| over all N M samples"),
        _row("gap", gaps, f"what N guarantees; needs <= {epsilon:g}"),
        _row("M / needed M", needed, "with a state bound that holds; needs >= 1"),
    ]


def _row(name: str, values: Sequence[Real], meaning: str) -> Row:
    return name, float(values[0]), float(values[1]), meaning


def _common_rows(both: tuple[Parameters, Parameters], horizon: int) -> list[Row]:
    return [
        _row("N", [p.N for p in both], "iterations, policies in the cover"),
        _row("M", [p.M for p in both], "samples to fit the model, each iteration"),
        _row("K", [p.K for p in both], "samples to estimate the covariance, each iteration"),
        _row("c", [p.c for p in both], "scale of the bonus"),
        _row("lambda", [p.ridge for p in both], "ridge of the covariance"),
        _row("samples", [p.samples for p in both], "draws from d_pi, N (M + K)"),
        _row("env steps", [p.env_steps_bound(horizon) for p in both], "at most: a draw is at most an episode"),
    ]


# Input


def _at_least_one(x: Real) -> int:
    return max(1, math.ceil(x))


def _check(name: str, value: Real, holds: bool, needed: str) -> None:
    if not holds:
        raise ConfigError(f"{name}={value}: {needed}")


def _check_count(name: str, value: int, why: str) -> None:
    _check(name, value, 1 <= value <= _LARGEST, f"{why}; give 1 or more (at most {_LARGEST:g})")


def _check_positive(name: str, value: Real, why: str) -> None:
    _check(name, value, 1 / _LARGEST <= value <= _LARGEST, f"{why}; give a number above 0 ({1 / _LARGEST:g} or more)")


def _check_common(horizon: int, dim: int, epsilon: Real, delta: Real) -> None:
    _check_count("horizon", horizon, "an episode has at least 1 step")
    _check_count("dim", dim, "phi has at least 1 coordinate")
    _check_positive("epsilon", epsilon, "the suboptimality asked for is above 0")
    _check_positive("delta", delta, "the probability of failure is above 0")
    _check("delta", delta, delta < 1, "a probability of failure; give a number below 1")


def _check_linear_mdp(horizon: int, dim: int, epsilon: Real, delta: Real, members: int) -> None:
    _check_common(horizon, dim, epsilon, delta)
    _check_count("members", members, "the class Upsilon holds at least the truth")
    _check_size(epsilon, 6 * math.log10(horizon) + 2 * math.log10(dim) - 2 * math.log10(epsilon))


def _check_knr(horizon: int, dim: int, epsilon: Real, delta: Real, radius: Real, sigma: Real, state_dim: int) -> None:
    _check_common(horizon, dim, epsilon, delta)
    _check_positive("radius", radius, "F bounds the norm of W")
    _check_positive("sigma", sigma, "a KNR has noise")
    _check_count("state_dim", state_dim, "a state has at least 1 coordinate")
    ratio = 2 * (math.log10(max(radius, 1.0)) - math.log10(sigma)) + math.log10(state_dim)
    _check_size(epsilon, 6 * math.log10(horizon) + math.log10(dim) - 2 * math.log10(epsilon) + ratio)


def _check_size(epsilon: Real, exponent: Real) -> None:
    needed = f"N would be above 10^{_LARGEST_EXPONENT}; give a larger one, or an easier problem"
    _check("epsilon", epsilon, exponent < _LARGEST_EXPONENT, needed)
