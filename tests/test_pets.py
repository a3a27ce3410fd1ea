"""PETS and its relatives: particles that stay with a member, a first episode at random, planning in the world."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.cli import main
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.imagine import imagine, pay_nothing, restrict
from pcmlp.models import Neural, Probabilistic
from pcmlp.models.known import KnownTransition
from pcmlp.planners import CEM, UniformPolicy
from pcmlp.planners.shooting import ensemble_size, plan_returns, with_member
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.config import build, resolve, tiny_overrides
from pcmlp.runs.evaluate import Evaluator
from pcmlp.runs.folder import Lock, RunFolder
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.run import Run
from pcmlp.spaces import Box, Range
from pcmlp.tasks import TASKS
from pcmlp.tasks.mujoco.robots import RobotTask
from pcmlp.tasks.mujoco.simulator import SimulatedTransition, Simulator
from pcmlp.types import MDP, never
from pcmlp.world import JaxWorld

ROBOTS = {name: task.robot for name, task in TASKS.items() if issubclass(task, RobotTask)}
STATES, ACTIONS = Box.of(jnp.inf, 2), Box.of(1.0, 1)
STATE = jnp.array([0.3, -0.2])
PLANS = jr.uniform(jr.key(5), (7, 4, 1), minval=-1.0)
TINY_CEM = ("planner.num_plans=8", "planner.elites=3", "planner.plan_length=3", "planner.iterations=2")
TINY_MODEL = ("model.sizes=8", "model.members=2", "model.steps=3", "model.batch=8", "task.horizon=10")
TINY = (*TINY_CEM, *TINY_MODEL, "planner.particles=4", "eval_episodes=2", "samples_per_policy=10")


def first(key):
    return STATE


def paid(state, action, next_state):
    return next_state[0] - 0.1 * action[0] ** 2


def imagined(model) -> MDP:
    """As the algorithm hands it to a planner."""
    world = MDP(first, model, paid, never, STATES, ACTIONS, 20)
    everywhere = Range(STATES.low, STATES.high)
    return restrict(imagine(world, model, pay_nothing), everywhere, STATE[None])


def untrained(model, key):
    return eqx.filter_jit(model.init)(key, spaces_only(STATES, ACTIONS))


def probabilistic(members: int):
    return untrained(Probabilistic(sizes=(8, 8), members=members), jr.key(1))


def ensemble(members: int):
    return untrained(Neural(sizes=(8,), members=members), jr.key(1))


returns_of = eqx.filter_jit(plan_returns)
moved = eqx.filter_jit(lambda model, *inputs: model(*inputs))


@pytest.mark.parametrize("particles", [3, 6])
@pytest.mark.parametrize("make", [probabilistic, ensemble])
def test_the_return_of_a_plan_is_the_mean_over_members(make, particles):
    """By hand: each particle a member of its own turn, one plan and one step after another."""
    key, mdp, model = jr.key(3), imagined(make(3)), make(3)
    assert ensemble_size(mdp) == 3
    keys = jr.split(key, (particles, 4))
    shift = int(jr.randint(jr.fold_in(key, 2**31), (), 0, 3))
    expected = np.zeros(7)
    for i in range(particles):
        member = model.member((shift + i // (particles // 3)) % 3)
        move = partial(moved, member)
        for n in range(7):
            state = STATE
            for t in range(4):
                after = move(keys[i, t], state, PLANS[n, t])
                expected[n] += float(paid(state, PLANS[n, t], after)) / particles
                state = after
    np.testing.assert_allclose(returns_of(key, mdp, STATE, PLANS, particles), expected, rtol=1e-4)


def test_one_particle_keeps_to_one_member_and_all_are_drawn():
    mdp = imagined(ensemble(3))
    alone = [np.asarray(returns_of(jr.key(0), with_member(mdp, i), STATE, PLANS, 1)) for i in range(3)]
    found = set()
    for seed in range(12):
        drawn = np.asarray(returns_of(jr.key(seed), mdp, STATE, PLANS, 1))
        found |= {i for i in range(3) if np.allclose(drawn, alone[i], rtol=1e-5)}
    assert found == {0, 1, 2}


def test_without_an_ensemble_nothing_is_put_in_its_place():
    model = untrained(Neural(sizes=(8,)), jr.key(0))
    mdp = imagined(model)
    assert ensemble_size(mdp) is None
    assert jax.tree.structure(with_member(mdp, 0)) == jax.tree.structure(mdp)
    np.testing.assert_array_equal(with_member(mdp, 1).transition.model.net.weights[0], model.net.weights[0])


def test_the_first_episode_is_random_and_the_next_is_planned():
    planner = CEM(num_plans=8, plan_length=3, elites=2, iterations=2, random_first=True)
    mdp = imagined(KnownTransition(lambda key, state, action: state + 0.1 * action[0]))

    @eqx.filter_jit
    def act(policy, keys):
        return jax.vmap(lambda k: policy(k, policy.init(), STATE)[1])(keys)

    keys = jr.split(jr.key(0), 500)
    begins = planner.init(jr.key(1), mdp)
    actions = np.asarray(act(begins, keys))
    np.testing.assert_allclose(actions, jax.vmap(ACTIONS.sample)(keys), rtol=1e-6)
    planned, _ = eqx.filter_jit(planner.plan)(jr.key(2), mdp, begins)
    assert np.asarray(act(planned, keys)).mean() > 0.3  # forward pays
    assert jax.tree.structure(planned) == jax.tree.structure(begins)


def test_nothing_is_searched_for_before_anything_is_planned(monkeypatch):
    """Neither for the first samples of several seeds nor to judge the first policies."""
    planner = CEM(num_plans=8, plan_length=3, elites=2, random_first=True)
    mdp = imagined(KnownTransition(lambda key, state, action: state + 0.1 * action[0]))
    keys, world = jr.split(jr.key(0), 2), JaxWorld(mdp)
    policies = eqx.filter_vmap(planner.init, in_axes=(0, None))(keys, mdp)
    searched = []

    def search(planner, key, mdp, state, plan):
        searched.append(state)
        return plan

    monkeypatch.setattr(CEM, "refine", search)
    both = world.collect(keys, policies, 20)[0]
    assert searched  # by both sides of the condition
    searched.clear()
    alone = world.collect(keys, policies.resolve(), 20)[0]
    Evaluator(world, keys, 2).returns(policies)
    assert not searched
    for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(both), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
    planned = eqx.tree_at(lambda policy: policy.untrained, policies, jnp.zeros(2, bool))
    assert planned.resolve() is planned


@pytest.mark.parametrize("name", ["pets", "lc3"])
def test_the_first_samples_are_of_uniform_play(name, monkeypatch):
    config = resolve("cart-pole", name)
    assert config.algorithm.planner.random_first
    problem, algo = build(resolve("cart-pole", name, settings=tiny_overrides(config)))
    keys, played = jr.split(jr.key(0), 2), []

    def collect(world, keys, policies, n):
        played.append(policies)
        raise RunStopped

    monkeypatch.setattr(JaxWorld, "collect", collect)
    learner = algo.start(keys, problem.world.mdp, 1)
    with pytest.raises(RunStopped):
        algo.iterate(keys, problem.world, learner, 1)
    assert isinstance(played[0], UniformPolicy)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robots_transition_is_the_simulators(name):
    """From a state that is only observed, after some steps of it."""
    simulator = Simulator(ROBOTS[name])
    rng = np.random.default_rng(0)
    low, high = simulator.action_space.low, simulator.action_space.high
    states, actions, afters = [], [], []
    observed, _ = simulator.reset(seed=1)
    for _ in range(12):
        action = rng.uniform(1.2 * low, 1.2 * high).astype(np.float32)
        states.append(observed.astype(np.float32))
        actions.append(action)
        observed = simulator.step(np.clip(action, low, high))[0]
        afters.append(observed)
    transition = SimulatedTransition(ROBOTS[name])
    move = jax.jit(jax.vmap(lambda s, a: transition(jr.key(0), s, a)))
    predicted = np.asarray(move(jnp.asarray(np.stack(states)), jnp.asarray(np.stack(actions))))
    size = min(45, predicted.shape[1])  # forces on bodies depend on the last digits
    scale = np.abs(np.stack(afters)[:, :size]).max()
    np.testing.assert_allclose(predicted[:, :size], np.stack(afters)[:, :size], atol=1e-3 * scale, rtol=1e-3)
    assert np.abs(predicted - np.stack(states))[:, :size].max() > 1e-2 * scale  # it has moved


def test_a_plan_that_went_astray_stays_there():
    transition = SimulatedTransition(ROBOTS["hopper-et"])
    states = jnp.stack([jnp.full(11, jnp.nan), jnp.zeros(11).at[0].set(1.25)])
    after = np.asarray(jax.vmap(lambda s: transition(jr.key(0), s, jnp.zeros(3)))(states))
    assert np.isnan(after[0]).all()
    assert np.isfinite(after[1]).all()


def test_the_world_is_the_model_of_pets_gt():
    problem, algo = build(resolve("pendulum", "pets-gt"))
    mdp = problem.world.mdp
    model = algo.model.init(jr.key(0), mdp)
    assert model.transition is mdp.transition
    replay = Replay.empty(Transitions.example(mdp.states, mdp.actions), 1)
    assert algo.model.train(jr.key(0), mdp, model, replay) == (model, {})
    problem, algo = build(resolve("hopper-et", "pets-gt"))
    assert isinstance(algo.model.init(jr.key(0), problem.world.mdp).transition, SimulatedTransition)


@pytest.mark.parametrize(("algo", "evaluated"), [("pets", 1), ("pets-gt", 1), ("lc3", 2), ("pcmlp", 2)])
def test_one_search_is_evaluated_once(algo, evaluated, tmp_path):
    config = resolve("pendulum", algo, seeds=(100,))
    with Lock(tmp_path) as lock:
        run = Run(config, *build(config), RunFolder(tmp_path), lock)
    assert list(run.evaluators) == ["eval", "explore"][:evaluated]


def test_true_dynamics_that_nobody_can_enter():
    with pytest.raises(ConfigError, match="algo=pets-gt: plans in the true dynamics.*leave out task.simulator"):
        build(resolve("pendulum", "pets-gt", settings=("task.simulator=gymnasium",)))


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("train hand-egg --algo pets-gt", "algo=pets-gt: cannot be used with hand-egg; give --algo"),
        ("train gym:Pendulum-v1 --algo pets-gt", "algo=pets-gt: cannot be used with gym:Pendulum-v1; give --algo"),
        ("train cart-pole --algo pets --set model.elites=6", "model.elites=6: give 1 to model.members=5"),
        ("train cart-pole --algo pets --set model.members=0", "model.members=0: give 1 or more"),
        ("train cart-pole --algo pets --set model.decay=-1", "model.decay=-1"),
        (
            "train cart-pole --algo pets --set model.name=neural",
            "model.name=neural: pets takes probabilistic; give that",
        ),
        ("train cart-pole --algo pets --set model.unroll=2", "model.unroll=2: model probabilistic has no unroll"),
        ("train cart-pole --algo mbpo --set planner.name=trpo", "planner.name=trpo: mbpo takes sac; give that"),
    ],
)
def test_bad_input(command, named, tmp_path, capsys):
    assert main([*command.split(), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip()
    assert named in said
    assert "\n" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # it compiles for a minute
def test_a_run_of_pets_goes_on_where_it_left_off(tmp_path):
    def run(out, steps, *more):
        command = ["train", "cart-pole", "--algo", "pets", "--seeds", "100", "--steps", str(steps), "--out", str(out)]
        assert main([*command, *more, "--set", *TINY]) == 0
        return read_metrics(out)

    whole = run(tmp_path / "whole", 20)
    run(tmp_path / "parts", 10)
    parts = run(tmp_path / "parts", 20, "--resume")
    assert whole["env_steps"] == [0, 10, 20]
    for column in set(whole) - {"wall_s"}:
        np.testing.assert_array_equal(whole[column], parts[column])
    assert main(["eval", str(tmp_path / "whole"), "--episodes", "1"]) == 0


@pytest.mark.slow
def test_pets_balances_a_pole_in_four_episodes(tmp_path):
    small = ("planner.num_plans=60", "planner.elites=6", "planner.iterations=3", "planner.particles=5")
    smaller = ("planner.plan_length=15", "model.sizes=64,64", "model.steps=500", "eval_episodes=3")
    command = [
        "train",
        "cart-pole",
        "--algo",
        "pets",
        "--seeds",
        "100",
        "--steps",
        "800",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*command, "--set", *small, *smaller]) == 0
    assert max(read_metrics(tmp_path / "run")["eval_return_mean"]) > 150
