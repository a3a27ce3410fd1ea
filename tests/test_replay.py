"""The buffer against a plain Python one: what it holds, and which rows a window may show."""

from collections import deque

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import chisquare

from pcmlp.replay import Replay, Transitions

CAPACITY, LENGTH = 12, 5


def rows(ids, last=None, valid=None):
    """Row i carries the number i everywhere."""
    ids = np.asarray(ids)
    n = len(ids)
    last = np.zeros(n, bool) if last is None else np.asarray(last)
    valid = np.ones(n, bool) if valid is None else np.asarray(valid)
    number = ids.astype(np.float32)
    state = np.stack([number, -number], axis=1)
    columns = (state, number[:, None], number, state + 1, last, last, valid)
    return Transitions(*(jnp.asarray(x) for x in columns))


@eqx.filter_jit
def add(replay, new):
    return replay.add(new)


@eqx.filter_jit
def windows(replay, key, count, length):
    return replay.windows(key, count, length)


def ids_in_order(replay):
    """From the oldest to the newest, by the buffer's own account of its head."""
    order = (int(replay.head) + np.arange(replay.capacity)) % replay.capacity
    return np.asarray(replay.data.reward)[order][np.asarray(replay.data.valid)[order]].astype(int).tolist()


def filled(count, **flags):
    return add(Replay.empty(rows([0]), CAPACITY), rows(np.arange(count), **flags))


def test_a_new_buffer_has_no_valid_row():
    replay = Replay.empty(rows([7, 8]), CAPACITY)
    assert replay.capacity == CAPACITY
    assert not np.asarray(replay.data.valid).any()
    window = windows(replay, jr.key(0), 40, LENGTH)
    assert not np.asarray(window.valid).any()


@pytest.mark.parametrize(
    "sizes", [[5], [5, 5, 5], [12, 12], [5, 12, 3], [13], [5, 20], [20, 5], [5, 29, 3, 12, 20, 1], [1] * 14]
)
def test_first_in_first_out(sizes):
    replay, kept, number = Replay.empty(rows([0]), CAPACITY), deque(maxlen=CAPACITY), 0
    for size in sizes:
        ids = list(range(number, number + size))
        number += size
        replay = add(replay, rows(ids))
        kept.extend(ids)
    assert ids_in_order(replay) == list(kept)
    held = np.asarray(replay.data.valid)
    number = np.asarray(replay.data.reward)[held]
    np.testing.assert_array_equal(np.asarray(replay.data.state)[held], np.stack([number, -number], 1))
    np.testing.assert_array_equal(np.asarray(replay.data.action)[held, 0], number)
    np.testing.assert_array_equal(np.asarray(replay.data.next_state)[held], np.stack([number + 1, 1 - number], 1))


@pytest.mark.parametrize("seed", range(6))
def test_windows_against_a_plain_buffer(seed):
    """Random episode lengths, batches (also larger than the buffer) and padding; after every batch, every window."""
    rng = np.random.default_rng(seed)
    replay, kept, number = Replay.empty(rows([0]), CAPACITY), deque(maxlen=CAPACITY), 0
    for step, size in enumerate(rng.choice([3, 5, 12, 20], size=6)):
        ids = np.arange(number, number + size)
        number += size
        last, valid = rng.random(size) < 0.3, rng.random(size) < 0.85
        replay = add(replay, rows(ids, last, valid))
        kept.extend(zip(ids.tolist(), last.tolist(), valid.tolist(), strict=True))

        known = {i: (ended, good) for i, ended, good in kept}
        got = windows(replay, jr.key(10 * seed + step), 40, LENGTH)
        starts = np.asarray(got.reward)[:, 0].astype(int)
        assert all(known[i][1] for i in starts), "a window starts at a valid row"
        for start, numbers, valid_row in zip(starts, np.asarray(got.reward), np.asarray(got.valid), strict=True):
            expected, inside = [], True
            for i in range(start, start + LENGTH):
                inside = inside and i in known
                expected.append(inside and known[i][1])
                inside = inside and not known[i][0]
            np.testing.assert_array_equal(valid_row, expected)
            np.testing.assert_array_equal(numbers[valid_row], np.arange(start, start + LENGTH)[valid_row])


def test_windows_do_not_cross_the_newest_row():
    replay = add(filled(CAPACITY), rows([12, 13, 14]))  # 3 ... 14, and row 14 lies beside row 3
    got = windows(replay, jr.key(1), 40, LENGTH)
    numbers, valid = np.asarray(got.reward), np.asarray(got.valid)
    late = numbers[:, 0] == 13
    assert late.any()
    np.testing.assert_array_equal(valid[late], np.tile([True, True, False, False, False], (late.sum(), 1)))
    assert numbers[valid].min() == 3


def test_a_window_longer_than_the_buffer_shows_no_row_twice():
    got = windows(filled(CAPACITY), jr.key(0), 20, 2 * CAPACITY)
    numbers, valid = np.asarray(got.reward), np.asarray(got.valid)
    for row, shown in zip(numbers, valid, strict=True):
        np.testing.assert_array_equal(row[shown], np.arange(row[0], CAPACITY))


def test_windows_keep_the_masks_of_their_rows():
    valid = np.ones(8, bool)
    valid[[2, 5]] = False
    got = windows(filled(8, valid=valid), jr.key(1), 40, LENGTH)
    numbers, shown = np.asarray(got.reward).astype(int), np.asarray(got.valid)
    assert not np.isin(numbers[shown], [2, 5]).any()
    assert not np.isin(numbers[:, 0], [2, 5]).any()


def test_starts_are_uniform_over_valid_rows():
    valid = np.array([True, False, True, True, False, True, True, True, True])
    got = windows(filled(9, valid=valid), jr.key(2), 6000, 1)
    counts = np.bincount(np.asarray(got.reward)[:, 0].astype(int), minlength=CAPACITY)
    assert counts[~np.pad(valid, (0, 3))].sum() == 0
    assert chisquare(counts[np.flatnonzero(valid)]).pvalue > 1e-3


def test_a_large_buffer_is_sampled_evenly():
    """The weights of a quarter of a million rows, summed in float32, must not favour either end."""
    n = 250_000
    replay = Replay.empty(rows([0]), n)
    replay = eqx.tree_at(lambda r: r.data, replay, rows(np.arange(n)))
    start = np.asarray(windows(replay, jr.key(3), 40_000, 1).reward)[:, 0]
    assert chisquare(np.histogram(start, bins=20, range=(0, n))[0]).pvalue > 1e-3


def test_vmapped_over_seeds():
    replays = jax.vmap(lambda seed: Replay.empty(rows([0]), CAPACITY).add(rows([0, 1, 2])))(jnp.arange(2))
    more = jax.tree.map(lambda x: jnp.stack([x, x]), rows([3, 4]))
    replays = jax.vmap(Replay.add)(replays, more)
    np.testing.assert_array_equal(replays.head, [5, 5])
    np.testing.assert_array_equal(replays.data.reward[:, :5], [[0, 1, 2, 3, 4]] * 2)
