"""What the experiments are made of: runs that are kept and not repeated, slopes, the demo."""

import argparse
import json

import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.experiments import controlled, demo, dense, held_out, kept, sparse
from pcmlp.experiments.kept import kept_run, slope, write_table
from pcmlp.runs.config import resolve, to_json
from pcmlp.runs.folder import RunFolder
from pcmlp.tasks.mujoco.ant_umaze import ant_umaze_map
from pcmlp.tasks.point_umaze import maze_map
from pcmlp.types import ConfigError

TINY = ("task.horizon=2", "task.actions=2", "eval_episodes=2")


def test_slope_of_a_power_law():
    rows = [{"x": x, "y": 3.0 * x**-1.5} for x in (1, 10, 100)]
    assert slope(rows, "x", "y") == pytest.approx(-1.5)


def test_a_finished_run_is_kept_and_one_of_other_settings_is_left_alone(tmp_path):
    places = argparse.Namespace(results=tmp_path / "results", runs=tmp_path / "runs")

    def run(*settings):
        arguments = {"algo": "pcmlp-linear", "steps": 8, "seeds": (0,), "settings": (*TINY, *settings)}
        return kept_run(places, "test", "combination-lock", "label", **arguments)

    first, summary = run()
    results = tmp_path / "results/test/combination-lock/label"
    assert {file.name for file in results.iterdir()} == {"config.json", "metrics.csv", "summary.json"}
    again = run()[1]
    assert again["wall_s"] == summary["wall_s"]  # not run again
    with pytest.raises(ConfigError, match=r"label: holds another run; remove it.*ridge: 0.01 -> 0.5") as refused:
        run("ridge=0.5")
    assert "\n" not in str(refused.value)
    assert json.loads((first / "config.json").read_text())["ridge"] == 0.01


def test_a_run_that_was_stopped_is_not_kept(tmp_path, monkeypatch):
    places = argparse.Namespace(results=tmp_path / "results", runs=tmp_path / "runs")
    monkeypatch.setattr(kept, "train", lambda config, out, *, command, resume: {"status": "interrupted"})
    with pytest.raises(KeyboardInterrupt):
        kept_run(places, "test", "combination-lock", "label", algo="pcmlp-linear", steps=8, settings=TINY)
    assert not (tmp_path / "results").exists()


def test_the_runs_of_sparse_rewards_resolve_and_make_rows():
    for name, asked in sparse.RUNS.items():
        config = resolve(name.split("/")[0], asked.algo, asked.seeds, asked.steps, asked.settings)
        assert config.num_iterations >= 10
    solved = {"seed": 0, "env_steps": 3000, "final_return": 93.0, "final_success": 1.0, "env_steps_to_success": 400}
    never = {**solved, "seed": 1, "final_return": -1.0, "final_success": 0.0, "env_steps_to_success": None}
    row = kept.solved_row("mountain-car/pcmlp", {"seeds": [solved, never]})
    assert (row["task"], row["run"], row["solved"]) == ("mountain-car", "pcmlp", "1 of 2")
    assert (row["median_steps"], row["most_steps"], row["final_return"]) == (400, 400, 46.0)
    assert kept.solved_row("acrobot/no-bonus", {"seeds": [never]})["median_steps"] == ""


def test_the_runs_of_dense_rewards_resolve_and_make_rows():
    for name, asked in dense.RUNS.items():
        config = resolve(name.split("/")[0], asked.algo, asked.seeds, asked.steps, asked.settings)
        assert config.num_iterations >= 4
    assert list(dense.RUNS)[:4] == [
        f"{task}/pcmlp" for task in ("half-cheetah", "slim-humanoid-et", "hopper-et", "walker2d-et")
    ]
    summary = {"seeds": [{"final_return": x, "env_steps": 9} for x in (1.0, 3.0)], "wall_s": 2.4, "device": "cpu"}
    row = dense.row_of("ant/pcmlp", summary)
    assert (row["final_return"], row["std"], row["worst_return"], row["best_return"]) == (2.0, 1.0, 1.0, 3.0)
    assert row["paper"] == 1583.1
    assert row["paper"] < row["best_of_benchmark"]
    assert dense.row_of("gym:Pusher-v5/pcmlp", summary)["paper"] == ""


def test_the_sparse_experiment_refuses_bad_input(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "sparse/mountain-car/pcmlp"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("what else was there")
    for arguments, said in ((["mountain-car/pcmpl"], "invalid choice"), (["mountain-car/pcmlp"], "holds another run")):
        monkeypatch.setattr("sys.argv", ["sparse", *arguments, "--runs", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            sparse.main()
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    assert (folder / "config.json").read_text() == "what else was there"


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
            success = float(n * (config.bonus_scale > 0))
            scores = {"eval_return_mean": 90 * success, "eval_return_std": 0.0, "eval_success": success, "wall_s": 1.0}
            folder.append([{"iteration": n, "seed": s, "env_steps": 200 * n, **scores} for s in config.seeds])
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
        radius, _, middles = held_out.PLACES[task]
        places = np.array(list(middles.values()), np.float32)
        inside = ground.entered(jnp.array(places), jnp.ones(len(places), bool))
        assert int(inside.sum()) == len(places)  # as many squares, all free
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)[np.triu_indices(len(places), 1)]
        assert (apart > 2 * radius).all()
        assert (np.linalg.norm(places - start, axis=1) > radius + 0.1).all()  # nobody starts there
        assert sum(y > ground.high[1] * 2 / 3 for _, y in places) >= (len(places) + 2) // 3  # behind the detour
    assert len(held_out.PLACES["point-umaze"].middles) == 10
    there = held_out.aims("point-umaze")["corner"][0]
    row = jnp.zeros(2), jnp.zeros(2)
    for x, found in ((2.7, 1.0), (2.7 - 0.24, 1.0), (2.7 - 0.26, 0.0)):
        assert float(there.reward(*row, jnp.array([x, 0.3]))) == found
        assert bool(there.terminal(*row, jnp.array([x, 0.3]))) == bool(found)
    assert held_out.aims("acrobot")[held_out.THE_TASK][0].reward is None


def test_held_out_runs_resolve_and_make_rows(tmp_path):
    for name, asked in held_out.RUNS.items():
        config = resolve(name.split("/")[0], asked.algo, asked.seeds, asked.steps, asked.settings)
        assert config.reward_free
        assert config.steps == {"point-umaze": 20_000, "ant-umaze": 200_000}.get(name.split("/")[0], 3_000)
    folder, held = RunFolder.create(tmp_path / "run", "{}")
    held.close()
    scores = {"iteration": 0, "env_steps": 0, "eval_return_mean": 0.0}
    folder.append([{**scores, "seed": seed, "coverage": share} for seed, share in ((0, 0.9), (1, 1.0))])
    rows = [{"place": p, "seed": s, "success": x} for p, s, x in (("a", 0, 1.0), ("b", 0, 0.5), ("a", 1, 1.0))]
    row = held_out.row_of("point-umaze/pcmlp", tmp_path / "run", rows)
    assert (row["coverage"], row["least_coverage"], row["reached"], row["least_reached"]) == (0.95, 0.9, 0.875, 0.75)
    assert held_out.row_of("point-umaze/random", tmp_path / "run", [])["reached"] == ""
    write_table(tmp_path / "places.csv", rows)
    assert len(held_out._kept_rows(tmp_path / "places.csv", (0, 1))) == 3
    assert held_out._kept_rows(tmp_path / "places.csv", (0, 1, 2)) == []  # other seeds are planned for
    assert held_out._kept_rows(tmp_path / "none.csv", (0,)) == []


@pytest.mark.slow
def test_settings_side_by_side_are_what_they_are_alone(tiny_trpo):
    """A lane's returns do not depend on the other lanes."""
    given = {"steps": 40, "settings": (*tiny_trpo, "task.horizon=10"), "every": 1, "episodes": 2}
    both = controlled.compare("mountain-car", (100, 101), varied=["bonus_scale=0,1"], **given)
    assert [row["lane"] for row in both[:4]] == ["bonus_scale=0"] * 2 + ["bonus_scale=1"] * 2
    assert both[0]["bonus_mean"] == 0 < both[2]["bonus_mean"]
    alone = controlled.compare("mountain-car", (100, 101), varied=["bonus_scale=1"], **given)
    of_lane = [row for row in both if row["lane"] == "bonus_scale=1"]
    for row, other in zip(alone, of_lane, strict=True):
        assert row["return"] == pytest.approx(other["return"], abs=1e-3)
    for varied, line in (("num_starts=8,16", "of numbers only"), ("model.rate", "give KEY=VALUE,VALUE")):
        with pytest.raises(ConfigError, match=line):
            controlled.compare("mountain-car", (100,), varied=[varied], **given)
