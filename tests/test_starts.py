"""Where imagined episodes begin: a goal may be moved to where the recorded episode was later, and nothing else is."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.starts import check_relabel, imagined_starts
from pcmlp.errors import ConfigError
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Box, Coordinates
from pcmlp.types import MDP, Problem, never
from pcmlp.world import JaxWorld

EPISODES, HORIZON, COUNT = 4, 30, 4_000
PLAIN = Box([-np.inf] * 3, [np.inf] * 3)  # episode and time, goal, a coordinate like any other
DECLARED = Box(PLAIN.lower, PLAIN.upper, Coordinates(goals=((1, 0),)))


def world(states):
    """A world that begins at -1, where no recorded episode was."""
    move = lambda key, state, action: state  # noqa: E731
    return MDP(lambda key: jnp.full(3, -1.0), move, lambda s, a, n: 0.0, never, states, Box.of(1.0, 1), HORIZON)


@pytest.fixture(scope="module")
def replay():
    """A buffer in which the first coordinate is 100 times the episode plus the time, and the goal is 7."""
    time = np.tile(np.arange(HORIZON), EPISODES)
    place = 100.0 * np.repeat(np.arange(EPISODES), HORIZON) + time
    state = jnp.asarray(np.stack([place, np.full_like(place, 7.0), -place], axis=1), jnp.float32)
    no, yes = jnp.zeros(len(time), bool), jnp.ones(len(time), bool)
    rows = Transitions(state, jnp.zeros((len(time), 1)), jnp.zeros(len(time)), state, no, jnp.asarray(time == 29), yes)
    return Replay.empty(rows, 150).add(rows)


@jax.jit
def draw(replay, replayed, relabel):
    return imagined_starts(jr.key(0), world(DECLARED), replay, COUNT, replayed, relabel)


def test_a_moved_goal_is_where_the_same_episode_was_10_to_20_steps_later(replay):
    place, goal, other = np.asarray(draw(replay, 1.0, 1.0)).T
    np.testing.assert_array_equal(other, -place)  # nothing but the goal is changed
    moved = goal != 7.0
    later = (goal - place)[moved]
    assert set(later.tolist()) == set(range(10, 21))
    counts = np.bincount(later[place[moved] % 100 < 10].astype(int))[10:]
    assert counts.min() > 0.6 * counts.mean()  # all delays alike, where the episode is long enough for all
    np.testing.assert_array_equal(place[moved] // 100, goal[moved] // 100)
    time = place % 100
    assert moved[time < 10].all()  # an episode that ended before keeps its goal
    assert not moved[time >= 20].any()


def test_the_share_of_moved_goals(replay):
    place, goal, _ = np.asarray(draw(replay, 0.5, 0.3)).T
    visited = place >= 0
    assert 0.45 < visited.mean() < 0.55
    assert (goal[~visited] == -1.0).all()  # the world's own starts keep theirs
    assert 0.25 < (goal != 7.0)[visited & (place % 100 < 10)].mean() < 0.35


def test_without_relabelling_nothing_changes(replay):
    """The same states are drawn as for a task that declares nothing, from the same random numbers."""
    plain = jax.jit(lambda replay: imagined_starts(jr.key(0), world(PLAIN), replay, COUNT, 0.5, 0.0))(replay)
    np.testing.assert_array_equal(draw(replay, 0.5, 0.0), plain)
    assert Deep().relabel == 0.0


def test_relabelling_needs_goals():
    check_relabel(0.5, world(DECLARED))
    line = r"^relabel=0.5: the task declares no goals among its coordinates; give 0$"
    with pytest.raises(ConfigError, match=line):
        Deep(relabel=0.5).bind(Problem(JaxWorld(world(PLAIN))))
