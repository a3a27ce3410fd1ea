"""Soft actor-critic inside an MDP (Haarnoja et al. 2018), on short imagined episodes (Janner et al. 2019).

    Q(s, a)  <-  r + gamma (min_j Q'_j(s', a') - alpha log pi(a'|s')),   a' ~ pi(.|s'),   Q' a slow copy of Q
    maximise over pi  E[ min_j Q_j(s, a) - alpha log pi(a|s) ],          alpha so that pi keeps its entropy

(paper: planning is a black box; TRPO in its experiments.) A plan imagines `streams` episodes of `length` steps with the
policy it was given and then takes `updates` steps on batches of those. TRPO learns from where its episodes get to and
forgets each after one step: it needs long ones, in which a model's errors add up. Here a critic carries value from one
plan to the next, so a few steps from states that have been real will do. `learn` is all of that but the imagining: real
steps will do as well.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PyTree

from pcmlp.nets import MLP, Normaliser, descend, in_units
from pcmlp.replay import among_all
from pcmlp.rollout import begin, promised_return, walk
from pcmlp.types import MDP, AbstractPlanner, AbstractPolicy, Action, Box, Carry, Metrics, State, Transitions

_LOG_STD = (-5.0, 2.0)


class Learned(eqx.Module):
    """What is trained: one gradient step moves all of it."""

    actor: MLP  # s -> mean and log std of what is squashed into an action
    critics: MLP  # two of them, each array with a leading axis
    log_temperature: Float[Array, ""]  # log alpha


class SoftActorCritic(AbstractPolicy):
    """u = tanh(x), x ~ N(mean(s), std(s)^2), mapped from [-1, 1] to the range of actions."""

    learned: Learned
    targets: MLP  # the critics, some time ago
    optimiser: PyTree
    units: Normaliser  # of states
    actions: Box
    noise: Float[Array, ""]  # 1: the policy as trained, 0: its middle

    def init(self) -> Carry:
        return ()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        return self.act(self.drawn(key), carry, state)

    def acting(self) -> "SoftActorCritic":
        return eqx.tree_at(lambda p: (p.learned.critics, p.targets, p.optimiser), self, (None, None, None))

    def drawn(self, key: Key[Array, ""]) -> Float[Array, " a"]:
        return jr.normal(key, self.actions.low.shape)

    def act(self, drawn: Float[Array, " a"], carry: Carry, state: State) -> tuple[Carry, Action]:
        u, _ = squashed(self.learned.actor(self.units(state)), self.noise * drawn)
        return carry, self.actions.at(u)

    def deterministic(self) -> "SoftActorCritic":
        return eqx.tree_at(lambda p: p.noise, self, jnp.zeros_like(self.noise))

    def at(self, units: Normaliser) -> "SoftActorCritic":
        """The same policy and critics, of states in other units; nets that have learned nothing yet are as good in the
        new units as they are."""
        trained = optax.tree_utils.tree_get(self.optimiser, "count") > 0
        old = jax.tree.map(lambda x, y: jnp.where(trained, x, y), self.units, units)
        learned, targets = self.learned, self.targets
        both = jax.vmap(lambda net: in_units(net, old, units))
        nets = in_units(learned.actor, old, units), both(learned.critics), both(targets), units
        return eqx.tree_at(lambda p: (p.learned.actor, p.learned.critics, p.targets, p.units), self, nets)


class Batch(eqx.Module):
    """Rows in the units of the nets, [n, ...]."""

    x: Float[Array, "n s"]
    u: Float[Array, "n a"]
    reward: Float[Array, " n"]
    next_x: Float[Array, "n s"]
    goes_on: Float[Array, " n"]  # 0: the MDP ended here


class SAC(AbstractPlanner):
    states: Box
    actions: Box
    updates: int = eqx.field(static=True, default=200)  # of a plan
    streams: int = eqx.field(static=True, default=1000)  # imagined side by side
    length: int = eqx.field(static=True, default=5)  # steps of each
    batch: int = eqx.field(static=True, default=256)
    discount: float = 0.99
    rate: float = 3e-4
    slowness: float = 0.005  # how much of the critics goes into their slow copies at every step
    entropy: float = -0.5  # what the policy keeps, for each dimension of actions
    sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    normed: bool = eqx.field(static=True, default=True)  # the critics' hidden layers

    def init(self, key: Key[Array, ""], mdp: MDP) -> SoftActorCritic:
        actor_key, critic_key = jr.split(key)
        size, controls = self.states.size, self.actions.size
        actor = MLP.of(actor_key, (size, *self.sizes, 2 * controls), "relu", last=0.01)
        # Far from all data, where a wrong model may lead, the value of a net that is not normed grows with distance,
        # and one such target after another beyond all bounds (Ball et al. 2023; half-cheetah: one seed of four).
        sizes = (size + controls, *self.sizes, 1)
        critics = jax.vmap(lambda k: MLP.of(k, sizes, "relu", normed=self.normed))(jr.split(critic_key))
        learned = Learned(actor, critics, jnp.zeros(()))
        state = optax.adam(self.rate).init(eqx.filter(learned, eqx.is_array))
        return SoftActorCritic(learned, critics, state, Normaliser.identity(size), self.actions, jnp.ones(()))

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[SoftActorCritic, Metrics]:
        assert isinstance(policy, SoftActorCritic)
        walk_key, row_key, noise_key = jr.split(key, 3)
        episodes = self.imagined(walk_key, mdp, policy)
        # The units of where they begin, which has been real; what is imagined from there may be anywhere.
        policy = policy.at(Normaliser.fit(episodes.state[:, 0], episodes.valid[:, 0]))
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), episodes)
        # Drawn for all updates at once: in the loop that would cost as much as an update.
        chosen = among_all(jr.uniform(row_key, (self.updates, self.batch)), rows.reward.shape[0])
        policy, metrics = self.learn(noise_key, policy, rows, chosen)
        return policy, {"planned_reward": jnp.mean(rows.reward), **metrics}

    def learn(
        self, key: Key[Array, ""], policy: SoftActorCritic, rows: Transitions, chosen: Int[Array, "updates batch"]
    ) -> tuple[SoftActorCritic, Metrics]:
        """A step on each of the batches, of the rows that are `chosen` for it."""
        data = Batch(
            x=jax.vmap(policy.units)(rows.state),
            u=jax.vmap(lambda action: self.actions.where(self.actions.clip(action)))(rows.action),
            reward=rows.reward,
            next_x=jax.vmap(policy.units)(rows.next_state),
            goes_on=1.0 - rows.terminal.astype(jnp.float32),
        )
        updates, batch = chosen.shape
        noise = jr.normal(key, (updates, 2 * batch, self.actions.size))
        carry, rest = eqx.partition((policy.learned, policy.targets, policy.optimiser), eqx.is_array)

        def step(carry, drawn):
            (learned, targets, state), (rows, noise) = eqx.combine(carry, rest), drawn
            batch = jax.tree.map(lambda x: x[rows], data)
            learned, targets, state, metrics = self.update(learned, targets, state, batch, noise)
            return eqx.filter((learned, targets, state), eqx.is_array), metrics

        carry, metrics = jax.lax.scan(step, carry, (chosen, noise))
        # Asked once, of all that learning goes on from.
        counted = [x for x in jax.tree.leaves(carry) if jnp.issubdtype(x.dtype, jnp.inexact)]
        sound = jnp.all(jnp.isfinite(ravel_pytree(counted)[0]))
        changed = eqx.combine(carry, rest)
        new = eqx.tree_at(lambda p: (p.learned, p.targets, p.optimiser), policy, changed)
        new, fixed = eqx.partition(new, eqx.is_array)
        kept = jax.tree.map(lambda x, y: jnp.where(sound, x, y), new, eqx.filter(policy, eqx.is_array))
        last = -(-updates // 4)
        return eqx.combine(kept, fixed), {
            **{name: jnp.mean(values[-last:]) for name, values in metrics.items()},
            "policy_skipped": 1.0 - sound.astype(jnp.float32),
        }

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""]:
        return promised_return(key, mdp, policy)

    def imagined(self, key: Key[Array, ""], mdp: MDP, policy: SoftActorCritic) -> Transitions:
        """Episodes, [streams, length, ...]."""

        def episode(key):
            start_key, walk_key = jr.split(key)
            return walk(walk_key, mdp, policy, begin(mdp.initial(start_key), policy), self.length)[1]

        return jax.vmap(episode)(jr.split(key, self.streams))

    def update(
        self, learned: Learned, targets: MLP, state: PyTree, batch: Batch, noise: Float[Array, "two_n a"]
    ) -> tuple[Learned, MLP, PyTree, Metrics]:
        (_, metrics), gradient = jax.value_and_grad(self.loss, has_aux=True)(learned, targets, batch, noise)
        learned, state = descend(optax.adam(self.rate), gradient, state, learned)
        targets = jax.tree.map(lambda old, new: old + self.slowness * (new - old), targets, learned.critics)
        return learned, targets, state, metrics

    def loss(
        self, learned: Learned, targets: MLP, batch: Batch, noise: Float[Array, "two_n a"]
    ) -> tuple[Float[Array, ""], Metrics]:
        """The sum of the three losses, each with a gradient for its own part alone."""
        stop = jax.lax.stop_gradient
        temperature = jnp.exp(stop(learned.log_temperature))
        outputs = jax.vmap(learned.actor)(jnp.concatenate([batch.x, batch.next_x]))
        u, log_prob = jax.vmap(squashed)(outputs, noise)
        (u, next_u), (log_prob, next_log_prob) = jnp.split(u, 2), jnp.split(log_prob, 2)

        # critics
        after = jnp.min(values(targets, batch.next_x, next_u), axis=0) - temperature * next_log_prob
        target = stop(batch.reward + self.discount * batch.goes_on * after)
        error = values(learned.critics, batch.x, batch.u) - target[None, :]
        # actor
        worth = jnp.min(values(jax.tree.map(stop, learned.critics), batch.x, u), axis=0)
        # temperature
        excess = stop(jnp.mean(log_prob)) + self.entropy * self.actions.size

        value_loss = jnp.mean(error**2)
        loss = value_loss + jnp.mean(temperature * log_prob - worth) - learned.log_temperature * excess
        log_std = outputs[:, self.actions.size :]
        return loss, {
            "value_loss": value_loss,
            "value_mean": jnp.mean(worth),
            "temperature": temperature,
            "noise_std": jnp.mean(jnp.exp(jnp.clip(log_std, *_LOG_STD))),
        }


def squashed(output: Float[Array, " two_a"], noise: Float[Array, " a"]) -> tuple[Float[Array, " a"], Float[Array, ""]]:
    """u in (-1, 1) and log pi(u|s), of the actor's output and standard normal numbers."""
    mean, log_std = jnp.split(output, 2)
    log_std = jnp.clip(log_std, *_LOG_STD)
    x = mean + jnp.exp(log_std) * noise
    gaussian = -jnp.sum(0.5 * noise**2 + log_std + 0.5 * math.log(2 * math.pi))
    # log(1 - tanh(x)^2), without the difference of numbers that are nearly the same
    bend = 2.0 * jnp.sum(math.log(2.0) - x - jax.nn.softplus(-2.0 * x))
    return jnp.tanh(x), gaussian - bend


def values(critics: MLP, x: Float[Array, "n s"], u: Float[Array, "n a"]) -> Float[Array, "two n"]:
    inputs = jnp.concatenate([x, u], axis=1)
    return jax.vmap(lambda critic: jax.vmap(critic)(inputs)[:, 0])(critics)
