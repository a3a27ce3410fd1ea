"""A configuration into its planner, and how much that imagines."""

from pcmlp.baselines.random import UniformPlanner
from pcmlp.deep import JUDGED
from pcmlp.planners import CEM, MPPI, SAC, TRPO, Shooting, ValueIteration
from pcmlp.runs.options import (
    CEMOptions,
    DeepConfig,
    MPPIOptions,
    RunConfig,
    SACOptions,
    TRPOOptions,
    UniformOptions,
    ValueIterationOptions,
)
from pcmlp.types import (
    AbstractPlanner,
    AbstractWorld,
    Box,
)


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
            truncated=options.truncated,
            smoothing=options.smoothing,
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
    return Shooting(shooter, warmup=options.warmup, restarts=options.restarts)


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
