"""The policy cover (paper: Algorithm 1, lines 2, 7 and 10): every policy so far, kept, mixed, replayed.

Policies share one structure, so the cover is that structure with a leading axis: pushing and picking are array
operations inside the compiled stage. To draw from d_cover, pick a policy uniformly, then draw from its d_pi.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key, PyTree

from pcmlp.types import AbstractPolicy, Action, Carry, State


class Cover(eqx.Module):
    stacked: PyTree  # the policies' arrays, each with a leading axis of `capacity`
    structure: PyTree  # what the policies have in common: everything that is not an array
    size: Int[Array, ""]
    capacity: int = eqx.field(static=True)

    @staticmethod
    def of(policy: AbstractPolicy, capacity: int) -> "Cover":
        """The cover { policy }, with room for `capacity`."""
        arrays, structure = eqx.partition(policy, eqx.is_array)
        stacked = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype).at[0].set(x), arrays)
        return Cover(stacked, structure, jnp.ones((), int), capacity)

    def push(self, policy: AbstractPolicy) -> "Cover":
        """The cover with `policy` added; a full cover drops writes, so callers size it for the whole run."""
        arrays = eqx.filter(policy, eqx.is_array)
        stacked = jax.tree.map(lambda xs, x: xs.at[self.size].set(x, mode="drop"), self.stacked, arrays)
        return Cover(stacked, self.structure, jnp.minimum(self.size + 1, self.capacity), self.capacity)

    def __getitem__(self, index: Int[Array, ""] | int) -> AbstractPolicy:
        return eqx.combine(jax.tree.map(lambda xs: xs[index], self.stacked), self.structure)

    def pick(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """The index of one policy, uniformly."""
        return jr.randint(key, (), 0, self.size)


class Mixture(AbstractPolicy):
    """The cover as one policy: an episode's first action picks a member, which then plays the episode to its end."""

    cover: Cover

    def init(self) -> Carry:
        return jnp.array(-1), self.cover[0].init()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        pick_key, act_key = jr.split(key)
        index, memory = carry
        fresh = index < 0
        index = jnp.where(fresh, self.cover.pick(pick_key), index)
        policy = self.cover[index]
        memory = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), policy.init(), memory)
        memory, action = policy(act_key, memory, state)
        return (index, memory), action

    def deterministic(self) -> "Mixture":
        return self  # a mixture has no single best action
