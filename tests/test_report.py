"""Pictures, from run files alone: the files here are written by hand."""

from dataclasses import replace

import numpy as np
import pytest
from written_runs import SEEDS, STATES, rows_of, write_run

from pcmlp.replay import Transitions
from pcmlp.report.curves import plot_bonus, plot_certificate, plot_curves
from pcmlp.report.figures import count_pairs, draw, plot_coverage, plot_traces, trace
from pcmlp.report.reading import Curve, load
from pcmlp.report.sections import label_runs
from pcmlp.report.tables import interquartile_return
from pcmlp.report.views import VIEWS, Visits, entered_shares, visits_by_policy
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
    several = replace(run, metrics=columns)
    assert interquartile_return(several).startswith("3 [")
    one = replace(run, metrics={name: values[:, :1] for name, values in several.metrics.items()})
    assert interquartile_return(one) == "1"


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
    counts = count_pairs(load(write_run(tmp_path / "run", 4)).records(), 4, 3)
    assert counts.shape == (3, 4)
    assert counts.sum() == 4 * (2 * 5 - 1)


def test_shares_of_a_maze_are_of_its_free_cells():
    """A policy in one cell, then one in that cell and another; what is not valid counts for nothing."""
    here, there, nowhere = (0.55, 0.55), (2.55, 1.55), (2.95, 2.95)
    first = Visits(1, np.array([[here, nowhere]]), np.array([[True, False]]))
    second = Visits(2, np.array([[here, there]]), np.array([[True, True]]))
    together, alone = entered_shares([first, second], VIEWS["point-umaze"])
    np.testing.assert_allclose(together[:, 0] * 700, [1, 2])
    np.testing.assert_allclose(alone[:, 0] * 700, [1, 2])


def test_the_state_an_episode_ends_in_is_visited(tmp_path):
    with EpisodeLog(tmp_path) as log:
        state, last = np.zeros((2, 3, 2), np.float32), np.array([[False, True, False]] * 2)
        rows = rows_of(state, np.zeros((2, 3)), next_state=state + 1, last=last)
        log.append(1, SEEDS, rows)
        log.append(1, SEEDS, rows)  # what was drawn from the cover for the fit
    (visits,) = visits_by_policy(list(read(tmp_path)), VIEWS["mountain-car"])
    assert [places[valid].sum() for places, valid in zip(visits.places, visits.valid, strict=True)] == [2, 2]


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
