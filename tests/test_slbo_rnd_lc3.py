"""SLBO, RND and LC3 as runs: what they are made of, that they resume bit for bit, and what they refuse."""

import io

import jax.random as jr
import numpy as np
import pytest
from rich.console import Console
from same_run import assert_same_run

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.noise import NoisyPolicy
from pcmlp.algorithms.replan import Ahead
from pcmlp.algorithms.rnd import Distillation
from pcmlp.bonus import Elliptical, NoBonus
from pcmlp.errors import ConfigError
from pcmlp.models import Thompson
from pcmlp.planners import MPPI, TRPO
from pcmlp.runs import checkpoint
from pcmlp.runs.certificate import why_none
from pcmlp.runs.checkpoint import check_same
from pcmlp.runs.config import build, resolve, to_json
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.train import train
from pcmlp.tasks import TASKS
from pcmlp.world import JaxWorld

CAR = "mountain-car"
SMALL = (CAR, "acrobot", "pendulum", "point-umaze")
RIVALS = ("slbo", "rnd", "lc3")
SHORT = ("task.horizon=20", "eval_episodes=2", "samples_per_policy=20", "rounds=2", "replay_size=50")
NEURAL = ("model.sizes=16,16", "model.steps=2", "model.batch=16")
RND_ = ("features.sizes=16,16", "bonus.sizes=16,16", "bonus.steps=3")
TRPO_ = (
    "planner.updates=1",
    "planner.streams=8",
    "planner.length=10",
    "planner.policy_sizes=8",
    "planner.value_sizes=8",
    "planner.value_batch=20",
)
MPPI_ = (
    "planner.num_plans=8",
    "planner.plan_length=5",
    "planner.warmup=1",
    "planner.restarts=0",
    "model.features.dim=8",
)
TINY = {
    "slbo": (*SHORT, *NEURAL, *TRPO_),
    "rnd": (*SHORT, *NEURAL, *TRPO_, *RND_),
    "lc3": (*SHORT, *MPPI_),
}


def run(config, out, *, resume=False):
    console = Console(file=io.StringIO(), width=200)
    train(config, out, console=console, resume=resume)
    return console.file.getvalue()


def crash_at(patch, iteration):
    iterate = Deep.iterate

    def dies(self, keys, world, learner, n):
        if n == iteration:
            raise OSError("killed")
        return iterate(self, keys, world, learner, n)

    patch.setattr(Deep, "iterate", dies)


@pytest.mark.slow  # each compiles a stage twice
@pytest.mark.parametrize("algo", RIVALS)
def test_a_run_resumes_bit_for_bit(algo, tmp_path):
    config = resolve(CAR, algo, (100, 101), 60, TINY[algo])
    run(config, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, 3)
        with pytest.raises(OSError, match="killed"):
            run(config, tmp_path / "cut")
    assert "continuing after iteration 2" in run(config, tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    metrics = read_metrics(tmp_path / "whole")
    assert metrics["env_steps"][-2:] == [60.0, 60.0]
    paid = np.asarray(metrics["bonus_mean"][2:])
    assert np.all(paid > 0) if algo == "rnd" else np.all(paid == 0)
    assert metrics["model_skipped"][-2:] == [0.0, 0.0]


def collecting_policy(algo, world, learner, keys, monkeypatch):
    """Return the policy that an iteration collects with."""
    used = []

    def collect(self, keys, policies, n):
        used.append(policies)
        raise OSError("enough")

    monkeypatch.setattr(JaxWorld, "collect", collect)
    with pytest.raises(OSError, match="enough"):
        algo.iterate(keys, world, learner, 1)
    return used[0]


def test_what_collects_in_slbo_has_noise_and_what_is_judged_has_none(monkeypatch):
    problem, algo = build(resolve(CAR, "slbo", (100,), 20, TINY["slbo"]))
    assert algo.noise == 0.3
    assert isinstance(algo.planner, TRPO)
    assert algo.planner.entropy == 0.005
    assert isinstance(algo.bonus, NoBonus)
    assert not algo.fresh
    keys = jr.key(100)[None]
    learner = algo.start(keys, problem.world.mdp, 1)
    policy = collecting_policy(algo, problem.world, learner, keys, monkeypatch)
    assert isinstance(policy, NoisyPolicy)
    np.testing.assert_array_equal(policy.sigma, np.full(1, 0.3, np.float32))
    assert not isinstance(learner.policy, NoisyPolicy)
    assert not isinstance(learner.deployed(), NoisyPolicy)


def test_pcmlp_has_none_of_it():
    _, algo = build(resolve(CAR, "pcmlp"))
    assert isinstance(algo.bonus, Elliptical)
    assert algo.noise == 0.0
    assert algo.planner.entropy == 0.0


@pytest.mark.parametrize("task", SMALL)
def test_presets_build(task):
    slbo, rnd, lc3 = (build(resolve(task, algo))[1] for algo in RIVALS)
    assert isinstance(rnd.bonus, Distillation)
    assert rnd.bonus.sizes == (500, 500)
    assert isinstance(slbo.bonus, NoBonus)
    assert isinstance(lc3.model, Thompson)
    assert isinstance(lc3.bonus, NoBonus)


def test_robots_and_anybodys_environment_have_presets():
    robots = [name for name, task in TASKS.items() if task.kind == "robot"]
    assert len(robots) == 11
    for task in robots:
        assert METHODS["slbo"].preset("ours", task, "robot", 1000) is not None
        assert METHODS["rnd"].preset("ours", task, "robot", 1000) is not None
        assert METHODS["lc3"].preset("ours", task, "robot", 1000) is None  # a search at every step takes too long
    assert resolve("half-cheetah", "slbo").algorithm.rounds == 20
    for algo in RIVALS:
        assert isinstance(METHODS[algo].algorithm, Deep)  # and so has a model that a new reward can be planned in
    slbo = METHODS["slbo"].preset("ours", "gym:ID", "gym", 1000)
    assert slbo["rounds"] == 5  # as in its own preset: 20 for 4,000
    for algo, task, deploys in (("rnd", "acrobot", "newest"), ("rnd", "half-cheetah", "imagined")):
        assert resolve(task, algo).algorithm.deploys == deploys  # trials are ours alone
    assert isinstance(resolve("gym:Pendulum-v1", "lc3").algorithm.planner, MPPI)


def test_who_has_no_bonus_has_no_certificate_and_a_plan_of_mbpo_is_no_longer_than_ours():
    for algo in ("mbpo", "pets", "pets-gt", "slbo", "lc3", "random"):
        assert why_none(resolve(CAR, algo)), algo
    assert not why_none(resolve(CAR, "rnd"))

    def usual_rounds(task, algo):
        return Ahead().rounds_for(resolve(task, algo).algorithm)

    assert usual_rounds("half-cheetah", "pcmlp") == 100
    assert usual_rounds("half-cheetah", "mbpo") == 4
    assert usual_rounds(CAR, "pcmlp") == 5


ALONE = "it plans for the reward alone, without a bonus; leave it out"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("algo", "setting", "match"),
    [
        ("slbo", "reward_free=true", f"reward_free=true: has no effect with slbo: {ALONE}"),
        ("lc3", "reward_free=true", f"reward_free=true: has no effect with lc3: {ALONE}"),
        ("slbo", "bonus_scale=1", f"bonus_scale=1: has no effect with slbo: {ALONE}"),
        ("slbo", "noise=-1", "noise=-1.0: give 0 to 10"),
        ("slbo", "noise=nan", "noise=nan"),
        ("slbo", "planner.entropy=-1", "planner.entropy=-1.0: give 0 to"),
        ("slbo", "planner.name=sac", "planner.name=sac: slbo takes trpo"),
        (
            "lc3",
            "noise=0.1",
            "noise=0.1: has no effect with lc3: it searches for each action, which noise would undo; leave it out",
        ),
        ("rnd", "bonus.steps=0", "bonus.steps=0: give 1 to"),
        ("rnd", "bonus.steps=none", "bonus.steps=none: not a whole number; give one"),
        ("rnd", "features.name=fourier", "features.name=fourier: rnd takes random-network; give that"),
        (
            "pcmlp",
            "bonus.steps=5",
            "bonus.steps=5: bonus elliptical has no steps (a setting of distillation); leave it out",
        ),
        ("lc3", "features.name=task", f"features.name=task: has no effect with lc3: {ALONE}"),
        ("lc3", "model.features.name=task", "model.features.name=task: lc3 takes fourier; give that"),
        ("lc3", "model.features.name=one-hot", "model.features.name=one-hot: lc3 takes fourier; give that"),
        (
            "lc3",
            "model.features.name=random-network",
            "model.features.name=random-network: lc3 takes fourier; give that",
        ),
        (
            "random",
            "noise=0.1",
            "noise=0.1: random has no such setting (it is one of pcmlp, mbpo, slbo, rnd); leave it out",
        ),
        ("pcmlp", "batch_steps=10", "batch_steps=10: pcmlp has no such setting (it is one of pc-pg); leave it out"),
        ("mbpo", "reward_free=true", f"reward_free=true: has no effect with mbpo: {ALONE}"),
        ("pets", "bonus_scale=1", f"bonus_scale=1: has no effect with pets: {ALONE}"),
        ("lc3", "model.ridge=0", "model.ridge=0.0: give 1e-06 to"),
        ("lc3", "model.sigma=-1", "model.sigma=-1.0: give 0 to 1000000, or none"),
        ("lc3", "model.name=neural", "model.name=neural: lc3 takes thompson; give that or leave it out"),
    ],
)
def test_bad_input_is_one_line(algo, setting, match):
    with pytest.raises(ConfigError) as error:
        build(resolve(CAR, algo, settings=(setting,)))
    assert str(error.value).startswith(match)
    assert "\n" not in str(error.value)


def test_other_noise_is_another_configuration(tmp_path):
    config, other = resolve(CAR, "pcmlp"), resolve(CAR, "pcmlp", settings=("noise=0.1",))
    (tmp_path / "config.json").write_text(to_json(config))
    check_same(config, tmp_path)
    assert checkpoint.fingerprint(other) != checkpoint.fingerprint(config)
    with pytest.raises(ConfigError, match=r"noise: 0.0 -> 0.1"):
        check_same(other, tmp_path)
