"""What the real steps of a run have found: rewards, ends, and how much of the state space.

    rewards_seen = real steps with a reward above 0 (a cost of acting is below 0 and does not count)
    ends_seen    = real steps that ended an episode, other than by the horizon
    explored     = the share of a finite MDP's states that were entered, or
                   the mean, over the bounded coordinates of an observation, of visited range / possible range

A task with a map has `coverage` instead, which says more.
"""

from collections.abc import Iterable

import numpy as np

from pcmlp.replay import Transitions
from pcmlp.runs.config import RunConfig
from pcmlp.settings import walk
from pcmlp.spaces import Box, Finite

_COST = 0.1  # rewards that differ by less are a cost of acting
_ALMOST_ALL = 0.95

_UNSEEN = ("reward_error", "end_error", "held_out_", "record")  # beginnings of names

STATES, RANGE, MAP = "the states", "the range of the observations", "the map"


class Findings:
    """The counts of each seed, [seeds], over all real steps so far."""

    def __init__(self, states: Box | Finite, seeds: int):
        self.rewards_seen = np.zeros(seeds, int)
        self.ends_seen = np.zeros(seeds, int)
        self.lowest_reward, self.highest_reward = np.inf, -np.inf
        self._states = states
        if isinstance(states, Finite):
            self._entered = np.zeros((seeds, states.size), bool)
        else:
            self._low, self._high = np.full((seeds, states.size), np.inf), np.full((seeds, states.size), -np.inf)

    def add(self, walked: Iterable[Transitions]) -> None:
        """Add real steps; every array has a leading axis of seeds."""
        for rows in walked:
            valid = np.asarray(rows.valid)
            reward = np.asarray(rows.reward)
            self.rewards_seen += (valid & (reward > 0)).sum(axis=1)
            self.ends_seen += (valid & np.asarray(rows.terminal)).sum(axis=1)
            self.lowest_reward = min(self.lowest_reward, reward[valid].min(initial=np.inf))
            self.highest_reward = max(self.highest_reward, reward[valid].max(initial=-np.inf))
            for states in (np.asarray(rows.state), np.asarray(rows.next_state)):
                if isinstance(self._states, Finite):
                    seed, row = np.nonzero(valid)
                    self._entered[seed, states[seed, row]] = True
                else:
                    known = valid[..., None] & np.isfinite(states)
                    self._low = np.minimum(self._low, np.where(known, states, np.inf).min(axis=1, initial=np.inf))
                    self._high = np.maximum(self._high, np.where(known, states, -np.inf).max(axis=1, initial=-np.inf))

    def counts(self, seed: int) -> dict[str, int]:
        """Return the rewards and ends that the seed at this place has seen."""
        return {"rewards_seen": int(self.rewards_seen[seed]), "ends_seen": int(self.ends_seen[seed])}

    @property
    def explored_of(self) -> str | None:
        """The whole that `explored` is a share of; None if no coordinate of an observation is bounded."""
        if isinstance(self._states, Finite):
            return STATES
        return RANGE if self._bounded.any() else None

    @property
    def _bounded(self) -> np.ndarray:
        assert isinstance(self._states, Box)
        low, high = (np.asarray(bound, np.float64) for bound in self._states.bounds)
        return np.isfinite(high - low) & (high > low) & (high - low < np.finfo(np.float32).max)

    def explored(self) -> list[float | None]:
        """Return the share that each seed has explored; None if no coordinate is bounded."""
        if isinstance(self._states, Finite):
            return [round(float(share), 4) for share in self._entered.mean(axis=1)]
        bounded = self._bounded
        if not bounded.any():
            return [None] * len(self.ends_seen)
        low, high = (np.asarray(bound, np.float64)[bounded] for bound in self._states.bounds)
        visited = np.clip((self._high - self._low)[:, bounded] / (high - low), 0.0, 1.0)  # noise may leave the box
        return [round(float(share), 4) for share in visited.mean(axis=1)]

    def describe_nothing(
        self,
        env_steps: int,
        *,
        succeeded: bool | None,
        bonus: float | None,
        longer: str,
        coverage: float | None = None,
    ) -> str | None:
        """Return a line that says what to do if no seed has found a reward; None if one has, or before any step.

        `succeeded`: whether an evaluation ever succeeded, None if the task has no success; a run of such a task
        has found nothing if its rewards differ by no more than a cost of acting. `bonus`: the last bonus per step, None
        if none is paid. `longer`: how to continue, such as "--resume --steps 4000". `coverage`: of the map, if the task
        has one.
        """
        spread = self.highest_reward - self.lowest_reward
        if spread < 0 or self.rewards_seen.any() or succeeded or (succeeded is None and spread > 1.01 * _COST):
            return None
        shares = [share for share in self.explored() if share is not None]
        share, of = (coverage, MAP) if coverage is not None else (np.mean(shares) if shares else None, self.explored_of)
        ends = int(self.ends_seen.sum())
        parts = [f"no reward in {env_steps:,} steps" if ends else f"no reward and no end in {env_steps:,} steps"]
        parts += [f"{ends:,} episodes ended early"] if ends else []
        parts += [f"{100 * share:.0f} % of {of} explored"] if share is not None else []
        if not bonus:
            return "; ".join([*parts, "no bonus is paid: to explore, choose pcmlp and a bonus_scale above 0"])
        parts.append(f"bonus still {bonus:.2g} per step")
        if share is not None and share >= _ALMOST_ALL:
            return "; ".join([*parts, f"check that the reward can be reached, or continue with {longer}"])
        return "; ".join([*parts, f"continue with {longer}, or raise bonus_scale"])


def may_be_unseen(name: str) -> bool:
    """Return whether a metric is NaN, an empty cell, while there are no samples that show it."""
    return name.startswith(_UNSEEN)


def failed_seeds(config: RunConfig, metrics: dict[str, np.ndarray]) -> dict[int, str]:
    """Return the seeds that learned nothing in an iteration, and why."""
    steps = next((value for key, _, value in walk(config.algorithm) if key == "model.steps"), 1)  # of one fit
    found: dict[int, str] = {}
    for name, most, why in (
        ("model_skipped", steps, "every step of the model's fit failed"),
        ("covariance_skipped", 1, "the samples could not be added to the covariance"),
        ("outcome_skipped", 1, "reward and end could not be learned"),
    ):
        for seed, value in zip(config.seeds, metrics.get(name, ()), strict=False):
            if value >= most:
                found[seed] = why
    return found
