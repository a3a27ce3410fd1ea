"""Planning oracles: each is handed an `MDP` and does not know whether it is real."""

from pcmlp.planners.cem import CEM
from pcmlp.planners.guided import GuidedPolicy
from pcmlp.planners.lqr import LQR, LinearPolicy
from pcmlp.planners.mppi import MPPI
from pcmlp.planners.sac import SAC, SoftActorCritic
from pcmlp.planners.shooting import Shooting, ShootingPolicy
from pcmlp.planners.trpo import TRPO, ActorCritic
from pcmlp.planners.value_iteration import FinitePolicy, ValueIteration

__all__ = [
    "CEM",
    "LQR",
    "MPPI",
    "SAC",
    "TRPO",
    "ActorCritic",
    "FinitePolicy",
    "GuidedPolicy",
    "LinearPolicy",
    "Shooting",
    "ShootingPolicy",
    "SoftActorCritic",
    "ValueIteration",
]
