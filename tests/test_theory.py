"""The parameters of the two theorems: which printed numbers satisfy the proofs' inequalities, and which do not."""

import itertools
import math

import pytest

from pcmlp import theory
from pcmlp.errors import ConfigError

LINEAR = [
    {"horizon": h, "dim": d, "epsilon": e, "delta": 0.1, "members": u}
    for h, d, e, u in itertools.product([1, 3, 20], [1, 10], [0.01, 0.9], [1, 1024])
]
KNR = [
    {"horizon": h, "dim": d, "epsilon": e, "delta": 0.1, "radius": f, "sigma": s, "state_dim": q}
    for h, d, e, f, s, q in itertools.product([1, 5], [1, 5], [0.01, 0.9], [0.3, 1.0, 10.0], [0.1, 1.0], [1, 20])
]


@pytest.mark.parametrize("p", LINEAR)
def test_linear_mdp_stated_iterations_are_too_few(p):
    stated = theory.linear_mdp_stated(**p)
    assert theory.linear_mdp_gap(stated.N, p["horizon"], p["dim"]) > 2 * p["epsilon"]
    assert theory.linear_mdp_error(stated.N, stated.M, p["delta"], p["members"]) <= 1  # its M is right for that N


@pytest.mark.parametrize("p", LINEAR)
def test_linear_mdp_corrected_is_the_smallest(p):
    found = theory.linear_mdp_corrected(**p)
    assert theory.linear_mdp_gap(found.N, p["horizon"], p["dim"]) <= p["epsilon"]
    assert theory.linear_mdp_gap(found.N - 1, p["horizon"], p["dim"]) > p["epsilon"]
    assert theory.linear_mdp_error(found.N, found.M, p["delta"], p["members"]) <= 1
    assert theory.linear_mdp_error(found.N, found.M - 1, p["delta"], p["members"]) > 1


@pytest.mark.parametrize("p", LINEAR)
def test_linear_mdp_iterations_are_a_digit_short(p):
    """20^2 = 400, so 2 x ln x needs x = 400 H^6 d^2 / epsilon^2 where the theorem has 40."""
    x = 400 * p["horizon"] ** 6 * p["dim"] ** 2 / p["epsilon"] ** 2
    assert theory.linear_mdp_gap(math.ceil(2 * x * math.log(x)), p["horizon"], p["dim"]) <= p["epsilon"]


@pytest.mark.parametrize("p", LINEAR)
def test_linear_mdp_stated_fails_with_the_lemma_scale_too(p):
    """The relaxation c <= 2 H sqrt(d) is not what makes the printed N too small."""
    stated = theory.linear_mdp_stated(**p)
    assert stated.c == p["horizon"] * math.sqrt(p["dim"] + 1)
    assert theory.suboptimality(stated.N, p["horizon"], p["dim"], stated.c) > p["epsilon"]


@pytest.mark.parametrize("p", KNR)
def test_knr_stated(p):
    """N is enough for the printed c; M is several times too small, already with the printed state bound."""
    stated = theory.knr_stated(**p)
    gap = theory.knr_gap(stated.N, p["horizon"], p["dim"], p["radius"], p["sigma"], p["state_dim"])
    assert 0.7 * p["epsilon"] < gap <= p["epsilon"]
    assert theory.knr_required_fit_samples(stated.N, p["delta"], p["radius"], stated.B) > 2.5 * stated.M
    bound = theory.state_bound(p["radius"], p["sigma"], p["state_dim"], stated.N * stated.M, p["delta"] / 2)
    assert 4 < theory.knr_required_fit_samples(stated.N, p["delta"], p["radius"], bound) / stated.M < 12


@pytest.mark.parametrize("p", KNR)
def test_knr_corrected_is_the_smallest(p):
    found = theory.knr_corrected(**p)
    shape = (p["horizon"], p["dim"], p["radius"], p["sigma"], p["state_dim"])
    assert theory.knr_gap(found.N, *shape) <= p["epsilon"]
    assert theory.knr_gap(found.N - 1, *shape) > p["epsilon"]
    # beyond 2^53 neighbouring integers are one float: there, smaller by one in a billion stands for smaller by one
    for M, enough in [(found.M, True), (found.M - 1 - found.M // 10**9, False)]:
        bound = theory.state_bound(p["radius"], p["sigma"], p["state_dim"], found.N * M, p["delta"] / 2)
        assert (theory.knr_required_fit_samples(found.N, p["delta"], p["radius"], bound) <= M) == enough


def test_knr_printed_scale_is_below_the_lemma_for_small_radius():
    """8 F sqrt(d_s) >= sqrt(4 F^2 + 1) needs F >= 1 / sqrt(64 d_s - 4)."""
    for state_dim in (1, 5):
        edge = 1 / math.sqrt(64 * state_dim - 4)
        assert theory.knr_scale_stated(3, 0.99 * edge, 0.5, state_dim) < theory.knr_scale(3, 0.99 * edge, 0.5)
        assert theory.knr_scale_stated(3, 1.01 * edge, 0.5, state_dim) > theory.knr_scale(3, 1.01 * edge, 0.5)
    small = {"horizon": 2, "dim": 2, "epsilon": 0.5, "delta": 0.1, "radius": 0.05, "sigma": 1.0, "state_dim": 1}
    stated, found = theory.knr_stated(**small), theory.knr_corrected(**small)
    assert stated.c < found.c
    assert theory.knr_gap(stated.N, 2, 2, 0.05, 1.0, 1) > 0.5 >= theory.knr_gap(found.N, 2, 2, 0.05, 1.0, 1)


def test_constants_of_the_regret():
    """6 H^2 sum b + H <= 10 H^2 c sqrt(N d ln(1 + N)), also with H / 4 for choosing the best by its samples."""
    for N, H, d in itertools.product([1, 2, 10, 10**6], [1, 2, 30], [1, 7]):
        for c in (theory.linear_mdp_scale(H, d), H):  # H / sigma sqrt(4 F^2 + 1) is at least H for sigma <= 1
            bonuses = c * math.sqrt(2 * N * d * math.log(1 + N))
            assert (6 * H**2 * bonuses + 1.25 * H) / N <= theory.suboptimality(N, H, d, c)


def test_samples():
    found = theory.linear_mdp_corrected(3, 2, 0.5, 0.1, 16)
    assert math.ceil(32 * found.N**2 * math.log(8 * found.N * 2 / 0.1)) == found.K
    assert found.samples == found.N * found.M + found.N * found.K
    assert found.env_steps_bound(3) == 3 * found.samples
    assert found.ridge == 1
    assert found.B is None
    assert theory.covariance_samples(5, 2, 0.1, ridge=0.1) == math.ceil(3200 * 25 * math.log(800))


def test_sgd_rate():
    """The printed step size keeps the regret within 3 F (F + B) sqrt(M) only for F between 3 -+ 2 sqrt(2)."""
    low, high = 3 - 2 * math.sqrt(2), 3 + 2 * math.sqrt(2)
    for F in (0.01, 0.99 * low, 1.01 * low, 1.0, 0.99 * high, 1.01 * high, 100.0):
        B, M = F + 1.5, 1000
        claimed = 3 * F * (F + B) * math.sqrt(M)
        assert (theory.sgd_regret(theory.sgd_rate_stated(F, B, M), F, B, M) <= claimed) == (low <= F <= high)
        best = theory.sgd_regret(theory.sgd_rate(F, B, M), F, B, M)
        assert best == pytest.approx(claimed / 3)
        for other in (0.9, 1.1):
            assert theory.sgd_regret(other * theory.sgd_rate(F, B, M), F, B, M) > best


@pytest.mark.parametrize("threshold", [1, 2, 3, 17, 1000])
def test_smallest(threshold):
    assert theory.smallest(lambda n: n >= threshold) == threshold


def test_tables():
    rows = theory.linear_mdp_table(2, 3, 0.5, 0.1, 64)
    stated, found = theory.linear_mdp_stated(2, 3, 0.5, 0.1, 64), theory.linear_mdp_corrected(2, 3, 0.5, 0.1, 64)
    named = {name: (a, b) for name, a, b, _ in rows}
    assert named["N"] == (stated.N, found.N)
    assert named["samples"] == (float(stated.samples), float(found.samples))
    assert named["gap"][1] <= 0.5 < named["gap"][0]
    named = {name: (a, b) for name, a, b, _ in theory.knr_table(2, 3, 0.5, 0.1, 1.0, 0.5, 2)}
    assert named["M / needed M"][0] < 0.5 < 1 <= named["M / needed M"][1]
    assert named["B"][0] < named["B"][1]
    assert all(isinstance(a, float) and isinstance(b, float) for a, b in named.values())


WRONG = [("horizon", 0), ("dim", 0), ("epsilon", 0.0), ("epsilon", math.nan), ("epsilon", 1e-20), ("delta", 0.0)]
WRONG += [("delta", 1.0), ("delta", math.nan), ("epsilon", math.inf), ("horizon", 10**11)]


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("members", 0)])
@pytest.mark.parametrize("function", [theory.linear_mdp_stated, theory.linear_mdp_corrected, theory.linear_mdp_table])
def test_linear_mdp_input(function, name, value):
    with pytest.raises(ConfigError) as error:
        function(**{**LINEAR[0], name: value})
    blamed = "epsilon" if value == 10**11 else name  # N is out of reach
    assert str(error.value).startswith(f"{blamed}=")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("radius", 0.0), ("sigma", -1.0), ("state_dim", 0)])
@pytest.mark.parametrize("function", [theory.knr_stated, theory.knr_corrected, theory.knr_table])
def test_knr_input(function, name, value):
    with pytest.raises(ConfigError) as error:
        function(**{**KNR[0], name: value})
    blamed = "epsilon" if value == 10**11 else name
    assert str(error.value).startswith(f"{blamed}=")


def test_extreme_input_gives_finite_numbers():
    for epsilon, radius, sigma in itertools.product([1e-5, 1e12], [1e-12, 1e12], [1e-12, 1e12]):
        for _, stated, found, _ in theory.knr_table(1, 1, epsilon, 1e-12, radius, sigma, 1):
            assert math.isfinite(stated)
            assert math.isfinite(found)


def test_logarithm_without_root_covers_the_constant_of_the_sgd_lemma():
    """Azuma's inequality gives 2 + 4 sqrt(2) sqrt(ln(2 N / delta)) where the theorem has 3 ln(N / delta)."""
    for ratio in (50, 150, 196, 1e3, 1e6, 1e30):
        proved = 2 + 4 * math.sqrt(2 * math.log(2 * ratio))
        assert (proved <= 3 * math.log(ratio)) == (ratio >= 196)


def tight_gap(N: int, H: int, d: int) -> float:
    """The same proof with nothing given away: (4 H + H^2) in place of 6 H^2, the lemma's c, ln(1 + N / d), and the H of
    the first policy and H / 4 of choosing the best counted apart."""
    bonuses = theory.linear_mdp_scale(H, d) * math.sqrt(2 * N * d * math.log(1 + N / d))
    return ((4 * H + H**2) * bonuses + 1.25 * H) / N


def test_linear_mdp_stated_iterations_survive_a_tighter_proof():
    """The printed N does not satisfy the printed inequality, yet for H >= 2 the theorem holds with it."""
    for H, d, epsilon in itertools.product([2, 3, 10, 100], [1, 2, 50], [1e-3, 0.1, 0.99]):
        assert tight_gap(theory.linear_mdp_stated(H, d, epsilon, 0.1, 2).N, H, d) <= epsilon
    assert tight_gap(theory.linear_mdp_stated(1, 1, 0.1, 0.1, 2).N, 1, 1) > 0.1
