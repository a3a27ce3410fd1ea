"""The episode log: what was written is read, and a log that was cut off is read up to there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.runs.episodes import EpisodeLog, log_path, read
from pcmlp.types import Transitions

SEEDS = (3, 5)


def rows(offset: int) -> Transitions:
    """Two seeds, three steps each."""

    def of_seed(state):
        last = jnp.array([False, False, True])
        none = jnp.zeros(3, bool)
        return Transitions(state, state % 2, state.astype(jnp.float32), state + 1, none, last, ~none)

    return jax.vmap(of_seed)(jnp.arange(6).reshape(2, 3) + offset)


@pytest.fixture
def log(tmp_path):
    with EpisodeLog(tmp_path) as log:
        for n in (1, 2, 3):
            log.append(n, SEEDS, rows(10 * n))
    return tmp_path


def iterations(folder):
    return [record.iteration for record in read(folder)]


def test_what_was_written_is_read(log):
    records = list(read(log))
    assert [record.iteration for record in records] == [1, 2, 3]
    assert all(record.seeds == SEEDS for record in records)
    for array, original in zip(jax.tree.leaves(records[1].rows), jax.tree.leaves(rows(20)), strict=True):
        assert isinstance(array, np.ndarray)
        np.testing.assert_array_equal(array, original, strict=True)


def test_an_empty_place_has_no_records(tmp_path):
    assert list(read(tmp_path)) == []


def test_reading_stops_at_a_torn_tail_wherever_it_is_torn(log):
    data = log_path(log).read_bytes()
    size = len(data) // 3
    for kept in (*range(2 * size, 3 * size, 37), 3 * size - 1):
        log_path(log).write_bytes(data[:kept])
        assert iterations(log) == [1, 2]


def test_reading_stops_at_a_damaged_record(log):
    data = bytearray(log_path(log).read_bytes())
    data[len(data) // 2] ^= 1
    log_path(log).write_bytes(bytes(data))
    assert iterations(log) == [1]


def test_a_length_beyond_the_file_is_not_believed(log):
    with log_path(log).open("ab") as file:
        file.write(b"PCEP" + b"\xff" * 12)
    assert iterations(log) == [1, 2, 3]


def test_writing_goes_on_after_the_last_whole_record(log):
    data = log_path(log).read_bytes()
    log_path(log).write_bytes(data[:-5])
    with EpisodeLog(log) as again:
        again.append(7, SEEDS, rows(0))
    assert iterations(log) == [1, 2, 7]


def test_records_are_on_disk_before_the_log_is_closed(tmp_path):
    with EpisodeLog(tmp_path) as log:
        log.append(1, SEEDS, rows(0))
        assert iterations(tmp_path) == [1]
