"""`pcmlp paper`: jobs that are kept and not repeated, scales, and what is refused before anything runs."""

import json
from pathlib import Path

import jax
import pytest
from written_jobs import LOCK, TINY, metrics_of
from written_runs import write_summary

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.experiments import job, paper
from pcmlp.experiments.catalogue import sparse_job
from pcmlp.experiments.experiment import Experiment, per_run, solved_columns
from pcmlp.experiments.job import FULL, QUICK, SCALES, SMOKE, Job, check_result, is_finished, run_job, run_local
from pcmlp.experiments.paper import EXPERIMENTS

RESULTS = Path(__file__).parents[1] / "results"


def test_a_finished_job_is_kept_and_not_run_again(places):
    runs, results, trained, _ = places
    assert run_job(LOCK, runs, results) == runs / LOCK.where
    assert {file.name for file in (results / LOCK.where).iterdir()} == set(job.KEPT)
    run_local([LOCK], runs, results)
    assert run_job(LOCK, runs / "elsewhere", results) == results / LOCK.where  # all that is left of it
    (results / LOCK.where / "summary.json").unlink()  # cut off while it was copied
    assert not is_finished(LOCK.config(), results / LOCK.where)
    run_job(LOCK, runs, results)
    assert is_finished(LOCK.config(), results / LOCK.where)
    assert len(trained) == 1


def test_a_job_of_other_settings_is_left_alone(places):
    runs, results, trained, _ = places
    run_local([LOCK], runs, results)
    other = Job(LOCK.experiment, LOCK.task, LOCK.label, LOCK.algo, 8, (*TINY, "ridge=0.5"), (0,))
    with pytest.raises(ConfigError, match=r"tiny: holds another run; remove it.*ridge: 0.01 -> 0.5") as refused:
        run_job(other, runs, results / "elsewhere")
    assert "\n" not in str(refused.value)
    kept = r"tiny: holds another run, or one of another version of pcmlp \(ridge: 0.01 -> 0.5\); remove it"
    with pytest.raises(ConfigError, match=kept):
        check_result(other.config(), results / LOCK.where)
    assert len(trained) == 1


def test_a_folder_of_another_run_does_not_matter_where_the_result_is_finished(places):
    runs, results, trained, _ = places
    run_local([LOCK], runs, results)
    (runs / LOCK.where / "config.json").write_text("{}")
    paper.check([LOCK], runs, results)
    (results / LOCK.where / "summary.json").unlink()
    with pytest.raises(ConfigError, match="tiny: holds another run; remove it, or give another --runs"):
        paper.check([LOCK], runs, results)


def test_a_stop_is_passed_on_and_nothing_is_kept_of_it(places):
    runs, results, trained, status = places
    status[0] = "stopped"
    with pytest.raises(KeyboardInterrupt):
        run_local([LOCK, LOCK], runs, results)
    assert len(trained) == 1
    assert not results.exists()


def test_the_command_of_a_job_makes_the_same_configuration(monkeypatch, tmp_path):
    """Whoever types it gets that run."""
    asked = []
    monkeypatch.setattr("pcmlp.runs.train.train", lambda config, out, **_: asked.append(config) or {})
    for one in (LOCK, sparse_job("mountain-car", "no-bonus")):
        assert main([*one.command.split()[1:], "--out", str(tmp_path)]) == 1  # there is no summary to show
        assert asked.pop() == one.config()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_job_resolves_at_every_scale_and_says_what_it_is_for(name):
    made = EXPERIMENTS[name]
    assert made.name == name
    jobs = made.jobs()
    assert len({one.where for one in jobs}) == len(jobs)
    for one in jobs:
        full = FULL.apply(one)
        assert full == one
        assert one.experiment in EXPERIMENTS
        config = one.config()
        for scale in (QUICK, SMOKE):
            smaller = scale.apply(one)
            scaled = smaller.config()  # raises if a setting means nothing to the method
            assert smaller.where == one.where
            assert scaled.num_iterations >= 1
            assert len(scaled.seeds) == min(2, len(one.seeds))
            assert (scaled.task_name, scaled.algo) == (config.task_name, config.algo)
            for name in ("bonus_scale", "covariance", "reward_free"):
                assert getattr(scaled.algorithm, name, None) == getattr(config.algorithm, name, None)
            assert smaller.steps <= one.steps
    assert any(SMOKE.has(one) for one in jobs)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_is_committed_is_of_todays_jobs(name):
    """So that it counts as finished, and `pcmlp paper` does not refuse it."""
    for one in EXPERIMENTS[name].jobs():
        check_result(one.config(), RESULTS / one.where)


def test_every_committed_run_has_a_job():
    known = {one.where for made in EXPERIMENTS.values() for one in made.jobs()}
    kept = {file.parent.relative_to(RESULTS) for file in RESULTS.rglob("config.json")}
    assert kept <= known


def test_results_of_a_scale_lie_apart():
    assert len({scale.results for scale in SCALES.values()}) == len({scale.folder for scale in SCALES.values()}) == 3
    assert str(FULL.results) == "results"


TINY_EXPERIMENT = Experiment("locks", "Locks", "section 5", "locks", lambda: [LOCK], per_run("locks", solved_columns))


def test_an_experiment_from_its_runs_to_its_page(places, monkeypatch, capsys):
    runs, results, trained, _ = places
    monkeypatch.setattr(paper, "EXPERIMENTS", {"locks": TINY_EXPERIMENT})
    monkeypatch.setattr(paper, "report", lambda folders, out: out / "report.html")
    for _ in range(2):
        assert main(["paper", "all", "--scale", "full"]) == 0
    assert len(trained) == 1
    assert trained[0] == Path("runs/experiments") / LOCK.where
    table = (results / "locks/locks.csv").read_text()
    assert table.startswith("task,run,env_steps,solved")
    assert "combination-lock,tiny,8,1 of 1" in table
    assert capsys.readouterr().out.endswith("results/report.html\n")


def test_other_machines_get_every_run_at_once_but_those_that_are_timed(places, monkeypatch):
    runs, results, trained, _ = places
    timed = Job("timed", "combination-lock", "tiny", "pcmlp-linear", 8, TINY, (1,))
    alone = Experiment("timed", "Timed", "", "", lambda: [timed, LOCK], per_run("timed", solved_columns), alone=True)
    sent = []

    def cluster(jobs, runs, results):
        sent.append(list(jobs))
        run_local(jobs, runs, results)

    monkeypatch.setattr(paper, "EXPERIMENTS", {"locks": TINY_EXPERIMENT, "timed": alone})
    monkeypatch.setattr(paper, "report", lambda folders, out: out)
    monkeypatch.setattr(paper, "find_engine", lambda name, address, jobs: cluster)
    paper.paper(["timed", "locks"], scale="full", engine="ray")
    assert sent == [[LOCK]]
    assert len(trained) == 2


def test_what_is_timed_is_begun_anew_and_compiled_anew(places, monkeypatch):
    """A run taken up in the middle would compile in the iteration that is timed."""
    runs, results, trained, _ = places
    alone = Experiment("locks", "Locks", "", "", lambda: [LOCK], per_run("locks", solved_columns), alone=True)
    (runs / LOCK.where / "checkpoint").mkdir(parents=True)
    during = []
    begun = job.train
    monkeypatch.setattr(
        job, "train", lambda *a, **k: during.append(jax.config.jax_enable_compilation_cache) or begun(*a, **k)
    )
    for _ in range(2):
        paper.conduct(alone, [LOCK], FULL, runs, results)
    assert during == [False]
    assert jax.config.jax_enable_compilation_cache
    assert not (runs / LOCK.where / "checkpoint").exists()


def test_a_scale_makes_nothing_larger():
    few = Job("wall_clock", "mountain-car", "trpo", "trpo", 6_000, ("eval_episodes=1",), (0,))
    assert QUICK.apply(few).config().eval_episodes == SMOKE.apply(few).config().eval_episodes == 1


@pytest.mark.bad_input
@pytest.mark.parametrize("flag", ["--results", "--runs"])
def test_folders_that_cannot_be_made_are_refused_before_anything_runs(places, flag, capsys):
    trained = places[2]
    Path("file").write_text("")
    assert main(["paper", "sparse", flag, "file/inside"]) == 2
    line = capsys.readouterr().err
    assert f"{flag} file/inside: cannot be made (Not a directory); give another folder" in line
    assert line.count("\n") == 1
    assert trained == []


def test_a_measured_table_is_made_once(places, monkeypatch):
    runs, results, _, _ = places
    made = []

    def measure(scale):
        made.append(scale)
        return [{"x": 1}]

    lemma = Experiment("locks", "Locks", "", "", list, lambda done: iter(()), measured={"lemma": measure})
    paper.conduct(lemma, [], FULL, runs, results, whole=False)
    assert made == []
    for _ in range(2):
        paper.conduct(lemma, [], FULL, runs, results)
    assert made == [FULL]
    left_out = Experiment("none", "None", "", "", list, lambda done: iter(()), measured={"lemma": lambda scale: []})
    paper.conduct(left_out, [], FULL, runs, results)
    assert not (results / "none/lemma.csv").exists()
    (results / "locks/lemma.csv").write_text("x,y\n1")
    with pytest.raises(ConfigError, match=r"lemma.csv: edited; remove it to make it again"):
        paper.conduct(lemma, [], FULL, runs, results)


def test_only_the_runs_that_are_named_are_made(places, monkeypatch, capsys):
    _, results, trained, _ = places
    monkeypatch.setattr(paper, "EXPERIMENTS", {"locks": TINY_EXPERIMENT})
    monkeypatch.setattr(paper, "report", lambda folders, out: out / "report.html")
    assert main(["paper", "locks", "--only", "combination-lock/tiny", "--seeds", "4", "5"]) == 0
    assert json.loads((trained[0] / "config.json").read_text())["seeds"] == [4, 5]
    assert (results / "locks/locks.csv").exists()
    assert main(["paper", "locks", "--only", "combination-lock/tyni"]) == 2
    assert "the nearest is combination-lock/tiny" in capsys.readouterr().err


def broken_results(results, what):
    """Committed results that are not what they should be."""
    one = FULL.apply(sparse_job("mountain-car", "trpo"))
    folder = results / one.where
    folder.mkdir(parents=True)
    config = job.to_json(one.config())
    files = {"config.json": config, "metrics.csv": metrics_of((n, s) for n in range(16) for s in one.seeds)}
    for name, text in files.items():
        (folder / name).write_text(text)
    write_summary(folder, {"status": "finished", "iterations": 15})
    for name, text in what.items():
        (folder / name).write_text(text)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"config.json": '{"task": 3}'}, "its config.json is not that of a run"),
        ({"config.json": '{"task"'}, "config.json: half-written or edited; remove"),
        ({"summary.json": "[]"}, "summary.json: not a JSON object; remove"),
        (
            {"metrics.csv": metrics_of([(0, 1234)]) + "0"},
            "half-written or edited (metrics.csv is half-written: it has 1 of 64 rows); remove",
        ),
    ],
)
def test_results_that_are_not_whole_are_refused_before_anything_runs(places, what, said, capsys, record_property):
    _, results, trained, _ = places
    broken_results(results, what)
    assert main(["paper", "sparse"]) == 2
    shown = capsys.readouterr()
    line = shown.err.removeprefix("pcmlp: ").strip().replace(str(results), "results")
    record_property("bad input", (f"paper sparse ({next(iter(what))} of a run broken)", line))
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert trained == []


def test_results_of_another_version_say_which_and_what_to_do(places, capsys):
    _, results, trained, _ = places
    config = json.loads(job.to_json(sparse_job("mountain-car", "trpo").config()))
    config["planner"]["discount"] = 0.5
    config["of_tomorrow"] = 1
    broken_results(results, {"config.json": json.dumps(config)})
    assert main(["paper", "sparse"]) == 2
    line = capsys.readouterr().err
    for said in ("results/sparse/mountain-car/trpo", "planner.discount: 0.5 -> 0.99", "of_tomorrow", "remove it"):
        assert said in line
    assert trained == []


def test_who_stops_it_is_told_how_to_go_on(places, monkeypatch, capsys):
    status = places[3]
    status[0] = "stopped"
    monkeypatch.setattr(paper, "EXPERIMENTS", {"locks": TINY_EXPERIMENT})
    assert main(["paper", "locks"]) == 130
    assert "the same command continues" in capsys.readouterr().out
