"""The imagined MDP: what is the world's and what is not, and that imagination keeps within its bounds."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.stats import chisquare

from pcmlp.imagine import BoundedBonus, Starts, grounded, imagine, no_bonus, reward_free
from pcmlp.nets import MLP
from pcmlp.rollout import stream
from pcmlp.types import MDP, AbstractPolicy, Box

BOUNDS = Box(jnp.array([-1.0, -0.2, -1e9]), jnp.array([0.5, 0.3, 2.0]))
ACTIONS = Box(jnp.array([-1.0, 0.0]), jnp.array([1.0, 4.0]))
MODELS, HORIZON = 20, 30


class RandomModel(eqx.Module):
    """A network of weights of any size: what a model may do where it has no data."""

    net: MLP
    size: Float[Array, ""]

    def __call__(self, key, state, action):
        return state + self.size * self.net(jnp.concatenate([state, action]))


class Wild(AbstractPolicy):
    """Asks for far more than the actuators can do."""

    def init(self):
        return None

    def __call__(self, key, carry, state):
        return carry, 10.0 * jr.normal(key, (2,))

    def deterministic(self):
        return self


def at_origin(key):
    return jnp.zeros(3)


def stay(key, state, action):
    return state


def pays(state, action, next_state):
    return jnp.sum(state) + 10.0 * jnp.sum(action) + 100.0 * jnp.sum(next_state)


def ends(state, action, next_state):
    return next_state[0] > 0.4


def novelty(state, action):
    return 1000.0 * jnp.sum(action)


WORLD = MDP(at_origin, stay, pays, ends, HORIZON)
ROW = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 0.25]), jnp.array([1.0, 0.0, 0.0])


def test_the_imagination_is_the_world_but_for_its_transition_and_bonus():
    def model(key, state, action):
        return state + 1.0

    mdp = imagine(WORLD, model, novelty)
    assert (mdp.initial, mdp.terminal, mdp.horizon) == (at_origin, ends, HORIZON)
    np.testing.assert_array_equal(mdp.transition(jr.key(0), ROW[0], ROW[1]), [2, 3, 4])
    assert mdp.reward(*ROW) == 6.0 + 7.5 + 100.0 + 750.0
    assert imagine(WORLD, model, no_bonus).reward(*ROW) == pays(*ROW)


def test_reward_free_is_the_bonus_alone():
    assert imagine(reward_free(WORLD), stay, novelty).reward(*ROW) == 750.0
    assert reward_free(WORLD).terminal is ends


def test_no_bonus_for_asking_for_more_than_full_throttle():
    bonus = BoundedBonus(novelty, ACTIONS)
    assert bonus(ROW[0], jnp.array([7.0, 9.0])) == bonus(ROW[0], jnp.array([1.0, 4.0])) == 5000.0
    assert bonus(ROW[0], jnp.array([-7.0, -9.0])) == -1000.0


@pytest.fixture(scope="module")
def imagined():
    """Episodes in random models, [models, steps], and what the models were asked."""
    starts = jnp.asarray(np.random.default_rng(0).uniform(-0.2, 0.3, (5, 3)), jnp.float32)

    @jax.jit
    @jax.vmap
    def episodes(key, size):
        net_key, run_key = jr.split(key)
        model = RandomModel(MLP.of(net_key, (5, 16, 3), "relu", bias=1.0), size)
        return stream(run_key, grounded(imagine(WORLD, model, no_bonus), BOUNDS, ACTIONS, starts), Wild(), HORIZON)

    sizes = 10.0 ** jnp.linspace(-3, 6, MODELS)
    return starts, episodes(jr.split(jr.key(1), MODELS), sizes)


def test_imagined_states_never_leave_the_bounds(imagined):
    """Whatever the model says; and every bound was met."""
    _, steps = imagined
    reached = np.asarray(steps.next_state)
    assert np.isfinite(reached).all()
    assert (reached >= np.asarray(BOUNDS.low)).all()
    assert (reached <= np.asarray(BOUNDS.high)).all()
    assert (reached == np.asarray(BOUNDS.low)).any((0, 1)).all()
    assert (reached == np.asarray(BOUNDS.high)).any((0, 1)).all()


def test_imagined_episodes_begin_at_the_given_states(imagined):
    starts, steps = imagined
    begins = np.concatenate([np.ones((MODELS, 1), bool), np.asarray(steps.last)[:, :-1]], axis=1)
    first = np.asarray(steps.state)[begins]
    assert {tuple(row) for row in first} == {tuple(row) for row in np.asarray(starts)}


def test_the_model_sees_what_an_actuator_does():
    def echo(key, state, action):
        return jnp.concatenate([action, jnp.zeros(1)])

    mdp = grounded(imagine(WORLD, echo, no_bonus), Box.of(100.0, 3), ACTIONS, jnp.zeros((1, 3)))
    for asked, done in (((7.0, 9.0), (1.0, 4.0)), ((-7.0, -9.0), (-1.0, 0.0)), ((0.5, 3.0), (0.5, 3.0))):
        np.testing.assert_array_equal(mdp.transition(jr.key(0), jnp.zeros(3), jnp.array(asked))[:2], done)


def test_starts_are_uniform_over_their_rows():
    starts = Starts(jnp.arange(7.0)[:, None])
    drawn = np.asarray(jax.jit(jax.vmap(starts))(jr.split(jr.key(2), 7000)))[:, 0].astype(int)
    assert chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-3
