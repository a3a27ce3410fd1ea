"""What a run uses where nothing else is said: a plain dict of settings for each algorithm and task it is made for."""

from typing import Any

from pcmlp.runs.ours import (
    BUDGET,
    DEEP,
    DEEP_MPPI,
    DEEP_RANDOM,
    DENSE,
    FEW_DENSE,
    KNR,
    LOCK,
    LOW_RANK,
    PAPER,
    PAPER_DENSE,
    PAPER_MPPI,
    POLY,
)
from pcmlp.runs.rivals import (
    FREE_BUDGET,
    LC3,
    MBPO,
    MBPO_ROBOTS,
    MBPO_STEADY,
    PC_PG,
    PETS,
    PETS_GT,
    PETS_GT_ROBOTS,
    PETS_ROBOTS,
    RND,
    SAC,
    SLBO,
    TRPO,
)
from pcmlp.tasks.mujoco import DENSE_TASKS, MUJOCO_TASKS, ROBOTS

ALGORITHMS = {
    "pcmlp": "Deep PC-MLP: neural dynamics, random-network features, TRPO in the model",
    "pcmlp-mppi": "Deep PC-MLP with random Fourier features and MPPI, which replans at every step",
    "pcmlp-linear": "PC-MLP in a finite MDP: the model is counted or chosen by likelihood, planning is value iteration",
    "pcmlp-knr": "PC-MLP in a kernelized nonlinear regulator: least squares or SGD, planning by CEM or MPPI",
    "pets": "probabilistic ensemble and CEM, which replans at every step; no bonus (Chua et al. 2018)",
    "pets-gt": "CEM in the true dynamics, which it is given: what planning alone can do; no bonus",
    "mbpo": "probabilistic ensemble and SAC on short imagined episodes from real states; no bonus (Janner et al. 2019)",
    "slbo": "SLBO: neural dynamics and TRPO in the model, no bonus; noise on actions and entropy explore",
    "rnd": "Deep PC-MLP with random network distillation as its bonus: no covariance",
    "lc3": "LC3: a regulator of Fourier features drawn from its posterior, MPPI in it, no bonus",
    "random": "uniform random actions in the same loop: what no exploration strategy finds",
    "trpo": "model-free TRPO: its update on real steps, a couple of thousand at a time",
    "sac": "model-free SAC: as many updates on a replay of real steps as steps are walked",
    "pc-pg": "PC-PG: policy cover, bonus and natural gradient with no model, from starts that the cover walks to",
}

# Who plans, the first by default.
PLANNERS_OF = {
    "pcmlp": ("trpo", "sac"),
    "pcmlp-mppi": ("mppi",),
    "pcmlp-linear": ("value-iteration",),
    "pcmlp-knr": ("cem", "mppi"),
    "pets": ("cem",),
    "pets-gt": ("cem",),
    "mbpo": ("sac",),
    "slbo": ("trpo",),
    "rnd": ("trpo", "sac"),
    "lc3": ("mppi",),
    "random": ("uniform",),
    "trpo": ("real-trpo",),
    "sac": ("real-sac",),
    "pc-pg": ("real-trpo",),
}

REWARD_FREE = ("pcmlp", "pcmlp-mppi", "rnd", "pc-pg")  # who explores for a bonus, with a reward or without
FREE_PRESETS = {"trpo": TRPO, "sac": SAC, "pc-pg": PC_PG}
DEEP_PRESETS = {
    "pcmlp": DEEP,
    "pcmlp-mppi": DEEP_MPPI,
    "slbo": SLBO,
    "rnd": RND,
    "lc3": LC3,
    "pets": PETS,
    "mbpo": MBPO,
    "random": DEEP_RANDOM,
}
RIVALS = ("slbo", "rnd", "lc3", "pets", "mbpo")  # of those
_SMALL_TASKS = ("mountain-car", "acrobot", "pendulum", "point-umaze")  # where planning at every step takes minutes
_OWN_TASKS = (*_SMALL_TASKS, "cart-pole")
DEEP_TASKS = (*_OWN_TASKS, *MUJOCO_TASKS)
_DEEP_STEPS = {"point-umaze": 10_000, "pendulum": 4_000}  # where the preset's steps are not enough

# The first algorithm of a task is its default.
PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    **{
        (algo, task): {**preset, "steps": max(preset["steps"], _DEEP_STEPS.get(task, 0))}
        for algo, preset in DEEP_PRESETS.items()
        for task in _OWN_TASKS
    },
    **{("pets-gt", task): PETS_GT for task in _OWN_TASKS},
    **{("pcmlp", task): DENSE for task in MUJOCO_TASKS},
    **{("random", task): {**DEEP_RANDOM, **BUDGET} for task in MUJOCO_TASKS},
    **{("pets", task): PETS_ROBOTS for task in MUJOCO_TASKS},
    **{("pets-gt", task): PETS_GT_ROBOTS for task in ROBOTS},
    **{("mbpo", task): MBPO_ROBOTS for task in MUJOCO_TASKS},
    **{(algo, task): preset for algo, preset in FREE_PRESETS.items() for task in _OWN_TASKS},
    **{(algo, task): {**preset, **FREE_BUDGET[algo]} for algo, preset in FREE_PRESETS.items() for task in MUJOCO_TASKS},
    **{("slbo", task): {**SLBO, **BUDGET, "rounds": 20} for task in MUJOCO_TASKS},
    **{("rnd", task): {**DENSE, "bonus_scale": 0.1, "rnd_steps": 2_000} for task in MUJOCO_TASKS},
    ("pcmlp-linear", "combination-lock"): LOCK,
    ("pcmlp-linear", "low-rank"): LOW_RANK,
    ("pcmlp-knr", "knr-lds"): KNR,
    ("pcmlp-knr", "knr-poly"): {**KNR, **POLY},
    ("random", "combination-lock"): LOCK,
    ("random", "low-rank"): LOW_RANK,
    ("random", "knr-lds"): {**KNR, "eval_episodes": 100},
    ("random", "knr-poly"): {**KNR, **POLY, "eval_episodes": 100},
}


PAPER_PRESETS = {
    **{("pcmlp", task): PAPER for task in _SMALL_TASKS},
    **{("pcmlp-mppi", task): PAPER_MPPI for task in _SMALL_TASKS},
    **{("pcmlp", task): PAPER_DENSE for task in ("pendulum", *DENSE_TASKS, "hand-egg")},
}


def dense_preset(algo: str, task: str) -> dict[str, Any]:
    """Of one of our tasks, where every step pays; that of a robot is that already."""
    robots = task in MUJOCO_TASKS
    return PRESETS[algo, task] if robots else {**FEW_DENSE, "steps": PRESETS[algo, task]["steps"]}


def any_preset(algo: str, horizon: int, dense: bool) -> dict[str, Any]:
    """Of an environment of anybody's: what it takes is not known, and an evaluation may take as long as learning. An
    iteration has an episode at least, and as many rounds for a sample as in our own tasks."""
    if algo in FREE_PRESETS:
        return {**FREE_PRESETS[algo], "steps": 30_000, "eval_episodes": 20}
    if dense:
        return {**FEW_DENSE, "steps": 30_000}
    if algo == "pets":
        return {**PETS_ROBOTS, "steps": 30_000}
    if algo == "mbpo":  # 20 updates a step, whatever an episode's length
        rounds = max(1, horizon // 250)
        return {**MBPO_STEADY, "steps": 30_000, "rounds": rounds, "planner.updates": max(1, 20 * horizon // rounds)}
    preset = {**DEEP_PRESETS[algo], "steps": 30_000, "eval_episodes": 20, "keeps_better": algo not in RIVALS}
    if algo not in ("pcmlp", "rnd", "slbo"):
        return preset
    steps = 200 if algo == "slbo" else 100  # for a round
    return {**preset, "rounds": min(max(2, horizon // steps), 20)}


def default_algorithm(task: str) -> str:
    return next(algo for algo, made_for in PRESETS if made_for == task)


def algorithms_for(task: str) -> list[str]:
    return [algo for algo, made_for in PRESETS if made_for == task]
