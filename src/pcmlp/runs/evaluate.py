"""Returns of policies in the world: the deterministic policy, the task reward, random numbers fixed by the seed."""

from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from pcmlp.types import AbstractPolicy, AbstractWorld

_EVALUATION = 2**31  # folded into a seed's key, where iterations fold in their own number


def evaluation_keys(keys: Key[Array, " seeds"]) -> Key[Array, " seeds"]:
    return jax.vmap(lambda key: jr.fold_in(key, _EVALUATION))(keys)


@dataclass
class Judge:
    """Evaluates the policies of all seeds, anew only when one of them is another policy."""

    world: AbstractWorld
    keys: Array
    episodes: int
    evaluations: int = 0
    _judged: AbstractPolicy | None = None
    _returns: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def returns(self, policies: AbstractPolicy) -> np.ndarray:
        """[seeds, episodes]"""
        if self._judged is None or not eqx.tree_equal(policies, self._judged):
            self._returns = np.asarray(self.world.evaluate(self.keys, policies, self.episodes))
            self._judged = policies
            self.evaluations += 1
        return self._returns


def scores(returns: np.ndarray, success_return: float | None) -> dict[str, float | None]:
    """What is written of the returns of one seed."""
    success = None if success_return is None else float(np.mean(returns >= success_return))
    return {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns)), "success": success}
