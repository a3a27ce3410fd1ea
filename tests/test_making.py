"""The environments that users give: vector environments, and actions without bounds."""

import functools

import gymnasium
import jax.random as jr
import numpy as np
import pytest
from gymnasium import spaces
from test_host import Clock, counting, luck

from pcmlp.errors import ConfigError
from pcmlp.tasks.host import GymnasiumWorld

PENDULUM = "Pendulum-v1"


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(gymnasium.make_vec, PENDULUM, num_envs=3),
        lambda: gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(PENDULUM)] * 2),
        gymnasium.make_vec(PENDULUM, num_envs=2),
    ],
)
def test_a_vector_environment_gives_the_function_of_one_of_its_copies(make):
    keys = jr.split(jr.key(0), 2)
    vector = GymnasiumWorld.of(make, horizon=10, seeds=2)
    alone = GymnasiumWorld.of(lambda: gymnasium.make(PENDULUM), horizon=10, seeds=2)
    ours, theirs = (world.collect(keys, counting(2), 20)[0] for world in (vector, alone))
    np.testing.assert_array_equal(ours.next_state, theirs.next_state)


@pytest.mark.bad_input
def test_a_wrapped_vector_environment_is_refused():
    def make():
        return gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec(PENDULUM, num_envs=2))

    with pytest.raises(
        ConfigError, match=r"does not say how one .*give the function .*lambda: gymnasium\.make"
    ) as line:
        GymnasiumWorld.of(make, horizon=10)
    assert "\n" not in str(line.value)


@pytest.mark.parametrize(
    ("bounds", "scale", "expected"),
    [((-np.inf, np.inf), 2.0, (-2.0, 2.0)), ((-0.5, np.inf), 3.0, (-0.5, 3.0)), ((-np.inf, -1.0), 4.0, (-4.0, -1.0))],
)
def test_actions_without_a_bound_get_one(bounds, scale, expected):
    world = GymnasiumWorld.of(lambda: Clock(*bounds), reward=luck, horizon=8, action_scale=scale)
    np.testing.assert_array_equal(world.mdp.actions.bounds, np.float32(expected)[:, None])
    rows, _ = world.collect(jr.split(jr.key(0), 1), counting(1, gain=9.0), 8)
    played = np.clip(rows.action[0, :3, 0], *expected)
    np.testing.assert_allclose(rows.next_state[0, :3, 2], played)  # the environment sees clipped actions


@pytest.mark.parametrize("env", [Clock(-np.inf, np.inf)])
def test_an_environment_that_is_given_gets_bounds_too(env):
    world = GymnasiumWorld.of(env, reward=luck, horizon=8, action_scale=1.5)
    np.testing.assert_array_equal(world.mdp.actions.bounds, [[-1.5], [1.5]])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("bounds", "scale", "line"),
    [
        ((-1.0, 1.0), 2.0, "its actions have bounds; leave out action_scale=2.0"),
        ((-np.inf, np.inf), 0.0, "action_scale=0.0: give a number above 0"),
        ((3.0, np.inf), 2.0, "an action has a bound at 3; give more than action_scale=2.0"),
        ((-np.inf, -3.0), 3.0, "an action has a bound at 3; give more than action_scale=3.0"),
    ],
)
def test_bad_scales(bounds, scale, line):
    with pytest.raises(ConfigError, match=line):
        GymnasiumWorld.of(lambda: Clock(*bounds), reward=luck, horizon=8, action_scale=scale)


def test_observations_with_one_bound():
    class Half(Clock):
        """Its clock has no upper bound."""

        def __init__(self):
            super().__init__()
            low, high = np.array([-1, 0, -np.inf, 0.0]), np.array([np.inf, np.inf, 0.5, 1.0])
            self.observation_space = spaces.Box(low, high, dtype=np.float64)

    world = GymnasiumWorld.of(Half, reward=luck, horizon=8)
    assert not world.mdp.states.is_bounded()
    rows, _ = world.collect(jr.split(jr.key(0), 1), counting(1), 8)
    assert rows.valid.all()
