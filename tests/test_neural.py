"""Neural dynamics: the loss against a plain loop, what a window may show, and that a small net learns a pendulum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.algorithms.deep import Deep
from pcmlp.errors import ConfigError
from pcmlp.models.neural import Neural, fit_units, safe_norm, window_loss
from pcmlp.parts import NAMES
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import overlay
from pcmlp.spaces import Box

SMALL = Neural(sizes=(16, 16), steps=10)
MDP = spaces_only(Box.of(8.0, 3), Box.of(2.0, 1))


def pendulum(episodes, horizon=50, seed=0):
    """Random torques; s = (cos, sin, rate)."""
    rng = np.random.default_rng(seed)
    angle, rate = rng.uniform(-np.pi, np.pi, episodes), rng.uniform(-1, 1, episodes)
    rows = []
    for t in range(horizon):
        torque = rng.uniform(-2, 2, episodes)
        state = np.stack([np.cos(angle), np.sin(angle), rate], axis=1)
        rate = np.clip(rate + 0.05 * (15 * np.sin(angle) + 3 * torque), -8, 8)
        angle = angle + 0.05 * rate
        after = np.stack([np.cos(angle), np.sin(angle), rate], axis=1)
        rows.append(
            (state, torque[:, None], 0 * rate, after, rate > 99, np.full(episodes, t == horizon - 1), rate < 99)
        )
    columns = (np.stack(column, axis=1) for column in zip(*rows, strict=True))  # [episodes, horizon, ...]
    flat = [c.reshape(-1, *c.shape[2:]) for c in columns]
    return Transitions(*(jnp.asarray(c if c.dtype == bool else c.astype(np.float32)) for c in flat))


DATA = pendulum(8)
CAPACITY = 330
measure, draw = jax.jit(window_loss), eqx.filter_jit(Replay.window_rows)


TRACES = []


@jax.jit
def train(model, key, replay):
    TRACES.append(1)
    return SMALL.train(key, MDP, model, replay)


@eqx.filter_jit
def make(key=0, dynamics=SMALL):
    return dynamics.init(jr.key(key), MDP)


@jax.jit
def renormalise(model, data):
    """Return the same net in the units of `data`."""
    return eqx.tree_at(lambda m: (m.inputs, m.change), model, fit_units(data, model.chart))


def predict(model, rows):
    return jax.vmap(lambda state, action: model(jr.key(0), state, action))(rows.state, rows.action)


@pytest.fixture(scope="module")
def replay():
    """A ring that has gone round: 400 rows in a buffer of 330, so that its head is in the middle of an episode."""

    @jax.jit
    def fill(data):
        first, second = (jax.tree.map(lambda x, part=part: x[part], data) for part in (slice(250), slice(250, None)))
        return Replay.empty(data, CAPACITY).add(first).add(second)

    return fill(DATA)


@pytest.fixture(scope="module")
def model(replay):
    return renormalise(make(), replay.data)


@pytest.fixture(scope="module")
def drawn(replay):
    """100 windows of 4 steps; their first columns are windows of fewer."""
    return draw(replay, jr.key(1), 100, 4)


def errors_by_hand(model, data, rows, valid):
    """Eq. 3 in numpy: a list of the errors that count, window by window."""
    W, b = ([np.asarray(x, np.float64) for x in xs] for xs in (model.net.weights, model.net.biases))
    units, change = model.inputs, model.change

    def difference(s, a):
        h = np.clip((np.concatenate([s, a]) - np.asarray(units.mean)) / np.asarray(units.std), -100, 100)
        for Wi, bi in zip(W[:-1], b[:-1], strict=True):
            h = np.maximum(h @ Wi + bi, 0)
        return np.asarray(change.mean) + np.asarray(change.std) * (h @ W[-1] + b[-1])

    out = []
    for window, counted in zip(np.asarray(rows), np.asarray(valid), strict=True):
        s = np.asarray(data.state[window[0]], np.float64)
        for row, used in zip(window, counted, strict=True):
            predicted = difference(s, np.asarray(data.action[row]))
            true = np.asarray(data.next_state[row], np.float64) - np.asarray(data.state[row])
            if used:
                out.append(np.sqrt(np.sum(((predicted - true) / np.asarray(change.std)) ** 2)))
            s = s + predicted
    return out


@pytest.mark.parametrize("unroll", [1, 2, 4])
def test_the_loss_is_eq_3(replay, model, drawn, unroll):
    rows, valid = (x[:, :unroll] for x in drawn)
    assert (unroll > 1) == bool(np.any(~np.asarray(valid)))  # some windows end with their episode
    value, errors = measure(model, replay.data, rows, valid)
    by_hand = errors_by_hand(model, replay.data, rows, valid)
    assert float(value) == pytest.approx(np.mean(by_hand), rel=1e-4)
    np.testing.assert_allclose(np.asarray(errors)[np.asarray(valid)], by_hand, rtol=1e-3)
    assert (np.asarray(errors)[~np.asarray(valid)] == 0).all()


def test_window_rows_are_those_of_the_replay_and_never_cross(replay, drawn):
    rows, valid = (np.asarray(x) for x in drawn)
    windows = eqx.filter_jit(Replay.windows)(replay, jr.key(1), 100, 4)
    np.testing.assert_array_equal(valid, windows.valid)
    np.testing.assert_array_equal(np.asarray(replay.data.state)[rows], windows.state)
    assert valid[:, 0].all()
    before, after = rows[:, :-1][valid[:, 1:]], rows[:, 1:][valid[:, 1:]]
    # The state that follows is the next row's: no episode's end and no head of the ring lies between.
    np.testing.assert_array_equal(np.asarray(replay.data.next_state)[before], np.asarray(replay.data.state)[after])


@jax.jit
def slope(net, model, data, rows, valid):
    return jax.value_and_grad(lambda net: window_loss(eqx.tree_at(lambda m: m.net, model, net), data, rows, valid)[0])(
        net
    )


def test_what_lies_after_an_end_does_not_matter(replay, model, drawn):
    rows, valid = (x[:, :2] for x in drawn)
    assert bool(np.any(~np.asarray(valid)))
    one = slope(model.net, model, replay.data, rows, valid)
    other = slope(model.net, model, replay.data, jnp.where(valid, rows, 0), valid)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_the_gradient_is_finite_at_zero_error(replay, drawn):
    """States that never move: a net of zeros predicts them exactly."""
    still = eqx.tree_at(lambda d: d.next_state, replay.data, replay.data.state)
    model = renormalise(make(), still)
    zeros = jax.tree.map(jnp.zeros_like, model.net)
    value, gradient = slope(zeros, model, still, *(x[:, :2] for x in drawn))
    assert float(value) == 0.0
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))
    assert float(jax.grad(lambda x: safe_norm(x * jnp.ones(2)))(1.0)) == pytest.approx(2**0.5, rel=1e-6)


def test_the_second_step_starts_from_the_prediction(replay, model, drawn):
    """L = 2 is not L = 1 on twice the rows: the second error sees the first one."""
    rows, valid = drawn
    _, errors = measure(model, replay.data, rows[:, :2], valid[:, :2])
    _, first = measure(model, replay.data, rows[:, :1], valid[:, :1])
    _, second = measure(model, replay.data, rows[:, 1:2], valid[:, 1:2])
    np.testing.assert_allclose(errors[:, 0], first[:, 0], rtol=1e-5)
    changed = np.abs(np.asarray(errors[:, 1] - second[:, 0]))[np.asarray(valid[:, 1])]
    assert np.mean(changed) > 0.01


def test_a_small_net_learns_a_pendulum():
    """The one-step error on episodes that it never saw falls at least 10-fold, from 2.3 std of a difference to 0.14."""
    test = pendulum(10, seed=1)
    rows, valid = jnp.arange(500)[:, None], jnp.ones((500, 1), bool)
    dynamics = Neural(sizes=(64, 64), steps=400)
    model = make(dynamics=dynamics)
    before, _ = measure(renormalise(model, DATA), test, rows, valid)
    replay = Replay(DATA, jnp.zeros((), int))
    fitted, metrics = jax.jit(lambda k, m, r: dynamics.train(k, MDP, m, r))(jr.key(0), model, replay)
    after, _ = measure(fitted, test, rows, valid)
    assert float(before) / float(after) > 10
    assert float(metrics["model_error"]) < float(metrics["model_loss_mean"])
    predicted = predict(fitted, test)
    assert float(jnp.mean(jnp.abs(predicted - test.next_state))) < 0.03


def test_the_held_out_error_is_that_of_one_step_on_unseen_rows():
    """The same as the loss of windows of one step, of valid rows only, and of a fitted model only."""
    unseen = pendulum(10, seed=1)
    unseen = eqx.tree_at(lambda t: t.valid, unseen, jnp.arange(500) < 300)
    measured = jax.jit(lambda model, rows: model.measure(MDP, rows))
    assert np.isnan(measured(make(), unseen)["held_out_error"])
    fitted, metrics = train(make(), jr.key(0), Replay(DATA, jnp.zeros((), int)))
    expected, _ = measure(fitted, unseen, jnp.arange(300)[:, None], jnp.ones((300, 1), bool))
    found = measured(fitted, unseen)
    np.testing.assert_allclose(found["held_out_error"], expected, rtol=1e-5)
    assert set(found) == {"held_out_error"}
    assert 0.5 < float(found["held_out_error"]) / float(metrics["model_error"]) < 2.0  # the same units
    nothing = eqx.tree_at(lambda t: t.valid, unseen, jnp.zeros(500, bool))
    assert np.isnan(measured(fitted, nothing)["held_out_error"])


def test_training_again_continues(replay):
    """Adam counts on, the units follow the data, and nothing is traced a second time."""
    model, first = train(make(), jr.key(0), replay)
    before, traces = model, len(TRACES)
    for i in range(1, 4):
        replay = replay.add(jax.tree.map(lambda x, i=i: x[20 * i : 20 * i + 20], DATA))
        model, last = train(model, jr.key(i), replay)
    assert len(TRACES) == traces
    counts = [x for x in jax.tree.leaves(model.optimiser) if x.dtype == jnp.int32]
    assert [int(c) for c in counts] == [40]
    assert (np.asarray(model.inputs.mean) != np.asarray(before.inputs.mean)).any()
    assert float(last["model_loss"]) < float(first["model_loss"])
    assert set(last) == {"model_loss", "model_loss_mean", "model_error", "model_skipped"}


def test_seeds_by_vmap_are_single_runs(replay):
    keys = jr.split(jr.key(5), 2)
    models = jax.tree.map(lambda *x: jnp.stack(x), make(0), make(1))
    replays = jax.tree.map(lambda x: jnp.stack([x, x]), replay)
    replays = eqx.tree_at(lambda r: r.data.action, replays, replays.data.action.at[1].multiply(-1.0))
    together = jax.jit(jax.vmap(lambda m, k, r: SMALL.train(k, MDP, m, r)))(models, keys, replays)
    for i in range(2):
        alone = train(*(jax.tree.map(lambda x, i=i: x[i], xs) for xs in (models, keys, replays)))
        for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(x[i], y, atol=1e-5)


def test_rows_in_order_are_a_ring_whose_head_is_at_its_start():
    """The oldest row does not follow the newest, though no episode ends there."""
    rows = jax.tree.map(lambda x: x[:CAPACITY], DATA)
    assert not rows.last[-1]
    rows = eqx.tree_at(lambda r: r.valid, rows, jnp.arange(CAPACITY) % (CAPACITY - 5) < 5)  # the first and the last 5
    drawn, valid = (np.asarray(x) for x in draw(Replay(rows, jnp.zeros((), int)), jr.key(0), 100, 4))
    wraps = np.diff(drawn, axis=1) < 0
    assert wraps.any()
    assert not valid[:, 1:][wraps].any()
    assert valid[:, 1].any()


def test_the_units_are_those_of_the_data_and_floored():
    still = eqx.tree_at(lambda d: (d.state, d.next_state), DATA, (DATA.state.at[:, 1].set(0.7),) * 2)
    model = renormalise(make(), still)
    np.testing.assert_allclose(model.inputs.mean[3], np.mean(np.asarray(DATA.action)), atol=1e-5)
    states = np.asarray(still.state)
    np.testing.assert_allclose(
        model.change.std, [1e-3 * states[:, 0].std(), 1e-3, 1e-3 * states[:, 2].std()], rtol=1e-4
    )
    moving = renormalise(make(), DATA)
    np.testing.assert_allclose(moving.change.std, np.std(np.asarray(DATA.next_state - DATA.state), axis=0), rtol=1e-4)
    # A coordinate that never moved is predicted to stay, to about a thousandth.
    assert float(jnp.max(jnp.abs(predict(model, still)[:, 1] - 0.7))) < 0.02


def test_an_imagination_that_diverges_stays_finite():
    model = renormalise(make(), DATA)
    wild = eqx.tree_at(lambda m: m.net.biases[-1], model, jnp.full(3, 1e6))
    state = DATA.state[0]
    for _ in range(3):
        state = wild(jr.key(0), state, jnp.ones(1))
    limit = np.asarray(model.inputs.mean + 100 * model.inputs.std)[:3]
    np.testing.assert_allclose(state, limit, rtol=1e-5)
    far = model.difference(jnp.full(3, 1e30), jnp.ones(1))
    assert np.isfinite(far).all()


def test_an_empty_replay_leaves_the_model_finite():
    model, metrics = train(make(), jr.key(0), Replay.empty(DATA, CAPACITY))
    assert float(metrics["model_loss"]) == 0.0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(model))


@pytest.mark.parametrize(("name", "value"), [("unroll", 0), ("batch", 0), ("steps", 0), ("rate", 0.0), ("clip", -1.0)])
def test_settings_that_cannot_be(name, value):
    remedy = "1 or more" if isinstance(value, int) else "a number above 0"
    with pytest.raises(ConfigError, match=f"^model.{name}={value}: give {remedy} "):
        overlay(Deep(), {f"model.{name}": str(value)}, NAMES)


def test_defaults_are_the_papers():
    small = spaces_only(Box.of(1.0, 2), Box.of(1.0, 1))
    model = jax.eval_shape(lambda key: Neural().init(key, small), jr.key(0))
    assert [W.shape for W in model.net.weights] == [(3, 500), (500, 500), (500, 2)]
    assert model.net.activation == "relu"
    assert Neural() == Neural((500, 500), 1, steps=100, batch=128, unroll=2, rate=1e-3, decay=1e-5, clip=2.0)
