"""A line on which left pays, and a planner that notes what it sees: Algorithm 2 without the time to plan."""

from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from pcmlp.algorithms.deep import Deep
from pcmlp.features import RandomNetwork
from pcmlp.models import Neural
from pcmlp.spaces import Box
from pcmlp.types import MDP, FeatureMap, Planner, Policy, never
from pcmlp.world import JaxWorld

SEEDS, ITERATIONS, HORIZON, SAMPLES, ROUNDS, ROOM = 2, 5, 10, 20, 3, 50
RIDGE, SCALE, SHARE, MARGIN = 0.01, 0.5, 0.3, 0.5
KEYS = jr.split(jr.key(0), SEEDS)
STATES, ACTIONS = Box([-3.0], [1.0]), Box.of(1.0, 1)
TRACES = Counter()


def initial(key):
    return jr.uniform(key, (1,), minval=-0.1, maxval=0.1)


def move(key, state, action):
    return STATES.clip(state + 0.2 * ACTIONS.clip(action))


def left(state, action, next_state):
    """Left pays."""
    return -next_state[0] + 0.0 * action[0]


class CountedFeatures(FeatureMap):
    """Features in units of the first samples, drawn once in a trace of `start` and once in one of `improve`."""

    network: RandomNetwork

    def draw(self, key, mdp, samples):
        TRACES["features"] += 1
        return self.network.over_samples(key, samples)


PROBES = jnp.stack([jnp.linspace(-3.0, 1.0, 12), jnp.linspace(-2.0, 2.0, 12)[np.arange(12) * 5 % 12]], axis=1)
FAR = jnp.array([[-50.0], [50.0]])
DRAWN = 200


class Notes(Policy):
    """Random play that asks for too much, with what its planner saw of the MDP."""

    reward: Float[Array, " probes"]
    next_state: Float[Array, "probes 1"]
    reached: Float[Array, "2 1"]
    starts: Float[Array, "drawn 1"]
    plans: Int[Array, ""]

    def init(self):
        return ()

    def __call__(self, key, carry, state):
        return carry, jr.uniform(key, (1,), minval=-2.0, maxval=2.0)

    def deterministic(self):
        return self


class Spy(Planner):
    def init(self, key, mdp):
        return Notes(jnp.zeros(12), jnp.zeros((12, 1)), jnp.zeros((2, 1)), jnp.zeros((DRAWN, 1)), jnp.zeros((), int))

    def plan(self, key, mdp, policy):
        state, action = PROBES[:, :1], PROBES[:, 1:]
        next_state = jax.vmap(mdp.transition)(jr.split(key, 12), state, action)
        reward = jax.vmap(mdp.reward)(state, action, state)
        reached = jax.vmap(mdp.transition)(jr.split(key, 2), FAR, jnp.zeros((2, 1)))
        starts = jax.vmap(mdp.initial)(jr.split(key, DRAWN))
        return Notes(reward, next_state, reached, starts, policy.plans + 1), {"kl": jnp.zeros(())}


LINE = MDP(initial, move, left, never, STATES, ACTIONS, HORIZON)
WORLD = JaxWorld(LINE)


def spied(**changes):
    inputs = {
        "ridge": RIDGE,
        "bonus_scale": SCALE,
        "replay_starts": SHARE,
        "margin": MARGIN,
        "samples_per_policy": SAMPLES,
        "replay_size": ROOM,
        "rounds": ROUNDS,
        "fresh": False,
    }
    features = CountedFeatures(RandomNetwork(sizes=(16, 16), norm=1.0, action_weight=1.0))
    model = Neural(sizes=(16, 16), steps=2, batch=8)
    return Deep(features=features, model=model, planner=Spy(), **(inputs | changes))


def learn(algo, iterations=ITERATIONS, planned=ITERATIONS, world=WORLD):
    """Return what every iteration gave and how much had been traced by then, in a run of `planned` iterations."""
    learner = algo.start(KEYS, world.mdp, planned)
    history = []
    for n in range(1, iterations + 1):
        iteration = algo.iterate(KEYS, world, learner, n)
        learner = iteration.learner
        history.append((iteration, dict(TRACES)))
    return history


def of_seed(tree, seed):
    return jax.tree.map(lambda x: x[seed] if eqx.is_array(x) else x, tree)


def same(ours, theirs):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs if eqx.is_array(x))
