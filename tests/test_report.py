"""Pictures, from run files alone: the files here are written by hand."""

import numpy as np
import pytest

from pcmlp.report.curves import compare, learning_curve, read_curve
from pcmlp.report.maps import count_pairs, visit_map
from pcmlp.runs.episodes import EpisodeLog, read
from pcmlp.runs.folder import RunFolder

CONFIG = '{"task": {"name": "somewhere"}, "algo": "somehow"}'
SEEDS = (0, 4)


class Rows:
    """The arrays of two seeds' `Transitions`, as the log takes them."""

    def __init__(self, state: np.ndarray, action: np.ndarray):
        self.state, self.action = state, action
        self.next_state = state
        self.reward = np.zeros(state.shape[:2], np.float32)
        self.terminal = self.last = np.zeros(state.shape[:2], bool)
        self.valid = np.ones(state.shape[:2], bool)
        self.valid[1, -1] = False


def write_run(path, iterations, state_shape=()):
    folder = RunFolder.create(path, CONFIG)
    rng = np.random.default_rng(0)
    with EpisodeLog(folder.episodes) as log:
        for n in range(iterations + 1):
            measured = {"bonus_mean": 1 / n, "info_gain": 1.0 * n} if n else {}
            scores = {"eval_return_mean": 0.1 * n, "eval_return_std": 0.0, "eval_success": None, **measured}
            folder.append([{"iteration": n, "seed": s, "env_steps": 5 * n + s, **scores} for s in SEEDS])
            if n:
                finite = rng.integers(0, 4, (2, 5))
                state = finite if not state_shape else rng.normal(size=(2, 5, *state_shape)).astype(np.float32)
                log.append(n, SEEDS, Rows(state, rng.integers(0, 3, (2, 5))))
    return path


def is_picture(path):
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 10_000


@pytest.mark.parametrize("iterations", [0, 1, 7])
@pytest.mark.parametrize("state_shape", [(), (1,), (3,)])
def test_every_kind_of_run_is_drawn(tmp_path, iterations, state_shape):
    run = write_run(tmp_path / "run", iterations, state_shape)
    assert is_picture(learning_curve(run))
    drawn = visit_map(run)
    assert drawn is None if iterations == 0 else is_picture(drawn)


def test_runs_are_compared_in_one_picture(tmp_path):
    runs = {f"run {n}": write_run(tmp_path / f"{n}", n) for n in (0, 2, 5)}
    assert is_picture(compare(runs, tmp_path / "curves.png"))


def test_a_curve_is_a_value_for_each_seed(tmp_path):
    run = write_run(tmp_path / "run", 3)
    returns, bonus = read_curve(run, "eval_return_mean"), read_curve(run, "bonus_mean")
    np.testing.assert_allclose(returns.env_steps, [2, 7, 12, 17])  # the mean of seeds 0 and 4
    np.testing.assert_allclose(returns.values, np.repeat([[0.0], [0.1], [0.2], [0.3]], 2, axis=1), atol=1e-6)
    np.testing.assert_allclose(bonus.env_steps, [7, 12, 17])  # not defined before the first iteration
    assert read_curve(run, "no such column").values.size == 0


def test_an_iteration_that_was_cut_off_is_left_out(tmp_path):
    run = write_run(tmp_path / "run", 3)
    file = run / "metrics.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert read_curve(run, "eval_return_mean").values.shape == (3, 2)
    assert is_picture(learning_curve(run))


def test_only_valid_rows_are_counted(tmp_path):
    run = write_run(tmp_path / "run", 4)
    counts = count_pairs(list(read(run / "episodes")), 4, 3)
    assert counts.shape == (3, 4)
    assert counts.sum() == 4 * (2 * 5 - 1)
