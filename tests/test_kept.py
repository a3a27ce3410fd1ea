"""The policies of single iterations: which a run keeps, and `--iteration` of `pcmlp eval` and `pcmlp plan`."""

import dataclasses
import io
import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from pcmlp.algorithms.deep import Deep, DeepLearner
from pcmlp.cli import main
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.planners import SAC
from pcmlp.rollout import without_critic
from pcmlp.runs import kept
from pcmlp.runs import run as running
from pcmlp.runs.config import build, resolve, seed_keys, to_json
from pcmlp.runs.config_file import load_config
from pcmlp.runs.evaluate import count_evaluations
from pcmlp.runs.folder import Lock
from pcmlp.runs.kept import is_kept, keep
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.policy import choose_iteration, kept_iterations, load_run
from pcmlp.runs.train import open_run, train
from pcmlp.trees import take

SEEDS = (3, 8)
KEPT = [0, 2, 4, 6]  # of six iterations, every second one is evaluated


@pytest.fixture(scope="module", autouse=True)
def _no_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCMLP_CACHE", "off")
        yield


class Killed(BaseException):
    """Nothing in the code catches it, as nothing catches a kill."""


def maze(tiny, *more, steps=120):
    """Iterations of 20 env steps."""
    own = ("task.horizon=20", "eval_episodes=3", "eval_every=40", "deploys=newest")
    return resolve("point-umaze", "pcmlp", SEEDS, steps, (*tiny, *own, *more))


def learn(config, out, **options):
    train(config, out, console=Console(file=io.StringIO()), **options)
    return out


@pytest.fixture(scope="module")
def config(tiny_trpo):
    return maze(tiny_trpo)


@pytest.fixture(scope="module")
def planned():
    """What each iteration of `run` has planned."""
    return {}


@pytest.fixture(scope="module")
def run(config, planned, tmp_path_factory):
    """A run that deploys its exploring policies, so that these are not what it has planned to be deployed."""

    def note(running, metrics):
        candidate = without_critic(running.learner.trial.candidate)
        planned[running.done or 0] = jax.tree.map(lambda x: jnp.array(x) if eqx.is_array(x) else x, candidate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeepLearner, "deployed", lambda self: self.policy)
        return learn(config, tmp_path_factory.mktemp("runs") / "run", callbacks=[note])


# -- which are kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "most"), [(0, 4), (40, 4), (70, 3), (0, 100), (10_000, 4)])
def test_few_are_kept_and_none_is_missed_later(config, monkeypatch, every, most):
    monkeypatch.setattr(kept, "MOST", most)
    config, before = dataclasses.replace(config, eval_every=every, steps=1_000), set()
    assert config.num_iterations == 50
    for now in range(51):
        held = {n for n in range(60) if is_kept(config, n, now)}
        assert held <= before | {now}  # what was removed is not wanted again
        assert {0, now} <= held
        assert len(held) <= most + 1
        before = held
    if count_evaluations(config) <= most:
        assert len(before) == count_evaluations(config)
    elif every == 0:
        assert before == {0, 16, 32, 48, 50}


def test_a_run_keeps_what_evaluated_iterations_have_planned(run, planned):
    assert kept_iterations(run / "policy") == KEPT
    for n in KEPT:
        saved = load_run(run, iteration=n)
        assert saved.iteration == n
        assert eqx.tree_equal(saved.policies, planned[n])
        assert saved.policies.critic is saved.policies.critic_state is None
    assert eqx.tree_equal(load_run(run, iteration="last").policies, planned[6])
    assert not eqx.tree_equal(load_run(run).policies, planned[6])  # the deployed one, by default
    assert load_run(run).iteration is None
    sizes = [file.stat().st_size for file in (run / "policy").iterdir()]
    assert max(sizes) - min(sizes) < 100  # no critics anywhere


def test_a_kept_policy_returns_what_was_evaluated(config, tmp_path):
    out = learn(dataclasses.replace(config, eval_every=0), tmp_path / "run")
    assert kept_iterations(out / "policy") == list(range(7))
    assert main(["eval", str(out), "--iteration", "3", "--episodes", "3"]) == 0
    result, metrics = json.loads((out / "eval.json").read_text()), read_metrics(out)
    assert (result["iteration"], result["policy"]) == (3, "planned in iteration 3 (ActorCritic)")
    rows = [i for i, n in enumerate(metrics["iteration"]) if n == 3]
    evaluated = [metrics["eval_return_mean"][i] for i in rows]
    assert [seed["return_mean"] for seed in result["seeds"]] == pytest.approx(evaluated, rel=1e-6)
    assert main(["eval", str(out), "--episodes", "3"]) == 0
    result = json.loads((out / "eval.json").read_text())
    assert (result["iteration"], result["policy"]) == (None, "deployed (ActorCritic)")


def contents(run):
    return {file.name: file.read_bytes() for file in (run / "policy").glob("0*")}


@pytest.mark.fault("a kill between two checkpoints", "the policies of iterations are those of the uninterrupted run")
def test_a_run_that_was_killed_drops_what_it_does_again(run, config, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "SAVING_SHARE", 1e-9)  # no checkpoint but the first one and those of evaluations
    iterate = Deep.iterate

    def dies(self, keys, world, learner, n):
        if n == 4:
            raise Killed
        return iterate(self, keys, world, learner, n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deep, "iterate", dies)
        with pytest.raises(Killed):
            learn(config, tmp_path / "cut")
    policies = tmp_path / "cut" / "policy"
    assert kept_iterations(policies) == [0, 2, 3]
    (policies / "000003.safetensors.new").write_bytes(b"half")
    opened = open_run(config, tmp_path / "cut", resume=True)
    assert opened.done == 2
    opened.lock.close()
    assert [file.name for file in sorted(policies.iterdir())] == ["000000.safetensors", "000002.safetensors"]
    learn(config, tmp_path / "cut", resume=True)
    assert contents(tmp_path / "cut") == contents(run)


def test_a_run_that_starts_over_drops_all(run, config, tmp_path):
    again = shutil.copytree(run, tmp_path / "again", ignore=shutil.ignore_patterns("checkpoint", "summary.json"))
    opened = open_run(config, again, resume=True)
    opened.start()
    opened.finish_start()
    opened.lock.close()
    assert kept_iterations(again / "policy") == [0]


def test_nothing_is_written_without_the_lock(config, tmp_path):
    problem, algorithm = build(config)
    learner = algorithm.start(seed_keys(SEEDS), problem.world.mdp, 6)
    with Lock(tmp_path) as lock:
        (tmp_path / "lock").write_text("another process")
        with pytest.raises(RunStopped, match="taken over"):
            keep(tmp_path / "policy", lock, learner, config, 0)
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize("algo", ["pcmlp-linear", "pcmlp-mppi"])
def test_runs_of_many_iterations_or_with_a_search_keep_none(algo, tiny, tmp_path):
    lock = resolve("combination-lock", algo, SEEDS, 6, ("task.horizon=3",)) if algo == "pcmlp-linear" else None
    config = lock or resolve("point-umaze", algo, SEEDS, 40, (*tiny, "task.horizon=20"))
    problem, algorithm = build(config)
    learner = algorithm.start(seed_keys(SEEDS), problem.world.mdp, 2)
    with Lock(tmp_path) as held:
        keep(tmp_path / "policy", held, learner, config, 1)
    assert not (tmp_path / "policy").exists()


def test_what_sac_acts_with_is_enough(tiny):
    """What is left out may be left out already, as it is for a simulator of a policy that was loaded."""
    config = maze(tiny, "planner.name=sac", "planner.sizes=8", "planner.streams=4", "planner.updates=2")
    problem, algorithm = build(config)
    assert isinstance(algorithm.planner, SAC)
    once = without_critic(algorithm.start(seed_keys(SEEDS), problem.world.mdp, 2).trial.candidate)
    assert once.targets is once.optimiser is None
    assert eqx.tree_equal(once, without_critic(once))


# -- bad input ---------------------------------------------------------------------------------------------------------


def one_line(capsys):
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    return shown


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("iteration", "said"),
    [
        ("3", "--iteration 3: its policies are not in {policy}; give 2 or 4"),
        ("7", "--iteration 7: its policies are not in {policy}; give 6"),
        ("-1", "--iteration -1: give the number of an iteration, from 0, or last"),
        ("lsat", "--iteration lsat: give the number of an iteration, from 0, or last"),
        ("2.5", "--iteration 2.5: give the number"),
        ("9" * 5000, "give the number"),
    ],
)
def test_an_iteration_that_was_not_kept(run, iteration, said, capsys, record_property):
    assert main(["eval", str(run), f"--iteration={iteration}"]) == 2
    line = one_line(capsys)
    assert said.format(policy=run / "policy") in line
    if len(iteration) < 100:
        told = line.removeprefix("pcmlp: ").strip().replace(str(run), "RUN")
        record_property("bad input", (f"eval RUN --iteration {iteration}", told))
    assert not (run / "eval.json").exists()


@pytest.mark.parametrize(("task", "algo"), [("combination-lock", "pcmlp-linear"), ("point-umaze", "pcmlp-mppi")])
def test_a_run_that_keeps_none(task, algo, tmp_path, capsys):
    (tmp_path / "config.json").write_text(to_json(resolve(task, algo, (0,))))
    assert main(["eval", str(tmp_path), "--iteration", "last"]) == 2
    assert f"--iteration last: a run of {algo} keeps only what it deploys; leave it out" in one_line(capsys)


def test_a_run_without_them(run, tmp_path, capsys):
    bare = shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("0*"))
    assert main(["eval", str(bare), "--iteration", "2"]) == 2
    assert f"--iteration 2: {bare}/policy has no policy of an iteration; leave it out" in one_line(capsys)


@pytest.mark.fault("the policy of an iteration that was damaged, renamed or replaced", "`pcmlp eval` refuses it")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda file: file.write_bytes(file.read_bytes()[:-3]),
            "truncated or edited; give another iteration",
        ),
        (lambda file: file.with_name("000004.safetensors").replace(file), "renamed or edited; give another iteration"),
        (lambda file: file.with_name("policy.safetensors").replace(file), "renamed or edited; give another iteration"),
        (lambda file: (file.unlink(), file.mkdir()), "not a file; put the file itself there, or remove it"),
    ],
)
def test_a_damaged_file(run, damage, said, tmp_path, capsys):
    edited = shutil.copytree(run, tmp_path / "edited")
    damage(edited / "policy" / "000002.safetensors")
    assert main(["eval", str(edited), "--iteration", "2"]) == 2
    line = one_line(capsys)
    assert "000002.safetensors: " in line
    assert said in line


def test_what_an_iteration_has_planned_is_not_taken_for_what_is_deployed(run, tmp_path):
    edited = shutil.copytree(run, tmp_path / "edited")
    (edited / "policy" / "000006.safetensors").replace(edited / "policy" / "policy.safetensors")
    with pytest.raises(ConfigError, match=r"policy\.safetensors: renamed or edited; remove summary\.json"):
        load_run(edited)


# -- plans -------------------------------------------------------------------------------------------------------------


def search(run, out, *more):
    return ["plan", str(run), "--search", "--num-plans", "4", "--plan-length", "3", "--out", str(out), *more]


def test_an_iteration_guides_a_search(run, planned, tmp_path):
    assert main(search(run, tmp_path / "out", "--iteration", "4", "--seeds", "8")) == 0
    guide = load_run(tmp_path / "out").policies.guide
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["guide"] == 4
    assert eqx.tree_equal(guide, take(planned[4], slice(1, 2)))
    assert main(search(run, tmp_path / "other")) == 0
    assert not eqx.tree_equal(load_run(tmp_path / "other").policies.guide, take(planned[4], slice(None)))
    assert json.loads((tmp_path / "other" / "plan.json").read_text())["guide"] is None  # the exploring policies
    assert main(["eval", str(tmp_path / "out"), "--episodes", "1"]) == 0


def test_a_plan_that_is_made_ahead_has_no_guide(run, tmp_path, capsys):
    assert main(["plan", str(run), "--iteration", "4", "--out", str(tmp_path / "out")]) == 2
    assert "--iteration 4: a plan begins from new policies, in the newest model; leave it out, or give --search as" in (
        one_line(capsys)
    )
    assert main(search(run, tmp_path / "out", "--iteration", "3")) == 2
    assert "give 2 or 4" in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_a_plan_has_no_iterations(run, tmp_path, capsys):
    plan = shutil.copytree(run, tmp_path / "plan")
    (plan / "plan.json").write_text("{}")
    with pytest.raises(ConfigError, match="iteration=2: .*plan is a plan, which has one policy of each seed; leave it"):
        choose_iteration(plan, load_config(run), 2)
