"""What Algorithm 2 and its rivals draw for each seed: features, a model, a bonus."""

from collections.abc import Callable

import jax.numpy as jnp

from pcmlp.baselines.rnd import RND
from pcmlp.bonus import elliptical
from pcmlp.features import (
    DrawChosen,
    DrawFourier,
    DrawRandomNetwork,
    chosen_box,
)
from pcmlp.imagine import unknowns
from pcmlp.models import DrawKnown, DrawNeural, DrawProbabilistic, DrawThompson, DrawWithOutcome, Fitting
from pcmlp.runs.options import (
    FEATURES,
    DeepConfig,
    FourierFeatures,
    NeuralModel,
    ProbabilisticModel,
    RandomNetworkFeatures,
    RunConfig,
    ThompsonModel,
    WorldModel,
    name_of,
)
from pcmlp.tasks.mujoco import ROBOTS
from pcmlp.types import (
    AbstractWorld,
    Box,
    ConfigError,
    Task,
)
from pcmlp.world import JaxWorld

DrawFeatures = DrawRandomNetwork | DrawFourier | DrawChosen


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
        return draw_fourier(options, states, actions)
    return DrawRandomNetwork.of(
        states, actions, sizes=options.sizes, norm=options.norm, action_weight=options.action_weight
    )


def draw_fourier(options: FourierFeatures, states: Box, actions: Box) -> DrawFourier:
    return DrawFourier.of(
        states, actions, dim=options.dim, bandwidth=options.bandwidth, action_weight=options.action_weight
    )


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


def draw_novelty(config: DeepConfig) -> Callable:
    if config.rnd_steps is None:
        return elliptical
    assert isinstance(config.features, RandomNetworkFeatures)
    return RND(config.rnd_steps, sizes=config.features.sizes)  # g has the shape of f
