"""`pcmlp plan`: a reward that a run never saw, planned in its model; bad input is one line and writes nothing."""

import dataclasses
import io
import json
import re
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from pcmlp.algorithms import replan as replanning
from pcmlp.algorithms.deep import imagination
from pcmlp.algorithms.replan import Ahead, Search
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.experiments import held_out
from pcmlp.experiments.experiment import Done, write_table
from pcmlp.experiments.job import SMOKE
from pcmlp.imagine import Unknown
from pcmlp.planners import GuidedPolicy
from pcmlp.runs import plan as planning
from pcmlp.runs.config import build, resolve, to_json
from pcmlp.runs.config_file import load_config
from pcmlp.runs.evaluate import Indicator, measure
from pcmlp.runs.policy import Aim, Functions, SavedRun, load_run, read_plan, with_objective
from pcmlp.runs.train import train
from pcmlp.tasks import TASKS
from pcmlp.trees import take
from pcmlp.types import Planner, never

SEEDS = (3, 8)
FILE = """
from pathlib import Path
import jax.numpy as jnp
Path("imported").touch()
def right(state, action, next_state):
    return next_state[0]
def there(state, action, next_state):
    return next_state[0] > 0.55
def nowhere(state, action, next_state):
    return next_state[0] > 5.0
def missing(state, action, next_state):
    return state[7]
def wide(state, action, next_state):
    return jnp.sum(action[1:3])
def vector(state, action, next_state):
    return next_state
def untraceable(state, action, next_state):
    return 1.0 if state[0] > 0 else 0.0
def infinite(state, action, next_state):
    return jnp.log(state[0] - 0.5)
def two(state, action):
    return 0.0
def broken(state, action, next_state):
    return state.no_such_thing
number = 3.0
"""


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PCMLP_CACHE", "off")
    (tmp_path / "aims.py").write_text(FILE)


def explore(algo, out, settings):
    own = ("task.horizon=20", "eval_episodes=2", "reward_free=true")
    config = resolve("point-umaze", algo, SEEDS, 40, (*settings, *own))
    train(config, out, console=Console(file=io.StringIO()))
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_trpo):
    return explore("pcmlp", tmp_path_factory.mktemp("runs") / "free", (*tiny_trpo, "replay_starts=0.5"))


@pytest.fixture(scope="module")
def mppi_run(tmp_path_factory, tiny):
    planner = ("planner.num_plans=8", "planner.plan_length=5", "planner.warmup=2", "planner.restarts=1")
    settings = (*tiny, "features.dim=8", *planner)
    return explore("pcmlp-mppi", tmp_path_factory.mktemp("runs") / "mppi", settings)


def words(run, *more):
    return ["plan", str(run), "--reward", "aims.py:right", "--attempts", "2", "--rounds", "2", "--out", "out", *more]


def test_a_plan_is_made_and_measured_under_its_reward(run, tmp_path, capsys):
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert main(words(run, "--terminal", "aims.py:nowhere", "--success", "aims.py:there")) == 0
    shown = capsys.readouterr().out
    assert "after 40 env steps, without new ones" in shown
    assert re.search(r"the reward is 0\.\d+ to 0\.\d+ at 80 visited states; not 0 at 80", shown)
    assert "pcmlp eval out --trust-code" in shown
    record = json.loads((tmp_path / "out/plan.json").read_text())
    assert [seed["seed"] for seed in record["seeds"]] == list(SEEDS)
    assert all(max(seed["by_attempt"]) == seed["imagined_return"] for seed in record["seeds"])
    assert (record["iteration"], record["attempts"], record["rounds"]) == (2, 2, 2)
    after = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert before == after  # nothing was collected

    assert main(["eval", "out", "--episodes", "6", "--trust-code"]) == 0
    result = json.loads((tmp_path / "out/eval.json").read_text())
    assert result["aim"]["reward"] == "aims.py:right"
    # again, by hand: the policies in the real maze, paid by their place
    saved = load_run(tmp_path / "out", trust_code=True)
    assert saved.problem.success_return is None
    first = saved.problem.world.mdp.reward(jnp.array([0.3, 0.1]), jnp.zeros(2), jnp.array([0.7, 0.1]))
    assert float(first) == pytest.approx(0.7)
    for row in result["seeds"]:
        assert 0 < row["return_mean"] < 20 * 3.0
        assert 0 <= row["success"] <= 1


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (
            lambda s, a, n: 0.0 * n[0],
            "warning: the reward is 0 at all 2 visited states: state[0] in [0.25, 2], state[1] in",
        ),
        (lambda s, a, n: 0.0 * n[0] - 1, "warning: the reward is -1 at all 2 visited states: state[0] in [0.25, 2]"),
        (lambda s, a, n: n[1], "the reward is 0 to 3 at 2 visited states; not 0 at 1"),
        (None, "warning: the reward is 0 at all 2 visited states"),  # the task's own
    ],
)
def test_what_a_reward_pays_at_the_states_of_the_log(reward, said):
    samples = jnp.array([[0.5, 0.0], [0.25, 0.0]]), jnp.zeros((2, 2)), jnp.array([[0.5, 0.0], [2.0, 3.0]])
    mdp = TASKS["point-umaze"]().build().world.mdp
    line = planning.describe_pay(Functions(reward), mdp, samples)
    assert line.startswith(said)
    assert ("or explore for more steps" in line) == said.startswith("warning")
    wide = [jnp.zeros((2, 9))] * 3
    assert "state[5] in [0, 0], and 3 more coordinates;" in planning.describe_pay(
        Functions(lambda s, a, n: n[0]), mdp, tuple(wide)
    )
    unknown = dataclasses.replace(mdp, reward=Unknown())
    assert planning.describe_pay(Functions(), unknown, samples) == ""


@pytest.mark.slow
def test_success_is_by_the_predicate_at_any_step(run):
    learned = planning.load_learned(run, [8])
    assert learned.config.seeds == (8,)
    always, nowhere = (Indicator(f) for f in (lambda s, a, n: n[0] < 5.0, lambda s, a, n: n[0] > 5.0))
    planned = planning.plan(learned, Functions(reward=always, terminal=never), how=Ahead(1, 1))
    assert planned.values.tolist() == [[[20.0]]]
    for predicate, share in ((always.predicate, 1.0), (nowhere.predicate, 0.0)):
        functions = Functions(reward=always, terminal=never, success=predicate)
        (row,) = measure(SavedRun(run, learned.config, planned.problem, planned.policies, None, functions), 3)
        assert (row["seed"], row["success"], row["return_mean"]) == (8, share, 20.0)
    threshold = with_objective(learned.problem, Functions(reward=always, terminal=never), 20.5)
    (row,) = measure(SavedRun(run, learned.config, threshold, planned.policies), 3)
    assert row["success"] == 0.0


def test_what_it_plans_in_is_the_learned_model_with_the_new_reward_alone(run):
    learned = planning.load_learned(run)
    seen = []

    class Spy(Planner):
        def init(self, key, mdp):
            return learned.algorithm.planner.init(key, mdp)

        def plan(self, key, mdp, policy):
            seen.append(mdp)
            return policy, {}

    def reward(state, action, next_state):
        return 3.0 * next_state[1]

    mdp = with_objective(learned.problem, Functions(reward=reward), None).world.mdp
    algo = dataclasses.replace(learned.algorithm, planner=Spy(), reward_free=False)
    one = take(learned.learner, 0)
    replanning.replan_one(learned.keys[0], algo, mdp, one, 1, 1)
    row = jnp.array([0.5, 0.5]), jnp.ones(2), jnp.array([0.4, 0.6])
    assert float(seen[0].reward(*row)) == pytest.approx(1.8)  # and no bonus
    expected = imagination(algo, mdp, one.bonus, one.seen, jnp.zeros((4, 2)), one.weight, one.model, jnp.array(False))
    key = jax.random.key(0)
    np.testing.assert_allclose(seen[0].transition(key, *row[:2]), expected.transition(key, *row[:2]))
    starts = np.asarray(seen[0].initial.states)
    near = (np.abs(starts - 0.5) <= 0.0501).all(axis=1)
    assert 0.3 < near.mean() < 1.0  # the world's own starts, and states of the replay
    rows = np.asarray(one.replay.data.state)[np.asarray(one.replay.data.valid)]
    assert all((place == rows).all(axis=1).any() for place in starts[~near])


def search_words(run, *more):
    given = ["--search", "--num-plans", "6", "--plan-length", "4"]
    return ["plan", str(run), "--reward", "aims.py:right", *given, "--out", "out", *more]


def test_a_search_at_every_step_is_planned_saved_and_measured(run, tmp_path):
    """What comes back from the folder is what was made: the same guide and model, and the same way through the maze."""
    assert main(search_words(run)) == 0
    record = json.loads((tmp_path / "out/plan.json").read_text())
    assert record["search"] == {"num_plans": 6, "plan_length": 4}
    assert record["attempts"] is record["rounds"] is None
    learned = planning.load_learned(run)
    saved = load_run(tmp_path / "out", trust_code=True)
    assert isinstance(saved.policies, GuidedPolicy)
    assert (saved.policies.num_plans, saved.policies.plan_length) == (6, 4)
    for held, learnt in (
        (saved.policies.guide, learned.learner.policy.inference_only()),
        (saved.policies.mdp.transition.model, learned.learner.model),
    ):
        assert eqx.tree_equal(held, learnt)
    made = planning.plan(learned, saved.functions, how=Search(6, 4)).policies
    here, there = (measure(saved._replace(policies=policies), 2) for policies in (saved.policies, made))
    assert here == there
    assert main(["eval", "out", "--episodes", "2", "--trust-code"]) == 0
    assert json.loads((tmp_path / "out/eval.json").read_text())["seeds"] == here
    for edited in ({"num_plans": "many"}, {"num_plans": True}, {"plan_length": 0}, {"plans": 3}, 7, None):
        (tmp_path / "out/plan.json").write_text(json.dumps({**record, "search": edited}))
        with pytest.raises(ConfigError, match="plan it again"):
            load_run(tmp_path / "out", trust_code=True)


def test_a_guide_comes_without_what_only_learning_needs(tiny):
    """SAC's, as robots have it: critics and optimiser would be in every saved plan."""
    sizes = ("planner.name=sac", "planner.sizes=8", "planner.streams=4", "planner.updates=2", "planner.batch=4")
    problem, algo = build(resolve("point-umaze", "pcmlp", SEEDS, 40, (*tiny, *sizes, "task.horizon=20")))
    mdp = problem.world.mdp
    learner = algo.start(jax.vmap(jax.random.key)(jnp.array(SEEDS)), mdp, 2)
    policies = replanning.guided_policies(algo, mdp, learner, Search(5, 3))
    assert policies.guide.targets is policies.guide.optimiser is None
    assert eqx.tree_equal(policies.guide.learned.actor, learner.policy.learned.actor)
    one = take(policies, 0)
    _, action = one(jax.random.key(0), one.init(), jnp.array([0.5, 0.5]))
    assert action.shape == (2,)
    assert np.isfinite(action).all()


def test_the_best_of_all_attempts_is_kept(run, monkeypatch):
    """Values are made up: the third of four rounds is the best, the later of two alike, and a NaN never is."""
    learned = planning.load_learned(run, [3])
    made_up = jnp.array([0.0, 0.9, 0.9, jnp.nan])

    class Counting(Planner):
        """Adds 1 to the noise at every round, so that a policy says how many it has had, and begins at 1."""

        def init(self, key, mdp):
            return learned.algorithm.planner.init(key, mdp)

        def plan(self, key, mdp, policy):
            policy = eqx.tree_at(lambda p: p.noise, policy, policy.noise + 1.0)
            return policy, {"planned_value": made_up[jnp.clip(policy.noise - 2.0, 0, 3).astype(int)]}

    algo = dataclasses.replace(learned.algorithm, planner=Counting())
    policy, values = replanning.replan_one(
        learned.keys[0], algo, learned.problem.world.mdp, take(learned.learner, 0), 2, 4
    )
    np.testing.assert_allclose(values, [0.0, 0.9, 0.9, np.nan] * 2, rtol=1e-6)  # each attempt begins anew
    assert float(policy.noise) == 4.0


@pytest.mark.slow
def test_mppi_plans_too_and_its_policy_comes_back(mppi_run, tmp_path):
    assert main(words(mppi_run, "--seeds", "8")) == 0
    assert main(["eval", "out", "--episodes", "1", "--trust-code"]) == 0
    (row,) = json.loads((tmp_path / "out/eval.json").read_text())["seeds"]
    assert row["seed"] == 8
    assert row["success"] is None
    assert 0 < row["return_mean"] < 60


@pytest.mark.slow
def test_the_tasks_own_reward_needs_no_file(run, tmp_path, capsys):
    assert main(["plan", str(run), "--attempts", "1", "--rounds", "1", "--out", "out"]) == 0
    assert "the reward of point-umaze" in capsys.readouterr().out
    assert main(["eval", "out", "--episodes", "2"]) == 0
    assert not (tmp_path / "imported").exists()
    assert read_plan(tmp_path / "out") == (Aim(), None)
    saved = load_run(tmp_path / "out")
    assert saved.problem.success_return == 1.0
    assert saved.problem.world.mdp.terminal is not never  # the goal ends it again


@pytest.mark.fault("`pcmlp eval` of a plan whose code is not trusted, has changed or is gone", "refused, nothing runs")
def test_code_is_imported_only_where_it_is_trusted_and_the_same(run, tmp_path, capsys):
    assert main(words(run, "--seeds", "3", "--attempts", "1", "--rounds", "1")) == 0
    (tmp_path / "imported").unlink()
    assert main(["eval", "out"]) == 2
    assert "aims.py:right: out uses code of a file" in one_line(capsys)
    (tmp_path / "aims.py").write_text(FILE + "\n# other code")
    assert main(["eval", "out", "--trust-code"]) == 2
    assert "aims.py: changed since out was started" in one_line(capsys)
    (tmp_path / "aims.py").unlink()
    assert main(["eval", "out", "--trust-code"]) == 2
    assert "there is no file aims.py" in one_line(capsys)
    (tmp_path / "out/plan.json").write_text('{"aim": {"reward": 3}}')
    assert main(["eval", "out", "--trust-code"]) == 2
    assert "plan.json: truncated, edited" in one_line(capsys)
    assert not (tmp_path / "imported").exists()
    with pytest.raises(ConfigError, match="holds a plan"):
        train(load_config(run), tmp_path / "out", resume=True)


def one_line(capsys):
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    return shown


@pytest.mark.fault("a reward for `pcmlp plan` that JAX cannot trace, or that is no finite number", "refused")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--reward", "aims.py:missing"], "index 7 is out of bounds for axis 0 with size 2; a state has 2 coordinates"),
        (["--reward", "aims.py:wide"], "index 3 is out of bounds for axis 0 with size 2"),
        (["--reward", "aims.py:vector"], "returns float32 of shape (2,), not one float"),
        (["--reward", "aims.py:untraceable"], "JAX cannot trace it"),
        (["--reward", "aims.py:infinite"], "make it finite everywhere"),
        (["--reward", "aims.py:two"], "is called with three arguments"),
        (["--reward", "aims.py:broken"], "fails with AttributeError"),
        (["--reward", "aims.py:number"], "give a function"),
        (["--reward", "aims.py:rigth"], "has no rigth; the nearest is right"),
        (["--reward", "gone.py:right"], "--reward gone.py:right: there is no file gone.py"),
        (["--reward", "aims.py"], "give it as FILE.py:NAME"),
        (["--terminal", "aims.py:right"], "--terminal right: returns float32 of shape (), not one bool"),
        (["--success", "aims.py:right"], "--success right: returns float32"),
        (
            ["--success", "aims.py:there", "--success-return", "3"],
            "success_return is given as well; give one of the two",
        ),
        (["--success-return", "much"], "success_return=much"),
        (["--seeds", "4"], "has 3 8; give some of these"),
        (["--seeds", "3", "3"], "give some of these, each once"),
        (["--rounds", "0"], "rounds=0: give 1"),
        (["--attempts", "few"], "attempts=few"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(run, more, said, tmp_path, capsys):
    given = words(run)
    for option in more[::2]:
        if option in given:
            at = given.index(option)
            del given[at : at + 2]
    assert main([*given, *more]) == 2
    assert said in one_line(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--search", "--attempts", "2"], "attempts=2: not for a search; leave it out"),
        (["--search", "--num-plans", "0"], "num_plans=0: give 1 to 10000"),
        (["--search", "--plan-length", "long"], "plan_length=long"),
        (["--num-plans", "7"], "num_plans=7: only for a search; give --search as well"),
    ],
)
def test_a_search_that_cannot_be_is_one_line_and_writes_nothing(run, more, said, tmp_path, capsys):
    assert main(["plan", str(run), "--out", "out", *more]) == 2
    assert said in one_line(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_who_searches_anyway_is_told_so(mppi_run, tmp_path, capsys):
    assert main(search_words(mppi_run)) == 2
    assert "plans by mppi, at every step anyway; leave it out" in one_line(capsys)


def test_a_run_that_has_no_model_says_which_have_one(tmp_path, capsys):
    for task, algo in (("point-umaze", "random"), ("combination-lock", "pcmlp-linear")):
        config = resolve(task, algo, (0,))
        folder = tmp_path / algo
        folder.mkdir()
        (folder / "config.json").write_text(to_json(config))
        assert main(["plan", str(folder)]) == 2
        assert f"of {algo}, which has no model" in (said := one_line(capsys))
        assert "give a run of Deep PC-MLP or of a rival that learns a model, such as pcmlp or mbpo" in said
    assert main(["plan", str(tmp_path / "nothing")]) == 2
    assert "not a run folder" in one_line(capsys)


def test_a_run_without_a_checkpoint_has_no_model_yet(run, tmp_path, capsys):
    young = shutil.copytree(run, tmp_path / "young", ignore=shutil.ignore_patterns("checkpoint"))
    assert main(words(young)) == 2
    assert "has no checkpoint, so no model" in one_line(capsys)


@pytest.mark.slow
def test_places_are_tried_by_the_way_as_well_and_each_but_once(run, tmp_path, monkeypatch):
    """Trials that the table has already are not made again."""
    places = held_out.Places(0.25, 2, {"corner": (2.7, 0.3)}, by_the_way=True)
    monkeypatch.setitem(held_out.PLACES, "point-umaze", places)
    job = next(job for job in held_out.jobs() if job.name == "point-umaze/pcmlp")
    result = tmp_path / job.where
    result.mkdir(parents=True)
    trial = {"place": "corner", "paid": "there", "planned": "ahead"}
    measured = {"return_mean": 0.5, "return_std": 0.5, "success": 0.5, "imagined_return": 0.1}
    write_table(result / "places.csv", [{**trial, "seed": seed, **measured} for seed in SEEDS])
    done = Done((job,), dataclasses.replace(SMOKE, most={**SMOKE.most, "trials": 2, "places": 4}), tmp_path, tmp_path)
    monkeypatch.setattr(Done, "run", lambda *_: run)
    rows = held_out.places_of(job, done)
    ways = [("there", "ahead"), *[("the way", planned) for planned in ("ahead", "search", "guide")]]
    assert [(row["paid"], row["planned"]) for row in rows] == [way for way in ways for _ in SEEDS]
    assert [int(row["seed"]) for row in rows] == [*SEEDS] * 4
    assert [float(row["success"]) for row in rows[: len(SEEDS)]] == [0.5] * len(SEEDS)
    assert np.isfinite([float(row[name]) for row in rows for name in ("success", "imagined_return")]).all()
    monkeypatch.setattr(held_out, "load_learned", None)  # nothing is left to try
    assert len(held_out.places_of(job, done)) == len(rows)
