"""Planners that optimise a sequence of actions: the returns of plans, and the policy that replans at every step.

A plan over choices has the shares of all options for each step; one-hot shares are certain. The nearest choices are
played. In place of adding noise, some choices are drawn again (`Choices.disturb`).
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from pcmlp.imagine import drop_bonus
from pcmlp.rollout import estimate_promise
from pcmlp.settings import setting
from pcmlp.spaces import Space, Vectors
from pcmlp.trees import map_leading
from pcmlp.types import MDP, Action, Carry, Metrics, Planner, Policy, State

Plan = Float[Array, "length action"]

_MEMBER = 2**31  # folded into a key to choose a member of an ensemble


class Shooting(Planner):
    """A planner that refines a plan for the MDP from one state.

    To find the plan at the start of episodes, it refines the last policy's plan, the idle plan and `restarts` random
    plans, and keeps the best. A plan for an old bonus is a good start or a local optimum; imagined returns decide.
    """

    num_plans: int = setting(200, "plans of one refinement", least=1, tiny=8)
    plan_length: int | None = setting(None, "steps of a plan; none: the horizon", least=1, tiny=5)
    particles: int = setting(1, "draws of the model's noise that a plan's return is averaged over", least=1)
    warmup: int = setting(10, "refinements of the plan that an episode begins with", least=1, tiny=1)
    restarts: int = setting(0, "random plans that are refined in addition to the last plan", least=0)
    random_first: bool = setting(False, "whether the first policy plays at random, before anything is learned")
    searches: ClassVar[bool] = True

    @abc.abstractmethod
    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        """Return a better plan from `state`; the same plan if no return is finite."""

    @abc.abstractmethod
    def random_plan(self, key: Key[Array, ""], mdp: MDP) -> Plan:
        """Draw a plan: doing nothing, with the noise that `refine` adds."""

    def idle_plan(self, mdp: MDP) -> Plan:
        """Return the plan that does nothing: the middle of the action range; for choices, equal shares of options."""
        _, actions = mdp.boxes
        return jnp.broadcast_to(actions.middle, (self.plan_length or mdp.horizon, actions.size))

    def init(self, key: Key[Array, ""], mdp: MDP) -> "ShootingPolicy":
        """Return the policy that replans from doing nothing."""
        return ShootingPolicy(self, mdp, self.idle_plan(mdp), jnp.array(True) if self.random_first else None)

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple["ShootingPolicy", Metrics]:
        """Refine the plan that episodes begin with."""
        assert isinstance(policy, ShootingPolicy)
        random_key, refine_key, judge_key = jr.split(key, 3)
        # Use one start for all plans: where only a goal is rewarded, a plan for another start is worth nothing.
        state = mdp.initial(jr.key(0))

        def refine(plan: Plan) -> Plan:
            keys = jr.split(refine_key, self.warmup)
            return jax.lax.fori_loop(0, self.warmup, lambda i, p: self.refine(keys[i], mdp, state, p), plan)

        random = [self.random_plan(k, mdp) for k in jr.split(random_key, self.restarts)]
        plans = jax.vmap(refine)(jnp.stack([policy.start, self.idle_plan(mdp), *random]))
        returns = plan_returns(judge_key, mdp, state, plans, self.particles)
        best = jnp.argmax(returns)
        untrained = jnp.array(False) if self.random_first else None
        return ShootingPolicy(self, mdp, plans[best], untrained), {"planned_value": returns[best]}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
        """Estimate J with replanning at every step, as in the world: without replanning, a plan loses half of its value
        to noise."""
        return estimate_promise(key, mdp, policy)

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one plan."""
        refinement = self.num_plans * self.particles * (self.plan_length or horizon)
        return refinement, (2 + self.restarts) * self.warmup * refinement


class UniformPolicy(Policy):
    """Uniform random actions, whatever the state."""

    actions: Space

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        return carry, self.actions.sample(key)


class ShootingPolicy(Policy):
    """A policy that plays a plan's first action, then refines the rest from the next state (receding horizon).

    paper: a policy of H steps / here: a plan looks `plan_length` steps ahead, however much of the episode is left.
    """

    planner: Shooting
    mdp: MDP  # the MDP to plan in: the world itself, or an imagined MDP of some iteration
    start: Plan  # the plan an episode begins with
    untrained: Bool[Array, "*seeds"] | None  # whether to play at random instead
    searches: ClassVar[bool] = True

    def init(self) -> Plan:
        """Return the plan that an episode begins with."""
        return self.start

    def __call__(self, key: Key[Array, ""], carry: Plan, state: State) -> tuple[Plan, Action]:
        """Refine the plan, play its first action and return the rest."""
        if self.untrained is None:
            return self.search(key, carry, state)
        return jax.lax.cond(
            self.untrained,
            lambda: (carry, self.actions.sample(key)),
            lambda: self.search(key, carry, state),
        )

    def search(self, key: Key[Array, ""], carry: Plan, state: State) -> tuple[Plan, Action]:
        """Refine the plan, play its first action and return the rest."""
        plan = self.planner.refine(key, self.mdp, state, carry)
        shifted = jnp.concatenate([plan[1:], self.actions.middle[None]])
        return shifted, self.actions.clip(plan[0])

    @property
    def actions(self) -> Vectors:
        """The space of actions."""
        return self.mdp.boxes[1]

    def without_bonus(self) -> "ShootingPolicy":
        """Return the policy that searches for the reward alone."""
        return ShootingPolicy(self.planner, drop_bonus(self.mdp), self.start, self.untrained)

    def resolve(self) -> Policy:
        """Return uniform play if no seed was trained. This saves time: with several seeds, a condition computes both
        of its branches, including the search."""
        if self.untrained is not None and bool(jnp.all(self.untrained)):
            return UniformPolicy(self.actions)
        return self


@runtime_checkable
class EnsembleTransition(Protocol):
    """An ensemble of transitions: every call draws one member, and a rollout may stay with one."""

    @property
    def size(self) -> int:
        """The number of members."""
        ...

    def member(self, index: Int[Array, ""] | int) -> Callable:
        """Return one member."""
        ...


def plan_returns(
    key: Key[Array, ""], mdp: MDP, state: State, plans: Float[Array, "n length action"], particles: int
) -> Float[Array, " n"]:
    """Return the return of each plan from `state` in `mdp`, averaged over `particles` draws of its noise.

    paper: says nothing about noise in plans / here: the model's noise is the same for all plans, so that
    their returns differ only by the plans. A plan with an infinite state or a return of NaN gets -inf, whatever reward
    the model imagines there.

    Only the states are computed step by step. Rewards, which include the bonus and its features, are computed for all
    plans and steps at once: one large matrix product instead of `length` small ones.

    In an ensemble each particle stays with one member, the same for all plans (PETS's TS-infinity; Chua et al. 2018):
    a step then costs one net and not all of them. Members take turns, so that they count equally if the number of
    particles is a multiple of the number of members.
    """
    _, actions = mdp.boxes
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
        finite = jnp.all(jnp.isfinite(next_state).reshape(*action.shape[:2], -1), axis=2)
        reward = jnp.where(finite, reward, -jnp.inf)
        earlier = jnp.tril(jnp.ones((action.shape[0], action.shape[0])), -1)  # [t, u] = u < t
        ended_before = earlier @ ended.astype(jnp.float32)  # faster than a cumulative sum, which is sequential
        return jnp.sum(jnp.where(ended_before == 0, reward, 0.0), axis=0)

    keys = jr.split(key, (particles, plans.shape[1]))
    if size := ensemble_size(mdp):
        groups = size if particles % size == 0 else particles
        numbers = (jr.randint(jr.fold_in(key, _MEMBER), (), 0, size) + jnp.arange(groups)) % size

        def member_returns(number, keys):
            one = with_member(mdp, number)
            return jax.vmap(lambda k: total(one, walk(one, k)))(keys)

        grouped = map_leading(member_returns, numbers, keys.reshape(groups, -1, plans.shape[1]))
        returns = jnp.mean(grouped, axis=(0, 1))
    else:
        returns = jnp.mean(jax.vmap(lambda k: total(mdp, walk(mdp, k)))(keys), axis=0)
    return jnp.where(jnp.isfinite(returns), returns, -jnp.inf)


def ensemble_size(mdp: MDP) -> int | None:
    """Return the size of the ensemble in an MDP, if there is one."""
    parts = jax.tree.leaves(mdp, is_leaf=is_ensemble)
    return next((part.size for part in parts if is_ensemble(part)), None)


def with_member(mdp: MDP, number: Int[Array, ""] | int) -> MDP:
    """Return the MDP with its ensemble replaced by one member."""
    return jax.tree.map(lambda x: x.member(number) if is_ensemble(x) else x, mdp, is_leaf=is_ensemble)


def is_ensemble(part: Any) -> bool:
    """Return whether a node of a pytree is an ensemble."""
    return isinstance(part, EnsembleTransition)


def correlation_factor(length: int, correlation: float | Float[Array, ""]) -> Float[Array, "length length"]:
    """Return the matrix that turns independent unit noise into a stationary AR(1) sequence of unit variance."""
    t = jnp.arange(length, dtype=jnp.float32)
    lag = t[:, None] - t[None, :]
    weight = jnp.where(lag >= 0, correlation ** jnp.maximum(lag, 0.0), 0.0)
    first = t[None, :] == 0
    return weight * jnp.where(first, 1.0, jnp.sqrt(1.0 - correlation**2))


def whiten(x: Plan, correlation: float | Float[Array, ""]) -> Plan:
    """Return the independent unit noise that `correlation_factor` turns into `x`."""
    before = jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    first = jnp.arange(x.shape[0])[:, None] == 0
    return jnp.where(first, x, (x - correlation * before) / jnp.sqrt(1.0 - correlation**2))
