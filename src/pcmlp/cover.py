"""The policy cover (paper: Algorithm 1, lines 2, 7 and 10): all policies so far.

Policies share one structure, so the cover is that structure with a leading axis: pushing and picking are array
operations inside the compiled program. To draw from d_cover, pick a policy uniformly, then draw from its d_pi.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from pcmlp.programs import program
from pcmlp.types import Action, Carry, Policy, State


class Cover(eqx.Module):
    """Up to `capacity` policies of one structure."""

    stacked: PyTree  # the policies' arrays, each with a leading axis of `capacity`
    structure: PyTree  # everything that is not an array, which the policies have in common
    size: Int[Array, ""]
    capacity: int = eqx.field(static=True)

    @staticmethod
    def of(policy: Policy, capacity: int) -> "Cover":
        """Return the cover { policy }, with room for `capacity`."""
        arrays, structure = eqx.partition(policy, eqx.is_array)
        stacked = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype).at[0].set(x), arrays)
        return Cover(stacked, structure, jnp.ones((), int), capacity)

    def push(self, policy: Policy) -> "Cover":
        """Add a policy. A full cover ignores it, so callers size the cover for the whole run."""
        arrays = eqx.filter(policy, eqx.is_array)
        stacked = jax.tree.map(lambda xs, x: xs.at[self.size].set(x, mode="drop"), self.stacked, arrays)
        return Cover(stacked, self.structure, jnp.minimum(self.size + 1, self.capacity), self.capacity)

    def __getitem__(self, index: Int[Array, ""] | int) -> Policy:
        """Return one policy."""
        return eqx.combine(jax.tree.map(lambda xs: xs[index], self.stacked), self.structure)

    def pick(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Draw the index of a policy uniformly."""
        return jr.randint(key, (), 0, self.size)


def best_policy(cover: Cover, values: Float[Array, "*seeds N"]) -> Policy:
    """Return the policy of the cover with the highest value, for each seed if there is an axis of seeds."""
    return _best_of_each(cover, values) if values.ndim > 1 else cover[jnp.argmax(values)]


@program
@eqx.filter_vmap
def _best_of_each(cover: Cover, values: Float[Array, " N"]) -> Policy:
    return best_policy(cover, values)


class Mixture(Policy):
    """The cover as one policy: the first action of an episode picks a member, which plays the whole episode."""

    cover: Cover

    def init(self) -> Carry:
        """Return the memory of an episode without a member yet."""
        return jnp.array(-1), self.cover[0].init()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Return the new memory and the action of the episode's member."""
        pick_key, act_key = jr.split(key)
        index, memory = carry
        fresh = index < 0
        index = jnp.where(fresh, self.cover.pick(pick_key), index)
        policy = self.cover[index]
        memory = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), policy.init(), memory)
        memory, action = policy(act_key, memory, state)
        return (index, memory), action
