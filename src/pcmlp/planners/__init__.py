"""Planning oracles. Each plans in an `MDP`, real or imagined, and does not depend on which."""

from pcmlp.planners.actor_critic import ActorCritic
from pcmlp.planners.cem import CEM
from pcmlp.planners.guided import GuidedPolicy
from pcmlp.planners.mppi import MPPI
from pcmlp.planners.optimistic import Optimistic
from pcmlp.planners.sac import SAC, SoftActorCritic
from pcmlp.planners.shooting import Shooting, ShootingPolicy, UniformPolicy
from pcmlp.planners.trpo import TRPO
from pcmlp.planners.value_iteration import FinitePolicy, ValueIteration
from pcmlp.types import Planner

PLANNERS: dict[str, type[Planner]] = {
    "trpo": TRPO,
    "sac": SAC,
    "mppi": MPPI,
    "cem": CEM,
    "optimistic": Optimistic,
    "value-iteration": ValueIteration,
}
