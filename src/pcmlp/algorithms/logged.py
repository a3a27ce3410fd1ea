"""Algorithm 2 that starts from logged steps of other policies.

    for each K logged rows:     lines 6 to 8     Sigma += sum of phi phi^T / K,   D += rows
    then, as often as the rows would have led to line 9:   line 9 on all of D
    the last K rows:            a whole iteration, in which line 5 reads them in place of walking

So Sigma counts these rows as if policies of the cover had walked them, K rows by each policy, and the model is fitted
to them. The last iteration plans the policies for the first real step. Nothing counts as a real step: `env_steps` stays
0, no policy gets a record from returns of other policies, and all rows that the replay adds later are real.
(paper: Algorithm 2 starts without samples / here: it may start from data [BZ].)
"""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.learner import DeepLearner
from pcmlp.algorithms.stages import BONUS, LOGGED, feature_key, stage_key, with_executed_actions
from pcmlp.bonus import second_moment
from pcmlp.imagine import expand_range
from pcmlp.programs import program
from pcmlp.replay import Transitions, drop_nonfinite
from pcmlp.trees import as_inputs, map_leading, scan
from pcmlp.types import MDP, FittedModel
from pcmlp.world import RecordedWorld

_BLOCK = 10_000  # rows that are put into a restored replay at a time


def split(algorithm: Deep, mdp: MDP, rows: Transitions) -> Transitions:
    """Return logged rows in pieces, [pieces, K, ...], where K is the number of rows of an iteration. The last piece is
    padded with rows that are not valid."""
    size, count = round(algorithm.steps_per_iteration(mdp.horizon)), rows.reward.shape[0]
    missing = -count % size
    return jax.tree.map(
        lambda x: np.pad(x, [(0, missing), *[(0, 0)] * (x.ndim - 1)]).reshape(-1, size, *x.shape[1:]), rows
    )


def in_blocks(algorithm: Deep, mdp: MDP, rows: Transitions, seeds: int) -> Iterator[Transitions]:
    """Yield logged rows for each seed, [seeds, rows, ...], in the order in which `absorb` puts them into the replay."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), split(algorithm, mdp, rows))
    for first in range(0, flat.reward.shape[0], _BLOCK):
        block = jax.tree.map(lambda x, first=first: x[first : first + _BLOCK], flat)
        yield jax.tree.map(lambda x: np.broadcast_to(x, (seeds, *x.shape)), block)


def absorb(
    algorithm: Deep, keys: Key[Array, " seeds"], mdp: MDP, learner: DeepLearner, rows: Transitions
) -> DeepLearner:
    """Return the new learner of all seeds after it has learned from the logged rows."""
    pieces = split(algorithm, mdp, rows)
    before, last = (jax.tree.map(lambda x, part=part: x[part], pieces) for part in (slice(-1), -1))
    if before.reward.shape[0]:
        learner = _fill(keys, as_inputs(algorithm), mdp, learner, jax.tree.map(jnp.asarray, before))
    read = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *x.shape)), last)  # the same rows for all seeds
    learned = algorithm.iterate(keys, RecordedWorld(mdp, read, read), learner, 0).learner
    assert isinstance(learned, DeepLearner)
    no = jnp.zeros_like(learned.trial.tries)
    trial = dataclasses.replace(learned.trial, tries=no, repeats=no)  # the first real walk explores
    return dataclasses.replace(learned, trial=trial, env_steps=jnp.zeros_like(learned.env_steps))


def fill(key: Key[Array, ""], algo: Deep, mdp: MDP, learner: DeepLearner, pieces: Transitions) -> DeepLearner:
    """Run lines 6 to 8 for each piece and then line 9, for one seed."""

    def clean(rows: Transitions) -> Transitions:
        return drop_nonfinite(with_executed_actions(rows, mdp))[0]

    everything = clean(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pieces))
    phi = algo.features.draw(feature_key(key), mdp, everything)

    def one_piece(carry: tuple, rows: Transitions) -> tuple[tuple, None]:
        covariance, replay = carry
        rows = clean(rows)
        return (covariance.add(second_moment(phi, rows)), replay.add(rows)), None  # lines 6 to 8

    (covariance, replay), _ = scan(one_piece, (learner.covariance, learner.replay), pieces)
    count, size = pieces.reward.shape
    fits = algo.rounds * min(count, -(-replay.capacity // size))  # D holds no more rows than these

    def one_fit(model: FittedModel, fit_key: Key[Array, ""]) -> tuple[FittedModel, None]:
        return algo.model_for(mdp).train(fit_key, mdp, model, replay)[0], None

    model, _ = scan(one_fit, learner.model, jr.split(jr.fold_in(key, LOGGED), fits))  # line 9
    return dataclasses.replace(
        learner,
        covariance=covariance,
        replay=replay,
        model=model,
        bonus=algo.bonus.update(stage_key(key, 0, BONUS), learner.bonus, phi, covariance.matrix, replay),
        seen=expand_range(learner.seen, everything),
    )


@program
def _fill(keys: Key[Array, " seeds"], algo: Deep, mdp: MDP, learner: DeepLearner, pieces: Transitions) -> DeepLearner:
    return map_leading(lambda key, old: fill(key, algo, mdp, old, pieces), keys, learner)
