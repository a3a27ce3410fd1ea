"""The places where the policies of a run have been, from its episode log, in little memory.

A log may be larger than the memory, so it is read one record at a time, twice. The first reading finds which policies
have acted and in which range of states. The second one keeps what the pictures show: the share of cells that each
policy entered, how often the pairs of a finite MDP were visited, and samples of the places, whose sizes do not depend
on the size of the log.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import equinox as eqx
import numpy as np

from pcmlp.report.views import VIEWS, View, first_two, make_view
from pcmlp.runs.episodes import Record

MAP_SIDE = 1_000  # places on a map of the page are whole numbers from 0 to this along both axes
MAP_SEEDS = 4  # most seeds of a map of the page
_MAP_POLICIES = 200
_MAP_POINTS = 30_000  # most points of a map of the page, over all policies and seeds
_POINTS = 20_000  # number of points of a picture if there are more; all of them would hide each other
_TRACED = 5  # number of policies with a picture of their own path, as in the paper's figure
_STAGES = 3  # parts of a run in which the pairs of a finite MDP are counted


class Sample(NamedTuple):
    """Some of the visited places, and for each the policy that was there or the step of its episode."""

    places: np.ndarray  # [n, 2]
    numbers: np.ndarray  # [n]


class Stage(NamedTuple):
    """The visits of a finite MDP's pairs in a part of the run."""

    first: int  # iteration
    last: int
    counts: np.ndarray  # [actions, states]


@dataclass(frozen=True)
class Visits:
    """The places that policies have visited; a policy is named by its iteration."""

    view: View
    policies: list[int]
    together: np.ndarray  # [policies, seeds], the share of cells that policies 1 to n entered
    alone: np.ndarray  # [policies, seeds], the share of cells that policy n entered
    marks: dict[int, list[np.ndarray]]  # policy -> seed -> distinct places on a map of the page, [n, 2]
    points: list[Sample]  # by seed, with the policies; empty in a finite MDP
    paths: dict[int, Sample]  # by policy, of the first seed, with the steps; of some policies
    all_paths: Sample  # of all policies
    stages: list[Stage]  # empty unless the MDP is finite


def read_visits(task: str, records: Callable[[], Iterable[Record]]) -> Visits | None:
    """Read a log, which `records` yields from its beginning whenever it is called; None if it holds no step."""
    survey = _survey(task, map(_drop_nonfinite, records()))
    if survey is None:
        return None
    gathering = _Gathering(survey)
    for record in islice(map(_drop_nonfinite, records()), len(survey.iterations)):  # without any that were added since
        gathering.add(record)
    return gathering.finish()


def _drop_nonfinite(record: Record) -> Record:
    """Return the record without rows whose states have no place."""
    rows = record.rows
    if rows.state.ndim == 2:  # of a finite MDP
        return record
    finite = np.isfinite(rows.state).all(axis=-1) & np.isfinite(rows.next_state).all(axis=-1)
    return dataclasses.replace(record, rows=eqx.tree_at(lambda rows: rows.valid, rows, rows.valid & finite))


def spread(count: int, most: int) -> list[int]:
    """Return up to `most` indices below `count`, evenly spread, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def find_places(record: Record, project: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """Return the visited places of each seed, [n, 2].

    They are those of the states of all valid rows, and of the states that episodes ended in: no row begins there.
    """
    rows = record.rows
    if rows.state.ndim == 2:
        pairs = np.stack([rows.state, rows.action], axis=-1)
        return [of_seed[valid] for of_seed, valid in zip(pairs, rows.valid, strict=True)]
    by_seed = zip(rows.state, rows.next_state, rows.valid, _ends(record), strict=True)
    visited = [np.concatenate([state[valid], after[ended]]) for state, after, valid, ended in by_seed]
    return [_locate(states, record.iteration, project) for states in visited]


def trace(record: Record, view: View) -> Sample:
    """Return the places of the first seed's steps, with the number of each step within its episode."""
    state, valid, ended = np.asarray(record.rows.state[0]), np.asarray(record.rows.valid[0]), _ends(record)[0]
    row = np.arange(len(valid))
    start = np.maximum.accumulate(np.where(np.concatenate([[True], ended[:-1]]), row, 0))
    return Sample(_locate(state[valid], record.iteration, view.project), (row - start)[valid])


def _locate(states: np.ndarray, n: int, project: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the places of a policy's states; if these have one coordinate, policies are drawn above each other."""
    return project(states if states.shape[-1] > 1 else np.concatenate([states, np.full_like(states, n)], axis=-1))


def _ends(record: Record) -> np.ndarray:
    """Return which rows are the last of their episode, [seeds, rows]."""
    rows = record.rows
    return np.asarray(rows.valid & (rows.terminal | rows.last))


class _Survey(NamedTuple):
    """The findings of the first reading."""

    view: View
    iterations: list[int]  # of each record
    num_places: list[int]  # of each seed


def _survey(task: str, records: Iterable[Record]) -> _Survey | None:
    iterations, num_places, state_shape = [], np.zeros(1, int), ()
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for record in records:
        rows = record.rows
        if record.iteration not in iterations[-1:]:  # a policy's own record, as in the second reading
            num_places = num_places + rows.valid.sum(axis=1) + _ends(record).sum(axis=1)
        iterations.append(record.iteration)
        if task in VIEWS:
            continue
        state_shape, found = rows.state.shape[2:], find_places(record, first_two)
        if not state_shape:  # a finite MDP has at least the states and actions that are written anywhere
            found = [np.array([[max(rows.state.max(), rows.next_state.max()), rows.action.max()]])]
        for places in filter(len, found):
            low, high = np.minimum(low, places.min(axis=0)), np.maximum(high, places.max(axis=0))
    if not num_places.any():
        return None
    return _Survey(VIEWS.get(task) or make_view(state_shape, low, high), iterations, num_places.tolist())


class _Gathering:
    """The second reading."""

    def __init__(self, survey: _Survey):
        self._view, self._num_cells, self._num_places = survey.view, survey.view.num_cells, survey.num_places
        self._rng = np.random.default_rng(0)
        policies = list(dict.fromkeys(survey.iterations))
        self._marked = [policies[i] for i in spread(len(policies), _MAP_POLICIES)]
        self._traced = [policies[i] for i in spread(len(policies), _TRACED + 1)[1:]] or policies
        self._most_marks = max(20, _MAP_POINTS // (len(self._marked) * min(len(self._num_places), MAP_SEEDS)))
        parts = [part for part in np.array_split(survey.iterations, _STAGES) if len(part)] if self._view.finite else []
        self._stages = [Stage(int(part[0]), int(part[-1]), np.zeros(self._view.cells[::-1], int)) for part in parts]
        self._stage_of_record = iter([stage for stage, part in zip(self._stages, parts, strict=True) for _ in part])
        self._shares: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by policy: together and alone
        self._entered = np.zeros(1, bool)  # [seeds, rows, columns], by the policies so far
        self._marks: dict[int, list[np.ndarray]] = {}
        self._points: list[list[Sample]] = [[] for _ in self._num_places]
        self._paths: dict[int, Sample] = {}
        self._all_paths: list[Sample] = []

    def add(self, record: Record) -> None:
        n, rows = record.iteration, record.rows
        if self._view.finite:
            np.add.at(next(self._stage_of_record).counts, (rows.action[rows.valid], rows.state[rows.valid]), 1)
        if n in self._shares:  # a second record of an iteration is not of its policy, but of the whole cover
            return
        found = find_places(record, self._view.project)
        entered = np.stack([self._view.entered(places) for places in found])
        self._entered = self._entered | entered
        together, alone = (cells.sum(axis=(1, 2)) / self._num_cells for cells in (self._entered, entered))
        self._shares[n] = together, alone
        if n in self._marked:
            self._marks[n] = [self._mark(places) for places in found[:MAP_SEEDS]]
        if not self._view.finite:
            self._add_samples(record, found)

    def _add_samples(self, record: Record, found: list[np.ndarray]) -> None:
        n, path = record.iteration, trace(record, self._view)
        for of_seed, places, count in zip(self._points, found, self._num_places, strict=True):
            of_seed.append(self._thin(Sample(places, np.full(len(places), n)), count))
        self._all_paths.append(self._thin(path, self._num_places[0]))
        if n in self._traced:
            self._paths[n] = self._thin(path, len(path.numbers))

    def _mark(self, places: np.ndarray) -> np.ndarray:
        """Return some of the distinct places on a map of the page, [n, 2]."""
        low, high = np.array(self._view.low), np.array(self._view.high)
        on_map = MAP_SIDE * (places - low) / (high - low)
        inside = ((on_map >= 0) & (on_map <= MAP_SIDE)).all(axis=-1)
        x, y = on_map[inside].round().astype(int).T
        distinct = np.unique(x * (MAP_SIDE + 1) + y)
        chosen = self._rng.permutation(distinct)[: self._most_marks]
        return np.stack(np.divmod(chosen, MAP_SIDE + 1), axis=-1).astype(np.int16)

    def _thin(self, sample: Sample, total: int) -> Sample:
        """Return a random part of a sample, such that about `_POINTS` of all `total` places are kept."""
        kept = self._rng.random(len(sample.numbers)) * total < _POINTS
        return Sample(sample.places[kept], sample.numbers[kept])

    def finish(self) -> Visits | None:
        if not self._shares:  # the log was emptied between the readings
            return None
        together, alone = (np.stack(shares) for shares in zip(*self._shares.values(), strict=True))
        return Visits(
            self._view,
            list(self._shares),
            together,
            alone,
            self._marks,
            [_join(samples) for samples in self._points],
            self._paths,
            _join(self._all_paths),
            self._stages,
        )


def _join(samples: Sequence[Sample]) -> Sample:
    """Return samples as one."""
    nothing = Sample(np.zeros((0, 2), np.float32), np.zeros(0, int))
    return Sample(*(np.concatenate(parts) for parts in zip(nothing, *samples, strict=True)))
