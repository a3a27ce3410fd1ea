"""What a run uses where nothing else is said: a plain dict of settings for each algorithm and task it is made for."""

from typing import Any

ALGORITHMS = {
    "pcmlp-linear": "PC-MLP in a finite MDP: the model is counted or chosen by likelihood, planning is value iteration",
    "pcmlp-knr": "PC-MLP in a kernelized nonlinear regulator: least squares or SGD, planning by CEM or MPPI",
    "random": "uniform random actions in the same loop: what no exploration strategy finds",
}

# Who plans, the first by default.
PLANNERS_OF = {
    "pcmlp-linear": ("value-iteration",),
    "pcmlp-knr": ("cem", "mppi"),
    "random": ("uniform",),
}

EXPERIMENTS = {
    "demo": "the combination lock: PC-MLP, random play and no bonus in one picture (make demo)",
    "combination_lock": "who opens a lock of 20 digits, and how the steps grow with its length",
    "low_rank": "the error of maximum likelihood against its lemma, and the exact value of the best policy",
    "knr": "two regulators against planning in their true dynamics, and the SGD lemma",
}

# paper: lambda = 1 and the theorem's c, which keep the bonus at its cap for longer than anyone can wait / here: a small
# ridge and bonus_scale; those of the lock and the regulators were found on seeds 100 and up.
# `samples_per_policy` none is one episode. Where a return is noisy one episode does not tell a good policy from a
# lucky one, so those tasks draw more.
_LOCK = {"steps": 4_000, "bonus_scale": 0.1, "ridge": 0.01}
_LOW_RANK = {"steps": 50_000, "bonus_scale": 0.05, "ridge": 0.01, "samples_per_policy": 1_000}
_KNR = {"steps": 600, "bonus_scale": 0.02, "ridge": 0.01, "samples_per_policy": 40, "eval_episodes": 20}
_POLY = {"steps": 800, "bonus_scale": 0.05, "samples_per_policy": 80}

# The first algorithm of a task is its default.
PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    ("pcmlp-linear", "combination-lock"): _LOCK,
    ("pcmlp-linear", "low-rank"): _LOW_RANK,
    ("pcmlp-knr", "knr-lds"): _KNR,
    ("pcmlp-knr", "knr-poly"): {**_KNR, **_POLY},
    ("random", "combination-lock"): _LOCK,
    ("random", "low-rank"): _LOW_RANK,
    ("random", "knr-lds"): {**_KNR, "eval_episodes": 100},
    ("random", "knr-poly"): {**_KNR, **_POLY, "eval_episodes": 100},
}


def default_algorithm(task: str) -> str:
    return next(algo for algo, made_for in PRESETS if made_for == task)


def algorithms_for(task: str) -> list[str]:
    return [algo for algo, made_for in PRESETS if made_for == task]
