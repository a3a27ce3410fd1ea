"""Discrete actions: the space, the distributions, the planners, and the boundary to Gymnasium."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium import spaces
from jax.flatten_util import ravel_pytree
from scipy import stats

from pcmlp.algorithms.noise import add_noise
from pcmlp.choices import Choices, share_redrawn
from pcmlp.errors import ConfigError
from pcmlp.heads import Categorical, CategoricalHead, head_of
from pcmlp.planners import CEM, MPPI, SAC, TRPO
from pcmlp.planners.soft_heads import KEPT, ChoosingHead
from pcmlp.rollout import mean_return, stream
from pcmlp.spaces import Box
from pcmlp.tasks.action_spaces import choices_of, space_of
from pcmlp.types import MDP, never

TWO = Choices((3, 2))
HORIZON = 6


def is_one_hot(x, choices=TWO):
    parts = np.split(np.asarray(x), np.cumsum(choices.sizes)[:-1], axis=-1)
    return all(((part == 0) | (part == 1)).all() and (part.sum(axis=-1) == 1).all() for part in parts)


def test_a_sample_is_one_hot_and_uniform():
    drawn = np.asarray(jax.vmap(TWO.sample)(jr.split(jr.key(0), 4000)))
    assert is_one_hot(drawn)
    np.testing.assert_allclose(drawn.mean(axis=0), TWO.middle, atol=0.03)


def test_the_nearest_choices():
    x = jnp.array([0.2, 0.9, 0.3, -4.0, -5.0])
    np.testing.assert_array_equal(TWO.clip(x), [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(TWO.clip(TWO.middle), [1, 0, 0, 1, 0])  # the first of equals


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([3, 2, 4]),
        spaces.MultiDiscrete([3, 2], start=[5, -2]),
        spaces.MultiDiscrete([[3, 2], [2, 5]]),
        spaces.MultiDiscrete([3, 2], np.int32),  # which does not contain int64
        spaces.MultiBinary(3),
        spaces.MultiBinary([2, 3]),
    ],
)
def test_integers_become_vectors_and_back(space):
    choices = choices_of(space)
    space.seed(0)
    taken = np.stack([space.sample() for _ in range(50)])
    vectors = choices.to_vectors(taken)
    assert is_one_hot(vectors, choices)
    np.testing.assert_array_equal(choices.to_integers(vectors), taken)
    np.testing.assert_array_equal(np.unique(taken), np.unique(choices.to_integers(np.eye(choices.size))))
    one = choices.to_integers(vectors[0])
    assert space.contains(one)
    assert not isinstance(space, spaces.Discrete) or hash(one) == hash(int(one))  # tabular environments look it up
    if not isinstance(space, spaces.MultiBinary):
        assert space_of(choices) == space


def test_bad_choices():
    for sizes, firsts, shape in (((), (), None), ((0, 2), (), None), ((2, 2), (1,), None), ((2, 2), (), (3,))):
        with pytest.raises(ConfigError, match=r"choices of \("):
            Choices(sizes, firsts, shape)
    assert choices_of(spaces.Box(-1, 1, (2,))) is None


def test_choices_drawn_again():
    """Standard normal noise draws each option with its probability; noise of 0 gives the most probable options."""
    shares = jnp.array([0.7, 0.2, 0.1, 0.05, 0.95])
    noise = jr.normal(jr.key(0), (20_000, 5))
    for new in (0.0, 0.4):
        drawn = jax.vmap(lambda z, new=new: TWO.redraw(shares, new, z))(noise)
        np.testing.assert_allclose(drawn.mean(axis=0), (1 - new) * shares + new * TWO.middle, atol=0.015)
    np.testing.assert_array_equal(TWO.redraw(shares, 0.9, jnp.zeros(5)), [1, 0, 0, 0, 1])
    assert is_one_hot(jax.vmap(lambda z: TWO.redraw(shares, 0.0, z))(30.0 * noise))  # no infinity, no NaN
    assert [share_redrawn(std) for std in (0.0, 1.0, 3.0)] == [0.0, 0.5, 0.75]


# The distributions

LOGITS, OTHER = jnp.array([0.3, -1.0, 2.0, 0.5, 0.0]), jnp.array([0.1, -0.5, 1.0, -0.5, 0.4])


def by_hand(logits):
    parts = np.split(np.asarray(logits, np.float64), [3])
    return [np.exp(part) / np.exp(part).sum() for part in parts]


def test_a_categorical_against_scipy():
    p, q = Categorical(LOGITS, TWO), Categorical(OTHER, TWO)
    ours, theirs = by_hand(LOGITS), by_hand(OTHER)
    np.testing.assert_allclose(p.entropy(), sum(stats.entropy(part) for part in ours), rtol=1e-5)
    kl = sum(stats.entropy(a, b) for a, b in zip(ours, theirs, strict=True))
    np.testing.assert_allclose(p.kl(q), kl, rtol=1e-5)
    np.testing.assert_allclose(p.log_prob(jnp.array([0.0, 0, 1, 1, 0])), np.log(ours[0][2] * ours[1][0]), rtol=1e-5)
    np.testing.assert_array_equal(p.at(jnp.zeros(5)), [0, 0, 1, 1, 0])


def test_a_categorical_draws_its_probabilities():
    head = head_of(jr.key(0), 2, TWO, (4,))
    noise = jax.vmap(head.draw_noise)(jr.split(jr.key(1), 20_000))
    drawn = np.asarray(jax.vmap(Categorical(LOGITS, TWO).at)(noise))
    assert is_one_hot(drawn)
    np.testing.assert_allclose(drawn.mean(axis=0), np.concatenate(by_hand(LOGITS)), atol=0.015)


def test_a_divergence_stays_finite_and_precise():
    far = Categorical(jnp.array([200.0, 0.0]), Choices((2,)))
    back = Categorical(jnp.array([0.0, 200.0]), Choices((2,)))
    np.testing.assert_allclose(far.kl(back), 200.0, rtol=1e-5)
    near = jax.jit(lambda step: Categorical(LOGITS, TWO).kl(Categorical(LOGITS + step * OTHER, TWO)))
    p, v = by_hand(LOGITS), np.split(np.asarray(OTHER, np.float64), [3])
    exact = sum(0.5 * (a @ b**2 - (a @ b) ** 2) for a, b in zip(p, v, strict=True))
    np.testing.assert_allclose(near(1e-3), 1e-6 * exact, rtol=0.02)


def test_the_fisher_product_is_the_hessian_of_the_divergence():
    actor = CategoricalHead.of(jr.key(0), 2, TWO, sizes=(4,))
    actor = eqx.tree_at(lambda a: a.net.weights[-1], actor, jr.normal(jr.key(1), (4, 5)))
    theta, unravel = ravel_pytree(actor)
    x = jr.normal(jr.key(2), (20, 2))
    old = jax.vmap(actor)(x)

    def divergence(theta):
        return jnp.mean(jax.vmap(lambda s, p: p.kl(unravel(theta)(s)))(x, old))

    hessian = jax.jit(jax.hessian(divergence))(theta)
    product = jax.jit(lambda v: TRPO(damping=0.0).fisher_product(theta, unravel, x)(v))
    np.testing.assert_allclose(jax.vmap(product)(jnp.eye(theta.shape[0])), hessian, rtol=1e-3, atol=1e-4)


def test_the_gradient_of_soft_choices_is_that_of_the_expectation():
    """The expectation is over all pairs of options. The gradient is exact for one choice, and unbiased for two."""
    worth = jr.normal(jr.key(0), (3, 2))

    def critic(pairs):
        return jnp.einsum("ni,nj,ij->n", pairs[:, 1:4], pairs[:, 4:], worth)

    def expected(logits):
        first, second = (jax.nn.softmax(part) for part in TWO.split(logits))
        return first @ worth @ second

    def ours(logits, noise):
        action, _ = ChoosingHead(TWO).sample(logits, noise)
        return ChoosingHead(TWO).expect(critic, jnp.concatenate([jnp.zeros(1), action])[None], logits[None])[0]

    noise = jr.gumbel(jr.key(1), (40_000, 5))
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(ours), in_axes=(None, 0)))(LOGITS, noise)
    np.testing.assert_allclose(value.mean(), expected(LOGITS), atol=0.02)
    np.testing.assert_allclose(gradient.mean(axis=0), jax.grad(expected)(LOGITS), atol=0.01)
    assert gradient.std(axis=0).max() > 0.01  # with two choices, it depends on the draw


def test_soft_choices_keep_a_share_of_the_entropy():
    head = ChoosingHead(TWO)
    np.testing.assert_allclose(head.target_entropy(-0.5), KEPT * np.log(6))
    action, log_prob = head.sample(LOGITS, jnp.zeros(5))
    np.testing.assert_array_equal(action, [0, 0, 1, 1, 0])
    np.testing.assert_allclose(log_prob, -Categorical(LOGITS, TWO).entropy())


# The planners, on a probe: keys that have to be pressed in the order that the state names


def initial(key):
    return jnp.zeros(2)


def press(key, state, action):
    """Count the right presses: each option of the first choice for two steps, and always the last of the second."""
    time, right = state
    wanted = jax.nn.one_hot(jnp.floor(time / 2.0).astype(int), 3)
    return jnp.array([time + 1.0, right + jnp.dot(wanted, action[:3]) * action[4]])


def pay(state, action, next_state):
    return next_state[1] - state[1]


PROBE = MDP(initial, press, pay, never, Box((0.0, 0.0), (6.0, 6.0)), TWO, HORIZON)


def returns_of(policy):
    return float(eqx.filter_jit(mean_return)(jr.key(5), PROBE, policy.deterministic(), 4))


@pytest.mark.parametrize(
    "planner",
    [
        CEM(num_plans=60, plan_length=HORIZON, iterations=4, elites=8, correlation=0.3, warmup=4),
        MPPI(num_plans=100, plan_length=HORIZON, temperature=0.1, warmup=8),
    ],
    ids=["cem", "mppi"],
)
def test_a_search_finds_the_best_plan(planner):
    policy, metrics = eqx.filter_jit(planner.plan)(jr.key(0), PROBE, planner.init(jr.key(1), PROBE))
    assert float(metrics["planned_value"]) == HORIZON
    assert returns_of(policy) == HORIZON
    again = eqx.filter_jit(planner.refine)(jr.key(3), PROBE, initial(None), policy.start)
    np.testing.assert_array_equal(jax.vmap(TWO.clip)(again), jax.vmap(TWO.clip)(policy.start))  # a good plan stays


def test_truncated_noise_keeps_rare_options():
    planner, pair = CEM(truncated=True, correlation=0.0), Choices((2,))
    shares = jnp.array([[0.99, 0.01]])
    noise = planner.noise(jr.key(0), (50_000, 1, 2), pair)
    drawn = jax.vmap(lambda z: planner.add_noise(shares, shares, z, pair))(noise)
    np.testing.assert_allclose(drawn.mean(axis=0), shares, atol=0.002)
    assert jnp.max(jnp.abs(planner.noise(jr.key(0), (50_000, 1, 2), Box.of(1.0, 2)))) <= 2


def test_trpo_learns_the_probe():
    planner = TRPO(updates=25, streams=40, length=HORIZON, value_batch=60, kl_bound=0.03, policy_sizes=(16,))
    first = planner.init(jr.key(0), PROBE)
    assert is_one_hot(stream(jr.key(1), PROBE, first, 20).action)
    policy, metrics = eqx.filter_jit(planner.plan)(jr.key(2), PROBE, first)
    assert returns_of(policy) == HORIZON
    assert 0 < metrics["noise_entropy"] < 0.8


def test_sac_learns_the_probe():
    planner = SAC(updates=400, streams=400, length=HORIZON, batch=64, rate=3e-3, slowness=0.02, sizes=(32,))
    policy, plan = planner.init(jr.key(0), PROBE), eqx.filter_jit(planner.plan)
    for i in range(4):
        policy, metrics = plan(jr.key(i), PROBE, policy)
    assert returns_of(policy) == HORIZON
    assert KEPT - 0.15 < metrics["noise_entropy"] < KEPT + 0.15


def test_noise_draws_choices_again():
    """Some choices are drawn again and kept for several steps; the others are those of the policy."""
    idle = CEM(plan_length=HORIZON).idle_plan(PROBE)

    def always(policy):
        return eqx.tree_at(lambda p: p.actor.net.biases[-1], policy, 50.0 * TWO.clip(idle[0]))

    policy = always(TRPO(policy_sizes=(4,)).init(jr.key(0), PROBE)).deterministic()
    seeds = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, policy)
    noisy = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, add_noise(seeds, 0.3, PROBE))
    long = dataclasses.replace(PROBE, horizon=2000)
    played = np.asarray(stream(jr.key(1), long, noisy, 2000).action)
    assert is_one_hot(played)
    changed = played[:, 0] == 0
    share = share_redrawn(0.3 / np.sqrt(1 - 0.85**2)) * 2 / 3  # a third of those that are drawn again stay the same
    assert changed.mean() == pytest.approx(share, abs=0.06)
    assert (changed[1:] & changed[:-1]).mean() > 1.5 * changed.mean() ** 2
