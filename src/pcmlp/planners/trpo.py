"""Trust region policy optimisation inside an MDP (Schulman et al. 2015; paper: section 6, the planner of Algorithm 2).

    maximise over theta  E[ pi_theta(a|s) / pi_old(a|s) A(s, a) ]   subject to   E[ KL(pi_old | pi_theta) ] <= delta

One update: imagined steps, their generalised advantages, the natural gradient F^-1 g by conjugate gradient on
Fisher-vector products, a line search along it on objective and KL, and a few epochs of the value net. `learn` is all
of that but the imagining: real steps will do as well. With `entropy` the objective has that much of the policy's
entropy in it, beside advantages of unit spread, so that its noise lasts.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PyTree

from pcmlp.nets import MLP, GaussianHead, Normaliser, descend, in_units
from pcmlp.replay import among_all, among_valid
from pcmlp.rollout import Place, begin, cut_off, promised_return, walk
from pcmlp.types import MDP, AbstractPlanner, AbstractPolicy, Action, Box, Carry, Metrics, State, Transitions

_CANDIDATES = 10  # steps that a line search tries, each half of the one before
_FISHER = 4  # one step in so many is in the Fisher matrix, which is an average
_TINY = 1e-8


class ActorCritic(AbstractPolicy):
    """A Gaussian policy and its value net. The net's output u in [-1, 1] is mapped to the range of actions."""

    actor: GaussianHead
    critic: MLP
    critic_state: PyTree  # of the critic's optimiser
    units: Normaliser  # of states
    actions: Box
    noise: Float[Array, ""]  # 1: the policy as trained, 0: its mean

    def init(self) -> Carry:
        return ()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        gaussian = self.actor(self.units(state))
        u = gaussian.mean + self.noise * jnp.exp(gaussian.log_std) * jr.normal(key, gaussian.mean.shape)
        return carry, self.actions.at(u)

    def deterministic(self) -> "ActorCritic":
        return eqx.tree_at(lambda p: p.noise, self, jnp.zeros_like(self.noise))

    def at(self, units: Normaliser) -> "ActorCritic":
        """The same policy and values, of states in other units; nets that have learned nothing yet are as good in the
        new units as they are."""
        trained = optax.tree_utils.tree_get(self.critic_state, "count") > 0
        old = jax.tree.map(lambda x, y: jnp.where(trained, x, y), self.units, units)
        nets = in_units(self.actor.net, old, units), in_units(self.critic, old, units), units
        return eqx.tree_at(lambda p: (p.actor.net, p.critic, p.units), self, nets)


class TRPO(AbstractPlanner):
    states: Box
    actions: Box
    updates: int = eqx.field(static=True, default=40)
    streams: int = eqx.field(static=True, default=80)  # imagined side by side
    length: int = eqx.field(static=True, default=50)  # steps of each in an update
    discount: float = 0.99
    trace: float = 0.95  # lambda of the advantages
    kl_bound: float = 0.01  # delta
    damping: float = 0.1
    conjugate_steps: int = eqx.field(static=True, default=10)
    policy_sizes: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    value_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    value_rate: float = 3e-3
    value_epochs: int = eqx.field(static=True, default=5)
    value_batch: int = eqx.field(static=True, default=256)
    entropy: float = 0.0  # its weight in the objective

    def init(self, key: Key[Array, ""], mdp: MDP) -> ActorCritic:
        actor_key, critic_key = jr.split(key)
        size = self.states.size
        critic = MLP.of(critic_key, (size, *self.value_sizes, 1), "tanh")
        low, high = self.states.low, self.states.high
        known = jnp.isfinite(high - low) & (high > low)  # a coordinate without bounds is taken as it is
        units = Normaliser(jnp.where(known, 0.5 * (high + low), 0.0), jnp.where(known, 0.5 * (high - low), 1.0))
        actor = GaussianHead.of(actor_key, size, self.actions.size, sizes=self.policy_sizes)
        critic_state = optax.adam(self.value_rate).init(eqx.filter(critic, eqx.is_array))
        return ActorCritic(actor, critic, critic_state, units, self.actions, jnp.ones(()))

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[ActorCritic, Metrics]:
        assert isinstance(policy, ActorCritic)
        start_key, update_key = jr.split(key)
        places = self.places(start_key, mdp, policy)
        arrays, rest = eqx.partition(policy, eqx.is_array)

        def step(carry, update_key):
            arrays, places = carry
            policy, places, metrics = self.update(update_key, mdp, eqx.combine(arrays, rest), places)
            return (eqx.filter(policy, eqx.is_array), places), metrics

        (arrays, _), metrics = jax.lax.scan(step, (arrays, places), jr.split(update_key, self.updates))
        last = -(-self.updates // 4)
        return eqx.combine(arrays, rest), {name: jnp.mean(values[-last:]) for name, values in metrics.items()}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""]:
        return promised_return(key, mdp, policy)

    def places(self, key: Key[Array, ""], mdp: MDP, policy: ActorCritic) -> Place:
        """Where the streams begin. Their clocks differ, so that they do not all begin their next episode at once."""
        places = jax.vmap(lambda k: begin(mdp.initial(k), policy))(jr.split(key, self.streams))
        clocks = jnp.linspace(0, mdp.horizon - 1, self.streams).astype(int)
        return Place(places.state, places.memory, clocks)

    def update(
        self, key: Key[Array, ""], mdp: MDP, policy: ActorCritic, places: Place
    ) -> tuple[ActorCritic, Place, Metrics]:
        """One update; the imagined streams go on where the last update left them."""
        roll_key, value_key = jr.split(key)

        # imagine
        run = jax.vmap(lambda k, place: walk(k, mdp, policy, place, self.length))
        places, steps = run(jr.split(roll_key, self.streams), places)
        policy, metrics = self.learn(value_key, policy, steps)
        return policy, places, metrics

    def learn(
        self,
        key: Key[Array, ""],
        policy: ActorCritic,
        steps: Transitions,
        counted: Bool[Array, "streams length"] | None = None,
    ) -> tuple[ActorCritic, Metrics]:
        """One update by streams of steps of the policy, [streams, length, ...]: those that are `counted`, or all."""
        steps = steps if counted is None else cut_off(steps, counted)

        # advantages
        value = jax.vmap(jax.vmap(lambda s: policy.critic(policy.units(s))[0]))
        baseline = value(steps.state)
        gain = jax.vmap(lambda t, v, w: advantages(t, v, w, self.discount, self.trace))
        advantage = gain(steps, baseline, value(steps.next_state))
        target = (advantage + baseline).reshape(-1)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        weight = advantage.reshape(-1)
        among = None if counted is None else counted.reshape(-1)
        weight = (weight - mean(weight, among)) / (jnp.std(weight, where=among) + _TINY)

        # policy, then value net
        x = jax.vmap(policy.units)(rows.state)
        u = jax.vmap(policy.actions.where)(rows.action)
        actor, kl, improvement = self.natural_step(policy.actor, x, u, weight, among)
        critic, critic_state, loss = self.fit_value(key, policy, x, target, among)
        # Asked once, not at every step, which are many and small; and only of Adam's squares of gradients, which are
        # numbers if all the rest is.
        fitted = jnp.all(jnp.isfinite(ravel_pytree(critic_state[0].nu)[0]))
        critic, critic_state = jax.lax.cond(
            fitted, lambda: (critic, critic_state), lambda: (policy.critic, policy.critic_state)
        )
        policy = eqx.tree_at(lambda p: (p.actor, p.critic, p.critic_state), policy, (actor, critic, critic_state))
        metrics = {
            "planned_reward": mean(rows.reward, among),
            "kl": kl,
            "improvement": improvement,
            "value_loss": loss,
            "noise_std": jnp.mean(jnp.exp(actor.log_std)),
            "policy_skipped": (improvement == 0).astype(jnp.float32),
            "value_skipped": 1.0 - fitted.astype(jnp.float32),
        }
        return policy, metrics

    def natural_step(
        self,
        actor: GaussianHead,
        x: Float[Array, "n s"],
        u: Float[Array, "n a"],
        weight: Float[Array, " n"],
        counted: Bool[Array, " n"] | None = None,
    ) -> tuple[GaussianHead, Float[Array, ""], Float[Array, ""]]:
        """The new actor, how far it is in KL, and what the surrogate objective gained; the old one, 0 and 0 where no
        step gains, as with advantages that are all the same or not numbers."""
        theta, unravel = ravel_pytree(actor)
        old = jax.vmap(actor)(x)
        old_log = jax.vmap(lambda g, a: g.log_prob(a))(old, u)

        def judge(theta: Float[Array, " p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
            """The surrogate objective and the divergence from the old actor."""
            new = jax.vmap(unravel(theta))(x)
            log = jax.vmap(lambda g, a: g.log_prob(a))(new, u)
            divergence = jax.vmap(lambda g, h: g.kl(h))(old, new)
            objective = mean(jnp.exp(log - old_log) * weight, counted)
            if self.entropy:  # not a product with 0: that would round the rest in another way
                objective = objective + self.entropy * mean(jax.vmap(lambda g: g.entropy())(new), counted)
            return objective, mean(divergence, counted)

        (before, _), gradient = jax.value_and_grad(judge, has_aux=True)(theta)
        fisher = self.fisher_product(theta, unravel, x[::_FISHER], None if counted is None else counted[::_FISHER])
        direction = conjugate_gradient(fisher, gradient, self.conjugate_steps)
        length = jnp.sqrt(2.0 * self.kl_bound / jnp.maximum(direction @ fisher(direction), _TINY))

        # line search: the longest step that gains and stays in the region
        def worse(carry):
            tries, _, gain, distance = carry
            return (tries < _CANDIDATES) & ~((gain > 0) & (distance <= 1.5 * self.kl_bound))

        def shorter(carry):
            tries, *_ = carry
            candidate = theta + 0.5 ** tries.astype(jnp.float32) * length * direction
            objective, distance = judge(candidate)
            return tries + 1, candidate, objective - before, distance

        nothing = (jnp.zeros((), int), theta, jnp.zeros(()), jnp.zeros(()))
        _, candidate, gain, distance = jax.lax.while_loop(worse, shorter, nothing)
        known = jnp.isfinite(gain) & jnp.isfinite(candidate @ candidate)  # tanh makes a number of an infinite weight
        accepted = known & (gain > 0) & (distance <= 1.5 * self.kl_bound)
        new = jnp.where(accepted, candidate, theta)
        return unravel(new), jnp.where(accepted, distance, 0.0), jnp.where(accepted, gain, 0.0)

    def fisher_product(
        self, theta: Float[Array, " p"], unravel, x: Float[Array, "n s"], counted: Bool[Array, " n"] | None = None
    ):
        """v -> (F + damping) v with F = E[ J^T diag(1 / std^2) J ] for the means and 2 for each log std."""

        def outputs(theta: Float[Array, " p"]) -> tuple[Float[Array, "n a"], Float[Array, " a"]]:
            actor = unravel(theta)
            return jax.vmap(actor.net)(x), actor.log_std

        (_, log_std), push = jax.linearize(outputs, theta)
        pull = jax.linear_transpose(push, theta)

        def product(v: Float[Array, " p"]) -> Float[Array, " p"]:
            shift, log = push(v)
            scaled = shift * jnp.exp(-2.0 * log_std)[None, :] / x.shape[0]
            if counted is not None:
                share = counted.astype(jnp.float32)
                scaled = scaled * (share / jnp.maximum(jnp.mean(share), _TINY))[:, None]
            return pull((scaled, 2.0 * log))[0] + self.damping * v

        return product

    def fit_value(
        self,
        key: Key[Array, ""],
        policy: ActorCritic,
        x: Float[Array, "n s"],
        target: Float[Array, " n"],
        counted: Bool[Array, " n"] | None = None,
    ) -> tuple[MLP, PyTree, Float[Array, ""]]:
        optimiser = optax.adam(self.value_rate)
        size = min(self.value_batch, x.shape[0])
        batches = x.shape[0] // size

        # paper: a new order of all steps in each epoch / here: as many draws with replacement, which need no sorting;
        # that took as long as the rest of the fit.
        draws = jr.uniform(key, (self.value_epochs * batches, size))
        chosen = among_all(draws, x.shape[0]) if counted is None else among_valid(draws, counted)
        critic, rest = eqx.partition(policy.critic, eqx.is_array)

        def loss(critic, x, target):
            predicted = jax.vmap(eqx.combine(critic, rest))(x)[:, 0]
            return jnp.mean((predicted - target) ** 2)

        def step(carry, batch):
            critic, state = carry
            value, gradient = jax.value_and_grad(loss)(critic, *batch)
            return descend(optimiser, gradient, state, critic), value

        batched = x[chosen], target[chosen]  # gathered once, not at every step
        (critic, state), losses = jax.lax.scan(step, (critic, policy.critic_state), batched)
        return eqx.combine(critic, rest), state, jnp.mean(losses[-batches:])


def mean(x: Float[Array, " n"], counted: Bool[Array, " n"] | None) -> Float[Array, ""]:
    return jnp.mean(x) if counted is None else jnp.mean(x, where=counted)


def advantages(
    steps: Transitions,
    values: Float[Array, " n"],
    next_values: Float[Array, " n"],
    discount: float,
    trace: float,
) -> Float[Array, " n"]:
    """Generalised advantages of one stream: what ended pays nothing more, what was only cut off pays its value."""
    error = steps.reward + discount * jnp.where(steps.terminal, 0.0, next_values) - values

    def back(after, row):
        delta, last = row
        now = delta + jnp.where(last, 0.0, discount * trace * after)
        return now, now

    return jax.lax.scan(back, jnp.zeros(()), (error, steps.last), reverse=True)[1]


def conjugate_gradient(product, b: Float[Array, " p"], steps: int) -> Float[Array, " p"]:
    """x with product(x) = b, nearly."""

    def step(carry, _):
        x, residual, direction, size = carry
        image = product(direction)
        rate = size / jnp.maximum(direction @ image, _TINY)
        x, residual = x + rate * direction, residual - rate * image
        new = residual @ residual
        return (x, residual, residual + new / jnp.maximum(size, _TINY) * direction, new), None

    return jax.lax.scan(step, (jnp.zeros_like(b), b, b, b @ b), None, length=steps)[0][0]
