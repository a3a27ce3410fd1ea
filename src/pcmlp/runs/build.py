"""A configuration into the task and the inputs of Algorithm 1 or 2. What only a built task can tell is checked here."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import jax.random as jr

from pcmlp.baselines.noise import OrnsteinUhlenbeck
from pcmlp.baselines.random import RandomFirst, decided
from pcmlp.deep import Deep, as_it_is
from pcmlp.features import (
    Chosen,
    OneHot,
    Polynomial,
    check_norm,
    chosen_box,
    feature_dim,
)
from pcmlp.framework import PCMLP
from pcmlp.models import KNR
from pcmlp.runs.draws import draw_features, draw_fourier, draw_model, draw_novelty
from pcmlp.runs.free import build_cover, build_free
from pcmlp.runs.options import (
    FEATURES,
    CoverConfig,
    DeepConfig,
    FourierFeatures,
    FrameworkConfig,
    FreeConfig,
    KNRModel,
    NoFeatures,
    OneHotFeatures,
    PolynomialFeatures,
    RandomNetworkFeatures,
    RunConfig,
    name_of,
)
from pcmlp.runs.plans import build_planner
from pcmlp.tasks import TASKS, gymnasium_classic
from pcmlp.types import (
    AbstractAlgorithm,
    AbstractModel,
    AbstractWorld,
    Box,
    ConfigError,
    Features,
    Finite,
    Task,
    never,
)

_MONOMIALS = 5_000  # a covariance of more features than this is no longer a quick factorisation


def build(config: RunConfig) -> tuple[Task, AbstractAlgorithm]:
    task = build_task(config)
    if isinstance(config, FreeConfig):
        return task, build_free(config, task)
    if isinstance(config, CoverConfig):
        return task, build_cover(config, task, explored(config, task))
    return build_deep(config, task) if isinstance(config, DeepConfig) else build_framework(config, task)


def algorithm_1(config: RunConfig) -> PCMLP:
    return build_framework(config, build_task(config))[1]


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
    random_first = config.algo in ("pets", "lc3")
    exploring = OrnsteinUhlenbeck(actions, jnp.float32(config.noise)) if config.noise else as_it_is
    algo = Deep(
        world=explored(config, task),
        features=features,
        model=draw_model(config, task, features),
        planner=RandomFirst(planner, actions) if random_first else planner,
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
        novelty=draw_novelty(config),
        exploring=decided if random_first else exploring,  # no noise on the actions of who searches
    )
    return task, algo


def explored(config: DeepConfig | CoverConfig, task: Task) -> AbstractWorld:
    return without_goal(task.world) if config.reward_free and task.goal_ends else task.world


def without_goal(world: AbstractWorld) -> AbstractWorld:
    """The same world for whoever has no goal in it: an end that forfeits the bonus of the steps that are left would
    keep a reward-free cover away from it, and from all that lies behind. The task is judged with its end."""
    return dataclasses.replace(world, mdp=dataclasses.replace(world.mdp, terminal=never))


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
        return draw_fourier(options, states, actions).over_boxes(jr.key(0))
    draw = draw_fourier(options, chosen_box(states, options.dims), actions)
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


__all__ = ["build", "build_task"]
