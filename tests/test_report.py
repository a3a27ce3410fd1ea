"""Pictures, from run files alone: the files here are written by hand."""

import tracemalloc
from dataclasses import replace
from functools import partial
from weakref import ref

import jax.numpy as jnp
import numpy as np
import pytest
from written_runs import SEEDS, STATES, rows_of, write_run

from pcmlp.replay import Transitions
from pcmlp.report.curves import plot_bonus, plot_certificate, plot_curves
from pcmlp.report.figures import draw, plot_coverage, plot_traces
from pcmlp.report.reading import Curve, load
from pcmlp.report.sections import label_runs
from pcmlp.report.tables import interquartile_return
from pcmlp.report.views import VIEWS
from pcmlp.report.visits import find_places, read_visits, trace
from pcmlp.report.words import differing_settings, final_return, flatten, headline, median_steps
from pcmlp.runs.episodes import EpisodeLog, Record, read
from pcmlp.runs.folder import RunFolder


def is_picture(path):
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 10_000


def text_of(picture):
    return " ".join([picture.get_suptitle(), *(text.get_text() for text in picture.texts)])


@pytest.mark.parametrize(("iterations", "state_shape"), [(0, ()), (1, ()), (3, ()), (1, (1,)), (3, (3,))])
def test_every_kind_of_run_is_drawn(tmp_path, iterations, state_shape):
    drawn = draw(write_run(tmp_path / "run", iterations, state_shape=state_shape, goal=bool(state_shape)))
    assert all(is_picture(path) for path in drawn)
    later = {"bonus.png", "coverage.png" if state_shape else "visit_map.png"} if iterations else set()
    assert {path.name for path in drawn} == {"learning_curve.png"} | later


def test_a_run_that_was_stopped_at_once_has_no_pictures(tmp_path):
    RunFolder.create(tmp_path / "run", "{}")[1].close()
    assert draw(tmp_path / "run") == []


@pytest.mark.parametrize("task", STATES)
def test_known_tasks_are_drawn_in_their_own_plane(tmp_path, task):
    picture = plot_coverage(load(write_run(tmp_path / "run", task=task)))
    assert picture is not None
    large, small, *_ = picture.axes
    assert large.get_xlabel() == VIEWS[task].labels[0]
    scenery = {"point-umaze": 2, "mountain-car": 1, "acrobot": 1, "ant-umaze": 1}  # goals and walls
    assert len(large.images) == scenery.get(task, 0)
    assert small.get_title(loc="left").startswith("seed 4")


def test_traces_are_of_some_policies_and_of_all(tmp_path):
    run = load(write_run(tmp_path / "run", 12, task="point-umaze"))
    picture = plot_traces(run)
    assert picture is not None
    titles = [axes.get_title(loc="left") for axes in picture.axes if axes.get_title(loc="left")]
    assert len(titles) == 6
    assert titles[-2:] == ["policy 12", "all 12 policies"]
    shown = [len(axes.collections[0].get_offsets()) for axes in picture.axes[:6]]
    assert shown == [5] * 5 + [60]  # of the first seed alone
    assert "all 12 enter" in text_of(picture)
    assert (tmp_path / "run/traces.png") in draw(tmp_path / "run")
    assert plot_traces(load(write_run(tmp_path / "one", 1, task="mountain-car"))) is not None
    assert plot_traces(load(write_run(tmp_path / "none", 0, task="point-umaze"))) is None
    assert plot_traces(load(write_run(tmp_path / "other", 3, state_shape=(3,)))) is None  # nothing is known of it


def test_steps_are_counted_from_their_episodes_beginning():
    last = np.array([[False, True, False, False, False, True]])
    state, none = np.arange(12.0).reshape(1, 6, 2), np.zeros((1, 6))
    valid = np.array([[True, True, True, False, True, True]])
    rows = Transitions.of_arrays(state, state, none, state, none.astype(bool), last, valid)
    places, age = trace(Record(1, (0,), rows), VIEWS["point-umaze"])
    assert age.tolist() == [0, 1, 0, 2, 3]
    assert places[:, 0].tolist() == [0.0, 2.0, 4.0, 8.0, 10.0]


def test_the_interquartile_mean_has_an_interval_where_there_are_seeds(tmp_path):
    run = load(write_run(tmp_path / "run", 3))
    returns = np.array([1.0, 2.0, 4.0, 9.0])
    columns = {"iteration": np.ones((1, 4)), "env_steps": np.ones((1, 4)), "eval_return_mean": returns[None]}
    several = replace(run, metrics=columns, evaluated=np.ones(1, bool))
    assert interquartile_return(several).startswith("3 [")
    assert final_return(several) == "4 ± 3.56"  # with n - 1: sqrt((9 + 4 + 0 + 25) / 3)
    one = replace(
        several, seeds=run.seeds[:1], metrics={name: values[:, :1] for name, values in several.metrics.items()}
    )
    assert interquartile_return(one) == final_return(one) == "1"


def test_a_certificate_is_drawn_as_the_gap_and_says_what_it_is_worth(tmp_path):
    path = write_run(tmp_path / "run", 3)
    assert plot_certificate(load(path)) is None  # nothing was promised
    run = load(path)
    shape = run.metrics["env_steps"].shape
    run.metrics["promised"] = np.linspace(9.0, 6.0, shape[0])[:, None] * np.ones(shape)
    run.metrics["certificate"] = run.metrics["promised"] - 5.0
    run.summary["certificate"] = {"kind": "bound", "why": ""}
    picture = plot_certificate(run)
    assert picture is not None
    assert "a bound: 4 at first, 1 at last" in text_of(picture)
    lines = {str(line.get_label()): line.get_ydata() for line in picture.axes[0].lines}
    np.testing.assert_allclose(next(y for label, y in lines.items() if "measured" in label), 5.0)
    del run.summary["certificate"]
    assert "in progress" in text_of(plot_certificate(run))


def test_titles_say_what_was_measured(tmp_path):
    run = load(write_run(tmp_path / "run", 4, deep=True))
    curves = plot_curves({"run": run})
    assert "Return from 0 to 0.4 in 22 steps; solved 2 of 2 seeds" in text_of(curves).replace("\n", " ")
    legend = [text.get_text() for text in curves.axes[0].get_legend().get_texts()]
    assert legend == ["exploring policy, mean and range", "each seed", "deploying policy, mean of 2 seeds"]
    picture = plot_bonus({"run": run})
    assert picture is not None
    assert "16-fold below its peak" in text_of(picture)
    assert picture.axes[0].get_yscale() == "log"


def test_no_bonus_is_not_drawn(tmp_path):
    run = load(write_run(tmp_path / "run", bonus=0.0))
    assert plot_bonus({"run": run}) is None
    assert plot_bonus({"a": run, "b": run}) is None


def test_runs_are_compared_in_one_picture(tmp_path):
    runs = {f"run {n}": load(write_run(tmp_path / f"{n}", n, bonus=float(n))) for n in (0, 2, 5)}
    picture = plot_curves(runs)
    assert len(picture.axes) == 3  # returns, success, information
    assert "run 0 0 of 2, run 2 2 of 2, run 5 2 of 2" in text_of(picture).replace("\n", " ")
    bonuses = plot_bonus(runs)
    assert bonuses is not None
    assert "1 run without any" in text_of(bonuses)
    runs["run 5"].metrics["coverage"] = np.full_like(runs["run 5"].metrics["env_steps"], 0.5)
    labels = [axes.get_ylabel() for axes in plot_curves(runs).axes]
    assert [label.split("\n")[0] for label in labels] == ["return", "success", "coverage"]


def test_a_curve_is_a_value_for_each_seed(tmp_path):
    run = load(write_run(tmp_path / "run", 3))
    returns, bonus = run.curve("eval_return_mean"), run.curve("bonus_mean")
    np.testing.assert_allclose(returns.env_steps, [2, 7, 12, 17])  # the mean of seeds 0 and 4
    np.testing.assert_allclose(returns.values, np.repeat([[0.0], [0.1], [0.2], [0.3]], 2, axis=1), atol=1e-6)
    np.testing.assert_allclose(bonus.env_steps, [7, 12, 17])  # not defined before the first iteration
    assert not run.curve("no such column")
    assert bonus.fold_below_peak() == pytest.approx(9, rel=1e-5)
    assert np.isnan(Curve(np.arange(1), np.arange(1), np.zeros((1, 2))).fold_below_peak())


def test_an_iteration_that_was_cut_off_is_left_out(tmp_path):
    path = write_run(tmp_path / "run", 3)
    file = path / "metrics.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    (path / "summary.json").unlink()
    assert load(path).curve("eval_return_mean").values.shape == (3, 2)


def test_success_is_counted_by_seed(tmp_path):
    run = load(write_run(tmp_path / "run", 3))
    assert run.steps_to_success.tolist() == [10, 14]
    assert (run.num_solved, median_steps(run)) == (2, "12")
    never = load(write_run(tmp_path / "never", 1))
    assert (never.num_solved, median_steps(never)) == (0, "more than 7")
    assert "solved 0 of 2 seeds in 7 env steps" in headline({"never": never})


def test_many_runs_have_a_short_headline(tmp_path):
    runs = {str(n): load(write_run(tmp_path / f"{n}", n)) for n in (0, 1, 2, 3)}
    said = headline(runs)
    assert (
        said
        == "On somewhere, 2 of 4 runs solved every seed, 2, 3 in the fewest env steps (median 12); 0, 1 solved none."
    )
    dense = {str(n): load(write_run(tmp_path / f"dense-{n}", n, goal=False)) for n in (0, 1, 2, 3)}
    assert headline(dense) == "On somewhere, 3 has the highest return (0.3 ± 0); 0 the lowest (0 ± 0)."
    dense["3"].metrics["eval_return_mean"][-1, 0] = np.nan
    assert "2 ends with a return of 0.2 ± 0" in headline(dense)
    assert headline(dense).endswith("3 ends with a return that is not a number at the end.")
    assert (final_return(dense["3"]), interquartile_return(dense["3"])) == ("not a number at the end", "–")
    assert "went from 0 to not a number at the end" in headline({"3": dense["3"]})


def test_runs_of_other_settings_of_the_task_are_not_compared(tmp_path):
    runs = {f"{n} of {h}": load(write_run(tmp_path / f"{n}-{h}", n, horizon=h)) for n, h in ((1, 20), (2, 20), (3, 7))}
    assert headline(runs) == (
        "On somewhere with horizon=20, 2 of 20 solved 2 of 2 seeds (median 12 env steps); 1 of 20 solved 0 of 2 seeds "
        "in 7 env steps. On somewhere with horizon=7, 3 of 7 solved 2 of 2 seeds (median 12 env steps)."
    )


def test_only_valid_rows_are_counted(tmp_path):
    visits = load(write_run(tmp_path / "run", 4)).visits
    assert visits is not None
    assert [(stage.first, stage.last) for stage in visits.stages] == [(1, 2), (3, 3), (4, 4)]
    assert visits.stages[0].counts.shape == (3, 4)
    assert [stage.counts.sum() for stage in visits.stages] == [2 * 9, 9, 9]  # 9 valid rows in each iteration


def walk(n, places, *, valid=None, last=None):
    """The record of a policy that was in these places, in one seed."""
    state, no = np.array([places], np.float32), np.zeros((1, len(places)), bool)
    valid, last = ~no if valid is None else np.array([valid]), no if last is None else np.array([last])
    return Record(n, (0,), Transitions.of_arrays(state, state, no.astype(np.float32), state + 1, no, last, valid))


def test_shares_of_a_maze_are_of_its_free_cells():
    """A policy in one cell, then one in that cell and another; what is not valid counts for nothing."""
    here, there, nowhere = (0.55, 0.55), (2.55, 1.55), (2.95, 2.95)
    records = [walk(1, [here, nowhere], valid=[True, False]), walk(2, [here, there]), walk(3, [there])]
    visits = read_visits("point-umaze", lambda: records)
    assert visits is not None
    np.testing.assert_allclose(visits.together[:, 0] * 700, [1, 2, 2])
    np.testing.assert_allclose(visits.alone[:, 0] * 700, [1, 2, 1])


def test_cells_are_entered_as_the_run_itself_counts_them():
    """However many places there are: they are padded before they are looked up."""
    rng, maze = np.random.default_rng(0), VIEWS["point-umaze"]
    assert maze.map is not None
    for count in (0, 1, 2, 3, 1000):
        places = rng.uniform(-0.1, 3.1, (count, 2)).astype(np.float32)
        np.testing.assert_array_equal(
            maze.entered(places), maze.map.entered(jnp.asarray(places), jnp.ones(count, bool))
        )


def test_the_state_an_episode_ends_in_is_visited(tmp_path):
    with EpisodeLog(tmp_path) as log:
        state, last = np.zeros((2, 3, 2), np.float32), np.array([[False, True, False]] * 2)
        rows = rows_of(state, np.zeros((2, 3)), next_state=state + 1, last=last)
        log.append(1, SEEDS, rows)
        log.append(1, SEEDS, rows)  # what was drawn from the cover for the fit
    record, _ = read(tmp_path)
    assert [places.sum() for places in find_places(record, VIEWS["mountain-car"].project)] == [2, 2]
    visits = read_visits("mountain-car", partial(read, tmp_path))
    assert visits is not None
    assert visits.policies == [1]
    assert [len(sample.numbers) for sample in visits.points] == [4, 3]  # without the record of the whole cover


def test_an_unknown_task_has_a_plane_that_holds_every_place():
    visits = read_visits("somewhere", lambda: [walk(1, [(-3.0, 5.0)]), walk(4, [(2.0, 5.0)], last=[True])])
    assert visits is not None
    assert (visits.view.low, visits.view.high) == ((-3.0, 5.0), (3.0, 6.0))
    assert read_visits("somewhere", lambda: [walk(1, [(0.0, 0.0)], valid=[False])]) is None  # only padding
    assert read_visits("somewhere", list) is None


def test_records_of_a_run_in_progress_are_read_up_to_the_same_one():
    """The log may grow or be cut while it is read; the second reading ends where the first one did, or earlier."""
    lengths = iter([3, 5, 3, 2, 3, 0])

    def records():
        return (walk(n, [(0.5, 0.5)]) for n in range(1, next(lengths) + 1))

    grown, shrunk = read_visits("point-umaze", records), read_visits("point-umaze", records)
    assert grown is not None
    assert shrunk is not None
    assert (grown.policies, shrunk.policies) == ([1, 2, 3], [1, 2])
    assert read_visits("point-umaze", records) is None


def test_the_record_of_the_cover_takes_no_points_from_those_of_the_policies():
    few, many = np.full((20_000, 2), 0.5), np.full((90_000, 2), 0.5)
    visits = read_visits("point-umaze", lambda: [walk(1, few), walk(1, many)])
    assert visits is not None
    assert len(visits.points[0].numbers) == 20_000  # all of them


@pytest.mark.parametrize("task", ["point-umaze", "somewhere"])
def test_records_of_a_log_are_not_kept(task):
    """What is kept of them does not grow with their number."""

    def records(count):
        earlier, rng = [], np.random.default_rng(0)
        for n in range(1, count + 1):
            assert sum(rows() is not None for rows in earlier) <= 1  # the last one, until the next is there
            record = walk(n, rng.uniform(0, 3, (40_000, 2)))
            earlier.append(ref(record.rows.state))
            yield record
            del record

    read_visits(task, partial(records, 2))  # compiles
    peaks, kept = [], []
    for count in (5, 50):
        tracemalloc.start()
        visits = read_visits(task, partial(records, count))
        kept.append(tracemalloc.get_traced_memory()[0])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert visits is not None
        assert [len(sample.numbers) for sample in visits.points] == pytest.approx([20_000], rel=0.05)
        assert len(visits.all_paths.numbers) == pytest.approx(20_000, rel=0.05)
        assert sum(places.size for seeds in visits.marks.values() for places in seeds) <= 2 * 30_000
        assert all(len(path.numbers) < 21_000 for path in visits.paths.values())
    assert peaks[1] < 1.3 * peaks[0]
    assert kept[1] < 1.3 * kept[0]


def test_runs_are_told_apart_by_what_differs(tmp_path):
    runs = [load(write_run(tmp_path / name, 1, bonus=bonus)) for name, bonus in (("a", 1.0), ("b", 1.0), ("c", 0.0))]
    assert list(label_runs(runs)) == ["a", "b", "c"]
    elsewhere = [load(write_run(tmp_path / "other" / name, 1)) for name in ("a", "d")]
    assert list(label_runs([runs[1], elsewhere[1]])) == ["b", "d"]
    assert list(label_runs([runs[0], *elsewhere])) == ["a", "other/a", "other/d"]
    assert differing_settings(runs) == ["", "", "bonus_scale=0"]
    assert differing_settings(runs[1:]) == ["bonus_scale=1", "bonus_scale=0"]


def test_a_configuration_is_flattened_to_the_keys_of_set():
    config = {"algo": "pcmlp", "task": {"name": "x", "walls": {"low": [0, 1]}}, "model": {}, "seeds": [0]}
    assert flatten(config) == {"algo": "pcmlp", "task.name": "x", "task.walls.low": [0, 1], "seeds": [0]}
