"""The ant's maze: no ant leaves it or passes its walls, and its map is of the ground that an ant can be on."""

import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.tasks.mujoco.ant_umaze import AntUMaze, ant_umaze_map, ant_umaze_reward, is_free
from pcmlp.tasks.mujoco.simulator import Simulator, mujoco

MAP = ant_umaze_map()
CENTRES = [(0, 0), (8, 0), (16, 0), (16, 8), (16, 16), (8, 16), (0, 16)]  # along the U


def squares_of(points):
    points = jnp.asarray(np.reshape(points, (-1, 2)), jnp.float32)
    return np.asarray(MAP.entered(points, jnp.ones(len(points), bool)))


def put(simulator, place):
    """At rest on the ground, at a place."""
    simulator.reset(seed=0)
    simulator.data.qpos[:2] = place
    simulator.data.qvel[:] = 0


def test_the_map_is_the_free_square_metres():
    assert (MAP.coordinates, MAP.low, MAP.high, MAP.cell) == ((0, 1), (-4.0, -4.0), (20.0, 20.0), 1.0)
    assert MAP.free.shape == (24, 24)
    assert MAP.free.sum() == 7 * 64
    blocks = np.asarray(MAP.free).reshape(3, 8, 3, 8)
    np.testing.assert_array_equal(blocks.all(axis=(1, 3)), [[1, 1, 1], [0, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(blocks.any(axis=(1, 3)), blocks.all(axis=(1, 3)))


def test_a_task_has_its_map_and_where_the_torso_is():
    task = AntUMaze(horizon=5).build()
    assert task.map.free.sum() == 448
    assert task.success_return is None
    assert task.pays_for_moving  # so that this reward stays in a reward-free run
    simulator = task.world.environments.first
    state = simulator.reset(seed=1)[0]
    np.testing.assert_array_equal(state, np.concatenate([simulator.data.qpos, simulator.data.qvel]))
    assert np.abs(state[:2]).max() <= 0.1
    assert np.argwhere(squares_of(state[list(task.map.coordinates)])).tolist()[0][0] in (3, 4)


def test_walls_stand_where_the_map_is_not_free():
    """By MuJoCo's own geometry: a ray from above meets a wall's top at 20 m, or the floor."""
    simulator = Simulator(AntUMaze.robot)
    simulator.reset(seed=0)
    mujoco.mj_forward(simulator.model, simulator.data)
    x, y = np.meshgrid(np.arange(-5.5, 22), np.arange(-5.5, 22))
    hit, down = np.zeros(1, np.int32), np.array([0.0, 0.0, -1.0])
    heights = [
        30 - mujoco.mj_ray(simulator.model, simulator.data, np.array([*place, 30.0]), down, None, 1, -1, hit)
        for place in zip(x.flat, y.flat, strict=True)
    ]
    wall = np.reshape(heights, x.shape) > 19.9
    np.testing.assert_array_equal(~wall, is_free(jnp.asarray(x), jnp.asarray(y)))
    assert (~wall).sum() == 448


@pytest.mark.parametrize("seed", range(3))
def test_no_ant_passes_a_wall(seed):
    """From the middles of the squares and close to every wall, thrown about by the strongest pushes."""
    simulator, rng = Simulator(AntUMaze.robot), np.random.default_rng(seed)
    near = [(0, 2.8), (9, 2.8), (10.8, 2.8), (13.2, 8), (8, 13.2), (-2.8, 16), (18.8, 8), (16, 18.8), (-2.8, -2.8)]
    highest, places = 0.0, []
    for place in (*CENTRES, *near):
        put(simulator, place)
        for t in range(60):
            if t % 3 == 0:
                push = rng.choice([-1.0, 1.0], 8)
            if t % 10 == 0:
                simulator.data.qvel[:2] = 5 * rng.uniform(-1, 1, 2)
            simulator.step(push)
            places.append(simulator.data.qpos[:2].copy())
            highest = max(highest, simulator.data.qpos[2])
    places = jnp.asarray(np.array(places), jnp.float32)
    assert is_free(*places.T).all()
    assert highest < 10  # half of a wall


def test_it_is_paid_for_any_movement_and_for_no_place():
    state = jnp.zeros(29).at[15:18].set(jnp.array([3.0, -4.0, 100.0]))
    assert float(ant_umaze_reward(state, jnp.zeros(8), state)) == pytest.approx(0.05)
    there = state.at[:2].set(jnp.array([16.0, 16.0]))
    assert float(ant_umaze_reward(there, jnp.zeros(8), there)) == pytest.approx(0.05)
    assert float(ant_umaze_reward(state, 7 * jnp.ones(8), state)) == pytest.approx(0.01 * (5 - 8e-4))
