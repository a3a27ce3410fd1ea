"""An optimistic planning oracle: the best plan in the best model of a confidence ball (LC3; paper: section 3).

    max over W in the ball, max over plans:  J(plan; r, W),      W = What + beta U L^-1,  |U|_F <= 1

The reward of a regulator is paid in a small region, so J has no useful gradient, and it is not concave in the plan or
in W. The oracle is therefore a search: the cross-entropy method over pairs (plan, U), from several starts. What it
finds is a lower bound of the maximum. An ordinary oracle searches for a plan, which has H d_a numbers. This one also
searches for the d_s d numbers of U, and simulates each pair with its own W.
"""

import dataclasses
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.errors import ConfigError
from pcmlp.planners.cem import CEM
from pcmlp.planners.shooting import Plan, ShootingPolicy, plan_returns
from pcmlp.rollout import estimate_promise
from pcmlp.settings import SettingError, setting
from pcmlp.trees import select, take
from pcmlp.types import MDP, Metrics, Model, Planner, Policy, State

Direction = Float[Array, "s d"]
Pair = tuple[Plan, Direction]
Pairs = tuple[Float[Array, "n length action"], Float[Array, "n s d"]]

_JUDGES = 32  # draws of the noise that decide between the results of several searches


@runtime_checkable
class BallOfModels(Protocol):
    """Models in a ball: one for each direction from the centre, whose length is at most 1."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a direction, which is that of the parameters."""
        ...

    def member(self, direction: Direction) -> Callable:
        """Return the model in a direction."""
        ...


class Optimistic(Planner):
    """The cross-entropy method over pairs of a plan and a model of LC3's ball."""

    num_pairs: int = setting(100, "pairs of one update", least=2, tiny=8)
    elites: int = setting(10, "best pairs that the Gaussian is fitted to", least=1, tiny=2)
    updates: int = setting(30, "updates of a search", least=1, tiny=1)
    starts: int = setting(2, "searches, from different plans; the best pair is kept", least=1, tiny=1)
    # With one draw, the search prefers unstable models of the ball, which are good only for this draw.
    particles: int = setting(4, "draws of the noise that a pair's return is averaged over", least=1, tiny=1)
    most_parameters: int = setting(200, "largest number of parameters of W that is searched for", least=1)
    search: Planner = setting(
        CEM(), "ordinary planner: improves the plan in the chosen model, and replans at each step"
    )

    def check(self) -> None:
        """Raise if settings contradict each other."""
        if self.elites > self.num_pairs:
            raise SettingError("elites", self.elites, f"give 1 to {{num_pairs}}={self.num_pairs}")
        if not isinstance(self.search, CEM):
            raise SettingError("search.name", type(self.search).__name__, "the search needs its noise; give cem")

    def check_model(self, mdp: MDP, model: Model) -> None:
        """Raise if the class is not a ball, or has too many parameters."""
        fitted = eqx.filter_eval_shape(lambda key: model.init(key, mdp), jr.key(0))
        if not isinstance(fitted, BallOfModels):
            raise ConfigError("planner.name=optimistic: needs a confidence ball; give model.name=knr-ball")
        rows, columns = fitted.shape
        if (count := rows * columns) > self.most_parameters:
            raise ConfigError(
                f"planner.most_parameters={self.most_parameters}: W has {count} ({rows} x {columns}), and with so many "
                f"the search may miss the best model; give algo=pcmlp-knr, which needs no optimistic oracle, "
                f"or {count} or more"
            )

    @property
    def inner(self) -> CEM:
        """The ordinary planner."""
        assert isinstance(self.search, CEM)
        return self.search

    def init(self, key: Key[Array, ""], mdp: MDP) -> ShootingPolicy:
        """Return a policy whose first plan is to do nothing, in a random model of the first ball."""
        ball = ball_of(mdp)
        return self.inner.init(key, commit(mdp, ball.member(jr.normal(key, ball.shape))))

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple[ShootingPolicy, Metrics]:
        """Find the best pair, then improve its plan in its model."""
        assert isinstance(policy, ShootingPolicy)
        pair_key, plan_key, judge_key = jr.split(key, 3)
        (start, direction), _ = self.best_pair(pair_key, mdp, policy.start)
        chosen = commit(mdp, ball_of(mdp).member(direction))
        improved, planned = self.inner.plan(plan_key, chosen, dataclasses.replace(policy, start=start))
        centre = commit(mdp, ball_of(mdp).member(jnp.zeros_like(direction)))
        expected = plan_returns(judge_key, centre, mdp.initial(jr.key(0)), improved.start[None], self.inner.particles)
        length = jnp.minimum(1.0, jnp.linalg.norm(direction))
        return improved, {**planned, "centre_value": expected[0], "direction": length}

    def best_pair(self, key: Key[Array, ""], mdp: MDP, plan: Plan) -> tuple[Pair, Float[Array, " starts"]]:
        """Return the best pair of all searches, and the value that each search has found."""
        start_key, search_key, judge_key = jr.split(key, 3)
        state = mdp.initial(jr.key(0))
        starts = [plan, self.inner.idle_plan(mdp)]
        starts += [self.inner.random_plan(k, mdp) for k in jr.split(start_key, self.starts)]
        keys = jr.split(search_key, self.starts)
        plans = jnp.stack(starts[: self.starts])
        pairs = jax.vmap(lambda k, p: self.climb(k, mdp, state, p))(keys, plans)
        values = pair_returns(judge_key, mdp, state, pairs, _JUDGES)
        best = jnp.argmax(values)
        return take(pairs, best), values

    def climb(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Pair:
        """Search from a plan and the centre of the ball; return the mean of the last Gaussian."""
        (_, actions), shape = mdp.boxes, ball_of(mdp).shape
        count = shape[0] * shape[1]

        def update(carry, update_key):
            mean, std = carry
            plan_key, direction_key, return_key = jr.split(update_key, 3)
            noise = (
                self.inner.noise(plan_key, (self.num_pairs, *plan.shape), actions).at[0].set(0.0),
                jr.normal(direction_key, (self.num_pairs, *shape)).at[0].set(0.0),
            )
            pairs = jax.tree.map(lambda m, s, e: m[None] + s[None] * e, mean, std, noise)
            value, best = jax.lax.top_k(pair_returns(return_key, mdp, state, pairs, self.particles), self.elites)
            elite = take(pairs, best)
            fitted = tuple(jax.tree.map(lambda x, of=of: of(x, axis=0), elite) for of in (jnp.mean, jnp.std))
            return select(jnp.isfinite(value[0]), fitted, carry), None

        # A direction of independent entries with this std is about as long as the ball's radius.
        std = jnp.sqrt(self.inner.first_variance(plan, actions)), jnp.full(shape, count**-0.5, jnp.float32)
        first = (plan, jnp.zeros(shape)), std
        ((plan, direction), _), _ = jax.lax.scan(update, first, jr.split(key, self.updates))
        return jax.vmap(actions.clip)(plan), direction

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
        """Estimate J in the model that was chosen, with replanning at every step."""
        assert isinstance(policy, ShootingPolicy)
        return estimate_promise(key, policy.mdp, policy)

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one plan."""
        action, plan = self.inner.imagined_steps(horizon)
        length = self.inner.plan_length or horizon
        return action, plan + self.starts * self.updates * self.num_pairs * self.particles * length


def ball_of(mdp: MDP) -> BallOfModels:
    """Return the ball that is the transition of an imagined MDP."""
    if not isinstance(mdp.transition, BallOfModels):
        raise ConfigError("planner.name=optimistic: needs a confidence ball; give algo=lc3-oracle")
    return mdp.transition


def commit(mdp: MDP, transition: Callable) -> MDP:
    """Return the imagined MDP with one model in place of the ball."""
    return dataclasses.replace(mdp, transition=transition)


def pair_returns(key: Key[Array, ""], mdp: MDP, state: State, pairs: Pairs, particles: int) -> Float[Array, " n"]:
    """Return the return of each plan in its own model; the noise is the same for all."""
    ball = ball_of(mdp)

    def one(plan: Plan, direction: Direction) -> Float[Array, ""]:
        return plan_returns(key, commit(mdp, ball.member(direction)), state, plan[None], particles)[0]

    return jax.vmap(one)(*pairs)
