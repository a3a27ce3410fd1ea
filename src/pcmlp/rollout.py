"""Episodes by scan: streams of steps, draws from d_pi, returns.

Everything here is about one MDP and one policy; worlds and planners `vmap`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.types import MDP, AbstractPolicy, Transitions


def _select(condition: Array, yes, no):
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y) if eqx.is_array(x) else x, yes, no)


def stream(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy, steps: int) -> Transitions:
    """`steps` steps from a fresh start; where the MDP ends an episode the next one begins.

    With `steps` the horizon this is one whole episode, or one and the beginning of others.
    """
    start_key, scan_key = jr.split(key)

    def step(carry, step_key):
        state, memory = carry
        act_key, move_key, reset_key = jr.split(step_key, 3)
        memory, action = policy(act_key, memory, state)
        next_state = mdp.transition(move_key, state, action)
        reward = mdp.reward(state, action, next_state)
        ended = mdp.terminal(state, action, next_state)
        after = _select(ended, (mdp.initial(reset_key), policy.init()), (next_state, memory))
        return after, (state, action, reward, next_state, ended)

    first = (mdp.initial(start_key), policy.init())
    _, (state, action, reward, next_state, ended) = jax.lax.scan(step, first, jr.split(scan_key, steps))
    last = ended.at[-1].set(True)
    return Transitions(state, action, reward, next_state, ended, last, jnp.ones(steps, bool))


def first_episode(steps: Transitions) -> Transitions:
    """The stream with everything after its first episode marked as not valid."""
    ended = steps.terminal.astype(int)
    ended_before = jnp.cumsum(ended) - ended
    return eqx.tree_at(lambda t: t.valid, steps, steps.valid & (ended_before == 0))


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


def mean_return(key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy, episodes: int) -> Float[Array, ""]:
    """J(pi; r, P), estimated."""
    return jnp.mean(jax.vmap(lambda k: episode_return(k, mdp, policy))(jr.split(key, episodes)))
