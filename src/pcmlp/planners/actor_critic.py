"""A stochastic policy with a value net, which TRPO trains."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from pcmlp.heads import Head
from pcmlp.nets import MLP, Normaliser, renormalise_inputs
from pcmlp.spaces import Box, Vectors
from pcmlp.trees import drop
from pcmlp.types import Action, Carry, Policy, State


class ActorCritic(Policy):
    """A stochastic policy and its value net. In a box, the actor's output u in [-1, 1] is mapped to the range."""

    actor: Head
    critic: MLP
    critic_state: PyTree  # the state of the critic's optimiser
    units: Normaliser  # normalises states
    noise: Float[Array, ""]  # 1: the policy with its noise, 0: its mode
    actions: Vectors

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        return self.act(self.sample_noise(key), carry, state)

    def inference_only(self) -> "ActorCritic":
        """Return the policy without its value net and optimiser."""
        return drop(lambda p: (p.critic, p.critic_state), self)

    def sample_noise(self, key: Key[Array, ""]) -> Float[Array, " a"]:
        """Draw the random numbers of one step."""
        return self.actor.draw_noise(key)

    def act(self, noise: Float[Array, " a"], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Return the action that the given noise leads to."""
        u = self.actor(self.units(state)).at(self.noise * noise)
        return carry, self.actions.from_unit(u)

    def deterministic(self) -> "ActorCritic":
        """Return the policy that plays the mode."""
        return eqx.tree_at(lambda p: p.noise, self, jnp.zeros_like(self.noise))

    def value(self, state: State) -> Float[Array, ""]:
        """Return the critic's value of a state."""
        return self.critic(self.units(state))[0]

    def with_normaliser(self, units: Normaliser) -> "ActorCritic":
        """Return the same policy and values for states in other units; untrained nets stay unchanged, because they
        are as good in the new units."""
        trained = optax.tree_utils.tree_get(self.critic_state, "count") > 0
        old = jax.tree.map(lambda x, y: jnp.where(trained, x, y), self.units, units)
        nets = renormalise_inputs(self.actor.net, old, units), renormalise_inputs(self.critic, old, units), units
        return eqx.tree_at(lambda p: (p.actor.net, p.critic, p.units), self, nets)


def units_of(states: Box, otherwise: Normaliser) -> Normaliser:
    """Return the units of a box's bounds, with those of `otherwise` for coordinates without bounds."""
    known = jnp.isfinite(states.half) & (states.half > 0)
    return Normaliser(jnp.where(known, states.middle, otherwise.mean), jnp.where(known, states.half, otherwise.std))
