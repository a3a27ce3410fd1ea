"""A configuration into the task and the inputs of Algorithm 1 or 2. What only a built task can tell is checked here."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.random as jr

from pcmlp.baselines.noise import OrnsteinUhlenbeck
from pcmlp.baselines.random import RandomFirst, UniformPlanner
from pcmlp.baselines.rnd import RND
from pcmlp.bonus import elliptical
from pcmlp.deep import JUDGED, Deep, as_it_is
from pcmlp.features import (
    Chosen,
    DrawChosen,
    DrawFourier,
    DrawRandomNetwork,
    OneHot,
    Polynomial,
    check_norm,
    chosen_box,
    feature_dim,
)
from pcmlp.framework import PCMLP
from pcmlp.imagine import unknowns
from pcmlp.models import KNR, DrawKnown, DrawNeural, DrawProbabilistic, DrawThompson, DrawWithOutcome, Fitting
from pcmlp.planners import CEM, MPPI, SAC, TRPO, Shooting, ValueIteration
from pcmlp.runs.free import build_cover, build_free
from pcmlp.runs.options import (
    FEATURES,
    CEMOptions,
    CoverConfig,
    DeepConfig,
    FourierFeatures,
    FrameworkConfig,
    FreeConfig,
    KNRModel,
    MPPIOptions,
    NeuralModel,
    NoFeatures,
    OneHotFeatures,
    PolynomialFeatures,
    ProbabilisticModel,
    RandomNetworkFeatures,
    RunConfig,
    SACOptions,
    ThompsonModel,
    TRPOOptions,
    UniformOptions,
    ValueIterationOptions,
    WorldModel,
    name_of,
)
from pcmlp.tasks import TASKS, gymnasium_classic
from pcmlp.tasks.mujoco import ROBOTS
from pcmlp.types import (
    AbstractAlgorithm,
    AbstractModel,
    AbstractPlanner,
    AbstractWorld,
    Box,
    ConfigError,
    Features,
    Finite,
    Task,
    never,
)
from pcmlp.world import JaxWorld

DrawFeatures = DrawRandomNetwork | DrawFourier | DrawChosen
_MONOMIALS = 5_000  # a covariance of more features than this is no longer a quick factorisation


def build(config: RunConfig) -> tuple[Task, AbstractAlgorithm]:
    task = build_task(config)
    if isinstance(config, FreeConfig):
        return task, build_free(config, task)
    if isinstance(config, CoverConfig):
        return task, build_cover(config, task, explored(config, task), draw_features)
    return build_deep(config, task) if isinstance(config, DeepConfig) else build_framework(config, task)


def build_framework(config: RunConfig, task: Task) -> tuple[Task, PCMLP]:
    """Algorithm 1."""
    assert isinstance(config, FrameworkConfig)
    features = build_features(config, task)
    try:  # PCMLP checks this as well; here the line can name the settings
        check_norm(features, task.world.states, task.world.actions)
    except ConfigError as error:
        raise ConfigError(f"{_shown('features', config.features)}: {error}") from error
    model = build_model(config, task, features)
    algo = PCMLP(
        world=task.world,
        features=features,
        model=model,
        planner=build_planner(config, task.world),
        num_iterations=config.num_iterations,
        samples_per_policy=config.samples_per_policy or config.task.horizon,
        ridge=config.ridge,
        bonus_scale=config.bonus_scale,
        draws=config.draws,
        fit_samples=config.fit_samples,
        covariance=config.covariance,
    )
    return Task(task.world, features, model, task.success_return, task.map), algo


def build_deep(config: DeepConfig, task: Task) -> tuple[Task, Deep]:
    """Algorithm 2, which draws its features and its model for each seed."""
    states, actions = task.world.states, task.world.actions
    if not (isinstance(states, Box) and isinstance(actions, Box)):
        raise ConfigError(f"algo={config.algo}: needs states and actions that are vectors; give another algorithm")
    planner = build_planner(config, task.world)
    features = draw_features(config, states, actions)
    algo = Deep(
        world=explored(config, task),
        features=features,
        model=draw_model(config, task, features),
        planner=RandomFirst(planner, actions) if config.algo == "pets" else planner,
        num_iterations=config.num_iterations,
        samples_per_policy=config.samples_per_policy or config.task.horizon,
        replay_size=config.replay_size,
        rounds=config.rounds,
        num_starts=config.num_starts,
        # arrays, not floats: another value is then another input of the same program, which is not compiled again
        ridge=jnp.float32(config.ridge),
        bonus_scale=jnp.float32(config.bonus_scale),
        cover_weight=jnp.float32(config.covariance == "on"),
        replay_starts=jnp.float32(config.replay_starts),
        margin=jnp.float32(config.margin),
        bounded=jnp.float32(config.bounded),
        fresh=config.fresh,
        keeps_better=config.keeps_better,
        reward_free=config.reward_free and not task.for_moving,  # paper: a reward for moving stays (section 7.3)
        novelty=build_novelty(config),
        exploring=OrnsteinUhlenbeck(actions, jnp.float32(config.noise)) if config.noise else as_it_is,
    )
    return task, algo


def draw_model(
    config: DeepConfig, task: Task, features: DrawFeatures
) -> DrawNeural | DrawProbabilistic | DrawThompson | DrawWithOutcome | DrawKnown:
    options, states, actions = config.model, task.world.states, task.world.actions
    assert isinstance(states, Box)
    assert isinstance(actions, Box)
    if isinstance(options, WorldModel):
        return DrawKnown(true_transition(config, task.world))
    if isinstance(options, ProbabilisticModel):
        fitting = Fitting(options.steps, options.batch, 1, options.rate, options.decay, clip=100.0)
        elites = options.elites or options.members
        model = DrawProbabilistic(states.size, actions.size, options.sizes, fitting, options.members, elites)
    elif isinstance(options, ThompsonModel):
        model = DrawThompson(states.size, actions.size, features, jnp.float32(options.ridge), options.sigma)
    else:
        assert isinstance(options, NeuralModel)
        fitting = Fitting(options.steps, options.batch, options.unroll, options.rate, options.decay, options.clip)
        model = DrawNeural(states.size, actions.size, options.sizes, fitting, options.members)
    return DrawWithOutcome(model) if unknowns(task.world.mdp) else model


def true_transition(config: DeepConfig, world: AbstractWorld) -> Callable:
    """P*, for whoever may plan in it."""
    if isinstance(world, JaxWorld):
        return world.mdp.transition
    if config.task_name not in ROBOTS:
        raise ConfigError(
            f"algo={config.algo}: plans in true dynamics, which nobody can enter from a state of this simulator; "
            "leave out task.simulator, choose another task, or give --algo pets"
        )
    from pcmlp.tasks.mujoco.transition import SimulatedTransition  # MuJoCo is an extra

    return SimulatedTransition(ROBOTS[config.task_name])


def explored(config: DeepConfig | CoverConfig, task: Task) -> AbstractWorld:
    return without_goal(task.world) if config.reward_free and task.goal_ends else task.world


def build_novelty(config: DeepConfig) -> Callable:
    if config.rnd_steps is None:
        return elliptical
    assert isinstance(config.features, RandomNetworkFeatures)
    return RND(config.rnd_steps, sizes=config.features.sizes)  # g has the shape of f


def without_goal(world: AbstractWorld) -> AbstractWorld:
    """The same world for whoever has no goal in it: an end that forfeits the bonus of the steps that are left would
    keep a reward-free cover away from it, and from all that lies behind. The task is judged with its end."""
    return dataclasses.replace(world, mdp=dataclasses.replace(world.mdp, terminal=never))


def draw_features(config: RunConfig, states: Box, actions: Box) -> DrawRandomNetwork | DrawFourier | DrawChosen:
    options = config.features
    if not isinstance(options, RandomNetworkFeatures | FourierFeatures):
        name = name_of(FEATURES, options)
        raise ConfigError(f"features.name={name}: {config.algo} draws its own; give random-network or fourier")
    if options.dims is None:
        return _draw(options, states, actions)
    return DrawChosen(_draw(options, chosen_box(states, options.dims), actions), options.dims)


def _draw(
    options: RandomNetworkFeatures | FourierFeatures, states: Box, actions: Box
) -> DrawRandomNetwork | DrawFourier:
    if isinstance(options, FourierFeatures):
        return _draw_fourier(options, states, actions)
    return DrawRandomNetwork.of(
        states, actions, sizes=options.sizes, norm=options.norm, action_weight=options.action_weight
    )


def _draw_fourier(options: FourierFeatures, states: Box, actions: Box) -> DrawFourier:
    return DrawFourier.of(
        states, actions, dim=options.dim, bandwidth=options.bandwidth, action_weight=options.action_weight
    )


def build_task(config: RunConfig) -> Task:
    try:
        if getattr(config.task, "simulator", "jax") == "gymnasium":
            return gymnasium_classic.build(config.task_name, config.task.horizon, len(config.seeds))
        return config.task.build()
    except (TypeError, ValueError) as error:  # a ConfigError, or an array of the wrong kind in a user's file
        line = str(error).splitlines()[0]
        named = isinstance(error, ConfigError) and line.startswith(("task.", "environment", "horizon="))
        raise ConfigError(line if named else f"{_shown('task', config.task)}: {line}") from error


def _shown(group: str, options: Any) -> str:
    """The settings of a group that are not its defaults, for an error that is about their combination."""
    name = {"task": TASKS, "features": FEATURES}[group]
    changed = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != field.default
    }
    pairs = " ".join(f"{group}.{key}={value}" for key, value in changed.items())
    return pairs or f"{group}.name={name_of(name, options)}"


def build_features(config: RunConfig, task: Task) -> Features:
    options, states, actions = config.features, task.world.states, task.world.actions
    if isinstance(options, OneHotFeatures):
        if not (isinstance(states, Finite) and isinstance(actions, Finite)):
            raise ConfigError("features.name=one-hot: needs finitely many states and actions; give fourier")
        return OneHot(states.size, actions.size)
    if isinstance(options, PolynomialFeatures | FourierFeatures):
        if not (isinstance(states, Box) and isinstance(actions, Box)):
            name = "polynomial" if isinstance(options, PolynomialFeatures) else "fourier"
            raise ConfigError(f"features.name={name}: needs states and actions that are vectors; give one-hot")
        return _of_vectors(options, states, actions)
    if isinstance(options, RandomNetworkFeatures):
        raise ConfigError(f"features.name=random-network: {config.algo} takes a phi of its setting; give fourier")
    if isinstance(options, NoFeatures):
        raise ConfigError(f"features.name=none: {config.algo} has a bonus; give task, or leave it out")
    if task.features is None:
        raise ConfigError("features.name=task: the task has no phi of its own; give fourier or polynomial")
    return task.features


def _of_vectors(options: PolynomialFeatures | FourierFeatures, states: Box, actions: Box) -> Features:
    if isinstance(options, PolynomialFeatures):
        count = math.comb(states.size + actions.size + options.degree, options.degree)
        if count > _MONOMIALS:
            raise ConfigError(f"features.degree={options.degree}: {count} monomials; give a lower degree")
        return Polynomial.of(states, actions, degree=options.degree, scale=options.scale)
    if options.dims is None:
        return _draw_fourier(options, states, actions).over_boxes(jr.key(0))
    draw = _draw_fourier(options, chosen_box(states, options.dims), actions)
    return Chosen(draw.over_boxes(jr.key(0)), options.dims)


def build_model(config: RunConfig, task: Task, features: Features) -> AbstractModel:
    options, model = config.model, task.model
    if model is None:
        raise ConfigError(
            f"algo={config.algo}: fits a model of the task's own class and the task has none; "
            "give an algorithm that brings its model"
        )
    if not isinstance(options, KNRModel):
        return model
    assert isinstance(model, KNR)
    size, dim = model.W.shape[0], feature_dim(features, task.world.states, task.world.actions)
    radius = model.radius if options.radius is None else options.radius
    fresh = KNR.of(features, size, dim, sigma=model.sigma, radius=radius)
    return KNR(fresh.W, features, model.sigma, radius, options.method)


def build_planner(config: RunConfig, world: AbstractWorld) -> AbstractPlanner:
    options, actions = config.planner, world.actions
    if isinstance(options, ValueIterationOptions):
        return ValueIteration()
    if isinstance(options, UniformOptions):
        return UniformPlanner(actions)
    assert isinstance(actions, Box)
    assert isinstance(world.states, Box)
    if isinstance(options, TRPOOptions):
        return TRPO(world.states, actions, **vars(options))
    if isinstance(options, SACOptions):
        return SAC(world.states, actions, **vars(options))
    length = options.plan_length or config.task.horizon
    if isinstance(options, CEMOptions):
        shooter = CEM(
            actions,
            num_plans=options.num_plans,
            plan_length=length,
            iterations=options.iterations,
            elites=options.elites,
            noise_std=options.noise_std,
            correlation=options.correlation,
            particles=options.particles,
        )
    else:
        shooter = MPPI(
            actions,
            num_plans=options.num_plans,
            plan_length=length,
            temperature=options.temperature,
            noise_cov=options.noise_cov,
            correlation=options.correlation,
            least_noise=options.least_noise,
            particles=options.particles,
        )
    # Without optimism a promise bounds nothing, and its imagined episodes are the dearest part of these two.
    promises = config.algo not in ("pets", "pets-gt")
    return Shooting(shooter, warmup=options.warmup, restarts=options.restarts, promises=promises)


def imagined_steps(config: RunConfig) -> tuple[int, int]:
    """Imagined steps for each real action and for the planning of an iteration; 0 where planning takes no samples."""
    options = config.planner
    plans = config.rounds + 1 if isinstance(config, DeepConfig) else 1  # and one for the policy to deploy
    judged = 2 * JUDGED * config.task.horizon if isinstance(config, DeepConfig) and config.keeps_better else 0
    if isinstance(options, TRPOOptions):
        return 0, plans * options.updates * options.streams * options.length + judged
    if isinstance(options, SACOptions):
        return 0, plans * options.streams * options.length + judged
    if not isinstance(options, CEMOptions | MPPIOptions):
        return 0, 0
    rounds = options.iterations if isinstance(options, CEMOptions) else 1
    refinement = rounds * options.num_plans * options.particles * (options.plan_length or config.task.horizon)
    starts = 2 + options.restarts  # the last plan, doing nothing, and random ones are refined
    return refinement, plans * starts * options.warmup * refinement


__all__ = ["build", "build_task", "imagined_steps"]
