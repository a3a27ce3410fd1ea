"""Nothing passes the walls of the maze, and the way around them is open."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp import rollout
from pcmlp.errors import ConfigError
from pcmlp.runs.config import resolve
from pcmlp.tasks.point_umaze import PointUMaze, maze_map
from pcmlp.types import Policy

TASK = PointUMaze().build()
MDP = TASK.world.mdp
KEY = jr.key(0)
STEP = np.float32(0.1)


@jax.jit
def step(states, actions):
    def one(state, action):
        after = MDP.transition(KEY, state, action)
        return after, MDP.reward(state, action, after), MDP.terminal(state, action, after)

    return jax.vmap(one)(states, actions)


def move(state, action):
    after, _, _ = step(jnp.array([state]), jnp.array([action]))
    return np.asarray(after[0])


def solid(x, y):
    return (x < 0) | (x > 3) | (y < 0) | (y > 3) | ((x < 2) & (y > 1) & (y < 2))


class Script(Policy):
    """Actions by the clock, and uniform noise."""

    actions: jax.Array
    noise: jax.Array

    def init(self):
        return jnp.zeros((), int)

    def __call__(self, key, carry, state):
        return carry + 1, self.actions[carry] + self.noise * jr.uniform(key, (2,), minval=-1.0)

    def deterministic(self):
        return self


@eqx.filter_jit
def _episodes(policy):
    run = jax.vmap(lambda key: rollout.first_episode(rollout.stream(key, MDP, policy, MDP.horizon)))
    return run(jr.split(KEY, 100))


def episodes(*legs, noise=0.0):
    """100 episodes of (action, steps) after each other, then rest."""
    rows = np.zeros((MDP.horizon, 2), np.float32)
    played = np.concatenate([np.tile(action, (steps, 1)) for action, steps in (*legs, ((0.0, 0.0), 1))])
    rows[: len(played)] = played[: MDP.horizon]
    return _episodes(Script(jnp.asarray(rows), jnp.array(noise)))


@pytest.fixture(scope="module")
def walk():
    """Points all over the maze and on its edges, pushed about: [steps, points, 2] and the actions between them.

    Directions are held for a while and are often along an axis or a full diagonal, so that walls and corners are hit.
    """
    rng = np.random.default_rng(0)
    spread = rng.uniform(0, 3, (3000, 2))
    grid = np.stack(np.meshgrid(np.arange(31) / 10, np.arange(31) / 10), -1).reshape(-1, 2)  # includes every edge
    ulp = grid + rng.choice([-1e-7, 0, 1e-7], grid.shape)
    states = np.clip(np.concatenate([spread, grid, ulp]), 0, 3).astype(np.float32)
    states = states[~solid(*states.T)]
    path, pushes = [states], []
    for i in range(120):
        if i % 6 == 0:
            signs = rng.integers(-1, 2, states.shape)
            free = rng.uniform(-1.5, 1.5, states.shape)
            action = np.where(rng.uniform(size=(len(states), 1)) < 0.6, signs, free).astype(np.float32)
        states = np.asarray(step(states, action)[0])
        path.append(states)
        pushes.append(action)
    return np.stack(path), np.stack(pushes)


def test_never_in_the_block_nor_outside(walk):
    path, _ = walk
    assert not solid(path[..., 0], path[..., 1]).any()
    assert path.min() >= 0
    assert path.max() <= 3
    assert path.shape[1] > 3500


def test_an_axis_moves_by_its_whole_step_or_not_at_all(walk):
    path, pushes = walk
    x, y = path[:-1, :, 0], path[:-1, :, 1]
    wish = path[:-1] + STEP * np.clip(pushes, -1, 1)
    x_blocked = solid(wish[..., 0], y)
    y_blocked = solid(path[1:, :, 0], wish[..., 1])  # from where x has led
    np.testing.assert_allclose(path[1:, :, 0], np.where(x_blocked, x, wish[..., 0]), atol=1e-6)
    np.testing.assert_allclose(path[1:, :, 1], np.where(y_blocked, y, wish[..., 1]), atol=1e-6)
    for only_one in (x_blocked & ~y_blocked, y_blocked & ~x_blocked, x_blocked & y_blocked):
        assert only_one.sum() > 1000
    np.testing.assert_array_equal(path[1:, :, 0][x_blocked], x[x_blocked])
    np.testing.assert_array_equal(path[1:, :, 1][y_blocked], y[y_blocked])


def test_no_corner_is_cut(walk):
    """The way taken, along x and then along y, is free at every point of it."""
    path, _ = walk
    before, after = path[:-1], path[1:]
    for part in np.linspace(0, 1, 11):
        assert not solid(before[..., 0] + part * (after[..., 0] - before[..., 0]), before[..., 1]).any()
        assert not solid(after[..., 0], before[..., 1] + part * (after[..., 1] - before[..., 1])).any()


def test_at_the_corner_of_the_block():
    """From below and right of the corner (2, 1), diagonals towards it lead along the block, never into it."""
    np.testing.assert_allclose(move([1.95, 0.95], [1.0, 1.0]), [2.05, 1.05], atol=1e-6)  # round it: x first, then y
    np.testing.assert_allclose(move([2.05, 0.95], [-1.0, 1.0]), [1.95, 0.95], atol=1e-6)  # under it, and blocked
    np.testing.assert_allclose(move([2.05, 1.05], [-1.0, 0.0]), [2.05, 1.05], atol=1e-6)
    np.testing.assert_allclose(move([2.05, 1.05], [-1.0, -1.0]), [2.05, 0.95], atol=1e-6)


def test_edges_of_the_block():
    np.testing.assert_allclose(move([1.0, 1.0], [1.0, 1.0]), [1.1, 1.0], atol=1e-6)  # slides along the lower edge
    np.testing.assert_allclose(move([1.0, 2.0], [-1.0, -1.0]), [0.9, 2.0], atol=1e-6)  # and the upper one
    np.testing.assert_allclose(move([2.0, 1.5], [-1.0, 1.0]), [2.0, 1.6], atol=1e-6)  # and the end of it
    np.testing.assert_array_equal(move([2.0, 1.0], [-1.0, 0.0]), np.float32([1.9, 1.0]))


def test_there_is_no_way_between_the_block_and_the_outer_wall():
    state = [0.0, 0.95]
    np.testing.assert_array_equal(move(state, [0.0, 1.0]), np.float32(state))
    np.testing.assert_array_equal(move(state, [-1.0, 1.0]), np.float32(state))
    np.testing.assert_array_equal(move([0.0, 2.0], [0.0, -1.0]), np.float32([0.0, 2.0]))


@pytest.mark.parametrize("corner", [(0, 0), (0, 3), (3, 0), (3, 3)])
def test_outer_walls(corner):
    """The walls belong to the square; a step over one is not made, not even in part."""
    outwards = np.sign(np.array(corner) - 1.5)
    np.testing.assert_array_equal(move(np.float32(corner), np.float32(outwards)), np.float32(corner))
    near = np.float32(np.array(corner) - 0.05 * outwards)
    np.testing.assert_array_equal(move(near, np.float32(outwards)), near)
    along = np.float32([outwards[0], -outwards[1]])  # one axis into the wall, the other along it
    np.testing.assert_allclose(move(near, along), near - [0, 0.1 * outwards[1]], atol=1e-6)


def test_actions_are_clipped():
    np.testing.assert_allclose(move([0.5, 0.5], [7.0, -7.0]), [0.6, 0.4], atol=1e-6)
    assert step(jnp.full((1, 2), 0.5), jnp.full((1, 2), 7.0))[1][0] == pytest.approx(-0.02)


def test_reward_and_end():
    rng = np.random.default_rng(0)
    after = np.concatenate([rng.uniform([0, 2], [1, 3], (500, 2)), rng.uniform(0, 3, (500, 2))]).astype(np.float32)
    action = rng.uniform(-1.5, 1.5, (1000, 2)).astype(np.float32)
    distance = np.hypot(after[:, 0] - 0.5, after[:, 1] - 2.5)
    sure = np.abs(distance - 0.4) > 1e-5
    goal = distance <= 0.4
    reward = np.asarray(jax.vmap(MDP.reward)(after, action, after))
    ended = np.asarray(jax.vmap(MDP.terminal)(after, action, after))
    np.testing.assert_array_equal(ended[sure], goal[sure])
    expected = 100 * goal - 0.01 * (np.clip(action, -1, 1) ** 2).sum(1)
    np.testing.assert_allclose(reward[sure], expected[sure], rtol=1e-5)


def test_start():
    starts = np.asarray(jax.vmap(MDP.initial)(jr.split(KEY, 1000)))
    assert np.abs(starts - 0.5).max() <= 0.05
    assert (np.ptp(starts, axis=0) > 0.095).all()
    assert MDP.horizon == 100


def test_straight_to_the_goal_is_no_way():
    """Up, and up with every slant to the left or right that would still lead to the goal, ends under the block."""
    for slant in np.linspace(-0.3, 0.3, 7):
        found = episodes(((slant, 1.0), 100))
        assert not found.terminal.any()
        height = np.where(found.next_state[..., 0] < 2, found.next_state[..., 1], 0)
        assert height.max() <= 1


def test_right_up_left_reaches_the_goal():
    found = episodes(((1.0, 0.0), 17), ((0.0, 1.0), 18), ((-1.0, 0.0), 30))
    assert found.terminal.any(axis=1).all()
    total = np.where(found.valid, found.reward, 0).sum(1)
    steps = np.asarray(found.valid.sum(1))
    assert steps.max() < 65
    np.testing.assert_allclose(total, 100 - 0.01 * steps, rtol=1e-5)
    assert total.min() >= TASK.success_return


def test_random_play_does_not_reach_it():
    found = episodes(noise=1.0)
    assert not found.terminal.any()
    assert np.asarray(found.reward).max() <= 0
    assert np.asarray(found.next_state)[..., 1].max() <= 1  # nor anything but the lower arm
    assert 0 < TASK.success_return <= 100 - 0.02 * MDP.horizon


def test_free_cells():
    for per_unit in (1, 10):
        cells = np.asarray(maze_map(per_unit).free)
        assert cells.shape == (3 * per_unit, 3 * per_unit)
        assert cells.sum() == 7 * per_unit**2
    rows = [[True, True, True], [False, False, True], [True, True, True]]
    np.testing.assert_array_equal(maze_map(1).free, rows)


def test_only_free_squares_are_entered():
    states = jnp.array([[0.51, 0.52], [0.55, 0.58], [0.65, 0.5], [2.95, 3.0], [1.0, 1.0], [2.5, 1.5]])
    valid = jnp.array([True, True, True, True, True, False])
    entered = TASK.map.entered(states, valid)
    assert sorted(map(tuple, np.argwhere(entered))) == [(5, 5), (5, 6), (29, 29)]  # (1, 1) is the block's edge


def test_every_free_square_can_be_entered(walk):
    path = jnp.asarray(walk[0].reshape(-1, 2))
    everything = jnp.ones(len(path), bool)
    np.testing.assert_array_equal(TASK.map.entered(path, everything), TASK.map.free)
    assert not TASK.map.entered(path, ~everything).any()


def test_bad_horizon():
    with pytest.raises(ConfigError, match="horizon=0: give 1 or more"):
        PointUMaze(horizon=0)
    with pytest.raises(ConfigError, match=r"task\.horizon=0: give 1 or more"):
        resolve("point-umaze", settings=("task.horizon=0",))
