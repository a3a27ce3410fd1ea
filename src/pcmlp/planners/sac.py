"""Soft actor-critic inside an MDP (Haarnoja et al. 2018), on short imagined episodes (Janner et al. 2019).

    Q(s, a)  <-  r + gamma (min_j Q'_j(s', a') - alpha log pi(a'|s')),   a' ~ pi(.|s'),   Q' a slow copy of Q
    maximise over pi  E[ min_j Q_j(s, a) - alpha log pi(a|s) ],          alpha adapts so that pi keeps its entropy

(paper: planning is a black box; TRPO in its experiments.) A plan imagines `streams` episodes of `length` steps with the
policy it was given, then takes `updates` gradient steps on batches of them. TRPO uses each episode for one update and
then discards it, so it needs long episodes, in which the errors of a model add up. Here a critic carries values from
one plan to the next, so a few steps from real states are enough. `learn` is a plan without imagined episodes:
model-free SAC applies it to real steps.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from pcmlp.nets import MLP, Normaliser, descend, renormalise_inputs, tail_mean
from pcmlp.planners.soft_heads import SoftHead, soft_head
from pcmlp.replay import Replay, Transitions, pick_any
from pcmlp.rollout import begin, estimate_promise, walk
from pcmlp.settings import setting
from pcmlp.spaces import Vectors
from pcmlp.trees import all_finite, drop, scan, select
from pcmlp.types import MDP, Action, Carry, Metrics, Planner, Policy, State


class Networks(eqx.Module):
    """The trained networks: one gradient step updates all of them."""

    actor: MLP  # s -> the parameters of the action distribution (`soft_heads`)
    critics: MLP  # two critics: each array has a leading axis of 2
    log_temperature: Float[Array, ""]  # log alpha


class SoftActorCritic(Policy):
    """A stochastic policy and its critics. In a box, the actor's u in (-1, 1) is mapped to the range of actions."""

    learned: Networks
    targets: MLP  # the slow copies of the critics
    optimiser: PyTree
    units: Normaliser  # normalises states
    noise: Float[Array, ""]  # 1: the policy with its noise, 0: its mode
    actions: Vectors

    @property
    def head(self) -> SoftHead:
        """The head that turns the actor's output into actions."""
        return soft_head(self.actions)

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        return self.act(self.sample_noise(key), carry, state)

    def inference_only(self) -> "SoftActorCritic":
        """Return the policy without critics and optimiser."""
        return drop(lambda p: (p.learned.critics, p.targets, p.optimiser), self)

    def sample_noise(self, key: Key[Array, ""]) -> Float[Array, " a"]:
        """Draw the random numbers of one step."""
        return self.head.draw_noise(key)

    def act(self, noise: Float[Array, " a"], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Return the action that the given noise leads to."""
        u, _ = self.head.sample(self.learned.actor(self.units(state)), self.noise * noise)
        return carry, self.actions.from_unit(u)

    def deterministic(self) -> "SoftActorCritic":
        """Return the policy that plays its mode."""
        return eqx.tree_at(lambda p: p.noise, self, jnp.zeros_like(self.noise))

    def with_normaliser(self, units: Normaliser) -> "SoftActorCritic":
        """Return the same policy and critics for states in other units; untrained nets stay unchanged, because they
        are as good in the new units."""
        trained = optax.tree_utils.tree_get(self.optimiser, "count") > 0
        old = jax.tree.map(lambda x, y: jnp.where(trained, x, y), self.units, units)
        learned, targets = self.learned, self.targets
        both = jax.vmap(lambda net: renormalise_inputs(net, old, units))
        nets = renormalise_inputs(learned.actor, old, units), both(learned.critics), both(targets), units
        return eqx.tree_at(lambda p: (p.learned.actor, p.learned.critics, p.targets, p.units), self, nets)


class Batch(eqx.Module):
    """The rows of one update, or of all, normalised and joined as the nets take them."""

    pairs: Float[Array, "*updates n pair"]  # (s, a), for the critics
    states: Float[Array, "*updates two_n s"]  # all s, then all s', for the actor
    reward: Float[Array, "*updates n"]
    continues: Float[Array, "*updates n"]  # 0 where the MDP ended, else 1


class SAC(Planner):
    """Soft actor-critic on short imagined episodes."""

    reward_size: ClassVar[float] = 4.0
    updates: int = setting(200, "gradient steps of one plan", least=1, tiny=2)
    streams: int = setting(1000, "episodes imagined side by side", least=1, tiny=16)
    length: int = setting(5, "steps of each imagined episode", least=1)
    batch: int = setting(256, "rows of one gradient step", least=1, tiny=16)
    discount: float = setting(0.99, "discount", least=0, most=1)
    rate: float = setting(3e-4, "learning rate of Adam", above=0, tune="0.0001:0.001:log")
    slowness: float = setting(0.005, "share of the critics that moves into their slow copies per step", above=0, most=1)
    entropy: float = setting(-0.5, "entropy that the policy keeps, per dimension of actions", tune="-1.5:-0.2")
    sizes: tuple[int, ...] = setting((256, 256), "hidden layers of actor and critics", least=1, tiny=(8,))
    # A wrong model may lead far from all data. There the value of a net without layer norm grows with the distance, and
    # targets made of such values grow without bound (Ball et al. 2023; half-cheetah: one seed of four).
    normed: bool = setting(True, "layer norm in the critics")

    def init(self, key: Key[Array, ""], mdp: MDP) -> SoftActorCritic:
        """Return an untrained policy."""
        states, actions = mdp.boxes
        actor_key, critic_key = jr.split(key)
        actor = MLP.of(actor_key, (states.size, *self.sizes, soft_head(actions).outputs), "relu", last=0.01)
        sizes = (states.size + actions.size, *self.sizes, 1)
        critics = jax.vmap(lambda k: MLP.of(k, sizes, "relu", normed=self.normed))(jr.split(critic_key))
        learned = Networks(actor, critics, jnp.zeros(()))
        state = optax.adam(self.rate).init(eqx.filter(learned, eqx.is_array))
        return SoftActorCritic(learned, critics, state, Normaliser.identity(states.size), jnp.ones(()), actions)

    def renormalise(self, mdp: MDP, policy: Policy, replay: Replay) -> SoftActorCritic:
        """Return the policy in the units of the replay: imagined states may be anywhere."""
        assert isinstance(policy, SoftActorCritic)
        return policy.with_normaliser(Normaliser.fit(replay.data.state, replay.data.valid))

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple[SoftActorCritic, Metrics]:
        """Imagine episodes with the policy, then take gradient steps on them."""
        assert isinstance(policy, SoftActorCritic)
        walk_key, row_key, noise_key = jr.split(key, 3)
        episodes = self.imagine_episodes(walk_key, mdp, policy)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), episodes)
        # Draw the rows of all updates at once: in the loop, drawing would cost as much as an update.
        chosen = pick_any(jr.uniform(row_key, (self.updates, self.batch)), rows.reward.shape[0])
        policy, metrics = self.learn(noise_key, policy, rows, chosen)
        return policy, {"planned_reward": jnp.mean(rows.reward), **metrics}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
        """Estimate J(policy; r, P)."""
        return estimate_promise(key, mdp, policy)

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one plan."""
        return 0, self.streams * self.length

    def imagine_episodes(self, key: Key[Array, ""], mdp: MDP, policy: SoftActorCritic) -> Transitions:
        """Return episodes of the policy, [streams, length, ...]."""

        def episode(key):
            start_key, walk_key = jr.split(key)
            return walk(walk_key, mdp, policy, begin(mdp.initial(start_key), policy), self.length)[1]

        return jax.vmap(episode)(jr.split(key, self.streams))

    def learn(
        self, key: Key[Array, ""], policy: SoftActorCritic, rows: Transitions, chosen: Int[Array, "updates batch"]
    ) -> tuple[SoftActorCritic, Metrics]:
        """Take a gradient step on each batch of chosen rows; return the old policy if a value is not finite."""
        x, next_x = (jax.vmap(policy.units)(states) for states in (rows.state, rows.next_state))
        u = jax.vmap(lambda action: policy.actions.to_unit(policy.actions.clip(action)))(rows.action)
        updates, batch = chosen.shape
        noise = policy.head.draw_noise(key, updates, 2 * batch)
        batches = Batch(  # gathered once, not at every step
            pairs=jnp.concatenate([x, u], axis=1)[chosen],
            states=jnp.concatenate([x[chosen], next_x[chosen]], axis=1),
            reward=rows.reward[chosen],
            continues=1.0 - rows.terminal[chosen].astype(jnp.float32),
        )

        def step(carry, inputs):
            (learned, targets, state), (batch, noise) = carry, inputs
            return self.update(policy.head, learned, targets, state, batch, noise)

        changed, metrics = scan(step, (policy.learned, policy.targets, policy.optimiser), (batches, noise))
        sound = all_finite(changed)  # checked once, after all steps
        new = eqx.tree_at(lambda p: (p.learned, p.targets, p.optimiser), policy, changed)
        return select(sound, new, policy), {
            **{name: tail_mean(values, 4) for name, values in metrics.items()},
            "policy_skipped": 1.0 - sound.astype(jnp.float32),
        }

    def update(
        self,
        head: SoftHead,
        learned: Networks,
        targets: MLP,
        state: PyTree,
        batch: Batch,
        noise: Float[Array, "two_n a"],
    ) -> tuple[tuple[Networks, MLP, PyTree], Metrics]:
        """Take one gradient step and move the slow copies."""
        (_, metrics), gradient = jax.value_and_grad(self.loss, has_aux=True)(learned, head, targets, batch, noise)
        learned, state = descend(optax.adam(self.rate), gradient, state, learned)
        targets = jax.tree.map(lambda old, new: old + self.slowness * (new - old), targets, learned.critics)
        return (learned, targets, state), metrics

    def loss(
        self, learned: Networks, head: SoftHead, targets: MLP, batch: Batch, noise: Float[Array, "two_n a"]
    ) -> tuple[Float[Array, ""], Metrics]:
        """Return the sum of the three losses; each has a gradient only for its own network."""
        stop = jax.lax.stop_gradient
        temperature = jnp.exp(stop(learned.log_temperature))
        outputs = jax.vmap(learned.actor)(batch.states)
        u, log_prob = jax.vmap(head.sample)(outputs, noise)
        pairs, next_pairs = jnp.split(jnp.concatenate([batch.states, u], axis=1), 2)
        log_prob, next_log_prob = jnp.split(log_prob, 2)

        # critics
        after = jnp.min(values(targets, next_pairs), axis=0) - temperature * next_log_prob
        target = stop(batch.reward + self.discount * batch.continues * after)
        error = values(learned.critics, batch.pairs) - target[None, :]
        # actor
        fixed = jax.tree.map(stop, learned.critics)
        worth = head.expect(lambda pairs: jnp.min(values(fixed, pairs), axis=0), pairs, outputs[: pairs.shape[0]])
        # temperature
        excess = stop(jnp.mean(log_prob)) + head.target_entropy(self.entropy)

        value_loss = jnp.mean(error**2)
        loss = value_loss + jnp.mean(temperature * log_prob - worth) - learned.log_temperature * excess
        return loss, {
            "value_loss": value_loss,
            "value_mean": jnp.mean(worth),
            "temperature": temperature,
            **head.measure(outputs),
        }


def values(critics: MLP, pairs: Float[Array, "n pair"]) -> Float[Array, "two n"]:
    """Return the values of all critics for rows of (s, a)."""
    return jax.vmap(lambda critic: jax.vmap(critic)(pairs)[:, 0])(critics)
