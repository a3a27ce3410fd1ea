"""Trust region policy optimisation inside an MDP (Schulman et al. 2015; paper: section 6, the planner of Algorithm 2).

    maximise over theta  E[ pi_theta(a|s) / pi_old(a|s) A(s, a) ]   subject to   E[ KL(pi_old | pi_theta) ] <= delta

One update: imagine steps; compute generalised advantages; compute the natural gradient F^-1 g by conjugate gradient on
Fisher-vector products; search along it on objective and KL; train the value net for a few epochs. `learn` is an update
without imagined steps: model-free TRPO applies it to real steps. `entropy` adds this multiple of the policy's entropy
to the objective, whose advantages have unit std, so that the policy stays random.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PyTree

from pcmlp.heads import Head, head_of
from pcmlp.nets import MLP, Normaliser, descend, tail_mean
from pcmlp.planners.actor_critic import ActorCritic, units_of
from pcmlp.replay import Replay, Transitions, pick_any, pick_valid
from pcmlp.rollout import RolloutState, begin, end_at_gaps, estimate_promise, walk
from pcmlp.settings import setting
from pcmlp.trees import scan, short_scan
from pcmlp.types import MDP, Metrics, Planner, Policy

_CANDIDATES = 10  # steps that a line search tries, each half of the one before
_FISHER = 4  # the Fisher matrix is averaged over every fourth step
_TINY = 1e-8


class TRPO(Planner):
    """Trust-region steps on imagined streams."""

    updates: int = setting(40, "updates of one plan", least=1, tiny=1)
    streams: int = setting(80, "streams imagined side by side", least=1, tiny=8)
    length: int = setting(50, "steps of each stream in one update", least=1, tiny=10)
    discount: float = setting(0.99, "discount", least=0, most=1)
    trace: float = setting(0.95, "lambda of the generalised advantages", least=0, most=1)
    kl_bound: float = setting(0.01, "trust region: largest KL of one update", above=0, tune="0.003:0.03:log")
    damping: float = setting(0.1, "added to the Fisher matrix's diagonal", least=0)
    per_dimension: bool = setting(False, "whether kl_bound and damping are per dimension of actions")
    conjugate_steps: int = setting(10, "conjugate gradient steps", least=1)
    policy_sizes: tuple[int, ...] = setting((32, 32), "hidden layers of the policy", least=1, tiny=(8,))
    value_sizes: tuple[int, ...] = setting((64, 64), "hidden layers of the value net", least=1, tiny=(8,))
    value_rate: float = setting(3e-3, "learning rate of the value net", above=0, tune="0.001:0.01:log")
    value_epochs: int = setting(5, "epochs of the value net in one update", least=1)
    value_batch: int = setting(256, "steps in a batch of the value net", least=1, tiny=20)
    entropy: float = setting(0.0, "weight of the policy's entropy in the objective", least=0, most=1e6)

    @property
    def imagined_rows(self) -> int:
        """The imagined steps of one update."""
        return self.streams * self.length

    def init(self, key: Key[Array, ""], mdp: MDP) -> ActorCritic:
        """Return an untrained policy; states are normalised by their bounds where these are finite."""
        states, actions = mdp.boxes
        actor_key, critic_key = jr.split(key)
        critic = MLP.of(critic_key, (states.size, *self.value_sizes, 1), "tanh")
        units = units_of(states, Normaliser.identity(states.size))
        actor = head_of(actor_key, states.size, actions, self.policy_sizes)
        critic_state = optax.adam(self.value_rate).init(eqx.filter(critic, eqx.is_array))
        return ActorCritic(actor, critic, critic_state, units, jnp.ones(()), actions)

    def renormalise(self, mdp: MDP, policy: Policy, replay: Replay) -> ActorCritic:
        """Return the policy with states normalised by their bounds or, where there are none, by the replay."""
        assert isinstance(policy, ActorCritic)
        states, _ = mdp.boxes
        if states.is_bounded():  # nothing changes
            return policy
        return policy.with_normaliser(units_of(states, Normaliser.fit(replay.data.state, replay.data.valid)))

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple[ActorCritic, Metrics]:
        """Run `updates` updates on streams that continue from one update to the next."""
        assert isinstance(policy, ActorCritic)
        start_key, update_key = jr.split(key)
        places = self.start_streams(start_key, mdp, policy)

        def step(carry, update_key):
            policy, places = carry
            policy, places, metrics = self.update(update_key, mdp, policy, places)
            return (policy, places), metrics

        (policy, _), metrics = scan(step, (policy, places), jr.split(update_key, self.updates))
        return policy, {name: tail_mean(values, 4) for name, values in metrics.items()}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
        """Estimate J(policy; r, P)."""
        return estimate_promise(key, mdp, policy)

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one plan."""
        return 0, self.updates * self.streams * self.length

    def start_streams(self, key: Key[Array, ""], mdp: MDP, policy: ActorCritic) -> RolloutState:
        """Return the starts of the streams, at different times in an episode, so that they do not all end at once."""
        places = jax.vmap(lambda k: begin(mdp.initial(k), policy))(jr.split(key, self.streams))
        clocks = jnp.linspace(0, mdp.horizon - 1, self.streams).astype(int)
        return RolloutState(places.state, places.memory, clocks)

    def update(
        self, key: Key[Array, ""], mdp: MDP, policy: ActorCritic, places: RolloutState
    ) -> tuple[ActorCritic, RolloutState, Metrics]:
        """Imagine `length` steps of every stream and learn from them."""
        roll_key, value_key = jr.split(key)
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
        """Update the policy by its own streams, [streams, length, ...], or only by the steps that are `counted`."""
        steps = steps if counted is None else end_at_gaps(steps, counted)

        # advantages
        value = jax.vmap(jax.vmap(policy.value))
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
        u = jax.vmap(policy.actions.to_unit)(rows.action)
        actor, kl, improvement = self.natural_step(policy.actor, x, u, weight, among)
        critic, critic_state, loss = self.fit_value(key, policy, x, target, among)
        # Check once, not after each small step, and check only Adam's squared gradients: if something else is not
        # finite, they are not either.
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
            **actor.measure(x),
            "policy_skipped": (improvement == 0).astype(jnp.float32),
            "value_skipped": 1.0 - fitted.astype(jnp.float32),
        }
        return policy, metrics

    def natural_step(
        self,
        actor: Head,
        x: Float[Array, "n s"],
        u: Float[Array, "n a"],
        weight: Float[Array, " n"],
        counted: Bool[Array, " n"] | None = None,
    ) -> tuple[Head, Float[Array, ""], Float[Array, ""]]:
        """Return the new actor, its KL from the old one, and the gain of the surrogate objective; the old actor, 0 and
        0 if no step gains, for example because all advantages are equal or one is not finite."""
        theta, unravel = ravel_pytree(actor)
        old = jax.vmap(actor)(x)
        old_log = jax.vmap(lambda g, a: g.log_prob(a))(old, u)
        bound = self.kl_bound * (actor.dims if self.per_dimension else 1)

        def judge(theta: Float[Array, " p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
            """Return the surrogate objective and the divergence from the old actor."""
            new = jax.vmap(unravel(theta))(x)
            log = jax.vmap(lambda g, a: g.log_prob(a))(new, u)
            divergence = jax.vmap(lambda g, h: g.kl(h))(old, new)
            objective = mean(jnp.exp(log - old_log) * weight, counted)
            entropy = mean(jax.vmap(lambda g: g.entropy())(new), counted)
            return objective + self.entropy * entropy, mean(divergence, counted)

        (before, _), gradient = jax.value_and_grad(judge, has_aux=True)(theta)
        fisher = self.fisher_product(theta, unravel, x[::_FISHER], None if counted is None else counted[::_FISHER])
        direction = conjugate_gradient(fisher, gradient, self.conjugate_steps)
        length = jnp.sqrt(2.0 * bound / jnp.maximum(direction @ fisher(direction), _TINY))

        # line search: the longest step that gains and stays within the trust region
        def is_worse(carry):
            tries, _, gain, distance = carry
            return (tries < _CANDIDATES) & ~((gain > 0) & (distance <= 1.5 * bound))

        def halve(carry):
            tries, *_ = carry
            candidate = theta + 0.5 ** tries.astype(jnp.float32) * length * direction
            objective, distance = judge(candidate)
            return tries + 1, candidate, objective - before, distance

        nothing = (jnp.zeros((), int), theta, jnp.zeros(()), jnp.zeros(()))
        _, candidate, gain, distance = jax.lax.while_loop(is_worse, halve, nothing)
        known = jnp.isfinite(gain) & jnp.isfinite(candidate @ candidate)  # the tanh of an infinite weight is finite
        accepted = known & (gain > 0) & (distance <= 1.5 * bound)
        new = jnp.where(accepted, candidate, theta)
        return unravel(new), jnp.where(accepted, distance, 0.0), jnp.where(accepted, gain, 0.0)

    def fisher_product(
        self, theta: Float[Array, " p"], unravel, x: Float[Array, "n s"], counted: Bool[Array, " n"] | None = None
    ):
        """Return v -> (F + damping) v, F = E[ J^T M J ], for the metric M of the distributions and their parameters."""
        actor = unravel(theta)
        at, push = jax.linearize(lambda theta: unravel(theta).parameters(x), theta)
        pull = jax.linear_transpose(push, theta)
        damping = self.damping * (actor.dims if self.per_dimension else 1)
        share = None if counted is None else counted.astype(jnp.float32)
        share = None if share is None else share / jnp.maximum(jnp.mean(share), _TINY)

        def product(v: Float[Array, " p"]) -> Float[Array, " p"]:
            return pull(actor.apply_metric(push(v), at, share))[0] + damping * v

        return product

    def fit_value(
        self,
        key: Key[Array, ""],
        policy: ActorCritic,
        x: Float[Array, "n s"],
        target: Float[Array, " n"],
        counted: Bool[Array, " n"] | None = None,
    ) -> tuple[MLP, PyTree, Float[Array, ""]]:
        """Return the value net after `value_epochs` epochs, its optimiser's state, and the loss of the last epoch."""
        optimiser = optax.adam(self.value_rate)
        size = min(self.value_batch, x.shape[0])
        batches = x.shape[0] // size

        # paper: a new order of all steps in each epoch / here: as many draws with replacement; shuffling sorts,
        # which took as long as the rest of the fit.
        draws = jr.uniform(key, (self.value_epochs * batches, size))
        chosen = pick_any(draws, x.shape[0]) if counted is None else pick_valid(draws, counted)
        critic, rest = eqx.partition(policy.critic, eqx.is_array)

        def loss(critic, x, target):
            predicted = jax.vmap(eqx.combine(critic, rest))(x)[:, 0]
            return jnp.mean((predicted - target) ** 2)

        def step(carry, batch):
            critic, state = carry
            value, gradient = jax.value_and_grad(loss)(critic, *batch)
            return descend(optimiser, gradient, state, critic), value

        batched = x[chosen], target[chosen]  # gathered once, not at every step
        (critic, state), losses = short_scan(step, (critic, policy.critic_state), batched)
        return eqx.combine(critic, rest), state, jnp.mean(losses[-batches:])


def mean(x: Float[Array, " n"], counted: Bool[Array, " n"] | None) -> Float[Array, ""]:
    """Return the mean of all numbers, or of those that are `counted`."""
    return jnp.mean(x) if counted is None else jnp.mean(x, where=counted)


def advantages(
    steps: Transitions,
    values: Float[Array, " n"],
    next_values: Float[Array, " n"],
    discount: float | Float[Array, ""],
    trace: float | Float[Array, ""],
) -> Float[Array, " n"]:
    """Return the generalised advantages of one stream; the value after a terminal step counts as 0."""
    error = steps.reward + discount * jnp.where(steps.terminal, 0.0, next_values) - values
    decay = jnp.where(steps.last, 0.0, discount * trace)

    # A_t = error_t + decay_t A_{t+1}, from the end backwards: log n steps on a GPU, where each step waits for a kernel
    def join(after, before):
        decay_after, sum_after = after
        decay_before, sum_before = before
        carried = jnp.where(decay_before == 0, 0.0, decay_before * sum_after)  # an infinite one does not cross an end
        return decay_before * decay_after, sum_before + carried

    return jax.lax.associative_scan(join, (decay, error), reverse=True)[1]


def conjugate_gradient(product, b: Float[Array, " p"], steps: int) -> Float[Array, " p"]:
    """Solve product(x) = b approximately."""

    def step(carry, _):
        x, residual, direction, size = carry
        image = product(direction)
        rate = size / jnp.maximum(direction @ image, _TINY)
        x, residual = x + rate * direction, residual - rate * image
        new = residual @ residual
        return (x, residual, residual + new / jnp.maximum(size, _TINY) * direction, new), None

    return short_scan(step, (jnp.zeros_like(b), b, b, b @ b), None, length=steps)[0][0]
