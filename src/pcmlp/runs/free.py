"""A configuration into the inputs of a model-free method."""

import jax.numpy as jnp

from pcmlp.baselines.model_free import ModelFree
from pcmlp.baselines.pc_pg import PCPG
from pcmlp.planners import SAC, TRPO
from pcmlp.runs.draws import draw_features
from pcmlp.runs.options import CoverConfig, FreeConfig, RealSACOptions, RealTRPOOptions
from pcmlp.types import AbstractWorld, Box, ConfigError, Task


def build_free(config: FreeConfig, task: Task) -> ModelFree:
    states, actions = vectors(config, task)
    options = config.planner
    replay, ratio = 0, 1.0
    if isinstance(options, RealSACOptions):
        assert config.replay_size is not None
        replay, ratio = config.replay_size, options.updates_per_step
        kept = {name: value for name, value in vars(options).items() if name != "updates_per_step"}
        planner = SAC(states, actions, **kept)
    else:
        assert isinstance(options, RealTRPOOptions)
        planner = real_trpo(options, states, actions)
    return ModelFree(
        world=task.world,
        planner=planner,
        num_iterations=config.num_iterations,
        samples_per_policy=config.samples_per_policy or config.task.horizon,
        replay_size=replay,
        updates_per_step=ratio,
        normalise=config.normalise,
    )


def build_cover(config: CoverConfig, task: Task, world: AbstractWorld) -> PCPG:
    """PC-PG in a world of the task, which draws its features for each seed."""
    states, actions = vectors(config, task)
    assert isinstance(config.planner, RealTRPOOptions)
    return PCPG(
        world=world,
        features=draw_features(config, states, actions),
        planner=real_trpo(config.planner, states, actions),
        num_iterations=config.num_iterations,
        samples_per_policy=config.samples_per_policy or config.task.horizon,
        updates=config.updates,
        batch_steps=config.batch_steps,
        # arrays, not floats: another value is then another input of the same program, which is not compiled again
        ridge=jnp.float32(config.ridge),
        bonus_scale=jnp.float32(config.bonus_scale),
        cover_weight=jnp.float32(config.covariance == "on"),
        fresh=config.fresh,
        normalise=config.normalise,
        reward_free=config.reward_free and not task.for_moving,  # paper: a reward for moving stays (section 7.3)
    )


def real_trpo(options: RealTRPOOptions, states: Box, actions: Box) -> TRPO:
    """With a KL that is the sum over the dimensions of actions, where the options speak of their mean."""
    of_sum = {name: getattr(options, name) * actions.size for name in ("kl_bound", "damping")}
    return TRPO(states, actions, **{**vars(options), **of_sum})


def vectors(config: FreeConfig | CoverConfig, task: Task) -> tuple[Box, Box]:
    states, actions = task.world.states, task.world.actions
    if not (isinstance(states, Box) and isinstance(actions, Box)):
        raise ConfigError(f"algo={config.algo}: needs states and actions that are vectors; give another algorithm")
    return states, actions
