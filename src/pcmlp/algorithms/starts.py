"""The states that imagined episodes begin at: some of the replay's, and the world's own.

    s_0 = a state of the replay with probability `replayed`, else one of the world's own

Where a task declares goals (`spaces.Coordinates`), a share `relabel` of the replayed states has its goal moved to where
the same recorded episode was 10 to 20 steps later: a goal that can be reached, so that imagined episodes are paid. This
is hindsight (Andrychowicz et al. 2017) in the imagination: model, bonus and world stay as they are.

paper: not specified / here: as above; `relabel` is 0 by default.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.replay import Replay
from pcmlp.settings import SettingError
from pcmlp.types import MDP

_SOONEST, _LATEST = 10, 20  # steps until the recorded episode was at the new goal
Share = float | Float[Array, ""]


def imagined_starts(
    key: Key[Array, ""], mdp: MDP, replay: Replay, count: int, replayed: Share, relabel: Share
) -> Float[Array, "n s"]:
    """Draw states for imagined episodes to begin at."""
    coin_key, row_key, world_key = jr.split(key, 3)
    visited = _visited_states(row_key, mdp, replay, count, relabel)
    own = own_starts(world_key, mdp, count)
    return jnp.where(jr.uniform(coin_key, (count, 1)) < replayed, visited, own)


def own_starts(key: Key[Array, ""], mdp: MDP, count: int) -> Float[Array, "n s"]:
    """Draw initial states of the world."""
    return jax.vmap(mdp.initial)(jr.split(key, count))


def check_relabel(relabel: float, mdp: MDP) -> None:
    """Raise if goals are to be moved where there are none."""
    if relabel > 0 and not mdp.boxes[0].coordinates.goals:
        raise SettingError("relabel", relabel, "the task declares no goals among its coordinates; give 0")


def _visited_states(key: Key[Array, ""], mdp: MDP, replay: Replay, count: int, relabel: Share) -> Float[Array, "n s"]:
    """Draw states of the replay, and move the goals of some."""
    goals = jnp.array(mdp.boxes[0].coordinates.goals, int).reshape(-1, 2)
    if not goals.size:
        return replay.windows(key, count, 1).state[:, 0]
    # The first rows are those of the line above: drawing a longer window takes the same random numbers.
    rows, valid = replay.window_rows(key, count, _LATEST + 1)
    coin, delay = jr.uniform(jr.fold_in(key, 0), (2, count))
    steps = _SOONEST + jnp.floor(delay * (_LATEST - _SOONEST + 1)).astype(int)
    row = jnp.arange(count)
    state, later = replay.data.state[rows[:, 0]], replay.data.state[rows[row, steps]]
    relabelled = state.at[:, goals[:, 0]].set(later[:, goals[:, 1]])
    moves = (coin < relabel) & valid[row, steps]  # the episode lasted that long
    return jnp.where(moves[:, None], relabelled, state)
