"""Neural models that differ by their first weights and by the windows each was trained on.

    P(s, a) = P_m(s, a),  m uniform for each call;     disagreement = | std_m delta_m(s, a) / std_d |

(paper: none; PETS, Chua et al. 2018.) Where there were data the members agree; elsewhere nothing makes them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.models.neural import Fitting, Neural
from pcmlp.replay import Replay, numbers_only
from pcmlp.types import AbstractModel, ConfigError, Metrics, Transitions


class Ensemble(AbstractModel):
    members: Neural  # one record, each array with a leading axis
    size: int = eqx.field(static=True)

    @staticmethod
    def of(
        key: Key[Array, ""],
        size: int,
        states: int,
        actions: int,
        *,
        sizes: tuple[int, ...] = (500, 500),
        fitting: Fitting = Fitting(),  # noqa: B008 (frozen)
    ) -> "Ensemble":
        if size < 1:
            raise ConfigError(f"model.members={size}: give 1 or more")
        return Ensemble(
            jax.vmap(lambda k: Neural.of(k, states, actions, sizes=sizes, fitting=fitting))(jr.split(key, size)), size
        )

    def member(self, index: Int[Array, ""] | int) -> Neural:
        """One model, for a rollout that stays with it: a call of the ensemble costs as much as all its members."""
        return jax.tree.map(lambda x: x[index], self.members)

    def means(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, "m s"]:
        return jax.vmap(lambda model: model.mean(state, action))(self.members)

    def __call__(
        self, key: Key[Array, ""], state: Float[Array, " s"], action: Float[Array, " a"]
    ) -> Float[Array, " s"]:
        # Under vmap each state has a key: reading one prediction of each is cheap, reading the weights of each is not.
        return self.means(state, action)[jr.randint(key, (), 0, self.size)]

    def disagreement(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, ""]:
        """In the units of the models' loss, so that it compares with `model_error`."""
        differences = jax.vmap(lambda model: model.difference(state, action))(self.members)
        units = self.members.change.std[0]  # all members were fitted to the same data
        return jnp.linalg.norm(jnp.std(differences, axis=0) / units)

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["Ensemble", Metrics]:
        """As `Neural.fit`."""
        data, rejected = numbers_only(data)
        ensemble, metrics = self.train(key, Replay(data, jnp.zeros((), int)))
        return ensemble, metrics | rejected

    def train(self, key: Key[Array, ""], replay: Replay, steps: int | None = None) -> tuple["Ensemble", Metrics]:
        """As `Neural.train`, each member on windows of its own; the metrics' means."""
        keys = jr.split(key, self.size)
        members, metrics = jax.vmap(lambda model, key: model.train(key, replay, steps))(self.members, keys)
        return Ensemble(members, self.size), jax.tree.map(jnp.mean, metrics)


class DrawNeural(eqx.Module):
    """key -> an untrained model: one net, or an ensemble of several."""

    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True, default=(500, 500))
    fitting: Fitting = eqx.field(static=True, default=Fitting())
    members: int = eqx.field(static=True, default=1)

    def __call__(self, key: Key[Array, ""]) -> Neural | Ensemble:
        if self.members == 1:
            return Neural.of(key, self.states, self.actions, sizes=self.sizes, fitting=self.fitting)
        return Ensemble.of(key, self.members, self.states, self.actions, sizes=self.sizes, fitting=self.fitting)
