"""The state of Algorithm 2."""

import equinox as eqx
from jaxtyping import Array, Int

from pcmlp.algorithms.trials import Rule, Trial
from pcmlp.algorithms.weight import Weight
from pcmlp.bonus import Covariance
from pcmlp.programs import brief_program
from pcmlp.replay import Replay
from pcmlp.spaces import Range
from pcmlp.types import Features, FittedBonus, FittedModel, Learner, Policy


class DeepLearner(Learner):
    """The state of Algorithm 2 between iterations."""

    policy: Policy  # pi_n, explores
    env_steps: Int[Array, "*seeds"]
    trial: Trial  # the policies that may be deployed, and what real episodes have shown of them
    weight: Weight  # of b_n
    covariance: Covariance  # Sigma_n
    model: FittedModel  # P_theta
    bonus: FittedBonus  # b_n, before it is scaled and capped
    replay: Replay  # D
    seen: Range  # the smallest box around every state so far

    @property
    def features(self) -> Features:
        """The features phi, which are stored in the bonus."""
        return self.bonus.features

    def deployed(self) -> Policy:
        """Return the policy to deploy."""
        return self.trial.deployed


def find_walkers(learner: DeepLearner, rule: Rule) -> Policy:
    """Return the policy of each seed that collects the next samples: the exploring one, unless policies are tried."""
    return _choose_walkers(learner) if rule == "proven" else learner.policy


@brief_program
@eqx.filter_vmap(in_axes=(eqx.if_array(0),))
def _choose_walkers(learner: DeepLearner) -> Policy:
    return learner.trial.walker(learner.policy)
