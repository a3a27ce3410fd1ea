"""The settings of the rivals: those of their papers or libraries, as near as the shared parts come to them."""

from typing import Any

from pcmlp.runs.ours import BUDGET, DEEP, DEEP_MPPI

# A rival without a bonus: phi is as small as can be, and imagined states may be anywhere, as in its paper.
NO_BONUS: dict[str, Any] = {
    **DEEP,
    "bonus_scale": 0.0,
    "fresh": False,
    "bounded": False,
    "replay_size": 100_000,
    "features.name": "fourier",
    "features.dim": 2,
}
# The paper's CEM: 5 updates of 500 plans of 25 to 30 steps, of which 50 are elites, the first of std a quarter of the
# range, held back from the bounds of the actions, 20 particles. An episode a policy.
PETS: dict[str, Any] = {
    **NO_BONUS,
    "rounds": 1,
    "replay_starts": 0.0,
    "eval_episodes": 20,
    "model.name": "probabilistic",
    "planner.num_plans": 500,
    "planner.plan_length": 25,
    "planner.iterations": 5,
    "planner.elites": 50,
    "planner.noise_std": 0.5,
    "planner.correlation": 0.0,
    "planner.particles": 20,
    "planner.truncated": True,
    "planner.smoothing": 0.1,
    "planner.warmup": 1,
}
# Nothing is learned, so one episode tells all; what is drawn of the dynamics is not random but for their own noise.
PETS_GT: dict[str, Any] = {**PETS, "steps": 200, "model.name": "world", "planner.particles": 1}
# The paper's: 7 nets of which 5 predict, imagined episodes of one step at first, 20 updates of the policy a real step.
MBPO: dict[str, Any] = {
    **NO_BONUS,
    "rounds": 1,
    "num_starts": 20_000,
    "replay_starts": 1.0,
    "eval_episodes": 20,
    "model.name": "probabilistic",
    "model.members": 7,
    "model.elites": 5,
    "model.steps": 500,
    "model.batch": 256,
    "planner.updates": 4_000,
    "planner.streams": 20_000,
    "planner.length": 1,
    "planner.normed": False,
}
# For MuJoCo and gym:ID: with twenty updates for each of the first thousand real steps plain critics rise beyond all
# bounds (hopper: 3,000 to 14,000 where 400 can be paid). Normed ones and a bounded imagination, as our planner has.
MBPO_STEADY: dict[str, Any] = {**MBPO, "bounded": True, "margin": 0.1, "planner.normed": True}
MBPO_ROBOTS: dict[str, Any] = {
    **MBPO_STEADY,
    **BUDGET,
    "samples_per_policy": 1_000,
    "rounds": 4,
    "planner.updates": 5_000,
}
# Model-free, with the settings of sb3-contrib and stable-baselines3 where they have them. TRPO walks whole episodes of
# about 2,000 steps for an update; SAC walks one episode (`samples_per_policy` none) and updates as often as it stepped.
NO_MODEL: dict[str, Any] = {"features.name": "none", "model.name": "none", "steps": 20_000}
TRPO: dict[str, Any] = {**NO_MODEL, "samples_per_policy": 2_000, "normalise": True}
SAC: dict[str, Any] = {**NO_MODEL, "replay_size": 50_000, "normalise": False}
# The features are those of Deep PC-MLP; an iteration's real steps are what a model would have imagined.
PC_PG: dict[str, Any] = {
    "steps": 40_000,
    "bonus_scale": 0.05,
    "ridge": 1e-3,
    "samples_per_policy": 400,
    "features.name": "random-network",
    "features.action_weight": 0.2,
    "features.sizes": (128, 128),
    "model.name": "none",
}
# SLBO (Luo et al. 2018), with the numbers of its release: 20 rounds for 4,000 samples, here as many for a sample.
SLBO: dict[str, Any] = {
    **DEEP,
    "steps": 4_000,
    "bonus_scale": 0.0,
    "samples_per_policy": 400,
    "rounds": 2,
    "fresh": False,
    "replay_starts": 0.0,
    "bounded": False,
    "noise": 0.3,
    "planner.entropy": 0.005,
    "planner.value_rate": 1e-3,
    "planner.value_batch": 64,
}
RND: dict[str, Any] = {**DEEP, "bonus_scale": 1.0, "rnd_steps": 200}
# LC3 (Kakade et al. 2020): the planner of pcmlp-mppi in another model, with no bonus.
LC3: dict[str, Any] = {
    **{key: value for key, value in DEEP_MPPI.items() if not key.startswith(("model.", "features."))},
    "bonus_scale": 0.0,
    "bounded": False,
    "replay_size": 100_000,  # the posterior is of all steps
    "features.name": "fourier",
    "features.dim": 200,
    "model.name": "thompson",
}
FREE_BUDGET: dict[str, dict[str, Any]] = {
    "trpo": {"steps": 200_000, "eval_episodes": 20},
    "sac": {"steps": 200_000, "eval_episodes": 20, "replay_size": 200_000},
    "pc-pg": {"steps": 200_000, "eval_episodes": 20, "samples_per_policy": 1_000, "batch_steps": 4_000},
}
# One episode of at most 1,000 steps, and plans as long as the paper's for half-cheetah.
_LONG_PLANS: dict[str, Any] = {
    **BUDGET,
    "samples_per_policy": None,
    "eval_episodes": 5,
    "planner.plan_length": 30,
}
# Fits of as many steps as the paper's five epochs have over 20,000 rows; with 1,000 the error was still falling then.
# With a tenth of this decay members are far too sure of episodes that they have not seen (docs/rivals/pets.md).
PETS_ROBOTS: dict[str, Any] = {**PETS, **_LONG_PLANS, "model.steps": 3_000, "model.decay": 1e-3}
PETS_GT_ROBOTS: dict[str, Any] = {**PETS_GT, **_LONG_PLANS, "steps": 1_000, "eval_episodes": 1}
