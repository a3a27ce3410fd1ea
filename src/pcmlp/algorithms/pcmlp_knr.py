"""PC-MLP in a kernelized nonlinear regulator: Algorithm 1 with least squares or SGD, and CEM or MPPI.

ridge and bonus_scale were tuned on seeds 100 and up. Returns are noisy, so each policy collects several episodes.
"""

from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.method import Method
from pcmlp.models import KNR
from pcmlp.planners import CEM

# Short plans with few refinements: with the features of a kernel, an imagined step costs a hundred times more.
_SWUNG = {
    "steps": 360,
    "bonus_scale": 0.05,
    "samples_per_policy": 30,
    "planner.num_plans": 50,
    "planner.elites": 5,
    "planner.iterations": 2,
    "planner.plan_length": 20,
    "planner.warmup": 5,
    "eval_episodes": 4,
    "eval_every": 60,
}

METHOD = Method(
    about="PC-MLP in a kernelized nonlinear regulator: least squares or SGD, planning by CEM or MPPI",
    algorithm=PCMLP(model=KNR(), planner=CEM(), bonus_scale=0.02, samples_per_policy=40),
    presets={
        "ours": {
            "regulator": {"steps": 600, "eval_episodes": 20},
            "knr-poly": {"steps": 800, "bonus_scale": 0.05, "samples_per_policy": 80},
            "knr-pendulum": _SWUNG,
            "knr-rbf": {**_SWUNG, "bonus_scale": 0.02},
        }
    },
    choices={"features": ("task", "polynomial", "fourier"), "planner": ("cem", "mppi")},
)
