"""The supported action spaces of Gymnasium environments, and the actions that `step` takes for a vector.

Box             the vector, within the bounds
Discrete        one choice: an integer
MultiDiscrete, MultiBinary    several choices: an array of integers
"""

from typing import Any

import numpy as np

from pcmlp.choices import Choices
from pcmlp.tasks.checks import import_gymnasium

DISCRETE = "Discrete, MultiDiscrete and MultiBinary"


def choices_of(space: Any) -> Choices | None:
    """Return the choices of a discrete space of actions; None for any other space."""
    spaces: Any = import_gymnasium().spaces
    if isinstance(space, spaces.Discrete):
        return Choices((int(space.n),), (int(space.start),), (), space.dtype.name)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, firsts = (tuple(int(x) for x in np.ravel(numbers)) for numbers in (space.nvec, space.start))
        return Choices(sizes, firsts, tuple(space.shape), space.dtype.name)
    if isinstance(space, spaces.MultiBinary):
        return Choices((2,) * int(np.prod(space.shape)), (), tuple(space.shape), space.dtype.name)
    return None


def space_of(choices: Choices) -> Any:
    """Return the Gymnasium space for choices."""
    spaces: Any = import_gymnasium().spaces
    firsts = choices.firsts or (0,) * len(choices.sizes)
    if not choices.integer_shape:
        return spaces.Discrete(choices.sizes[0], start=firsts[0])
    sizes, starts = (np.reshape(numbers, choices.integer_shape) for numbers in (choices.sizes, firsts))
    return spaces.MultiDiscrete(sizes, choices.dtype, start=starts)


def middle_action(space: Any) -> Any:
    """Return the action in the middle of a box, or the first options of choices."""
    if (choices := choices_of(space)) is not None:
        return choices.to_integers(np.zeros(choices.size))
    return (0.5 * space.low + 0.5 * space.high).astype(space.dtype)


def random_action(rng: np.random.Generator, space: Any) -> Any:
    """Return a random action."""
    if (choices := choices_of(space)) is not None:
        return choices.to_integers(rng.uniform(size=choices.size))
    return rng.uniform(space.low, space.high).astype(space.dtype)
