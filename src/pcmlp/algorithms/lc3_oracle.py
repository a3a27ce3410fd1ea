"""LC3 with its optimistic oracle (Kakade et al. 2020): optimism over a ball of regulators, within Algorithm 1.

    line 7    the ball around the ridge regression, in place of one model
    line 8    no bonus
    line 9    argmax over policies and over models of the ball: an optimistic planning oracle

preset=thompson draws the model from its posterior instead and plans in it by the ordinary CEM, as LC3's authors do in
their experiments.
"""

from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.method import Method
from pcmlp.models import ConfidenceBall
from pcmlp.planners import Optimistic

_OURS = {"regulator": {"steps": 600, "eval_episodes": 20}, "knr-poly": {"steps": 800, "samples_per_policy": 80}}
_THOMPSON = {"model.name": "knr-draw", "planner.name": "cem"}
_NO_BONUS = "it plans for the reward alone; its exploration is in the choice of the model"

METHOD = Method(
    about="LC3 in a kernelized nonlinear regulator: with its optimistic oracle, or with Thompson sampling",
    algorithm=PCMLP(model=ConfidenceBall(), planner=Optimistic(), bonus_scale=0.0, samples_per_policy=40),
    presets={
        "ours": {**_OURS, "knr-rbf": None},  # its W has 300 parameters, too many for the oracle
        "thompson": {task: {**settings, **_THOMPSON} for task, settings in _OURS.items()},
    },
    choices={
        "features": ("task", "polynomial", "fourier"),
        "model": ("knr-ball", "knr-draw"),
        "planner": ("optimistic", "cem"),
    },
    unused=dict.fromkeys(("bonus_scale", "ridge", "covariance"), _NO_BONUS),
)
