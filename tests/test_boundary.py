"""The boundary to Gymnasium: observations of any structure are vectors with names, and bad ones are named."""

import functools
import json

import gymnasium
import jax
import jax.random as jr
import numpy as np
import pytest
from gymnasium import spaces
from test_host import counting, throttle

import pcmlp
from pcmlp.agent.predicting import predict
from pcmlp.boundary import Layout, WrongStructure, bounds_of
from pcmlp.errors import ConfigError, EnvironmentFault
from pcmlp.tasks.environment_checks import check_environment
from pcmlp.tasks.host import GymnasiumWorld

LINE = spaces.Box(-1.0, 1.0, (2,))
NESTED = spaces.Dict(
    {
        "speed": spaces.Box(-np.inf, np.inf, (), np.float64),
        "robot": spaces.Dict(arm=spaces.Box(-2.0, 2.0, (2, 2)), on=spaces.Box(0, 1, (1,), bool)),
        "mode": spaces.Discrete(3, start=4),
        "pair": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)]),
        "grey": spaces.Box(0, 255, (3,), np.uint8),
    }
)
NAMES = (
    "grey[0] grey[1] grey[2] mode=4 mode=5 mode=6 pair[0][0]=0 pair[0][0]=1 pair[0][1]=0 pair[0][1]=1 pair[0][1]=2 "
    "pair[1][0] pair[1][1] robot.arm[0,0] robot.arm[0,1] robot.arm[1,0] robot.arm[1,1] robot.on[0] speed"
)


def test_names_and_numbers_of_a_nested_observation():
    layout = Layout.of(NESTED)
    assert " ".join(layout.names) == NAMES
    observation = {
        "grey": np.array([0, 7, 255], np.uint8),
        "mode": 5,
        "pair": (np.array([1, 2]), np.array([0, 1], np.int8)),
        "robot": {"arm": np.array([[0.5, 1.0], [1.5, 2.0]], np.float32), "on": np.array([True])},
        "speed": np.float64(-3.0),
    }
    expected = [0, 7, 255, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0.5, 1.0, 1.5, 2.0, 1, -3.0]
    np.testing.assert_array_equal(layout.read(observation), expected)
    index = layout.index
    assert index["robot"] == slice(13, 18)
    assert index["robot.arm"] == slice(13, 17)
    assert index["pair"] == slice(6, 13)
    assert index["pair[1]"] == slice(11, 13)
    low, high = bounds_of(NESTED)
    np.testing.assert_array_equal(low, [0] * 13 + [-2.0] * 4 + [0, -np.inf])
    np.testing.assert_array_equal(high, [255] * 3 + [1] * 10 + [2.0] * 4 + [1, np.inf])
    assert Layout.from_record(json.loads(json.dumps([list(part) for part in layout.parts]))) == layout


@pytest.mark.parametrize(
    "space",
    [
        NESTED,
        LINE,
        spaces.Box(-1, 1, (2, 3), np.float64),
        spaces.Discrete(3),
        spaces.MultiBinary([2, 2]),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.Tuple([LINE, spaces.Discrete(2)]),
        spaces.Box(0, 9, (3,), np.int64),
    ],
)
def test_the_vector_equals_that_of_gymnasiums_flatten(space):
    """Gymnasium's `flatten` is another implementation of the same order."""
    space.seed(0)
    layout = Layout.of(space)
    for _ in range(5):
        sample = space.sample()
        np.testing.assert_allclose(layout.read(sample), spaces.flatten(space, sample).astype(np.float64), rtol=1e-6)
    assert len(layout.names) in ((0,) if layout.is_vector else (layout.size,))
    batch = spaces.flatten(space, sample).astype(np.float32)[None]
    np.testing.assert_allclose(layout.read_any(np.repeat(batch, 7, 0)), np.repeat(batch, 7, 0))  # vectors stay
    np.testing.assert_allclose(layout.read_any(sample), batch[0], rtol=1e-6)


def test_a_batch_of_observations():
    layout = Layout.of(NESTED)
    vector = gymnasium.vector.utils.batch_space(NESTED, 3)
    vector.seed(0)
    batch = vector.sample()
    rows = list(gymnasium.vector.utils.iterate(vector, batch))
    np.testing.assert_allclose(layout.read_any(batch), [layout.read(row) for row in rows], rtol=1e-6)
    with pytest.raises(WrongStructure, match="batches of 2 and 3 observations"):
        layout.read_any({**batch, "speed": batch["speed"][:2]})
    cells = Layout.of(spaces.Discrete(3))  # as many observations as there are values
    np.testing.assert_array_equal(cells.read_any(np.array([2, 0, 1])), np.eye(3)[[2, 0, 1]])
    np.testing.assert_array_equal(cells.read_any(np.array([0.0, 0.0, 1.0])), [0, 0, 1])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda o: {k: v for k, v in o.items() if k != "speed"}, "an observation without speed"),
        (lambda o: {**o, "more": 1}, "an observation with 'more', which is not in the space"),
        (lambda o: {**o, "robot": 3}, "a int where a dict belongs"),
        (lambda o: {**o, "pair": {"a": 1}}, "a dict where a tuple belongs"),
        (lambda o: {**o, "grey": np.zeros(4, np.uint8)}, r"an observation of grey of shape \(4,\), not \(3,\)"),
        (lambda o: {**o, "grey": np.zeros(3)}, "an observation of grey of type float64, not uint8"),
        (lambda o: {**o, "mode": 7}, "an observation of mode with the value 7, which is not one of 4 to 6"),
        (lambda o: list(o.values()), "a list where a dict belongs"),
    ],
)
def test_the_fault_of_an_observation_is_named(change, line):
    NESTED.seed(0)
    with pytest.raises(WrongStructure, match=line):
        Layout.of(NESTED).read(change(NESTED.sample()))


class Nested(gymnasium.Env):
    """Observes its clock in several ways; `spoil` changes the observation of a step."""

    def __init__(self, spoil=None, at=0):
        self.observation_space = spaces.Dict(
            a=spaces.Box(0, 100, (1, 2), np.float64), b=spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(1)])
        )
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.time, self.spoil, self.at = 0, spoil, at

    def observe(self):
        seen = {"a": np.array([[self.time, 0.5]]), "b": (self.time % 5, np.array([self.time % 2], np.int8))}
        return self.spoil(seen) if self.spoil and self.time >= self.at else seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        return self.observe(), 1.0, False, False, {}


def names(state, action, next_state):
    return next_state[0] + 0.0 * action[0]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_world_records_vectors_with_names(workers):
    from pcmlp.tasks import MountainCar  # noqa: F401 (its package is loaded as in a run)

    world = GymnasiumWorld.of(Nested, reward=names, horizon=6, workers=workers)
    assert world.mdp.states.names == ("a[0,0]", "a[0,1]", *(f"b[0]={i}" for i in range(5)), "b[1][0]")
    rows, _ = world.collect(jr.split(jr.key(0), 1), counting(1), 6)
    np.testing.assert_array_equal(rows.next_state[0, :, 0], range(1, 7))
    np.testing.assert_array_equal(rows.next_state[0, :, 2:7].argmax(axis=1), np.arange(1, 7) % 5)
    np.testing.assert_array_equal(rows.state[0, :, 7], np.arange(6) % 2)
    world.close()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda o: {"a": o["a"]}, "an observation without b"),
        (lambda o: {**o, "c": 1.0}, "an observation with 'c', which is not in the space"),
        (lambda o: {**o, "a": o["a"][0]}, r"an observation of a of shape \(2,\), not \(1, 2\)"),
        (lambda o: {**o, "b": (1.5, o["b"][1])}, r"an observation of b\[0\] of type float64, not int64"),
        (lambda o: {**o, "a": o["a"].astype(complex)}, "of complex128 of a is not an array of numbers"),
    ],
)
def test_an_environment_that_changes_its_observations(spoil, line):
    """In the trial, which finds it before anything is learned, and later, where it is a fault."""
    with pytest.raises(ConfigError, match=f"step 7 of a trial gave .*{line}; return observations of its") as refused:
        check_environment(Nested(spoil, 7))
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match=line):
        check_environment(Nested(spoil, 0))
    world = GymnasiumWorld.of(functools.partial(Nested, spoil, 40), reward=names, horizon=50, max_faults=0)
    with pytest.raises(EnvironmentFault, match=line) as stopped:
        world.collect(jr.split(jr.key(0), 1), counting(1), 50)
    assert "\n" not in str(stopped.value)


def test_an_observation_out_of_bounds_is_named():
    def far(observation):
        return {**observation, "a": observation["a"] - 1e3}

    world = GymnasiumWorld.of(functools.partial(Nested, far, 40), reward=names, horizon=50, max_faults=0)
    with pytest.raises(
        EnvironmentFault, match=r"step gave -960 at a\[0,0\], far outside of the observation space: 0 to 100"
    ):
        world.collect(jr.split(jr.key(0), 1), counting(1), 50)


def test_predict_takes_the_environments_own_observation():
    mdp = GymnasiumWorld.of(Nested, reward=names, horizon=6).mdp
    policy = jax.tree.map(lambda x: x[0], throttle(1, 0, 0.5))
    own = {"a": np.array([[3.0, 0.5]]), "b": (2, np.array([1], np.int8))}
    vector = Layout.of(Nested().observation_space).read(own)

    def act(observation):
        return predict(policy, mdp, observation, None, None, True, np.random.default_rng(0))[0]

    np.testing.assert_array_equal(act(own), act(vector))
    assert act(own).shape == (1,)
    batch = {"a": np.stack([own["a"]] * 3), "b": (np.full(3, 2), np.ones((3, 1), np.int8))}
    assert act(batch).shape == act(np.stack([vector] * 3)).shape == (3, 1)
    for wrong, line in (
        (
            {"a": own["a"]},
            r"observation: an observation without b; give the environment's own \(a, b, b\[0\], b\[1\]\)",
        ),
        (vector[:3], r"observation of shape \(3,\): give \(8,\)"),
    ):
        with pytest.raises(ConfigError, match=line):
            act(wrong)


@pytest.mark.slow
def test_a_saved_agent_knows_the_observation_without_its_environment(tmp_path, tiny_trpo):
    from pcmlp.agent import DeepPCMLP

    agent = DeepPCMLP(Nested, reward=names, horizon=6, settings=tiny_trpo)
    agent.save(tmp_path / "agent.safetensors")
    own, _ = Nested().reset(seed=0)
    loaded = DeepPCMLP.load(tmp_path / "agent.safetensors")
    np.testing.assert_array_equal(*(each.predict(own, deterministic=True)[0] for each in (agent, loaded)))


def test_the_index_of_an_environment():
    expected = {"a": slice(0, 2), "b": slice(2, 8), "b[0]": slice(2, 7), "b[1]": slice(7, 8)}
    assert pcmlp.observation_index(Nested()) == expected
