"""The limits of every setting that does not depend on the built task. One line each: key, value, remedy."""

import math
from collections.abc import Iterator
from typing import Any

from pcmlp.runs.options import (
    FEATURES,
    NO_BONUS,
    CEMOptions,
    CoverConfig,
    DeepConfig,
    FourierFeatures,
    FrameworkConfig,
    FreeConfig,
    KNRModel,
    MPPIOptions,
    NeuralModel,
    PolynomialFeatures,
    ProbabilisticModel,
    RandomNetworkFeatures,
    RealSACOptions,
    RealTRPOOptions,
    RunConfig,
    SACOptions,
    ThompsonModel,
    TRPOOptions,
    name_of,
)
from pcmlp.types import ConfigError

Check = tuple[str, Any, bool, str]  # key, value, whether it is good, the remedy

_LARGEST = 1e6  # of a scale: beyond it the bonus is at its cap everywhere, or never there
_MOST_EPISODES = 100_000
_LARGEST_SEED = 2**32 - 1
_LARGEST_REPLAY = 2**31 - 1  # rows are counted in 32 bits


def validate(config: RunConfig) -> None:
    checks = (*_run(config), *_algorithm(config), *_features(config), *_model(config), *_planner(config))
    for key, value, good, remedy in checks:
        if not good:
            raise ConfigError(f"{key}={value}: {remedy}")
    _check_budget(config)


def _run(config: RunConfig) -> Iterator[Check]:
    seeds = config.seeds
    shown = " ".join(map(str, seeds))
    repeated = [seed for seed in seeds if seeds.count(seed) > 1]
    yield "seeds", shown, len(seeds) > 0, "no seed, no run; give at least one, such as --seeds 0"
    yield "seeds", shown, not repeated, f"{repeated[:1]} repeated; give each seed once"
    yield "seeds", shown, all(0 <= s <= _LARGEST_SEED for s in seeds), f"give numbers from 0 to {_LARGEST_SEED}"
    horizon = config.task.horizon
    yield "task.horizon", horizon, horizon >= 1, "an episode has at least 1 step; give 1 or more"
    yield "steps", config.steps, config.steps <= _LARGEST_REPLAY, f"give at most {_LARGEST_REPLAY}"
    episodes = config.eval_episodes
    yield "eval_episodes", episodes, 1 <= episodes <= _MOST_EPISODES, f"give 1 to {_MOST_EPISODES}"


def _algorithm(config: RunConfig) -> Iterator[Check]:
    K, horizon = config.samples_per_policy, config.task.horizon
    assert K is not None
    yield "bonus_scale", config.bonus_scale, config.bonus_scale >= 0, "give 0 (no bonus) or more"
    yield "bonus_scale", config.bonus_scale, config.bonus_scale <= _LARGEST, f"give at most {_LARGEST:g}"
    yield "ridge", config.ridge, config.ridge > 0, "the covariance must be invertible; give a number above 0"
    yield "ridge", config.ridge, config.ridge >= 1e-6, "too small for 32-bit numbers; give 1e-6 or more"
    yield "ridge", config.ridge, config.ridge <= _LARGEST, f"give at most {_LARGEST:g}"
    yield "samples_per_policy", K, K >= 1, "give 1 or more"
    if isinstance(config, DeepConfig):
        whole = f"less than one episode of {horizon} steps; give {horizon} or more"
        yield "samples_per_policy", K, horizon <= K, whole
        yield "rounds", config.rounds, config.rounds >= 1, "give 1 or more"
        yield "num_starts", config.num_starts, 1 <= config.num_starts <= 1_000_000, "give 1 to 1000000"
        yield "replay_size", config.replay_size, config.replay_size >= horizon, f"give {horizon} (an episode) or more"
        share = config.replay_starts
        yield "replay_starts", share, 0 <= share <= 1, "a share of the imagined episodes; give a number from 0 to 1"
        yield "margin", config.margin, config.margin >= 0, "give 0 or more"
        yield from _rivals(config)
    if isinstance(config, FreeConfig | CoverConfig):
        yield from _model_free(config)
    if isinstance(config, FrameworkConfig):
        M = config.fit_samples
        whole = f"less than one episode of {horizon} steps; give {horizon} or more, or draws=iid"
        yield "samples_per_policy", K, config.draws == "iid" or horizon <= K, whole
        yield "fit_samples", M, M is None or M >= 1, "give 1 or more, or none for the samples of every policy so far"


def _model_free(config: FreeConfig | CoverConfig) -> Iterator[Check]:
    K, horizon = config.samples_per_policy, config.task.horizon
    whole = f"less than one episode of {horizon} steps; give {horizon} or more"
    yield "samples_per_policy", K, K is not None and horizon <= K, whole
    if isinstance(config, CoverConfig):
        yield "updates", config.updates, config.updates >= 1, "give 1 or more"
        yield "batch_steps", config.batch_steps, config.batch_steps >= 1, "give 1 or more"
    elif isinstance(config.planner, RealSACOptions):
        rows = config.replay_size
        yield "replay_size", rows, rows is not None and rows >= horizon, f"give {horizon} (an episode) or more"
    else:
        yield "replay_size", config.replay_size, config.replay_size is None, "TRPO forgets its steps; leave it out"


def _rivals(config: DeepConfig) -> Iterator[Check]:
    """What the rivals have in place of the parts of Deep PC-MLP, or have not."""
    algo, steps, phi = config.algo, config.rnd_steps, config.features
    searches = isinstance(config.planner, CEMOptions | MPPIOptions)
    yield "noise", config.noise, 0 <= config.noise <= 10, "in units of half the action range; give 0 to 10"
    alone = f"{algo} searches for each action, which noise would undo; leave it out"
    yield "noise", config.noise, config.noise == 0 or not searches, alone
    if algo == "lc3":
        of_waves = isinstance(phi, FourierFeatures)
        remedy = "lc3 is a regulator of Fourier features; give fourier or leave it out"
        yield "features.name", name_of(FEATURES, phi), of_waves, remedy
    if algo == "random":
        yield "noise", config.noise, config.noise == 0, "random play is nothing but noise; leave it out"
    if algo == "rnd":
        yield "rnd_steps", steps, steps is not None and 1 <= steps <= 1_000_000, "give 1 to 1000000"
        of_net = isinstance(phi, RandomNetworkFeatures)
        remedy = "rnd distils a random network; give random-network or leave it out"
        yield "features.name", name_of(FEATURES, phi), of_net, remedy
    else:
        yield "rnd_steps", steps, steps is None, f"of algo=rnd, not of {algo}; leave it out, or give --algo rnd"
    if algo in NO_BONUS:
        remedy = f"{algo} has no bonus to explore for; give --algo pcmlp, rnd or pcmlp-mppi"
        yield "reward_free", "true", not config.reward_free, remedy
        scale = config.bonus_scale
        remedy = f"{algo} plans for the reward alone; leave it out, or give --algo pcmlp or rnd"
        yield "bonus_scale", scale, scale == 0, remedy


def _features(config: RunConfig) -> Iterator[Check]:
    phi = config.features
    if isinstance(phi, PolynomialFeatures):
        yield "features.degree", phi.degree, phi.degree >= 1, "give 1 or more"
        yield "features.scale", phi.scale, phi.scale is None or phi.scale > 0, "give a number above 0, or none"
    if isinstance(phi, FourierFeatures):
        even = phi.dim >= 2 and phi.dim % 2 == 0
        yield "features.dim", phi.dim, even, "Fourier features come in pairs; give an even number of at least 2"
        wide = phi.bandwidth is None or phi.bandwidth > 0
        yield "features.action_weight", phi.action_weight, phi.action_weight > 0, "give a number above 0"
        yield "features.bandwidth", phi.bandwidth, wide, "give a number above 0, or none for the median heuristic"
    if isinstance(phi, FourierFeatures | RandomNetworkFeatures) and phi.dims is not None:
        once = len(phi.dims) > 0 and len(set(phi.dims)) == len(phi.dims) and min(phi.dims) >= 0
        remedy = "give coordinates of the state, from 0 on and each once, such as 0,1, or none for all"
        yield "features.dims", _list(phi.dims), once, remedy
    if isinstance(phi, RandomNetworkFeatures):
        yield "features.sizes", _list(phi.sizes), _layers(phi.sizes), "give the sizes of its layers, such as 500,500"
        yield "features.norm", phi.norm, 0 < phi.norm <= 1, "give a number above 0 and at most 1"
        yield "features.action_weight", phi.action_weight, phi.action_weight > 0, "give a number above 0"


def _model(config: RunConfig) -> Iterator[Check]:
    model = config.model
    if isinstance(model, KNRModel):
        wide = model.radius is None or model.radius > 0
        yield "model.radius", model.radius, wide, "give a number above 0, or none for the task's own"
    if isinstance(model, NeuralModel):
        yield "model.sizes", _list(model.sizes), _layers(model.sizes), "give the sizes of its layers, such as 500,500"
        for name in ("members", "steps", "batch", "unroll"):
            yield f"model.{name}", getattr(model, name), getattr(model, name) >= 1, "give 1 or more"
        for name in ("rate", "clip"):
            yield f"model.{name}", getattr(model, name), getattr(model, name) > 0, "give a number above 0"
        yield "model.decay", model.decay, model.decay >= 0, "give 0 or more"
    if isinstance(model, ProbabilisticModel):
        layers = "give the sizes of its layers, such as 200,200"
        yield "model.sizes", _list(model.sizes), _layers(model.sizes), layers
        for name in ("members", "steps", "batch"):
            yield f"model.{name}", getattr(model, name), getattr(model, name) >= 1, "give 1 or more"
        some = model.elites is None or 1 <= model.elites <= model.members
        yield "model.elites", model.elites, some, f"give 1 to model.members={model.members}, or none for all"
        yield "model.rate", model.rate, model.rate > 0, "give a number above 0"
        yield "model.decay", model.decay, model.decay >= 0, "give 0 or more"

    if isinstance(model, ThompsonModel):
        yield "model.ridge", model.ridge, 1e-6 <= model.ridge <= _LARGEST, f"give 1e-6 to {_LARGEST:g}"
        known = model.sigma is None or 0 <= model.sigma <= _LARGEST
        yield "model.sigma", model.sigma, known, "give 0 or more, or none for that of the residuals"


def _list(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


def _layers(sizes: tuple[int, ...]) -> bool:
    return len(sizes) > 0 and min(sizes) >= 1


def _trpo(plan: TRPOOptions) -> Iterator[Check]:
    for name in ("updates", "streams", "length"):
        yield f"planner.{name}", getattr(plan, name), getattr(plan, name) >= 1, "give 1 or more"
    rows = plan.streams * plan.length
    few = f"more than the {rows} imagined steps of an update (streams x length); give at most {rows}"
    yield "planner.value_batch", plan.value_batch, plan.value_batch <= rows, few
    yield "planner.entropy", plan.entropy, 0 <= plan.entropy <= _LARGEST, f"give 0 to {_LARGEST:g}"
    yield from _trpo_update(plan)


def _trpo_update(plan: TRPOOptions | RealTRPOOptions) -> Iterator[Check]:
    for name in ("conjugate_steps", "value_epochs", "value_batch"):
        yield f"planner.{name}", getattr(plan, name), getattr(plan, name) >= 1, "give 1 or more"
    for name in ("policy_sizes", "value_sizes"):
        sizes = getattr(plan, name)
        yield f"planner.{name}", _list(sizes), _layers(sizes), "give the sizes of its layers, such as 32,32"
    for name in ("discount", "trace"):
        yield f"planner.{name}", getattr(plan, name), 0 <= getattr(plan, name) <= 1, "give a number from 0 to 1"
    for name in ("kl_bound", "value_rate"):
        yield f"planner.{name}", getattr(plan, name), getattr(plan, name) > 0, "give a number above 0"
    yield "planner.damping", plan.damping, plan.damping >= 0, "give 0 or more"


def _sac(plan: SACOptions) -> Iterator[Check]:
    for name in ("updates", "streams", "length"):
        yield f"planner.{name}", getattr(plan, name), getattr(plan, name) >= 1, "give 1 or more"
    yield from _sac_update(plan)


def _sac_update(plan: SACOptions | RealSACOptions) -> Iterator[Check]:
    yield "planner.batch", plan.batch, plan.batch >= 1, "give 1 or more"
    yield "planner.sizes", _list(plan.sizes), _layers(plan.sizes), "give the sizes of its layers, such as 256,256"
    yield "planner.discount", plan.discount, 0 <= plan.discount <= 1, "give a number from 0 to 1"
    yield "planner.rate", plan.rate, plan.rate > 0, "give a number above 0"
    yield "planner.slowness", plan.slowness, 0 < plan.slowness <= 1, "give a number above 0, up to 1"
    yield "planner.entropy", plan.entropy, math.isfinite(plan.entropy), "give a number"


def _planner(config: RunConfig) -> Iterator[Check]:
    plan = config.planner
    if isinstance(plan, TRPOOptions):
        yield from _trpo(plan)
    if isinstance(plan, SACOptions):
        yield from _sac(plan)
    if isinstance(plan, RealTRPOOptions):
        yield from _trpo_update(plan)
    if isinstance(plan, RealSACOptions):
        yield from _sac_update(plan)
        ratio = plan.updates_per_step
        yield "planner.updates_per_step", ratio, 0 < ratio <= 100, "give a number above 0, up to 100"
    if not isinstance(plan, CEMOptions | MPPIOptions):
        return
    for name in ("num_plans", "particles", "warmup"):
        yield f"planner.{name}", getattr(plan, name), getattr(plan, name) >= 1, "give 1 or more"
    yield "planner.restarts", plan.restarts, plan.restarts >= 0, "give 0 or more"
    yield "planner.correlation", plan.correlation, 0 <= plan.correlation < 1, "give a number from 0 to below 1"
    length = plan.plan_length
    yield "planner.plan_length", length, length is None or length >= 1, "give 1 or more, or none for the horizon"
    if isinstance(plan, CEMOptions):
        yield "planner.iterations", plan.iterations, plan.iterations >= 1, "give 1 or more"
        some = 1 <= plan.elites <= plan.num_plans
        yield "planner.elites", plan.elites, some, f"give 1 to planner.num_plans={plan.num_plans}"
        yield "planner.noise_std", plan.noise_std, plan.noise_std > 0, "give a number above 0"
        yield "planner.smoothing", plan.smoothing, 0 <= plan.smoothing < 1, "give a number from 0 to below 1"
        alone = not plan.truncated or plan.correlation == 0
        advice = "truncated noise is independent; give 0, or planner.truncated=false"
        yield "planner.correlation", plan.correlation, alone, advice
    else:
        yield "planner.temperature", plan.temperature, plan.temperature > 0, "give a number above 0"
        yield "planner.noise_cov", plan.noise_cov, plan.noise_cov > 0, "give a number above 0"
        share = 0 < plan.least_noise <= 1
        yield "planner.least_noise", plan.least_noise, share, "give a number above 0 and at most 1"


def _check_budget(config: RunConfig) -> None:
    if config.num_iterations < 1:
        needed = -(-config.steps_per_iteration // 1)
        raise ConfigError(
            f"steps={config.steps}: less than one iteration, which takes {needed:.0f} env steps; "
            f"give {needed:.0f} or more, or a smaller samples_per_policy"
        )
