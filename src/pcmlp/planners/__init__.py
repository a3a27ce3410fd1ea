"""Planning oracles: each is handed an `MDP` and does not know whether it is real."""

from pcmlp.planners.value_iteration import FinitePolicy, ValueIteration

__all__ = ["FinitePolicy", "ValueIteration"]
