"""Observations of any structure as vectors with a name for each number; bounds for actions without bounds.

    Box                its numbers in C order                 arm[0], camera[0,1]
    Discrete           one-hot                                mode=2
    MultiDiscrete      one-hot for each of its numbers        modes[0]=2
    MultiBinary        its bits                               contacts[3]
    Dict, Tuple        their parts, in the order of the space arm.speed[0], [1][0]

A model predicts vectors, and the paper has no networks for images. So a `Layout` flattens observations here, and all
other code sees a `Box`. An observation is refused if its structure, shapes or types are not those of its space.

Worker processes import this module, which therefore must not import JAX.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

_MOST_NUMBERS = 4_000  # in a flattened observation: a model predicts each of them
_IMAGE_AXES = 3
_ENCODERS = {"Graph": "graphs", "Text": "texts", "Sequence": "sequences", "OneOf": "alternatives"}


class UnsupportedSpace(ValueError):
    """The error about a space that cannot be flattened; the message says why."""


class WrongStructure(ValueError):
    """The error about an observation whose structure, shapes or types are not those of its space."""


class Part(NamedTuple):
    """A part of an observation that is one array, with its place in the vector."""

    path: tuple[str | int, ...]  # keys of dicts and places in tuples
    shape: tuple[int, ...]
    dtype: str
    start: int  # in the vector
    stop: int
    categories: tuple[int, ...] = ()  # one-hot: the number of values of each of its numbers
    first: tuple[int, ...] = ()  # one-hot: the smallest value of each of its numbers

    def find(self, observation: Any) -> Any:
        """Return this part of an observation."""
        for depth, step in enumerate(self.path, 1):
            if isinstance(step, str) != isinstance(observation, Mapping):
                wanted = "a dict" if isinstance(step, str) else "a tuple"
                raise WrongStructure(f"a {type(observation).__name__} where {wanted} belongs")
            try:
                observation = observation[step]
            except (KeyError, IndexError):
                raise WrongStructure(f"an observation without {name_of(self.path[:depth])}") from None
        return observation

    def read(self, value: Any) -> np.ndarray:
        """Return the numbers of this part."""
        values = np.asarray(value)
        of = f" of {name_of(self.path)}" if self.path else ""
        if values.dtype.kind not in "biuf":
            raise TypeError(f"a {type(value).__name__} of {values.dtype}{of} is not an array of numbers")
        if values.shape != self.shape:
            raise WrongStructure(f"an observation{of} of shape {values.shape}, not {self.shape}")
        if not np.can_cast(values.dtype, self.dtype, "same_kind"):
            raise WrongStructure(f"an observation{of} of type {values.dtype}, not {self.dtype}")
        return self._encode(values.ravel(), of) if self.categories else values.ravel()

    def read_rows(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers of this part for several observations."""
        if len(values) == 0:
            return np.zeros((0, self.stop - self.start), np.float32)
        if self.categories:
            return np.stack([self.read(value) for value in values])
        self.read(values[0])  # the others have the same shape and type
        return values.reshape(len(values), -1).astype(np.float32)

    def _encode(self, values: np.ndarray, of: str) -> np.ndarray:
        """Return integers as one-hot vectors, one after the other."""
        encoded, place = np.zeros(self.stop - self.start, np.float32), 0
        for value, count, first in zip(values.tolist(), self.categories, self.first, strict=True):
            if not first <= value < first + count:
                raise WrongStructure(
                    f"an observation{of} with the value {value}, which is not one of {first} to {first + count - 1}"
                )
            encoded[place + value - first] = 1.0
            place += count
        return encoded

    @property
    def names(self) -> Iterator[str]:
        """The names of its numbers, in order."""
        own = name_of(self.path)
        for index in itertools.product(*map(range, self.shape)):
            name = f"{own}[{','.join(map(str, index))}]" if index else own
            if not self.categories:
                yield name
                continue
            which = int(np.ravel_multi_index(index, self.shape)) if index else 0
            first = self.first[which]
            yield from (f"{name}={first + value}" for value in range(self.categories[which]))


class Layout(NamedTuple):
    """The parts of an observation in the order of the vector. It flattens observations and names their numbers."""

    parts: tuple[Part, ...]

    @staticmethod
    def of(space: Any) -> "Layout":
        """Return the layout of a space of Gymnasium, or raise `UnsupportedSpace`."""
        parts: list[Part] = []
        for path, leaf in _leaves(space, ()):
            parts.append(_part(path, leaf, parts[-1].stop if parts else 0))
        size = parts[-1].stop if parts else 0
        if not 0 < size <= _MOST_NUMBERS:
            raise UnsupportedSpace(f"it has {size:,} numbers, and 1 to {_MOST_NUMBERS:,} are supported")
        return Layout(tuple(parts))

    @staticmethod
    def vector(size: int) -> "Layout":
        """Return the layout of a vector of floats."""
        return Layout((Part((), (size,), "float64", 0, size),))

    @staticmethod
    def from_record(record: list[list[Any]]) -> "Layout":
        """Return the layout from JSON, which stores its parts as lists."""
        parts: list[Any] = [[tuple(value) if isinstance(value, list) else value for value in part] for part in record]
        return Layout(tuple(Part._make(part) for part in parts))

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.parts[-1].stop

    @property
    def is_vector(self) -> bool:
        """Whether observations are vectors already, so that their numbers have no names."""
        part = self.parts[0]
        return not (part.path or part.categories) and len(part.shape) == 1

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each number; none if observations are vectors already."""
        return () if self.is_vector else tuple(itertools.chain(*(part.names for part in self.parts)))

    @property
    def index(self) -> dict[str, slice]:
        """The place in the vector of each part, and of each nested dict and tuple, by name."""
        found: dict[str, slice] = {}
        for part in self.parts:
            for depth in range(1, len(part.path) + 1):
                name = name_of(part.path[:depth])
                found[name] = slice(found[name].start if name in found else part.start, part.stop)
        return found

    def part(self, *path: str | int) -> Part | None:
        """Return the part with this path; None if there is none."""
        return next((part for part in self.parts if part.path == path), None)

    def read(self, observation: Any) -> np.ndarray:
        """Return an observation as a vector, or raise an error that names its fault."""
        if len(self.parts) == 1:
            return self.parts[0].read(self.parts[0].find(observation))
        values = [part.read(part.find(observation)) for part in self.parts]
        self._check_keys(observation)
        return np.concatenate(values)

    def read_any(self, observation: Any) -> np.ndarray:
        """Return an observation of the environment, or a batch with a leading axis in each array, as vectors. Return
        vectors unchanged."""
        part = self.parts[0]
        nested = isinstance(observation, Mapping | tuple)
        if self.is_vector or nested != bool(part.path) or not (nested or self._is_own(np.asarray(observation))):
            return np.asarray(observation, np.float32)
        if np.ndim(part.find(observation)) == len(part.shape):
            return self.read(observation).astype(np.float32)
        return self.read_rows(observation)

    def read_rows(self, observations: Any) -> np.ndarray:
        """Return a batch of observations, with a leading axis in each array, as vectors."""
        columns = [(part, np.asarray(part.find(observations))) for part in self.parts]
        self._check_keys(observations)
        counts = sorted({len(values) for _, values in columns})
        if len(counts) > 1:
            raise WrongStructure(f"batches of {' and '.join(map(str, counts))} observations")
        return np.concatenate([part.read_rows(values) for part, values in columns], axis=1)

    def _is_own(self, values: np.ndarray) -> bool:
        """Return whether an array is an observation or a batch, not a vector, which has floats."""
        own, shape = self.parts[0].shape, values.shape
        whole = bool(self.parts[0].categories) and values.dtype.kind in "iu"
        return shape == own or (shape[1:] == own and (whole or shape[-1:] != (self.size,)))

    def _check_keys(self, observation: Any) -> None:
        """Raise if the outermost dict or tuple has parts that the space does not have."""
        known = {part.path[0] for part in self.parts if part.path}
        given = observation if isinstance(observation, Mapping) else range(len(observation)) if known else ()
        if more := [key for key in given if key not in known]:
            raise WrongStructure(f"an observation with {more[0]!r}, which is not in the space")


def observation_index(env: Any) -> dict[str, slice]:
    """Return the places of the parts of an observation in a state, such as {"achieved_goal": slice(0, 3)}.
    With them, a reward function can select parts by name."""
    return Layout.of(env.observation_space).index


def name_of(path: tuple[str | int, ...]) -> str:
    """Return the name of a part."""
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name or "observation"


def bounds_of(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a flattened space, in 64 bits."""
    bounds = [_bounds(leaf, _part(path, leaf, 0).stop) for path, leaf in _leaves(space, ())]
    low, high = (np.concatenate(each) for each in zip(*bounds, strict=True))
    return low, high


def bound_actions(make: Callable[[], Any], scale: float) -> Any:
    """Return an environment whose missing bounds of actions are -scale and scale. This function can be sent to worker
    processes."""
    return with_bounds(make(), scale)


def with_bounds(env: Any, scale: float) -> Any:
    """Return the environment; missing bounds of its actions become -scale and scale."""
    from gymnasium import spaces
    from gymnasium.wrappers import TransformAction

    space = env.action_space
    if not isinstance(space, spaces.Box):
        return env  # discrete actions have no bounds
    low, high = (np.where(np.isfinite(bound), bound, end) for bound, end in ((space.low, -scale), (space.high, scale)))
    return TransformAction(env, _same, spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype))


def _same(action: Any) -> Any:
    return action


def _leaves(space: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the spaces inside of nested Dicts and Tuples, with their paths."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space
        return
    inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    for step, part in inner:
        yield from _leaves(part, (*path, step))


def _part(path: tuple[str | int, ...], space: Any, start: int) -> Part:
    """Return the part for a space; it begins at `start` in the vector."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Part(path, (), "int64", start, start + int(space.n), (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        counts, first = (tuple(np.ravel(numbers).tolist()) for numbers in (space.nvec, space.start))
        return Part(path, space.nvec.shape, "int64", start, start + sum(counts), counts, first)
    if isinstance(space, spaces.MultiBinary):
        return Part(path, tuple(space.shape), "int8", start, start + int(np.prod(space.shape)))
    if not isinstance(space, spaces.Box):
        kind = type(space).__name__
        what = f"encoder for {_ENCODERS[kind]}" if kind in _ENCODERS else f"way to flatten a {kind}"
        raise UnsupportedSpace(f"{_where(path)}a {kind}, and there is no {what}")
    if space.dtype == np.uint8 and len(space.shape) >= _IMAGE_AXES:
        raise UnsupportedSpace(f"{_where(path)}an image of shape {space.shape}, and there is no encoder for images")
    return Part(path, tuple(space.shape), space.dtype.name, start, start + int(np.prod(space.shape)))


def _where(path: tuple[str | int, ...]) -> str:
    return f"{name_of(path)} is " if path else "it is "


def _bounds(space: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(space, "low"):  # a Box
        return space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
    return np.zeros(size), np.ones(size)
