"""The cover is every policy so far, and as one policy it is their uniform mixture, chosen once an episode."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, Int
from scipy.stats import chisquare

from pcmlp import rollout
from pcmlp.cover import Cover, Mixture
from pcmlp.spaces import Finite
from pcmlp.types import MDP, Policy, never

HORIZON = 5
stream = eqx.filter_jit(rollout.stream)


class Counting(Policy):
    """Plays base, base + 1, base + 2, ...: its action shows which policy it is and how long it has been playing."""

    base: Int[Array, ""]

    def init(self):
        return self.base  # a memory that begins differently in each policy, as a planner's plan does

    def __call__(self, key, carry, state):
        return carry + 1, carry

    def deterministic(self):
        return self


class Noisy(Policy):
    scale: Float[Array, ""]

    def init(self):
        return ()

    def __call__(self, key, carry, state):
        return carry, self.scale * jr.normal(key, ())

    def deterministic(self):
        return eqx.tree_at(lambda p: p.scale, self, jnp.zeros_like(self.scale))


def start(key):
    return jnp.zeros(())


def add(key, state, action):
    return state + action


def no_reward(state, action, next_state):
    return jnp.zeros(())


LINE = Finite(1_000), Finite(1_000)  # no policy here asks for its size
WALK = MDP(start, add, no_reward, never, *LINE, HORIZON)
BASES = [100, 200, 300]


@pytest.fixture(scope="module")
def cover():
    cover = Cover.of(Counting(jnp.array(BASES[0])), 5)
    for base in BASES[1:]:
        cover = cover.push(Counting(jnp.array(base)))
    return cover


def test_push_keeps_every_policy(cover):
    assert int(cover.size) == 3
    assert [int(cover[i].base) for i in range(3)] == BASES
    assert int(jax.jit(lambda i: cover[i].base)(jnp.array(1))) == BASES[1]


def test_push_leaves_the_cover_it_was_given(cover):
    longer = cover.push(Counting(jnp.array(400)))
    assert int(longer.size) == 4
    assert int(cover.size) == 3
    assert [int(longer[i].base) for i in range(4)] == [*BASES, 400]


def test_full_cover_keeps_its_members():
    cover = Cover.of(Counting(jnp.array(100)), 2)
    for base in (200, 300, 400):
        cover = cover.push(Counting(jnp.array(base)))
    picks = jax.vmap(cover.pick)(jr.split(jr.key(0), 1000))
    assert [int(cover[i].base) for i in range(2)] == [100, 200]
    assert set(np.asarray(picks).tolist()) == {0, 1}
    assert abs(np.mean(np.asarray(picks)) - 0.5) < 0.1


def test_pick_is_uniform_over_what_was_pushed(cover):
    picks = jax.vmap(cover.pick)(jr.split(jr.key(1), 3000))
    counts = np.bincount(np.asarray(picks), minlength=5)
    assert counts[3:].sum() == 0  # room that nothing was pushed into
    assert chisquare(counts[:3]).pvalue > 1e-3


def test_mixture_picks_once_an_episode_and_plays_that_member_to_the_end(cover):
    mixture = Mixture(cover)
    mdp = MDP(lambda key: jnp.array(0), lambda key, s, a: s + 1, no_reward, never, *LINE, HORIZON)
    actions = np.asarray(jax.vmap(lambda k: stream(k, mdp, mixture, HORIZON).action)(jr.split(jr.key(2), 3000)))
    member = actions[:, 0] // 100 - 1
    np.testing.assert_array_equal(actions, 100 * (member[:, None] + 1) + np.arange(HORIZON))
    assert chisquare(np.bincount(member, minlength=3)).pvalue > 1e-3


def test_mixture_picks_anew_where_the_mdp_ends_an_episode(cover):
    def ended(state, action, next_state):
        return next_state == 3

    mdp = MDP(lambda key: jnp.array(0), lambda key, s, a: s + 1, no_reward, ended, *LINE, HORIZON)
    actions = np.asarray(stream(jr.key(3), mdp, Mixture(cover), 300).action).reshape(100, 3)
    member = actions[:, 0] // 100 - 1
    np.testing.assert_array_equal(actions, 100 * (member[:, None] + 1) + np.arange(3))
    assert len(set(member.tolist())) == 3


def test_replaying_a_member_gives_its_episode_again():
    policies = [Noisy(jnp.array(float(scale))) for scale in (1, 2, 3)]
    cover = Cover.of(policies[0], 4)
    for policy in policies[1:]:
        cover = cover.push(policy)
    key = jr.key(4)
    for i, policy in enumerate(policies):
        replayed, original = stream(key, WALK, cover[i], HORIZON), stream(key, WALK, policy, HORIZON)
        np.testing.assert_array_equal(replayed.next_state, original.next_state)
        quiet = stream(key, WALK, cover[i].deterministic(), HORIZON)
        np.testing.assert_array_equal(quiet.next_state, np.zeros(HORIZON))
    assert not np.array_equal(stream(key, WALK, cover[0], HORIZON).action, stream(key, WALK, cover[1], HORIZON).action)
