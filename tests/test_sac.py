"""SAC piece by piece against plain computations, and on probes whose values are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from visited import visited

from pcmlp.nets import Normaliser
from pcmlp.planners.sac import SAC, Batch, SoftActorCritic, values
from pcmlp.planners.soft_heads import squash
from pcmlp.rollout import mean_return
from pcmlp.spaces import Box
from pcmlp.types import MDP, never

STATES, ACTIONS = Box.of(jnp.inf, 1), Box(jnp.array([-1.0]), jnp.array([3.0]))
HORIZON = 10


def initial(key):
    return 100.0 + jr.uniform(key, (1,), minval=-1.0, maxval=1.0)


def move(key, state, action):
    return state + 0.5 * (ACTIONS.clip(action) - 1.0)


def be_at_a_hundred(state, action, next_state):
    return -jnp.sum((next_state - 100.0) ** 2)


MDP_ = MDP(initial, move, be_at_a_hundred, never, STATES, ACTIONS, HORIZON)
PLANNER = SAC(
    updates=150,
    streams=200,
    length=3,
    batch=64,
    discount=0.9,
    rate=3e-3,
    sizes=(32, 32),
    slowness=0.05,
)
REPLAY = visited(jax.vmap(initial)(jr.split(jr.key(5), 200)), STATES, ACTIONS)
plan = eqx.filter_jit(lambda key, mdp, policy: PLANNER.plan(key, mdp, PLANNER.renormalise(mdp, policy, REPLAY)))


@pytest.fixture(scope="module")
def planned():
    policy = PLANNER.init(jr.key(0), MDP_)
    steps = [policy]
    for i in range(8):
        policy, metrics = plan(jr.key(i), MDP_, policy)
        steps.append(policy)
    return steps, metrics


def test_it_finds_the_optimum_of_a_probe(planned):
    """From anywhere in 100 +- 1 one full action or less leads there; states have no bounds and are far from 0."""
    (first, *_, last), metrics = planned
    value = eqx.filter_jit(mean_return)
    before = value(jr.key(9), MDP_, first.deterministic(), 100)
    after = value(jr.key(9), MDP_, last.deterministic(), 100)
    assert before < -2.5
    assert after > -0.15
    assert metrics["policy_skipped"] == 0


def test_an_end_is_worth_nothing_more():
    """Where every step pays 1 and ends, a value is 1; where none ends, it is 1 / (1 - discount) and the entropy's."""

    def paid(*step):
        return jnp.ones(())

    def always(*step):
        return jnp.array(True)

    ends, goes_on = (MDP(initial, move, paid, end, STATES, ACTIONS, HORIZON) for end in (always, never))
    worth = []
    for mdp in (ends, goes_on):
        policy = PLANNER.init(jr.key(0), mdp)
        for i in range(6):
            policy, metrics = plan(jr.key(i), mdp, policy)
        worth.append(float(metrics["value_mean"]))
    assert worth[0] == pytest.approx(1.0, abs=0.1)
    assert worth[1] > 5.0


def test_the_density_of_a_squashed_action():
    """Against the change of variables done by numbers: it integrates to 1 over (-1, 1)."""
    output = jnp.array([0.4, -0.3])
    x = jnp.linspace(-6.0, 6.0, 4001)
    noise = ((x - 0.4) / jnp.exp(-0.3))[:, None]
    u, log_prob = jax.vmap(lambda n: squash(output, n))(noise)
    mass = np.trapezoid(np.exp(np.float64(log_prob)), np.float64(u[:, 0]))
    assert mass == pytest.approx(1.0, abs=1e-3)
    assert np.isfinite(squash(jnp.array([40.0, 2.0]), jnp.array([3.0]))[1])


def test_each_loss_moves_its_own_part_alone():
    policy = PLANNER.init(jr.key(0), MDP_)
    rows = jr.normal(jr.key(1), (5, 8, 1))
    x, u, next_x = rows[0], jnp.tanh(rows[1]), rows[3]
    batch = Batch(jnp.concatenate([x, u], axis=1), jnp.concatenate([x, next_x]), rows[2, :, 0], jnp.ones(8))
    noise = jr.normal(jr.key(2), (16, 1))

    def gradient(target_scale):
        targets = jax.tree.map(lambda x: target_scale * x, policy.targets)
        grad = eqx.filter_jit(eqx.filter_grad(lambda l: PLANNER.loss(l, policy.head, targets, batch, noise)[0]))(
            policy.learned
        )
        return jax.tree.map(np.asarray, grad)

    def critics_alone(critics):
        next_pairs = jnp.concatenate([next_x, next_u], axis=1)
        after = jnp.min(values(policy.targets, next_pairs), axis=0) - next_log_prob  # of temperature 1
        target = batch.reward + PLANNER.discount * after
        return jnp.mean((values(critics, batch.pairs) - target[None]) ** 2)

    one, two = gradient(1.0), gradient(2.0)
    next_u, next_log_prob = jax.vmap(squash)(jax.vmap(policy.learned.actor)(next_x), noise[8:])
    alone = eqx.filter_jit(eqx.filter_grad(critics_alone))(policy.learned.critics)
    for a, b in zip(jax.tree.leaves(one.critics), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert np.abs(one.critics.weights[0] - two.critics.weights[0]).max() > 1e-3  # they follow their targets
    for a, b in zip(jax.tree.leaves(one.actor), jax.tree.leaves(two.actor), strict=True):
        np.testing.assert_array_equal(a, b)  # it follows the critics
    # the temperature follows the entropy: up where the policy has less than it should
    log_prob = jax.vmap(squash)(jax.vmap(policy.learned.actor)(x), noise[:8])[1]
    np.testing.assert_allclose(one.log_temperature, -(np.mean(log_prob) + PLANNER.entropy), rtol=1e-5)


def test_other_units_are_the_same_policy(planned):
    policy = planned[0][-1]
    moved = policy.with_normaliser(Normaliser(jnp.array([3.0]), jnp.array([0.2])))
    assert isinstance(moved, SoftActorCritic)
    for state in (jnp.array([99.0]), jnp.array([101.5])):
        before, after = (p(jr.key(0), (), state)[1] for p in (policy, moved))
        np.testing.assert_allclose(before, after, atol=2e-3)  # 32 bits, of numbers around a hundred
        u = jnp.array([0.3])[None]
        worth = [values(p.learned.critics, jnp.concatenate([p.units(state)[None], u], axis=1)) for p in (policy, moved)]
        np.testing.assert_allclose(*worth, atol=2e-2)


def test_what_is_no_number_is_not_learned(planned):
    broken = MDP(initial, move, lambda *step: jnp.full((), jnp.nan), never, STATES, ACTIONS, HORIZON)
    policy = planned[0][-1]
    after, metrics = plan(jr.key(0), broken, policy)
    assert metrics["policy_skipped"] == 1
    for state in (jnp.array([99.5]), jnp.array([100.5])):
        np.testing.assert_allclose(after(jr.key(1), (), state)[1], policy(jr.key(1), (), state)[1], atol=2e-3)
