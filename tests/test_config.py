"""Configurations: presets resolve, settings are typed, and whatever is wrong is one line that says what to do."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.deep import Deep
from pcmlp.runs.build import build
from pcmlp.runs.config import from_json, resolve, resolve_gymnasium, to_json
from pcmlp.runs.options import CEMOptions, DeepConfig, FourierFeatures, MPPIOptions, NeuralModel
from pcmlp.runs.presets import ALGORITHMS, PAPER_PRESETS, PRESETS, algorithms_for
from pcmlp.tasks import TASKS
from pcmlp.tasks.mujoco import DENSE_TASKS, MUJOCO_TASKS
from pcmlp.types import ConfigError

TABLES = {"pcmlp": (5.0, 30_000), "pcmlp-mppi": (1.0, 10_000)}  # the paper's c and replay for the sparse tasks
LOCK, CAR = "combination-lock", "mountain-car"


def built_in_every_run():
    """Each algorithm on one robot and each robot with one algorithm; the other pairs, a second each, are slow ones."""
    for algo, task in PRESETS:
        quick = task not in MUJOCO_TASKS or algo == "pcmlp" or task == "half-cheetah"
        yield pytest.param(algo, task, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("algo", "task"), list(built_in_every_run()))
def test_every_preset_builds_and_survives_json(algo, task):
    config = resolve(task, algo)
    assert from_json(to_json(config)) == config
    built, inputs = build(config)
    assert inputs.num_iterations == config.num_iterations >= 1
    assert built.world is inputs.world


@pytest.mark.parametrize(("algo", "task"), PAPER_PRESETS)
def test_every_preset_of_the_paper_builds_and_survives_json(algo, task):
    config = resolve(task, algo, settings=("preset=paper",))
    assert from_json(to_json(config)) == config
    dense = algo == "pcmlp" and task in ("pendulum", "hand-egg", *DENSE_TASKS)
    table = (200_000, 4_000, 0.1, 100_000) if dense else (30_000, config.samples_per_policy, *TABLES[algo])
    assert (config.steps, config.samples_per_policy, config.bonus_scale, config.replay_size) == table
    assert config.steps == resolve(task, algo, settings=("preset=paper", "bonus_scale=0")).steps
    _, inputs = build(config)
    assert inputs.num_iterations == config.num_iterations


@pytest.mark.parametrize("task", MUJOCO_TASKS)
def test_robots_have_the_papers_budget_and_one_configuration(task):
    config, first = resolve(task), resolve("half-cheetah")
    assert (config.steps, config.samples_per_policy, config.eval_episodes) == (200_000, 4_000, 20)
    assert config.num_iterations == 50
    assert dataclasses.replace(config, task=first.task) == first


def test_the_paper_has_tables_for_deep_tasks_only():
    with pytest.raises(ConfigError, match="preset=paper: the paper has no table for pcmlp-linear on combination-lock"):
        resolve(LOCK, settings=("preset=paper",))
    with pytest.raises(ConfigError, match="preset=paper: the paper has no table for pcmlp on ant-umaze; leave it out"):
        resolve("ant-umaze", settings=("preset=paper",))
    with pytest.raises(ConfigError, match="preset=papr: unknown; the nearest is paper"):
        resolve(CAR, settings=("preset=papr",))
    assert resolve(CAR).preset == "ours"


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


def test_settings_of_algorithm_2():
    settings = ("model.sizes=64,32", "features.sizes=[8]", "reward_free=true", "replay_size=1e3", "planner.updates=7")
    config = resolve(CAR, settings=settings)
    assert isinstance(config, DeepConfig)
    assert isinstance(config.model, NeuralModel)
    assert (config.model.sizes, config.features.sizes) == ((64, 32), (8,))
    assert (config.reward_free, config.replay_size, config.planner.updates) == (True, 1000, 7)
    assert from_json(to_json(config)) == config
    assert config.num_iterations == config.steps // 200
    algo = build(config)[1]
    assert isinstance(algo, Deep)
    assert (algo.model.sizes, algo.features.sizes, algo.planner.updates, algo.reward_free) == ((64, 32), (8,), 7, True)


def test_samples_of_a_policy_are_whole_episodes():
    assert resolve(CAR, settings=("samples_per_policy=201",)).steps_per_iteration == 400
    assert resolve(CAR, settings=("task.horizon=300",)).samples_per_policy == 300  # a preset has 200
    assert resolve(CAR, settings=("samples_per_policy=none",)).samples_per_policy == 200


def test_controls_change_numbers_and_no_shape():
    on, off, no_bonus = (build(resolve(CAR, settings=s))[1] for s in ((), ("covariance=off",), ("bonus_scale=0",)))
    assert (float(on.cover_weight), float(off.cover_weight), float(no_bonus.bonus_scale)) == (1.0, 0.0, 0.0)
    assert eqx.filter(on, eqx.is_array, inverse=True) == eqx.filter(off, eqx.is_array, inverse=True)


def test_an_environment_by_hand_has_the_presets_of_all_tasks():
    config = resolve_gymnasium("Cart-v0", 50, "pcmlp-mppi", 3, 1000, ("rounds=4",))
    assert (config.task_name, config.task.horizon, config.seeds, config.rounds) == ("gym:Cart-v0", 50, (3,), 4)
    named = resolve(CAR, "pcmlp-mppi", settings=("rounds=4",))
    assert (config.features, config.model, config.planner) == (named.features, named.model, named.planner)
    for changes, line in (
        ({"algo": "pcmlp-linear"}, "algo=pcmlp-linear: not made for any environment"),
        ({"steps": 49}, "steps=49: less than one iteration"),
        ({"settings": ("task.horizon=3",)}, "task.horizon=3: Cart-v0 is no task of ours"),
        ({"settings": ("fit_samples=3",)}, "fit_samples=3: a setting of Algorithm 1"),
        ({"settings": ("preset=paper",)}, "no table for Cart-v0"),
    ):
        how = {"algo": "pcmlp", "steps": 1000, "settings": (), **changes}
        with pytest.raises(ConfigError, match=line):
            resolve_gymnasium("Cart-v0", 50, how["algo"], 0, how["steps"], how["settings"])


@pytest.mark.parametrize("name", ["random-network", "fourier"])
def test_coordinates_of_phi_are_chosen(name):
    settings = (f"features.name={name}", "features.dims=1")
    config = resolve(CAR, settings=settings)
    assert config.features.dims == (1,)
    assert from_json(to_json(config)) == config
    _, algo = build(config)
    assert algo.features.draw.states.size == 1
    assert resolve(CAR, settings=("features.dims=none",)) == resolve(CAR)


def test_coordinates_of_a_phi_of_algorithm_1():
    task, algo = build(resolve("knr-lds", settings=("features.name=fourier", "features.dims=0")))
    size = task.world.states.size
    here, other = jnp.zeros(size), jnp.zeros(size).at[0].set(0.5)
    action = jnp.zeros(task.world.actions.size)
    np.testing.assert_array_equal(algo.features(here, action), algo.features(here.at[1:].set(0.5), action))
    assert not np.allclose(algo.features(here, action), algo.features(other, action))
    with pytest.raises(ConfigError, match=rf"^features.dims={size}: a state of the task has no coordinate {size};"):
        build(resolve("knr-lds", settings=("features.name=fourier", f"features.dims={size}")))


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("rounds=0", "1 or more"),
        ("replay_size=199", "200"),
        ("replay_starts=1.1", "from 0 to 1"),
        ("margin=-1", "0 or more"),
        ("reward_free=yes", "true or false"),
        ("samples_per_policy=199", "one episode of 200"),
        ("fit_samples=10", "Algorithm 1"),
        ("draws=iid", "Algorithm 1"),
        ("features.name=one-hot", "random-network or fourier"),
        ("features.sizes=", "500,500"),
        ("features.sizes=8,0", "500,500"),
        ("features.sizes=8,x", "whole number"),
        ("features.norm=2", "at most 1"),
        ("features.action_weight=0", "above 0"),
        ("features.dims=", "or none for all"),
        ("features.dims=0,0", "each once"),
        ("features.dims=-1", "from 0 on"),
        ("features.dims=0,2", "no coordinate 2; give some of 0 to 1, or none for all"),
        ("features.dims=x", "whole number"),
        ("features.dim=10", "fourier"),
        ("model.name=knr", "neural"),
        ("model.method=sgd", "knr"),
        ("model.steps=0", "1 or more"),
        ("model.rate=0", "above 0"),
        ("model.decay=-1", "0 or more"),
        ("planner.name=mppi", "trpo"),
        ("planner.value_batch=4001", "at most 4000"),
        ("planner.policy_sizes=0", "32,32"),
        ("planner.discount=1.5", "from 0 to 1"),
        ("planner.kl_bound=0", "above 0"),
        ("planner.damping=-1", "0 or more"),
        ("task.simulator=mujoco", "gymnasium"),
    ],
)
def test_a_bad_setting_of_algorithm_2(setting, remedy):
    with pytest.raises(ConfigError) as caught:
        build(resolve(CAR, settings=(setting,)))
    line = str(caught.value)
    assert setting.split("=")[0] in line
    assert remedy in line
    assert "\n" not in line


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


def test_mbpo_is_steadied_in_simulators_and_plain_in_our_own_tasks():
    """Hopper: plain critics expected thousands where hundreds can be paid."""
    found = {task: resolve(task, "mbpo") for task in ("mountain-car", "pendulum", "hopper-et", "gym:Pendulum-v1")}
    steady = {task: (config.planner.normed, config.bounded) for task, config in found.items()}
    assert steady == {
        "mountain-car": (False, False),
        "pendulum": (False, False),
        "hopper-et": (True, True),
        "gym:Pendulum-v1": (True, True),
    }
    assert found["hopper-et"].margin == found["gym:Pendulum-v1"].margin == 0.1
