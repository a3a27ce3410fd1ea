"""Episodes by scan: streams of steps, draws from d_pi, returns.

Everything here is about one MDP and one policy; worlds and planners `vmap`.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.types import MDP, AbstractPolicy, Carry, State, Transitions


def select(condition: Array, yes, no):
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y) if eqx.is_array(x) else x, yes, no)


class Place(NamedTuple):
    """Where a stream of steps has got to."""

    state: State
    memory: Carry  # the policy's
    clock: Int[Array, ""]  # steps of this episode so far


def begin(state: State, policy: AbstractPolicy) -> Place:
    return Place(state, policy.init(), jnp.zeros((), int))


def walk(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy, place: Place, steps: int) -> tuple[Place, Transitions]:
    """`steps` steps from `place`; where the MDP or its horizon ends an episode the next one begins."""
    # Random numbers and fresh starts are drawn for all steps at once: in the loop they would cost as much as a step.
    act_keys, move_keys, reset_keys = jax.vmap(lambda k: jr.split(k, 3), out_axes=1)(jr.split(key, steps))
    fresh = jax.vmap(mdp.initial)(reset_keys)

    def step(place: Place, inputs):
        state, memory, clock = place
        act_key, move_key, start = inputs
        memory, action = policy(act_key, memory, state)
        next_state = mdp.transition(move_key, state, action)
        ended = mdp.terminal(state, action, next_state)
        last = ended | (clock + 1 >= mdp.horizon)
        after = select(last, begin(start, policy), Place(next_state, memory, clock + 1))
        return after, (state, action, next_state, ended, last)

    place, (state, action, next_state, ended, last) = jax.lax.scan(step, place, (act_keys, move_keys, fresh))
    reward = jax.vmap(mdp.reward)(state, action, next_state)  # not step by step: a bonus is then one large product
    last = last.at[-1].set(True)
    return place, Transitions(state, action, reward, next_state, ended, last, jnp.ones(steps, bool))


def stream(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy, steps: int) -> Transitions:
    """`steps` steps from a fresh start; with `steps` the horizon one whole episode, or one and the beginning of
    others."""
    start_key, walk_key = jr.split(key)
    return walk(walk_key, mdp, policy, begin(mdp.initial(start_key), policy), steps)[1]


def first_episode(steps: Transitions) -> Transitions:
    """The stream with everything after its first episode marked as not valid."""
    ended = steps.terminal.astype(int)
    ended_before = jnp.cumsum(ended) - ended
    return eqx.tree_at(lambda t: t.valid, steps, steps.valid & (ended_before == 0))


def cut_off(steps: Transitions, counted: Bool[Array, "streams length"]) -> Transitions:
    """Streams that end where what comes next is not counted: they pay what their last state is worth."""
    after = jnp.concatenate([counted[:, 1:], jnp.zeros_like(counted[:, :1])], axis=1)
    return eqx.tree_at(lambda t: t.last, steps, steps.last | ~after)


def draw(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[Transitions, Transitions]:
    """One draw (s, a, r, s') from d_pi = sum_h d_h / H, as one row, and the steps it took to reach it.

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


def episode_return(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""]:
    episode = first_episode(stream(key, mdp, policy, mdp.horizon))
    return jnp.sum(jnp.where(episode.valid, episode.reward, 0.0))


_PROMISED, _SEARCHED = 32, 4  # imagined episodes; where each of their actions is a search, they are dear


def promised_return(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""]:
    """What a policy promises that a planner has improved and not maximised: its own J(pi; r, P), estimated."""
    return mean_return(key, mdp, policy, _SEARCHED if policy.searches else _PROMISED)


def mean_return(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy, episodes: int) -> Float[Array, ""]:
    """J(pi; r, P), estimated."""
    return jnp.mean(jax.vmap(lambda k: episode_return(k, mdp, policy))(jr.split(key, episodes)))
