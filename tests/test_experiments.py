"""The experiments: their runs and tables, held-out places, the demo."""

import itertools
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from written_runs import write_summary

from pcmlp.errors import ConfigError
from pcmlp.experiments import as_printed, catalogue, demo, fixed, held_out
from pcmlp.experiments.experiment import Done, slope, solved_columns, timed_tables, vanishing_tables, write_table
from pcmlp.experiments.job import FULL
from pcmlp.experiments.paper import EXPERIMENTS
from pcmlp.experiments.reruns import rerun, rerun_rows
from pcmlp.published import dense_table
from pcmlp.runs.config import to_json
from pcmlp.runs.folder import RunFolder
from pcmlp.tasks import TASKS
from pcmlp.tasks.mujoco.ant_umaze import ant_umaze_map
from pcmlp.tasks.point_umaze import maze_map

SOLVED = {"seed": 0, "env_steps": 3000, "final_return": 93.0, "final_success": 1.0}
SOLVED |= {"env_steps_to_success": 400, "env_steps_to_sustained_success": 600}
NEVER = {**SOLVED, "seed": 1, "final_return": -1.0, "final_success": 0.0}
NEVER |= {"env_steps_to_success": None, "env_steps_to_sustained_success": None}
MACHINE = {"wall_s": 2.4, "compile_s": 1.0, "device": "cpu", "versions": {"jax": "0.1"}}


def row_of(name, job, summary):
    """The row of a run in the table of an experiment, of its summary alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Done, "summary", lambda *_: summary)
        [(_, [row])] = EXPERIMENTS[name].tables(Done((job,), FULL, Path(), Path()))
    return row


def test_slope_of_a_power_law():
    rows = [{"x": x, "y": 3.0 * x**-1.5} for x in (1, 10, 100)]
    assert slope(rows, "x", "y") == pytest.approx(-1.5)
    assert slope(rows[:1], "x", "y") == ""
    assert slope([*rows, {"x": 1000, "y": np.inf}], "x", "y") == ""  # a lock that nobody opened


def test_rows_of_runs_with_a_goal():
    row = solved_columns(catalogue.sparse_job("mountain-car", "pcmlp"), {"seeds": [SOLVED, NEVER]})
    assert (row["task"], row["run"], row["solved"]) == ("mountain-car", "pcmlp", "1 of 2")
    assert (row["median_steps"], row["most_steps"], row["final_return"]) == ("", "", 46.0)  # one took for ever
    lost = {**SOLVED, "env_steps_to_sustained_success": None}
    most = solved_columns(
        catalogue.sparse_job("mountain-car", "pcmlp"), {"seeds": [SOLVED, SOLVED, SOLVED, lost, NEVER]}
    )
    assert (most["solved"], most["median_steps"], most["most_steps"]) == ("4 of 5", 400, "")
    assert (most["sustained"], most["median_steps_sustained"]) == ("3 of 5", 600)
    assert (most["std"], most["iqm"]) == (42.04, 93.0)  # with n - 1; of 93 93 93 93 -1
    assert most["iqm_low"] <= 93.0 == most["iqm_high"]
    assert solved_columns(catalogue.sparse_job("acrobot", "no-bonus"), {"seeds": [NEVER]})["median_steps"] == ""


def test_sustained_success_of_older_runs_comes_from_their_metrics(tmp_path):
    job = replace(catalogue.sparse_job("mountain-car", "pcmlp"), seeds=(0, 1))
    shares = {"env_steps": [0, 10, 20, 30], "eval_success": [0.0, 1.0, 0.5, 1.0]}
    written_run(tmp_path / job.where, job, shares)
    write_summary(tmp_path / job.where, {**MACHINE, "seeds": [{"seed": 0}, {"seed": 1}]})
    done = Done((job,), FULL, tmp_path, tmp_path)
    assert [seed["env_steps_to_sustained_success"] for seed in done.summary(job)["seeds"]] == [30, 30]


def test_reruns_tell_the_spread_of_seeds_from_that_of_the_same_seed():
    job = replace(catalogue.dense_job("walker2d-et"), seeds=(0, 1))
    other = catalogue.dense_job("ant")
    summaries = {
        one: {"seeds": [{"final_return": x} for x in returns]}
        for one, returns in ((job, (1.0, 5.0)), (rerun(job), (4.0, 5.0)), (other, (0.0, 0.0)))
    }
    [row] = rerun_rows(summaries)
    assert (row["task"], row["run"], row["seeds"]) == ("walker2d-et", "pcmlp", 2)
    assert (row["return"], row["return_of_reruns"]) == (3.0, 4.5)
    assert row["std_of_seeds"] == round(np.sqrt(8), 2)
    assert row["std_of_reruns"] == 1.5  # sqrt((3² / 2 + 0) / 2)
    assert rerun(job).config() == job.config()
    changed = replace(rerun(job), settings=("bonus_scale=0",))
    with pytest.raises(ConfigError, match=r"walker2d-et/pcmlp-rerun: has other settings or seeds"):
        rerun_rows({job: summaries[job], changed: summaries[job]})


def test_the_two_spreads_of_reruns_agree_if_the_seeds_make_no_difference():
    rng = np.random.default_rng(0)
    job = replace(catalogue.dense_job("walker2d-et"), seeds=tuple(range(2_000)))
    made = {one: {"seeds": [{"final_return": x} for x in rng.normal(size=2_000)]} for one in (job, rerun(job))}
    [row] = rerun_rows(made)
    assert row["std_of_seeds"] == pytest.approx(1.0, abs=0.05)
    assert row["std_of_reruns"] == pytest.approx(1.0, abs=0.05)


def test_reruns_have_a_table_of_their_own():
    job = replace(catalogue.dense_job("walker2d-et"), seeds=(0, 1))
    summary = {"seeds": [{"final_return": x, "env_steps": 9} for x in (1.0, 3.0)], **MACHINE}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Done, "summary", lambda *_: summary)
        made = dict(EXPERIMENTS["dense"].tables(Done((job, rerun(job)), FULL, Path(), Path())))
    assert [row["run"] for row in made["dense"]] == ["pcmlp", "pcmlp-rerun"]
    assert [row["std_of_reruns"] for row in made["reruns"]] == [0.0]


def test_sparse_has_every_algorithm_and_its_controls_differ_in_one_setting():
    jobs = {job.name: job for job in catalogue.sparse_jobs()}
    timed = {job.algo for job in catalogue.timed_jobs()}
    assert {job.algo for job in jobs.values()} == timed - {"pcmlp-mppi"}
    for task in catalogue.SPARSE_TASKS:
        ours = set(jobs[f"{task}/pcmlp"].settings)
        assert set(jobs[f"{task}/no-bonus"].settings) - ours == {"bonus_scale=0"}
        assert set(jobs[f"{task}/covariance-off"].settings) - ours == {"covariance=off"}


def test_the_runs_of_older_results_have_a_fixed_weight_and_those_of_the_scale_find_theirs():
    """A change of the default may not change what was measured."""
    found = {}
    for name, made in EXPERIMENTS.items():
        for job in made.jobs():
            if job.algo == "pcmlp" and "bonus_scale=0" not in job.settings:
                algorithm = job.config().algorithm
                own = algorithm.bonus_scale == "auto" and algorithm.rescales and algorithm.deploys == "proven"
                given = algorithm.bonus_scale != "auto" and not algorithm.rescales and algorithm.deploys != "proven"
                found.setdefault(name, set()).add("own" if own else "fixed" if given else "mixed")
    assert found.pop("scale") == found.pop("costs") == found.pop("environments") == {"own"}
    assert all(kinds == {"fixed"} for kinds in found.values())
    assert {"sparse", "dense", "controls", "held_out", "wall_clock", "as_printed"} <= set(found)


def test_a_changed_setting_replaces_the_old_one():
    assert fixed.change(("a=1", "b=2"), "b=3", "c=4") == ("a=1", "b=3", "c=4")


def test_the_dense_table_has_what_was_published():
    first = [job.name for job in catalogue.dense_jobs()][:4]
    assert first == [f"{task}/pcmlp" for task in ("half-cheetah", "slim-humanoid-et", "hopper-et", "walker2d-et")]
    summary = {"seeds": [{"final_return": x, "env_steps": 9} for x in (1.0, 3.0)], **MACHINE}
    row = row_of("dense", catalogue.dense_job("ant"), summary)
    assert (row["final_return"], row["std"], row["worst_return"], row["best_return"]) == (2.0, 1.4, 1.0, 3.0)
    assert (row["iqm"], row["iqm_low"], row["iqm_high"]) == (2.0, 1.0, 3.0)
    assert row["paper"] == 1583.1
    assert row["paper"] < row["best_of_benchmark"]
    assert row_of("dense", catalogue.dense_job("gym:Pusher-v5"), summary)["paper"] == ""


def test_the_ablation_says_which_bonus_a_run_had():
    rows = [row_of("ablation", job, {"seeds": [SOLVED, NEVER]}) for job in catalogue.ABLATION.jobs()]
    weights = {
        task: [(row["bonus_scale"], row["covariance"]) for row in rows if row["task"] == task]
        for task in ("mountain-car", "walker2d-et")
    }
    assert weights["mountain-car"] == [(0.0, "on"), (1.0, "on"), (5.0, "on"), (5.0, "off")]
    assert weights["walker2d-et"] == [(0.0, "on"), (0.01, "on"), (1.0, "on"), (0.1, "on"), (0.1, "off")]


def test_the_runs_as_printed_have_the_papers_tasks_settings_and_seeds():
    jobs = {job.name: job for job in as_printed.jobs()}
    assert {name for name in jobs if name.endswith("/pcmlp")} == {
        f"{task}/pcmlp" for task in ("mountain-car", "acrobot", "hand-egg", "ant-umaze", *dense_table())
    }
    for job in jobs.values():
        assert job.seeds == (1234, 2314, 2345, 1235)
        assert job.config().preset == ("ours" if job.algo in ("slbo", "mbpo") else "paper")
    plain = jobs["mountain-car/pcmlp"].config().algorithm
    for name, job in jobs.items():
        task, label = name.split("/")
        if task == "mountain-car" and job.algo == "pcmlp":  # one setting differs from the table of appendix D
            same = label in ("pcmlp", "pcmlp-rerun")
            assert (job.config().algorithm == plain) == same
            assert len(job.settings) == 2 - same


def test_the_runs_as_printed_have_a_table_for_goals_and_one_for_returns():
    done = Done((as_printed.printed("acrobot"), as_printed.printed("ant")), FULL, Path(), Path())
    returns = {**SOLVED, "final_success": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Done, "summary", lambda _, job: {"seeds": [returns if job.task == "ant" else SOLVED], **MACHINE})
        found = dict(as_printed.AS_PRINTED.tables(done))
    assert [(row["task"], row["solved"]) for row in found["goals"]] == [("acrobot", "1 of 1")]
    assert [(row["task"], row["paper"]) for row in found["returns"]] == [("ant", 1583.1)]


def written_run(path, job, columns):
    """A run folder by hand: a row for each seed and iteration, with what `columns` says of the iteration."""
    folder, held = RunFolder.create(path, to_json(job.config()))
    held.close()
    scores = {"eval_return_mean": 0.0, "eval_return_std": 0.0, "eval_success": 0.0}
    for n, of_seeds in enumerate(zip(*columns.values(), strict=True)):
        named = dict(zip(columns, of_seeds, strict=True))
        folder.metrics.append([{"iteration": n, "seed": seed, **scores, **named} for seed in job.seeds])
    return folder


def test_vanishing_tells_how_far_the_bonus_fell(tmp_path):
    job = catalogue.VANISHING.jobs()[0]
    assert {one.label for one in catalogue.VANISHING.jobs()} == {"pcmlp"}
    columns = {
        "env_steps": [0, 1000, 2000, 3000],
        "wall_s": [0.0, 1.0, 2.0, 3.0],
        "bonus_mean": [None, 2.0, 4.0, 0.5],
        "info_gain": [None, 7.0, 8.0, 9.0],
    }
    written_run(tmp_path / job.where, job, columns)
    tables = dict(vanishing_tables(Done((job,), FULL, tmp_path, tmp_path)))
    assert [row["bonus_mean"] for row in tables["bonus"]] == [2.0, 4.0, 0.5]
    assert [row["iteration"] for row in tables["bonus"]] == [1, 2, 3]
    assert (tables["vanishing"][0]["peak"], tables["vanishing"][0]["last"]) == (4.0, 0.5)
    assert tables["vanishing"][0]["fall"] == 8.0
    assert [row["info_gain"] for row in tables["bonus"]] == [7.0, 8.0, 9.0]
    assert tables["vanishing"][0]["info_gain"] == 9.0


def test_wall_clock_times_the_last_iteration_on_one_machine(tmp_path):
    jobs = tuple(catalogue.timed_jobs())
    assert [job.config().num_iterations for job in jobs] == [catalogue.TIMED_ITERATIONS] * len(jobs)
    jobs = jobs[:2]
    for job, device in zip(jobs, ("cpu", "gpu"), strict=True):
        columns = {"env_steps": [0, 200, 400, 600], "wall_s": [1.0, 60.0, 65.0, 66.0]}
        folder = written_run(tmp_path / job.where, job, columns)
        folder.write_summary({**MACHINE, "device": device, "seeds": []})
    rows = dict(timed_tables(Done(jobs[:1], FULL, tmp_path, tmp_path)))["wall_clock"]
    assert (rows[0]["s_per_1000_steps"], rows[0]["steps_timed"], rows[0]["compile_s"]) == (5.0, 200, 1.0)
    with pytest.raises(ConfigError, match=r"wall_clock: timed on several machines \(cpu, gpu\); remove it"):
        dict(timed_tables(Done(jobs, FULL, tmp_path, tmp_path)))


def test_tables_are_written_and_shown(tmp_path, capsys):
    write_table(tmp_path / "a/b.csv", [{"x": 1, "y": 2.5}])
    assert (tmp_path / "a/b.csv").read_text() == "x,y\n1,2.5\n"
    assert "y 2.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("with_bonus", "without", "said"), [(2, 0, "Only"), (2, 1, "More often"), (1, 1, "no difference"), (0, 1, "harm")]
)
def test_the_demo_claims_only_what_happened(with_bonus, without, said):
    assert said in demo.verdict({demo.WITH: with_bonus, demo.WITHOUT: without})


def test_the_demo_compares_and_writes_a_page(tmp_path, monkeypatch, capsys):
    """Its runs are test_runs' business: these are written by hand, solved where there is a bonus."""

    def train(config, out, *, command, console):
        folder, held = RunFolder.create(out, to_json(config))
        held.close()
        for n in (0, 1):
            success = float(n * (config.algorithm.bonus_scale != 0))
            scores = {"eval_return_mean": 90 * success, "eval_return_std": 0.0, "eval_success": success, "wall_s": 1.0}
            folder.metrics.append([{"iteration": n, "seed": s, "env_steps": 200 * n, **scores} for s in config.seeds])
        return {"status": "finished"}

    monkeypatch.setattr(demo, "train", train)
    (tmp_path / demo.WITH).mkdir()
    (tmp_path / demo.WITH / "config.json").write_text("an earlier demo, which is replaced")
    assert demo.main(["--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "with-bonus solved 2 of 2 seeds (median 200 env steps); without-bonus solved 0 of 2 seeds" in shown
    assert "Only the bonus" in shown
    assert {"report.html", "curves.png", demo.WITH, demo.WITHOUT} == {file.name for file in tmp_path.iterdir()}


def test_the_demo_refuses_bad_input(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        demo.main(["--steps", "0"])
    assert ended.value.code == 2
    assert "steps=0" in capsys.readouterr().err


def test_held_out_places_are_apart_on_free_ground_and_out_of_the_goal():
    for task, ground, start in (("point-umaze", maze_map(), 0.5), ("ant-umaze", ant_umaze_map(), 0.0)):
        radius, _, middles, _ = held_out.PLACES[task]
        places = np.array(list(middles.values()), np.float32)
        inside = ground.entered(jnp.array(places), jnp.ones(len(places), bool))
        assert int(inside.sum()) == len(places)  # as many squares, all free
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)[np.triu_indices(len(places), 1)]
        assert (apart > 2 * radius).all()
        assert (np.linalg.norm(places - start, axis=1) > radius + 0.1).all()  # nobody starts there
        assert sum(y > ground.high[1] * 2 / 3 for _, y in places) >= (len(places) + 2) // 3  # behind the detour
    assert len(held_out.PLACES["point-umaze"].middles) == 10
    there = held_out.choose_objective(TASKS["point-umaze"]().build(), "point-umaze", held_out.Trial("corner"))
    row = jnp.zeros(2), jnp.zeros(2)
    for x, found in ((2.7, 1.0), (2.7 - 0.24, 1.0), (2.7 - 0.26, 0.0)):
        assert float(there.reward(*row, jnp.array([x, 0.3]))) == found
        assert bool(there.terminal(*row, jnp.array([x, 0.3]))) == bool(found)
    (own,) = held_out.trials("acrobot")
    assert held_out.choose_objective(TASKS["acrobot"]().build(), "acrobot", own).reward is None


def test_a_place_by_the_way_pays_for_the_way_around_and_ends_in_walls():
    """An ant's states are 29 numbers, the first two of which are where it is."""
    task = TASKS["ant-umaze"]().build()
    trials = held_out.trials("ant-umaze")
    ways = [("there", "ahead"), *[("the way", planned) for planned in ("ahead", "search", "guide")]]
    assert trials == [("far end", *way) for way in ways]
    reward, ends, there = held_out.choose_objective(task, "ant-umaze", trials[2])

    def of(function, before, after):
        state, next_state = (jnp.zeros(29).at[:2].set(jnp.array(place)) for place in (before, after))
        return function(state, jnp.zeros(8), next_state)

    corners = np.array([(0.0, 0.0), (16.0, 0.0), (16.0, 16.0), (0.0, 16.0)])
    along = np.concatenate([np.linspace(a, b, 100) for a, b in itertools.pairwise(corners)])
    gained = sum(float(of(reward, a, b)) for a, b in itertools.pairwise(along))
    fine = task.map.finer(4)
    row, column, _ = fine.squares(jnp.array([(0.0, 0.0)]))
    assert gained == pytest.approx(float(fine.ways((0.0, 16.0))[row[0], column[0]]), rel=1e-4)
    assert not any(bool(of(ends, a, b)) for a, b in itertools.pairwise(along[:-20]))
    assert of(reward, (8.0, 0.0), (7.2, 0.0)) < 0  # towards it as the crow flies
    for jump in ((3.0, 16.0), (15.0, 3.0), (-3.0, 3.0)):  # over the wall, along it, back
        assert of(reward, (3.0, 3.0), jump) == 0
    for inside in ((3.0, 4.5), (11.0, 8.0), (3.0, 20.5)):
        assert of(ends, (3.0, 3.5), inside)
        assert of(reward, (3.0, 3.5), inside) == 0
    assert of(there, along[-30], along[-1])
    assert of(ends, along[-30], along[-1])


def test_held_out_rows_are_shares_of_places(tmp_path, monkeypatch):
    for job in held_out.jobs():
        config = job.config()
        assert config.algorithm.reward_free
        assert config.steps == {"point-umaze": 20_000, "ant-umaze": 200_000}.get(job.task, 3_000)
    job = held_out.jobs()[0]
    folder, held = RunFolder.create(tmp_path / job.where, "{}")
    held.close()
    scores = {"iteration": 0, "env_steps": 0, "eval_return_mean": 0.0}
    folder.metrics.append([{**scores, "seed": seed, "coverage": share} for seed, share in ((0, 0.9), (1, 1.0))])
    scored = (("a", 0, 1.0), ("b", 0, 0.5), ("a", 1, 1.0))
    rows = [{"place": p, "paid": "there", "planned": "ahead", "seed": s, "success": x} for p, s, x in scored]
    row = held_out.make_row(job, folder.path, rows)
    assert (row["coverage"], row["least_coverage"], row["reached"], row["least_reached"]) == (0.95, 0.9, 0.875, 0.75)
    assert row["reached_by_the_way"] == ""
    way = {"place": "a", "paid": "the way", "planned": "ahead", "seed": 0, "success": 0.25}
    row = held_out.make_row(job, folder.path, [*rows, way, {**way, "planned": "search", "success": 0.75}])
    assert (row["reached"], row["reached_by_the_way"], row["reached_by_search"]) == (0.875, 0.25, 0.75)
    assert row["reached_by_guide"] == ""
    assert held_out.make_row(job, folder.path, [])["reached"] == ""
    done = Done((job,), FULL, tmp_path, tmp_path)
    assert held_out.places_of(job, done) == []  # nothing is left of its model
    write_table(folder.path / "places.csv", rows)
    monkeypatch.setattr(held_out, "load_learned", None)  # not planned for again
    assert [row["place"] for row in held_out.places_of(job, done)] == ["a", "b", "a"]
    with (folder.path / "places.csv").open("a") as file:
        file.write("c,1")
    with pytest.raises(ConfigError, match=r"places.csv: half-written or edited; remove it to make it again"):
        held_out.places_of(job, done)


def test_coverage_after_each_tenth_of_the_steps(tmp_path):
    job = next(job for job in held_out.jobs() if job.name == "ant-umaze/rnd")
    assert job.seeds == (1234, 2314, 2345, 1235)
    folder, held = RunFolder.create(tmp_path / job.where, to_json(job.config()))
    held.close()
    for n in range(51):
        rows = [{"env_steps": 4_000 * n, "coverage": n / 100 + 0.01 * i * (n > 0)} for i in range(4)]
        same = {"iteration": n, "eval_return_mean": 0.0}
        folder.metrics.append([{**same, "seed": seed, **row} for seed, row in zip(job.seeds, rows, strict=True)])
        if n == 0:  # nothing has been collected
            assert held_out.coverage_rows(job, folder.path) == []
    rows = held_out.coverage_rows(job, folder.path)
    assert [row["env_steps"] for row in rows] == list(range(20_000, 200_001, 20_000))
    assert rows[0]["coverage"] == pytest.approx(0.065)
    for row in rows:
        assert row["coverage"] - 0.015 < row["low"] < row["coverage"] < row["high"] < row["coverage"] + 0.015
    assert {row["seeds"] for row in rows} == {4}
