"""Configurations: presets resolve, settings are typed, and whatever is wrong is one line that says what to do."""

import dataclasses

import pytest

from pcmlp.runs.build import build
from pcmlp.runs.config import from_json, resolve, to_json
from pcmlp.runs.options import CEMOptions, FourierFeatures, MPPIOptions
from pcmlp.runs.presets import ALGORITHMS, PRESETS, algorithms_for
from pcmlp.tasks import TASKS
from pcmlp.types import ConfigError

LOCK = "combination-lock"


@pytest.mark.parametrize(("algo", "task"), PRESETS)
def test_every_preset_builds_and_survives_json(algo, task):
    config = resolve(task, algo)
    assert from_json(to_json(config)) == config
    built, inputs = build(config)
    assert inputs.num_iterations == config.num_iterations >= 1
    assert built.world is inputs.world


def test_every_task_has_an_algorithm_and_every_algorithm_a_task():
    assert {task for _, task in PRESETS} == set(TASKS)
    assert {algo for algo, _ in PRESETS} == set(ALGORITHMS)
    assert all("random" in algorithms_for(task) for task in TASKS)


def test_settings_are_typed_by_their_fields():
    settings = ("task.horizon=7", "bonus_scale=2", "fit_samples=9", "covariance=off", "draws=iid")
    config = resolve(LOCK, steps="1e3", seeds=("5",), settings=settings)
    assert (config.task.horizon, config.steps, config.seeds) == (7, 1000, (5,))
    assert (config.bonus_scale, config.fit_samples) == (2.0, 9)
    assert isinstance(config.bonus_scale, float)
    assert (config.covariance, config.draws) == ("off", "iid")
    assert resolve(LOCK, settings=("fit_samples=none",)).fit_samples is None


def test_one_policy_samples_an_episode_unless_told_otherwise():
    assert resolve(LOCK, settings=("task.horizon=7",)).samples_per_policy == 7
    assert resolve("low-rank", steps=4000, settings=("task.horizon=2000",)).samples_per_policy == 2000


def test_a_group_takes_the_keys_of_the_chosen_record(monkeypatch):
    config = resolve("knr-lds", settings=("features.name=fourier", "features.dim=8", "features.bandwidth=0.5"))
    assert config.features == FourierFeatures(8, 0.5)
    assert isinstance(config.planner, CEMOptions)
    # a preset for CEM says nothing about MPPI
    monkeypatch.setitem(
        PRESETS, ("pcmlp-knr", "knr-lds"), {"steps": 100, "planner.name": "cem", "planner.num_plans": 70}
    )
    assert resolve("knr-lds").planner.num_plans == 70
    assert resolve("knr-lds", settings=("planner.name=mppi",)).planner == MPPIOptions()


def test_iterations_pay_for_all_their_samples():
    def iterations(*settings):
        return resolve(LOCK, steps=1000, settings=("task.horizon=9", *settings)).num_iterations

    assert iterations() == 1000 // 9
    assert iterations("samples_per_policy=10") == 1000 // 18  # whole episodes, rounded up
    assert iterations("samples_per_policy=10", "fit_samples=9") == 1000 // 27
    assert iterations("samples_per_policy=4", "draws=iid") == 1000 // (4 * 5)  # a draw takes (H + 1) / 2 on average


BAD_SETTINGS = [
    ("task.horizon=0", "1 or more"),
    ("task.horizon=-3", "1 or more"),
    ("task.horizon=2.5", "whole number"),
    ("task.horizn=5", "task.horizon"),
    ("horizon=5", "task.horizon"),
    ("task.name=low-rank", "first argument"),
    ("bonus_scale=-1", "0 (no bonus) or more"),
    ("bonus_scale=inf", "finite"),
    ("bonus_scale=much", "finite"),
    ("bonus_scal=1", "bonus_scale"),
    ("ridge=0", "above 0"),
    ("ridge=-0.1", "above 0"),
    ("ridge=1e-20", "1e-6"),
    ("samples_per_policy=3", "draws=iid"),
    ("samples_per_policy=0", "1 or more"),
    ("samples_per_policy=40000", "40000"),
    ("fit_samples=0", "none"),
    ("eval_episodes=0", "1 to"),
    ("draws=idd", "iid"),
    ("covariance=of", "off"),
    ("steps=10", "--steps"),
    ("seeds=1", "--seeds"),
    ("features.name=fourrier", "fourier"),
    ("features.dim=10", "fourier"),
    ("planner.name=cem", "value-iteration"),
    ("planner.elites=3", "cem"),
]


@pytest.mark.parametrize(("setting", "remedy"), BAD_SETTINGS)
def test_a_bad_setting_names_itself_and_the_remedy(setting, remedy):
    with pytest.raises(ConfigError) as caught:
        resolve(LOCK, settings=(setting,))
    line = str(caught.value)
    key, _, value = setting.partition("=")
    assert key in line
    assert value.split(".")[0] in line
    assert remedy in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("features.name=polynomial features.scale=9", "norm"),
        ("features.name=polynomial features.scale=-1", "above 0"),
        ("features.name=polynomial features.degree=0", "1 or more"),
        ("features.name=polynomial features.degree=40", "lower"),
        ("features.name=fourier features.dim=5", "even"),
        ("features.name=fourier features.bandwidth=0", "median"),
        ("features.name=one-hot", "finitely many"),
        ("model.radius=0", "above 0"),
        ("model.method=sdg", "sgd"),
        ("planner.elites=300", "num_plans=200"),
        ("planner.num_plans=0", "1 or more"),
        ("planner.correlation=1", "below 1"),
        ("planner.name=mppi planner.temperature=0", "above 0"),
        ("planner.name=mppi planner.noise_cov=-1", "above 0"),
        ("planner.plan_length=0", "horizon"),
        ("task.sigma=0", "positive"),
    ],
)
def test_a_bad_setting_of_a_knr(setting, remedy):
    with pytest.raises(ConfigError, match=remedy) as caught:
        build(resolve("knr-lds", settings=setting.split()))
    assert setting.split()[-1].split("=")[0] in str(caught.value)


@pytest.mark.parametrize("name", ["polynomial", "fourier"])
def test_features_of_vectors_are_refused_on_a_finite_task(name):
    with pytest.raises(ConfigError, match=f"features.name={name}.*one-hot"):
        build(resolve(LOCK, settings=(f"features.name={name}",)))


def test_a_finite_model_has_no_settings():
    with pytest.raises(ConfigError, match=r"model.method=sgd.*leave"):
        build(resolve(LOCK, settings=("model.method=sgd",)))


def test_seeds_are_some_different_numbers():
    for seeds, remedy in (((), "at least one"), ((1, 2, 1), "once"), ((-1,), "from 0"), (("x",), "whole number")):
        with pytest.raises(ConfigError, match=f"seeds=.*{remedy}"):
            resolve(LOCK, seeds=seeds)


def test_steps_must_pay_for_an_iteration():
    with pytest.raises(ConfigError, match="steps=19: .*takes 20 env steps"):
        resolve(LOCK, steps=19)
    assert resolve(LOCK, steps=20).num_iterations == 1


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ConfigError, match="combination-lock"):
        resolve("combo-lock")
    with pytest.raises(ConfigError, match="pcmlp-linear"):
        resolve(LOCK, "pcmlp-liner")


def test_an_algorithm_on_the_wrong_task_says_which_works():
    with pytest.raises(ConfigError, match="pcmlp-knr or random"):
        resolve("knr-lds", "pcmlp-linear")


def test_a_setting_is_given_once_and_with_a_value():
    with pytest.raises(ConfigError, match="twice"):
        resolve(LOCK, settings=("ridge=1", "ridge=2"))
    with pytest.raises(ConfigError, match="--set ridge: no key=value"):
        resolve(LOCK, settings=("ridge",))


def test_a_broken_config_file_is_bad_input():
    for text in ("", "{}", "[1]", '{"task": 3}'):
        with pytest.raises(ConfigError, match=r"config\.json"):
            from_json(text)
    changed = dataclasses.replace(resolve(LOCK), ridge=-1.0)
    with pytest.raises(ConfigError, match="ridge"):
        from_json(to_json(changed))
