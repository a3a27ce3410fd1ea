"""What planners that optimise a sequence of actions share: the value of plans, the policy that replans every step."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, Shaped

from pcmlp.nets import one_by_one
from pcmlp.rollout import promised_return
from pcmlp.types import MDP, AbstractPlanner, AbstractPolicy, Box, EnsembleTransition, Metrics, State

Plan = Float[Array, "length action"]

_MEMBER = 2**31  # folded into a key


def plan_returns(
    key: Key[Array, ""], mdp: MDP, state: State, plans: Float[Array, "n length action"], actions: Box, particles: int
) -> Float[Array, " n"]:
    """The return of each plan from `state` in `mdp`, averaged over `particles` draws of its noise.

    paper: says nothing of noise in plans / here: they meet the model's noise, the same for all of them, so that what
    differs between their returns is the plans' doing. A plan that a wrong model sends to infinity, or whose return is
    not a number, is worse than any other: -inf, whatever an imagination pays there.

    Only the states need the steps one after another. Rewards, which hold the bonus and its features, are computed for
    all plans and steps at once: one large product in place of `length` small ones.

    In an ensemble each particle stays with one member, the same for all plans (PETS's TS-infinity; Chua et al. 2018):
    a step then costs one net and not all of them. Members are taken in turn, so that none counts more than another
    where there are as many particles for each.
    """
    action = jax.vmap(jax.vmap(actions.clip))(jnp.swapaxes(plans, 0, 1))  # steps first: the order of the scan
    first = jnp.broadcast_to(state, (plans.shape[0], *state.shape))

    def walk(mdp: MDP, keys: Key[Array, " length"]) -> Shaped[Array, "length n *state"]:
        def step(state, inputs):
            key, action = inputs
            next_state = jax.vmap(lambda s, a: mdp.transition(key, s, a))(state, action)
            return next_state, next_state

        return jax.lax.scan(step, first, (keys, action))[1]

    def total(mdp: MDP, next_state: Shaped[Array, "length n *state"]) -> Float[Array, " n"]:
        steps = jnp.concatenate([first[None], next_state[:-1]]), action, next_state
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        reward, ended = (jax.vmap(f)(*rows).reshape(action.shape[:2]) for f in (mdp.reward, mdp.terminal))
        there = jnp.all(jnp.isfinite(next_state).reshape(*action.shape[:2], -1), axis=2)
        reward = jnp.where(there, reward, -jnp.inf)
        earlier = jnp.tril(jnp.ones((action.shape[0], action.shape[0])), -1)  # [t, u] = u < t
        ended_before = earlier @ ended.astype(jnp.float32)  # faster than a cumulative sum, which goes step by step
        return jnp.sum(jnp.where(ended_before == 0, reward, 0.0), axis=0)

    keys = jr.split(key, (particles, plans.shape[1]))
    if size := ensemble_size(mdp):
        groups = size if particles % size == 0 else particles
        numbers = (jr.randint(jr.fold_in(key, _MEMBER), (), 0, size) + jnp.arange(groups)) % size

        def of_member(inputs):
            number, keys = inputs
            one = one_member(mdp, number)
            return jax.vmap(lambda k: total(one, walk(one, k)))(keys)

        of_groups = one_by_one(of_member, (numbers, keys.reshape(groups, -1, plans.shape[1])))
        returns = jnp.mean(of_groups, axis=(0, 1))
    else:
        returns = jnp.mean(jax.vmap(lambda k: total(mdp, walk(mdp, k)))(keys), axis=0)
    return jnp.where(jnp.isfinite(returns), returns, -jnp.inf)


def ensemble_size(mdp: MDP) -> int | None:
    """Of the ensemble in an MDP, if there is one."""
    parts = jax.tree.leaves(mdp, is_leaf=is_ensemble)
    return next((part.size for part in parts if is_ensemble(part)), None)


def one_member(mdp: MDP, number: Int[Array, ""] | int) -> MDP:
    """The MDP with a member of its ensemble in the place of that."""
    return jax.tree.map(lambda x: x.member(number) if is_ensemble(x) else x, mdp, is_leaf=is_ensemble)


def is_ensemble(part: Any) -> bool:
    return isinstance(part, EnsembleTransition)


def correlation_factor(length: int, correlation: float | Float[Array, ""]) -> Float[Array, "length length"]:
    """The matrix that turns independent unit noise into a stationary AR(1) sequence of unit variance."""
    t = jnp.arange(length, dtype=jnp.float32)
    lag = t[:, None] - t[None, :]
    weight = jnp.where(lag >= 0, correlation ** jnp.maximum(lag, 0.0), 0.0)
    first = t[None, :] == 0
    return weight * jnp.where(first, 1.0, jnp.sqrt(1.0 - correlation**2))


def whitened(x: Plan, correlation: float | Float[Array, ""]) -> Plan:
    """The independent unit noise that `correlation_factor` turns into `x`."""
    before = jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    first = jnp.arange(x.shape[0])[:, None] == 0
    return jnp.where(first, x, (x - correlation * before) / jnp.sqrt(1.0 - correlation**2))


class AbstractShooter(eqx.Module):
    """Improves a plan for the MDP as seen from one state."""

    actions: eqx.AbstractVar[Box]
    plan_length: eqx.AbstractVar[int]
    particles: eqx.AbstractVar[int]

    @abc.abstractmethod
    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        """A better plan; the same one where no return is a number."""

    @abc.abstractmethod
    def random_plan(self, key: Key[Array, ""]) -> Plan:
        """Noise, as `refine` would add it to a plan that does nothing."""

    def idle(self) -> Plan:
        """Does nothing: the middle of what can be done, from where a search has as much room on either side."""
        return jnp.broadcast_to(self.actions.middle, (self.plan_length, self.actions.size))


class ShootingPolicy(AbstractPolicy):
    """Plays a plan's first action, then refines the rest from where that led (receding horizon).

    paper: a policy of H steps / here: a plan looks `plan_length` steps ahead, however much of the episode is left.
    """

    shooter: AbstractShooter
    mdp: MDP  # what it plans in: the world itself, or an imagination of some iteration
    start: Plan  # the plan an episode begins with
    searches: ClassVar[bool] = True

    def init(self) -> Plan:
        return self.start

    def __call__(self, key: Key[Array, ""], carry: Plan, state: State) -> tuple[Plan, Float[Array, " action"]]:
        plan = self.shooter.refine(key, self.mdp, state, carry)
        shifted = jnp.concatenate([plan[1:], self.shooter.actions.middle[None]])
        return shifted, self.shooter.actions.clip(plan[0])

    def deterministic(self) -> "ShootingPolicy":
        return self  # its randomness is the search's own, not exploration


class Shooting(AbstractPlanner):
    """The planner around a shooter: spends `warmup` refinements on the plan that episodes begin with.

    It refines the last policy's plan, doing nothing and `restarts` random plans, and keeps the best: a plan that served
    an old bonus is a good start or a local optimum, and imagined returns can tell.
    """

    shooter: AbstractShooter
    warmup: int = eqx.field(static=True, default=10)
    restarts: int = eqx.field(static=True, default=0)

    def init(self, key: Key[Array, ""], mdp: MDP) -> ShootingPolicy:
        return ShootingPolicy(self.shooter, mdp, self.shooter.idle())

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[ShootingPolicy, Metrics]:
        assert isinstance(policy, ShootingPolicy)
        random_key, refine_key, judge_key = jr.split(key, 3)
        # The same start for every plan: where only a goal pays, a plan that reaches it from elsewhere is worth nothing.
        state = mdp.initial(jr.key(0))

        def refined(plan: Plan) -> Plan:
            keys = jr.split(refine_key, self.warmup)
            return jax.lax.fori_loop(0, self.warmup, lambda i, p: self.shooter.refine(keys[i], mdp, state, p), plan)

        random = [self.shooter.random_plan(k) for k in jr.split(random_key, self.restarts)]
        plans = jax.vmap(refined)(jnp.stack([policy.start, self.shooter.idle(), *random]))
        returns = plan_returns(judge_key, mdp, state, plans, self.shooter.actions, self.shooter.particles)
        best = jnp.argmax(returns)
        return ShootingPolicy(self.shooter, mdp, plans[best]), {"planned_value": returns[best]}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""]:
        """Of replanning at every step, as in the world: a plan that is not mended loses half of its value to noise."""
        return promised_return(key, mdp, policy)
