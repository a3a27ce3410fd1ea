"""PC-MLP in a finite MDP: Algorithm 1 with a counted model or a finite class, and value iteration.

paper: lambda = 1 and the theorem's c, which keep the bonus at its cap for far too many iterations / here: a small ridge
and bonus_scale, tuned on seeds 100 and up. One episode per policy is enough where returns are exact. Where they are
noisy, one episode cannot tell a good policy from a lucky one, so `low-rank` and `linear-core` collect more.
"""

from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.method import ONE_EPISODE, Method

METHOD = Method(
    about="PC-MLP in a finite MDP: the model is counted or chosen by likelihood, planning is value iteration",
    algorithm=PCMLP(samples_per_policy=ONE_EPISODE),
    presets={
        "ours": {
            "combination-lock": {"steps": 4_000},
            "low-rank": {"steps": 50_000, "bonus_scale": 0.05, "samples_per_policy": 1_000},
            "linear-core": {
                "model.name": "core",
                "steps": 8_000,
                "bonus_scale": 0.02,
                "samples_per_policy": 100,
            },
            "finite": {"steps": 4_000},
        }
    },
    choices={"features": ("task", "one-hot"), "model": ("task", "core")},
)
