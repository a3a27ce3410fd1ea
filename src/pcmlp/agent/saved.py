"""A saved agent: one safetensors file with the learner's arrays, the configuration and the spaces of the environment.

The environment and its functions are not in the file. Without them an agent can predict, unless it searches for every
action with a reward that was given as a function.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pcmlp.agent.setup import Absent, Host, Made, Wanted, set_up
from pcmlp.algorithms.deep import DeepLearner
from pcmlp.boundary import Layout
from pcmlp.choices import Choices
from pcmlp.errors import ConfigError
from pcmlp.imagine import Starts, Unknown, unknown_functions
from pcmlp.runs.arrays import load_facts_and_arrays, restore_tree, save_tree
from pcmlp.runs.config import RunConfig, settings_of_record, to_json
from pcmlp.runs.durable import Damaged
from pcmlp.runs.policy import LAST, parse_iteration
from pcmlp.spaces import Box, Vectors
from pcmlp.tasks.registered import PREFIX
from pcmlp.types import MDP, Action, State
from pcmlp.usercode import check_code, check_unchanged, hash_code

_FORMAT = "pcmlp agent 3"


def save(path: Path, config: RunConfig, mdp: MDP, learner: DeepLearner, progress: dict[str, int]) -> None:
    """Write an agent. `progress` has the iteration and the other counts that learning continues from."""
    states, actions = mdp.boxes
    facts = {
        "format": _FORMAT,
        "config": json.loads(to_json(config)),
        "spaces": {"states": _facts(states), "actions": _facts(actions)},
        **({"layout": [list(part) for part in states.layout.parts]} if states.layout else {}),
        "learned": unknown_functions(mdp),
        **progress,
    }
    try:
        save_tree(path, learner, facts)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another file") from error


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the facts and the arrays of a saved agent."""
    try:
        facts, arrays = load_facts_and_arrays(path.resolve())  # the user may give a link
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror or error}); give a file that `save` wrote"
        ) from error
    except Damaged as error:
        raise ConfigError(f"{path}: {error}, or not a saved agent; give a file that `save` wrote") from error
    if facts.get("format") != _FORMAT:
        raise ConfigError(f"{path}: not an agent that this version saved; give a file that `save` wrote")
    return facts, arrays


def chooses_newest(facts: dict[str, Any], iteration: int | str | None, where: str) -> bool:
    """Return whether the agent acts by the policy of its last iteration, the only one that a file has."""
    if iteration is None or parse_iteration(iteration) in (None, facts["iteration"]):
        return iteration is not None
    last = facts["iteration"]
    raise ConfigError(f"iteration={iteration}: {where} has the policy of iteration {last} only; give {last} or {LAST}")


def describe(config: RunConfig, mdp: MDP) -> dict[str, Any]:
    """Return the facts of an agent that its environment has to fit."""
    return {"config": json.loads(to_json(config)), "learned": unknown_functions(mdp)}


def set_up_again(
    facts: dict[str, Any],
    env: Any,
    reward: Callable | None,
    terminal: Callable | None,
    host: Host,
    *,
    trust_code: bool,
    where: str,
) -> Made:
    """Return the parts of an agent with these facts; `env` is its environment, or None to do without."""
    record = dict(facts["config"])
    task = dict(record.pop("task"))
    name, horizon, hashes = task.pop("name"), task.pop("horizon"), record.pop("code", {})
    is_own = not name.startswith(PREFIX)  # a named task has its own world
    if env is None:
        check_code({"task": name}, hashes, trust_code, where)
        env = name if is_own else _absent(facts, name, horizon, reward, terminal)
    named = isinstance(env, str) and not env.startswith(PREFIX)
    if named and env.removeprefix("py:") != name:
        raise ConfigError(f"{where}: the agent is for {name}, not for {env}; give its own env")
    settings = settings_of_record({**record, "task": task} if named else record)
    check_code({"algo": record["algo"], **settings}, hashes, trust_code, where)
    check_unchanged({file: hashes.get(file, "") for file in hash_code({"task": name})}, where)
    host = host._replace(action_scale=task.get("action_scale"))
    wanted = Wanted(reward, terminal, record["algo"], horizon, record["seeds"][0], settings, host)
    made = set_up(env, wanted)
    if made.config.task_name != name:
        raise ConfigError(f"{where}: the agent is for {name}, not for {made.config.task_name}; give its own env")
    _check_functions(facts, made.world.mdp, where)
    return made


def functions_of(mdp: MDP) -> dict[str, Callable | None]:
    """Return the functions that were given for an environment, by argument; None where there is none."""
    functions = {"reward": mdp.reward, "terminal": mdp.terminal}
    return {name: None if isinstance(own, Unknown | NotGiven) else own for name, own in functions.items()}


def restore(arrays: dict[str, np.ndarray], made: Made, where: str) -> DeepLearner:
    """Return the learner with the stored arrays."""
    try:
        return restore_tree(arrays, eqx.filter_eval_shape(lambda: made.algorithm.start(made.keys, made.world.mdp, 1)))
    except ValueError as error:
        raise ConfigError(f"{where}: does not fit the environment ({error}); give the one it was saved with") from error


class NotGiven(eqx.Module):
    """A function of an agent that was loaded without it; a policy that searches needs it to predict."""

    name: str = eqx.field(static=True)

    def __call__(self, state: State, action: Action, next_state: State) -> Array:
        """Raise: the function is not in the file."""
        raise ConfigError(
            f"{self.name}: this agent searches with the function, which is not in its file; give it to load"
        )


def _absent(
    facts: dict[str, Any], name: str, horizon: int, reward: Callable | None, terminal: Callable | None
) -> Absent:
    """Return what the file says about the environment of a saved agent."""
    layout = Layout.from_record(facts["layout"]) if "layout" in facts else None
    states, actions = _box(facts["spaces"]["states"], layout), _space(facts["spaces"]["actions"])
    learned = facts["learned"]
    mdp = MDP(
        initial=Starts(jnp.zeros((1, states.size))),
        transition=NotGiven("transition"),
        reward=Unknown() if "reward" in learned else reward or NotGiven("reward"),
        terminal=Unknown() if "termination" in learned else terminal or NotGiven("terminal"),
        states=states,
        actions=actions,
        horizon=horizon,
    )
    return Absent(mdp, name.removeprefix(PREFIX))


def _check_functions(facts: dict[str, Any], mdp: MDP, where: str) -> None:
    """Raise unless the functions that are given are those that the agent was made with."""
    before, now = facts["learned"], unknown_functions(mdp)
    for kind, argument in (("reward", "reward"), ("termination", "terminal")):
        if kind in now and kind not in before:
            raise ConfigError(f"{where}: the agent has a function for {argument}; give {argument}=… with its env")
        if kind in before and kind not in now:
            raise ConfigError(f"{where}: the agent learns {argument}; give its env without {argument}=…")


def _facts(space: Vectors) -> Any:
    """Return the bounds of a box or the numbers of choices as JSON, which has no infinity."""
    if isinstance(space, Choices):
        return {"sizes": space.sizes, "firsts": space.firsts, "shape": space.integer_shape, "dtype": space.dtype}
    return [[bound if math.isfinite(bound) else None for bound in bounds] for bounds in (space.lower, space.upper)]


def _space(facts: Any) -> Vectors:
    if isinstance(facts, dict):
        sizes, firsts, shape = (tuple(facts[name]) for name in ("sizes", "firsts", "shape"))
        return Choices(sizes, firsts, shape, facts["dtype"])
    return _box(facts)


def _box(bounds: list[list[float | None]], layout: Layout | None = None) -> Box:
    lower, upper = bounds
    return Box(
        [-math.inf if bound is None else bound for bound in lower],
        [math.inf if bound is None else bound for bound in upper],
        layout=layout,
    )
