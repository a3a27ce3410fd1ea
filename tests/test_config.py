"""Configurations: presets resolve, settings are typed, and bad input gives one line that says what to do."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.model_free import ModelFree
from pcmlp.algorithms.pc_pg import PCPG
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.features import Fourier, SubsetFeatures
from pcmlp.models import Neural
from pcmlp.planners import CEM, MPPI
from pcmlp.runs.config import build, configure, from_json, resolve, split_settings, to_json
from pcmlp.runs.config_file import load_config
from pcmlp.runs.keys import unused_reason
from pcmlp.settings import SettingError, check_value, flatten, settings_of, walk
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import GymnasiumTask

TABLES = {"pcmlp": (5.0, 30_000), "pcmlp-mppi": (1.0, 10_000)}  # the paper's c and replay for the sparse tasks
LOCK, CAR = "combination-lock", "mountain-car"
ROBOTS = [name for name, task in TASKS.items() if task.kind == "robot"]
DENSE = [name for name in ROBOTS if name not in ("ant-umaze", "hand-egg")]


def presets(name):
    """All pairs of a method and a task that have this preset."""
    for algo, method in METHODS.items():
        for task, made in TASKS.items():
            if method.preset(name, task, made.kind, made().horizon) is not None:
                yield algo, task


def built_in_every_run():
    """Each algorithm on one robot and each robot with one algorithm; the other pairs, a second each, are slow."""
    for algo, task in presets("ours"):
        quick = task not in ROBOTS or algo == "pcmlp" or task == "half-cheetah"
        yield pytest.param(algo, task, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("algo", "task"), list(built_in_every_run()))
def test_every_preset_builds_and_survives_json(algo, task):
    config = resolve(task, algo)
    assert from_json(to_json(config)) == config
    if (algo, task) == ("pets-gt", "hand-egg"):  # it needs dynamics that a planner can enter
        return
    _, algorithm = build(config)
    assert config.num_iterations >= 1
    assert type(algorithm) is type(config.algorithm)


@pytest.mark.parametrize(("algo", "task"), list(presets("paper")))
def test_every_preset_of_the_paper_builds_and_survives_json(algo, task):
    config = resolve(task, algo, settings=("preset=paper",))
    assert from_json(to_json(config)) == config
    made = config.algorithm
    dense = algo == "pcmlp" and task in ("pendulum", "hand-egg", "ant-umaze", *DENSE)
    table = (200_000, 4_000, 0.1, 100_000) if dense else (30_000, made.samples_per_policy, *TABLES[algo])
    assert (config.steps, made.samples_per_policy, made.bonus_scale, made.replay_size) == table
    assert config.steps == resolve(task, algo, settings=("preset=paper", "bonus_scale=0")).steps
    build(config)


@pytest.mark.parametrize("task", ROBOTS)
def test_robots_have_the_papers_budget_and_one_configuration(task):
    config, first = resolve(task), resolve("half-cheetah")
    assert (config.steps, config.algorithm.samples_per_policy, config.eval_episodes) == (200_000, 4_000, 20)
    assert config.num_iterations == 50
    assert dataclasses.replace(config, task=first.task) == first


def test_nothing_set_means_the_same_everywhere():
    """Only what the method changes differs from `Deep()`; a run of the default task rounds K up to an episode."""
    ours = METHODS["pcmlp"].algorithm
    changed = {"bonus_scale": "auto", "rescales": True, "deploys": "proven"}
    assert ours == Deep(**changed, samples_per_policy=100, replay_starts=0.8)
    assert resolve(CAR).algorithm == dataclasses.replace(ours, samples_per_policy=200)


def test_the_paper_has_tables_for_deep_tasks_only():
    with pytest.raises(ConfigError, match="preset=paper: pcmlp-linear has none for combination-lock; leave it out"):
        resolve(LOCK, settings=("preset=paper",))
    with pytest.raises(ConfigError, match="preset=paper: pcmlp has none for cart-pole; leave it out"):
        resolve("cart-pole", settings=("preset=paper",))
    with pytest.raises(ConfigError, match="preset=papr: unknown; the nearest is paper"):
        resolve(CAR, settings=("preset=papr",))
    assert resolve(CAR).preset == "ours"


def test_every_task_has_an_algorithm_and_every_algorithm_a_task():
    pairs = list(presets("ours"))
    assert {task for _, task in pairs} == set(TASKS)
    assert {algo for algo, _ in pairs} == set(METHODS)
    assert all(("random", task) in pairs for task in TASKS)


def test_every_method_has_choices_and_unused_settings_that_exist():
    """A name that no setting has would never refuse or allow anything."""
    for algo, method in METHODS.items():
        keys = [key for key, *_ in walk(method.algorithm)]
        for name in method.unused:
            known = any(key == name or (name.endswith(".") and key.startswith(name)) for key in keys)
            assert known, (algo, name)
        assert all(f"{group}.name" in keys for group in method.choices), algo


def test_settings_are_typed_by_their_fields():
    settings = ("task.horizon=7", "bonus_scale=2", "fit_samples=9", "covariance=off", "draws=iid")
    config = resolve(LOCK, steps="1e3", seeds=("5",), settings=settings)
    algorithm = config.algorithm
    assert (config.task.horizon, config.steps, config.seeds) == (7, 1000, (5,))
    assert (algorithm.bonus_scale, algorithm.fit_samples) == (2.0, 9)
    assert isinstance(algorithm.bonus_scale, float)
    assert (algorithm.covariance, algorithm.draws) == (False, "iid")
    assert resolve(LOCK, settings=("fit_samples=none",)).algorithm.fit_samples is None


def test_one_policy_samples_an_episode_unless_told_otherwise():
    assert resolve(LOCK, settings=("task.horizon=70",)).algorithm.samples_per_policy == 70
    assert resolve(LOCK, settings=("task.horizon=3",)).algorithm.samples_per_policy == 3
    assert resolve(LOCK, settings=("task.horizon=3", "draws=iid")).algorithm.samples_per_policy == 3
    assert resolve("low-rank", steps=4000, settings=("task.horizon=2000",)).algorithm.samples_per_policy == 2000


def test_a_group_takes_the_keys_of_the_chosen_part():
    config = resolve("knr-lds", settings=("features.name=fourier", "features.dim=8", "features.bandwidth=0.5"))
    assert config.algorithm.features == Fourier(dim=8, bandwidth=0.5)
    assert isinstance(config.algorithm.planner, CEM)
    # the settings of CEM say nothing about MPPI
    assert resolve("knr-lds", settings=("planner.name=mppi",)).algorithm.planner == MPPI()


def test_iterations_pay_for_all_their_samples():
    def iterations(*settings):
        return resolve(LOCK, steps=1000, settings=("task.horizon=9", *settings)).num_iterations

    assert iterations("samples_per_policy=9") == 1000 // 9
    assert iterations("samples_per_policy=10") == 1000 // 18  # whole episodes, rounded up
    assert iterations("samples_per_policy=10", "fit_samples=9") == 1000 // 27
    assert iterations("samples_per_policy=4", "draws=iid") == 1000 // (4 * 5)  # a draw takes (H + 1) / 2 on average


BAD_SETTINGS = [
    ("task.horizon=0", "1 or more"),
    ("task.horizon=-3", "1 or more"),
    ("task.horizon=2.5", "whole number"),
    ("task.horizn=5", "task.horizon"),
    ("horizon=5", "task.horizon"),
    ("task.name=low-rank", "give the task as an argument of its own"),
    ("bonus_scale=-1", "0 to 1000000"),
    ("bonus_scale=inf", "finite"),
    ("bonus_scale=much", "finite"),
    ("bonus_scal=1", "bonus_scale"),
    ("ridge=0", "1e-06 to 1000000"),
    ("ridge=-0.1", "1e-06 to 1000000"),
    ("ridge=1e-20", "1e-06 to 1000000"),
    ("samples_per_policy=3", "draws=iid"),
    ("samples_per_policy=0", "1 or more"),
    ("samples_per_policy=40000", "40000"),
    ("fit_samples=0", "none"),
    ("eval_episodes=0", "1 to"),
    ("draws=idd", "iid"),
    ("covariance=of", "off"),
    ("steps=10", "give steps=10 as an argument of its own"),
    ("seeds=1", "give seeds=1 as an argument of its own"),
    ("features.name=fourrier", "fourier"),
    ("features.name=fourier", "task or one-hot"),
    ("features.dim=10", "fourier"),
    ("planner.name=cem", "value-iteration"),
    ("planner.elites=3", "cem"),
    ("model.method=sgd", "knr"),
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
        ("features.name=fourier features.bandwidth=0", "above 0, or none"),
        ("features.name=one-hot", "task or polynomial or fourier"),
        ("model.radius=0", "above 0"),
        ("model.method=sdg", "sgd"),
        ("planner.elites=300", "num_plans=200"),
        ("planner.num_plans=0", "1 or more"),
        ("planner.correlation=1", "below 1"),
        ("planner.name=mppi planner.temperature=0", "above 0"),
        ("planner.name=mppi planner.noise_cov=-1", "above 0"),
        ("planner.plan_length=0", "1 or more, or none"),
        ("task.sigma=0", "above 0"),
    ],
)
def test_a_bad_setting_of_a_knr(setting, remedy):
    with pytest.raises(ConfigError, match=remedy) as caught:
        build(resolve("knr-lds", settings=setting.split()))
    assert setting.split()[-1].split("=")[0] in str(caught.value)


def test_settings_of_algorithm_2():
    settings = ("model.sizes=64,32", "features.sizes=[8]", "reward_free=true", "replay_size=1e3", "planner.updates=7")
    config = resolve(CAR, settings=settings)
    algorithm = build(config)[1]
    assert isinstance(algorithm, Deep)
    assert isinstance(algorithm.model, Neural)
    assert (algorithm.model.sizes, algorithm.features.sizes) == ((64, 32), (8,))
    assert (algorithm.reward_free, algorithm.replay_size, algorithm.planner.updates) == (True, 1000, 7)
    assert from_json(to_json(config)) == config
    assert config.num_iterations == config.steps // 200


def test_samples_of_a_policy_are_whole_episodes():
    assert resolve(CAR, settings=("samples_per_policy=201",)).steps_per_iteration == 400
    assert resolve(CAR, settings=("task.horizon=300",)).algorithm.samples_per_policy == 300  # the default is 200


def test_an_environment_by_hand_has_the_presets_of_all_tasks():
    def by_hand(algo="pcmlp", steps=1000, settings=()):
        task = GymnasiumTask(id="Cart-v0", horizon=50)
        return configure(task, "gym:Cart-v0", algo, (3,), steps, split_settings(settings))

    config = by_hand("pcmlp-mppi", 1000, ("rounds=4",))
    algorithm = config.algorithm
    assert (config.task_name, config.task.horizon, config.seeds, algorithm.rounds) == ("gym:Cart-v0", 50, (3,), 4)
    named = resolve(CAR, "pcmlp-mppi", settings=("rounds=4",)).algorithm
    assert (algorithm.features, algorithm.model, algorithm.planner) == (named.features, named.model, named.planner)
    for how, line in (
        ({"algo": "pcmlp-linear"}, "algo=pcmlp-linear: cannot be used with gym:Cart-v0"),
        ({"steps": 49}, "steps=49: less than one iteration"),
        ({"settings": ("fit_samples=3",)}, "fit_samples=3: pcmlp has no such setting .it is one of pcmlp-linear"),
        ({"settings": ("preset=paper",)}, "preset=paper: pcmlp has none for gym:Cart-v0"),
    ):
        with pytest.raises(ConfigError, match=line):
            by_hand(**how)


@pytest.mark.parametrize("name", ["random-network", "fourier"])
def test_coordinates_of_phi_are_chosen(name):
    settings = (f"features.name={name}", "features.dims=1")
    config = resolve(CAR, settings=settings)
    assert config.algorithm.features.dims == (1,)
    assert from_json(to_json(config)) == config
    assert resolve(CAR, settings=("features.dims=none",)) == resolve(CAR)


def test_coordinates_of_a_phi_of_algorithm_1():
    problem, algorithm = build(resolve("knr-lds", settings=("features.name=fourier", "features.dims=0")))
    phi, mdp = algorithm.features, problem.world.mdp
    assert isinstance(phi, SubsetFeatures)
    size = mdp.states.size
    here, other = jnp.zeros(size), jnp.zeros(size).at[0].set(0.5)
    action = jnp.zeros(mdp.actions.size)
    np.testing.assert_array_equal(phi(here, action), phi(here.at[1:].set(0.5), action))
    assert not np.allclose(phi(here, action), phi(other, action))
    with pytest.raises(ConfigError, match=rf"^features.dims={size}: give coordinates of the state, 0 to {size - 1}"):
        build(resolve("knr-lds", settings=("features.name=fourier", f"features.dims={size}")))


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("rounds=0", "1 or more"),
        ("replay_size=199", "200"),
        ("replay_starts=1.1", "0 to 1"),
        ("margin=-1", "0 or more"),
        ("reward_free=yes", "true or false"),
        ("samples_per_policy=199", "one episode of 200"),
        ("fit_samples=10", "pcmlp-linear"),
        ("draws=iid", "pcmlp-linear"),
        ("features.name=one-hot", "random-network or fourier"),
        ("features.sizes=", "500,500"),
        ("features.sizes=8,0", "500,500"),
        ("features.sizes=8,x", "whole number"),
        ("features.norm=2", "at most 1"),
        ("features.action_weight=0", "above 0"),
        ("features.dims=", "or none"),
        ("features.dims=0,0", "each once"),
        ("features.dims=-1", "0 or more"),
        ("features.dims=0,2", "give coordinates of the state, 0 to 1, each once, or none"),
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
        ("planner.streams=1e300", "at most 2147483647"),
        ("features.sizes=1e308,16", "each at most 2147483647"),
        ("planner.discount=1.5", "0 to 1"),
        ("planner.kl_bound=0", "above 0"),
        ("planner.damping=-1", "0 or more"),
        ("task.simulator=mujoco", "gymnasium"),
        ("noise=11", "0 to 10"),
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
    with pytest.raises(ConfigError, match="pcmlp-knr or lc3-oracle or random"):
        resolve("knr-lds", "pcmlp-linear")


def test_a_setting_is_given_once_and_with_a_value():
    with pytest.raises(ConfigError, match="twice"):
        resolve(LOCK, settings=("ridge=1", "ridge=2"))
    with pytest.raises(ConfigError, match="ridge: not a setting of the form key=value"):
        resolve(LOCK, settings=("ridge",))


def test_a_broken_config_file_is_bad_input(tmp_path):
    for text in ("", "{}", "[1]", '{"task": 3}'):
        with pytest.raises(ConfigError, match=r"config\.json"):
            from_json(text)
    record = json.loads(to_json(resolve(LOCK)))
    with pytest.raises(ConfigError, match="ridge=-1"):
        from_json(json.dumps({**record, "ridge": -1.0}))
    with pytest.raises(ConfigError, match="not a run folder"):
        load_config(tmp_path)


def test_mbpo_is_steadied_in_simulators_and_plain_in_our_own_tasks():
    """Hopper: plain critics expected thousands where hundreds can be paid."""
    found = {
        task: resolve(task, "mbpo").algorithm for task in ("mountain-car", "pendulum", "hopper-et", "gym:Pendulum-v1")
    }
    steady = {task: (algorithm.planner.normed, algorithm.bounded) for task, algorithm in found.items()}
    assert steady == {
        "mountain-car": (False, False),
        "pendulum": (False, False),
        "hopper-et": (True, True),
        "gym:Pendulum-v1": (True, True),
    }
    assert found["hopper-et"].margin == found["gym:Pendulum-v1"].margin == 0.1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("algo", "settings", "said"),
    [
        ("slbo", "ridge=0.1", "ridge=0.1: has no effect with slbo: it plans for the reward alone, without a bonus"),
        (
            "slbo",
            "rounds=3 features.sizes=16",
            "features.sizes=16: has no effect with slbo: it plans for the reward",
        ),
        ("pets", "covariance=off", "covariance=off: has no effect with pets"),
        ("pets", "deploys=proven", "deploys=proven: has no effect with pets: it searches for each action"),
        ("pets-gt", "features.dim=4", "features.dim=4: has no effect with pets-gt"),
        ("mbpo", "ridge=1", "ridge=1: has no effect with mbpo"),
        (
            "mbpo",
            "margin=1",
            "margin=1: has no effect with mbpo: imagined states have no bounds unless bounded=true",
        ),
        ("mbpo", "reward_free=true", "reward_free=true: has no effect with mbpo"),
        ("lc3", "covariance=off", "covariance=off: has no effect with lc3"),
        ("rnd", "ridge=1", "ridge=1: has no effect with rnd: its bonus has no covariance"),
        ("random", "replay_starts=0.5", "replay_starts=0.5: random has no such setting (it is one of pcmlp"),
        ("random", "model.steps=5", "model.steps=5: random has no such setting"),
        ("pcmlp-mppi", "deploys=proven", "deploys=proven: has no effect with pcmlp-mppi"),
        ("pcmlp", "bounded=false margin=1", "margin=1: has no effect with pcmlp: imagined states have no bounds"),
        (
            "pcmlp",
            "outcome.steps=1",
            "outcome.steps=1: has no effect with pcmlp: reward and end of the task are known",
        ),
        ("trpo", "bonus_scale=1", "bonus_scale=1: trpo has no such setting"),
        ("trpo", "planner.updates=3", "planner.updates=3: has no effect with trpo: it learns from real steps"),
        ("trpo", "replay_size=300", "replay_size=300: has no effect with trpo: TRPO does not keep steps"),
        ("sac", "reward_free=true", "reward_free=true: sac has no such setting"),
        ("pcmlp", "bonus.steps=5", "bonus elliptical has no steps (a setting of distillation)"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(algo, settings, said, tmp_path, capsys):
    assert main(["train", CAR, "--algo", algo, "--out", str(tmp_path / "run"), "--set", *settings.split()]) == 2
    line = capsys.readouterr().err.strip()
    assert said in line
    assert "\n" not in line
    assert not (tmp_path / "run").exists()


def test_a_setting_that_means_something_is_taken():
    assert resolve(CAR, "lc3", settings=("model.features.dim=8", "replay_size=500")).algorithm.model.features.dim == 8
    assert resolve(CAR, "mbpo", settings=("bounded=true", "margin=1")).algorithm.margin == 1.0
    assert resolve(CAR, "random", settings=("reward_free=true",)).algorithm.reward_free
    assert resolve(CAR, "rnd", settings=("bonus.steps=3",)).algorithm.bonus.steps == 3
    # the preset for robots bounds the imagination of MBPO
    assert resolve("half-cheetah", "mbpo", settings=("margin=0.2",)).algorithm.margin == 0.2
    # TRPO has no replay that an episode has to fit into, and no imagined steps that limit a batch
    assert resolve(CAR, "trpo", settings=("task.horizon=60000",), steps=60_000).task.horizon == 60_000
    large = ("samples_per_policy=20000", "planner.value_batch=5000")
    assert resolve(CAR, "trpo", settings=large, steps=20_000).algorithm.planner.value_batch == 5000


@pytest.mark.parametrize(
    ("part", "name", "value", "line"),
    [
        (Deep, "rounds", 1.5, "rounds=1.5: give a whole number"),
        (Deep, "rounds", "3", "rounds=3: give a whole number"),
        (Deep, "rounds", True, "rounds=true: give a whole number"),
        (Deep, "rounds", None, "rounds=none: give a whole number"),
        (Deep, "bonus_scale", "0.1", "bonus_scale=0.1: give a number or auto, not the string '0.1'"),
        (Deep, "bonus_scale", None, "bonus_scale=none: give a number or auto"),
        (PCMLP, "bonus_scale", "auto", "bonus_scale=auto: give a number, not the string 'auto'"),
        (PCPG, "bonus_scale", "auto", "bonus_scale=auto: give a number, not the string 'auto'"),
        (Deep, "deploys", "best", "deploys=best: give exploring or newest or imagined or proven"),
        (Deep, "covariance", "of", "covariance=of: give true or false"),
        (Deep, "planner", 3, "planner=3: give a Planner"),
        (Deep, "planner", CEM, "give a Planner"),
        (Deep, "planner", Neural(), "give a Planner"),
        (Deep, "model", None, "model=none: give a Model"),
        (Neural, "sizes", [16, 16], "sizes=16,16: give a tuple of whole numbers"),
        (PCMLP, "fit_samples", 2.5, "fit_samples=2.5: give a whole number"),
        (PCMLP, "draws", "idd", "draws=idd: give episodes or iid"),
    ],
)
def test_a_part_checks_the_types_of_its_settings(part, name, value, line):
    """In Python as well, where nothing parses them."""
    field = next(field for field in settings_of(part) if field.name == name)
    with pytest.raises(SettingError) as caught:
        check_value(field, value)
    assert line in str(caught.value)


def test_a_planner_without_an_update_for_real_steps_is_refused():
    with pytest.raises(SettingError, match="planner=CEM: has no update for real steps; give TRPO or SAC"):
        ModelFree(planner=CEM())


def test_a_whole_number_is_a_number_and_none_may_be_a_value():
    for part, name, value in (
        (Deep, "bonus_scale", 1),
        (Deep, "bonus_scale", "auto"),
        (PCMLP, "fit_samples", None),
        (PCMLP, "fit_samples", 3),
    ):
        check_value(next(field for field in settings_of(part) if field.name == name), value)


@pytest.mark.parametrize("algo", list(METHODS))
def test_a_configuration_holds_what_means_something(algo):
    """Neither more, which would promise an effect, nor less, which would lose a setting."""
    task = next(task for name, task in presets("ours") if name == algo)
    config = resolve(task, algo)
    held = set(flatten(json.loads(to_json(config))))
    for key, _, value in walk(config.algorithm):
        used = unused_reason(config.method, config.task, config.algorithm, key) is None
        chosen = not key.endswith(".name") or key in held
        assert (key in held) == used or not chosen, (key, value)


def test_the_preset_for_goals_uses_what_the_task_declares():
    """And is otherwise that of the robots; the paper's has none of it."""
    config = resolve("hand-egg", settings=("preset=goals",))
    assert from_json(to_json(config)) == config
    problem, algorithm = build(config)
    coordinates = problem.world.mdp.states.coordinates
    (egg,) = coordinates.bodies
    assert algorithm.features.dims == tuple(egg.place + i for i in range(3))
    assert (algorithm.relabel, algorithm.model.geometry, algorithm.model.members) == (0.5, True, 3)
    goals, usual = (flatten(json.loads(to_json(made))) for made in (config, resolve("hand-egg")))
    assert {key for key in goals if goals[key] != usual[key]} == {"preset", *GOALS}
    for task in ("hand-egg", "half-cheetah"):
        paper = resolve(task, settings=("preset=paper",)).algorithm
        assert (paper.relabel, paper.model.geometry, paper.features.distinct, paper.noise) == (0.0, False, False, 0.0)
    with pytest.raises(ConfigError, match="preset=goals: pcmlp has none for half-cheetah; leave it out"):
        resolve("half-cheetah", settings=("preset=goals",))
    with pytest.raises(ConfigError, match="^relabel=0.5: the task declares no goals among its coordinates; give 0$"):
        build(resolve("half-cheetah", settings=("relabel=0.5",)))


GOALS = {
    "features.dims",
    "features.action_weight",
    "relabel",
    "noise",
    "model.geometry",
    "model.members",
}
