"""Episodes by scan: streams of steps, draws from d_pi, returns. All for one MDP and one policy; callers `vmap`."""

from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pcmlp.replay import Transitions
from pcmlp.trees import select, short_scan
from pcmlp.types import MDP, Action, Carry, Policy, State

_EPISODES, _SEARCHED_EPISODES = 32, 4  # episodes of `estimate_promise`; searching is expensive


@runtime_checkable
class PredrawsNoise(Protocol):
    """A policy whose random numbers do not depend on the states: they can be drawn for many steps at once."""

    def inference_only(self) -> Policy:
        """Return the policy without what only learning needs."""
        ...

    def sample_noise(self, key: Key[Array, ""]) -> PyTree:
        """Draw the random numbers of one step."""
        ...

    def act(self, noise: PyTree, carry: Carry, state: State) -> tuple[Carry, Action]:
        """Return what `policy(key, carry, state)` does, given the noise that `key` draws."""
        ...


def without_critic(policy: Policy) -> Policy:
    """Return the policy, or those of all seeds, without what only learning needs."""
    return policy.inference_only() if isinstance(policy, PredrawsNoise) else policy


class RolloutState(NamedTuple):
    """The current state of a stream of steps."""

    state: State
    memory: Carry  # the policy's memory
    clock: Int[Array, ""]  # steps of this episode so far


def begin(state: State, policy: Policy) -> RolloutState:
    """Return the start of an episode at `state`."""
    return RolloutState(state, policy.init(), jnp.zeros((), int))


def walk(
    key: Key[Array, ""], mdp: MDP, policy: Policy, place: RolloutState, steps: int
) -> tuple[RolloutState, Transitions]:
    """Take `steps` steps from `place`; when the MDP or its horizon ends an episode, the next one begins."""
    # Random numbers and fresh starts are drawn for all steps at once: in the loop they would cost as much as a step.
    act_keys, move_keys, reset_keys = jax.vmap(lambda k: jr.split(k, 3), out_axes=1)(jr.split(key, steps))
    noise = jax.vmap(policy.sample_noise)(act_keys) if isinstance(policy, PredrawsNoise) else act_keys
    act = policy.act if isinstance(policy, PredrawsNoise) else policy
    fresh = jax.vmap(mdp.initial)(reset_keys)

    def step(place: RolloutState, inputs):
        state, memory, clock = place
        noise, move_key, start = inputs
        memory, action = act(noise, memory, state)
        next_state = mdp.transition(move_key, state, action)
        ended = mdp.terminal(state, action, next_state)
        last = ended | (clock + 1 >= mdp.horizon)
        after = select(last, begin(start, policy), RolloutState(next_state, memory, clock + 1))
        return after, (state, action, next_state, ended, last)

    place, (state, action, next_state, ended, last) = short_scan(step, place, (noise, move_keys, fresh))
    reward = jax.vmap(mdp.reward)(state, action, next_state)  # for all steps at once: a bonus is one large product
    last = last.at[-1].set(True)
    return place, Transitions(state, action, reward, next_state, ended, last, jnp.ones(steps, bool))


def stream(key: Key[Array, ""], mdp: MDP, policy: Policy, steps: int) -> Transitions:
    """Take `steps` steps from a fresh start. With `steps` equal to the horizon this is one whole episode or, where it
    ended early, that episode and the beginning of others."""
    start_key, walk_key = jr.split(key)
    return walk(walk_key, mdp, policy, begin(mdp.initial(start_key), policy), steps)[1]


def split_streams(samples: Transitions, horizon: int) -> Transitions:
    """Return the rows that `World.collect` gave as [streams, H, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, horizon, *x.shape[1:]), samples)


def first_episode(steps: Transitions) -> Transitions:
    """Mark every step after the first episode of a stream as not valid."""
    ended = steps.terminal.astype(int)
    ended_before = jnp.cumsum(ended) - ended
    return eqx.tree_at(lambda t: t.valid, steps, steps.valid & (ended_before == 0))


def mean_first_return(samples: Transitions, horizon: int) -> Float[Array, ""]:
    """Return the mean return of the first episode of each stream. Later episodes were cut short and give no
    return; streams without a valid step, because of a fault of the simulator, do not count."""
    first = jax.vmap(first_episode)(split_streams(samples, horizon))
    counted = jnp.any(first.valid, axis=1)
    returns = jnp.sum(jnp.where(first.valid, first.reward, 0.0), axis=1)
    return jnp.sum(returns) / jnp.maximum(jnp.sum(counted, dtype=jnp.float32), 1.0)


def end_at_gaps(steps: Transitions, counted: Bool[Array, "streams length"]) -> Transitions:
    """Mark as last each step whose successor is not counted, so that its value is bootstrapped there."""
    after = jnp.concatenate([counted[:, 1:], jnp.zeros_like(counted[:, :1])], axis=1)
    return eqx.tree_at(lambda t: t.last, steps, steps.last | ~after)


def draw(key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple[Transitions, Transitions]:
    """Draw (s, a, r, s') from d_pi = sum_h d_h / H; return it as one row, and the steps it took to reach it.

    An episode that ended before the chosen time costs its own length and gives a row that is not valid.
    """
    time_key, run_key = jr.split(key)
    time = jr.randint(time_key, (), 0, mdp.horizon)
    episode = first_episode(stream(run_key, mdp, policy, mdp.horizon))
    row = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, time, 1), episode)
    row = eqx.tree_at(lambda t: t.last, row, jnp.ones(1, bool))
    walked = episode.valid & (jnp.arange(mdp.horizon) <= time)
    last = episode.terminal | (jnp.arange(mdp.horizon) == time)
    return row, eqx.tree_at(lambda t: (t.valid, t.last), episode, (walked, walked & last))


def episode_return(key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
    """Return the return of one episode."""
    episode = first_episode(stream(key, mdp, policy, mdp.horizon))
    return jnp.sum(jnp.where(episode.valid, episode.reward, 0.0))


def mean_return(key: Key[Array, ""], mdp: MDP, policy: Policy, episodes: int) -> Float[Array, ""]:
    """Estimate J(pi; r, P)."""
    return jnp.mean(jax.vmap(lambda k: episode_return(k, mdp, policy))(jr.split(key, episodes)))


def estimate_promise(key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
    """Estimate J(pi; r, P) of a policy that a planner improved but did not maximise: its promised return."""
    return mean_return(key, mdp, policy, _SEARCHED_EPISODES if policy.searches else _EPISODES)
