"""SLBO, RND and LC3 as runs: what they are made of, that they resume bit for bit, and what they refuse."""

import dataclasses
import io
import json

import jax.random as jr
import numpy as np
import pytest
from rich.console import Console
from same_run import assert_same_run

from pcmlp.baselines.noise import NoisyPolicy, OrnsteinUhlenbeck
from pcmlp.baselines.rnd import RND
from pcmlp.bonus import elliptical
from pcmlp.deep import Deep, as_it_is
from pcmlp.models import DrawThompson
from pcmlp.planners import TRPO
from pcmlp.runs import checkpoint
from pcmlp.runs.build import build
from pcmlp.runs.certificate import without
from pcmlp.runs.config import resolve, to_json
from pcmlp.runs.folder import read_metrics
from pcmlp.runs.options import NO_BONUS, MPPIOptions
from pcmlp.runs.plan import MODELLED, usual_rounds
from pcmlp.runs.presets import DEEP_PRESETS, PRESETS, any_preset
from pcmlp.runs.resume import check_same
from pcmlp.runs.train import train
from pcmlp.tasks.mujoco import MUJOCO_TASKS
from pcmlp.types import ConfigError

CAR = "mountain-car"
SMALL = (CAR, "acrobot", "pendulum", "point-umaze")
RIVALS = ("slbo", "rnd", "lc3")
SHORT = ("task.horizon=20", "eval_episodes=2", "samples_per_policy=20", "rounds=2", "replay_size=50")
NEURAL = ("model.sizes=16,16", "model.steps=2", "model.batch=16", "features.sizes=16,16")
TRPO_ = (
    "planner.updates=1",
    "planner.streams=8",
    "planner.length=10",
    "planner.policy_sizes=8",
    "planner.value_sizes=8",
    "planner.value_batch=20",
)
MPPI_ = ("planner.num_plans=8", "planner.plan_length=5", "planner.warmup=1", "planner.restarts=0", "features.dim=8")
TINY = {
    "slbo": (*SHORT, *NEURAL, *TRPO_),
    "rnd": (*SHORT, *NEURAL, *TRPO_, "rnd_steps=3"),
    "lc3": (*SHORT, *MPPI_),
}


def run(config, out, *, resume=False):
    console = Console(file=io.StringIO(), width=200)
    train(config, out, console=console, resume=resume)
    return console.file.getvalue()


def crash_at(patch, iteration):
    iterate = Deep.iterate

    def dies(self, keys, learner, n):
        if n == iteration:
            raise OSError("killed")
        return iterate(self, keys, learner, n)

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
    assert "going on after iteration 2" in run(config, tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    metrics = read_metrics(tmp_path / "whole")
    assert metrics["env_steps"][-2:] == [60.0, 60.0]
    paid = np.asarray(metrics["bonus_mean"][2:])
    assert np.all(paid > 0) if algo == "rnd" else np.all(paid == 0)
    assert metrics["model_skipped"][-2:] == [0.0, 0.0]


def test_what_collects_in_slbo_has_noise_and_what_is_judged_has_none():
    _, algo = build(resolve(CAR, "slbo", (100,), 20, TINY["slbo"]))
    assert isinstance(algo.exploring, OrnsteinUhlenbeck)
    assert float(algo.exploring.sigma) == np.float32(0.3)
    assert isinstance(algo.planner, TRPO)
    assert algo.planner.entropy == 0.005
    assert float(algo.bonus_scale) == 0.0
    assert not algo.fresh
    learner = algo.start(jr.key(100)[None])
    assert isinstance(algo.exploring(learner.policy), NoisyPolicy)
    assert not isinstance(learner.policy, NoisyPolicy)
    assert not isinstance(learner.deployed(), NoisyPolicy)


def test_pcmlp_has_none_of_it():
    _, algo = build(resolve(CAR, "pcmlp"))
    assert algo.novelty is elliptical
    assert algo.exploring is as_it_is
    assert algo.planner.entropy == 0.0


@pytest.mark.parametrize("task", SMALL)
def test_presets_build(task):
    slbo, rnd, lc3 = (build(resolve(task, algo))[1] for algo in RIVALS)
    assert isinstance(rnd.novelty, RND)
    assert rnd.novelty.sizes == (500, 500)
    assert slbo.novelty is elliptical
    assert isinstance(lc3.model, DrawThompson)
    assert float(lc3.bonus_scale) == 0.0


def test_robots_and_anybodys_environment_have_presets():
    for task in MUJOCO_TASKS:
        assert ("slbo", task) in PRESETS
        assert ("rnd", task) in PRESETS
        assert ("lc3", task) not in PRESETS  # a search at every step of a simulator takes too long
    assert resolve("half-cheetah", "slbo").rounds == 20
    for algo in RIVALS:
        assert algo in DEEP_PRESETS
        assert algo in MODELLED
    assert any_preset("slbo", 1000, dense=False)["rounds"] == 5  # as in its own preset: 20 for 4,000
    assert not any_preset("rnd", 1000, dense=False)["keeps_better"]  # ours alone
    assert any_preset("pcmlp", 1000, dense=False)["keeps_better"]
    assert isinstance(resolve("gym:Pendulum-v1", "lc3").planner, MPPIOptions)


def test_who_has_no_bonus_has_no_certificate_and_a_plan_of_mbpo_is_no_longer_than_ours():
    for algo in (*NO_BONUS, "random"):
        assert without(resolve(CAR, algo)), algo
    assert not without(resolve(CAR, "rnd"))
    assert usual_rounds(resolve("half-cheetah", "pcmlp")) == 100
    assert usual_rounds(resolve("half-cheetah", "mbpo")) == 4
    assert usual_rounds(resolve(CAR, "pcmlp")) == 5


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("algo", "setting", "match"),
    [
        ("slbo", "reward_free=true", "reward_free=true: slbo has no bonus to explore for; give --algo pcmlp, rnd or"),
        ("lc3", "reward_free=true", "reward_free=true: lc3 has no bonus to explore for; give --algo pcmlp, rnd or"),
        ("slbo", "bonus_scale=1", "bonus_scale=1.0: slbo plans for the reward alone; leave it out, or"),
        ("slbo", "noise=-1", "noise=-1.0: in units of half the action range; give 0 to 10"),
        ("slbo", "noise=nan", "noise=nan"),
        ("slbo", "planner.entropy=-1", "planner.entropy=-1.0: give 0 to"),
        ("slbo", "planner.name=sac", "planner.name=sac: slbo plans by trpo"),
        ("lc3", "noise=0.1", "noise=0.1: lc3 searches for each action, which noise would undo; leave it out"),
        ("rnd", "rnd_steps=0", "rnd_steps=0: give 1 to"),
        ("rnd", "rnd_steps=none", "rnd_steps=None: give 1 to"),
        ("rnd", "features.name=fourier", "features.name=fourier: rnd distils a random network; give random-network"),
        ("pcmlp", "rnd_steps=5", "rnd_steps=5: of algo=rnd, not of pcmlp; leave it out, or give --algo rnd"),
        ("lc3", "features.name=task", "features.name=task: lc3 is a regulator of Fourier features; give fourier"),
        ("lc3", "features.name=one-hot", "features.name=one-hot: lc3 is a regulator of Fourier features; give fourier"),
        ("lc3", "features.name=random-network", "features.name=random-network: lc3 is a regulator of Fourier"),
        ("random", "noise=0.1", "noise=0.1: random play is nothing but noise; leave it out"),
        ("pcmlp", "batch_steps=10", "batch_steps=10: a setting of algorithms with no model"),
        ("mbpo", "reward_free=true", "reward_free=true: mbpo has no bonus to explore for"),
        ("pets", "bonus_scale=1", "bonus_scale=1.0: pets plans for the reward alone"),
        ("lc3", "model.ridge=0", "model.ridge=0.0: give 1e-6 to"),
        ("lc3", "model.sigma=-1", "model.sigma=-1.0: give 0 or more, or none"),
        ("lc3", "model.name=neural", "model.name=neural: this algorithm and task are for thompson; leave it out"),
    ],
)
def test_bad_input_is_one_line(algo, setting, match):
    with pytest.raises(ConfigError) as error:
        build(resolve(CAR, algo, settings=(setting,)))
    assert str(error.value).startswith(match)
    assert "\n" not in str(error.value)


def test_a_run_made_before_these_settings_is_the_same_configuration(tmp_path):
    config = resolve(CAR, "pcmlp")
    old = json.loads(to_json(config))
    assert old.pop("noise") == 0.0
    assert old.pop("rnd_steps") is None
    assert old["planner"].pop("entropy") == 0.0
    (tmp_path / "config.json").write_text(json.dumps(old))
    check_same(config, tmp_path)
    assert checkpoint.of_old(json.loads(to_json(config))) == old
    other = dataclasses.replace(config, noise=0.1)
    assert checkpoint.fingerprint(other) != checkpoint.fingerprint(config)
    with pytest.raises(ConfigError, match=r"noise: None -> 0.1"):
        check_same(other, tmp_path)
