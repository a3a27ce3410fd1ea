"""`DeepPCMLP`: the agent, for one environment and one seed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pcmlp.agent import learning, saved
from pcmlp.agent.callbacks import Logger, as_callbacks
from pcmlp.agent.predicting import choose_policies, predict
from pcmlp.agent.setup import Absent, Host, Made, Settings, Wanted, find_device, set_up, use_device
from pcmlp.algorithms.deep import DeepLearner
from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.runs.arrays import named_arrays
from pcmlp.runs.cache import use_cache
from pcmlp.runs.callbacks import listening, notify
from pcmlp.runs.evaluate import evaluation_keys
from pcmlp.runs.findings import Findings
from pcmlp.signals import answer_ctrl_c
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.tasks.registered import PREFIX
from pcmlp.trees import take
from pcmlp.types import Iteration, Policy


class DeepPCMLP:
    """An agent for one environment and one seed; `pcmlp train` runs many seeds at once. Of its attributes, `iteration`
    is the number of iterations so far, `last_steps` are the real steps of the last one, and `config` has all settings.
    """

    def __init__(
        self,
        env: Any,
        *,
        reward: Callable | None = None,
        terminal: Callable | None = None,
        algo: str = "pcmlp",
        horizon: int | None = None,
        seed: int = 0,
        settings: Settings = (),
        workers: int = 0,
        timeout: float = 60.0,
        max_faults: int = 100,
        action_scale: float | None = None,
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        device: str = "auto",
    ):
        """Check all arguments; nothing is compiled yet.

        - `env`: a `gymnasium.Env`, a function that makes one, or a name: "gym:ID", "dmc:DOMAIN-TASK", "mountain-car".
        - `reward`, `terminal`: functions of (state, action, next_state) in jax.numpy. One that is not given is learned.
        - `algo`: "pcmlp" (plans by TRPO), "pcmlp-mppi" (searches at every step), or another method of this kind.
        - `horizon`: steps of an episode; by default the environment's time limit.
        - `seed`: fixes all random numbers of learning and evaluation.
        - `settings`: a dict, also nested, such as {"bonus_scale": 0.1, "planner": {"updates": 20}}, or texts as for
          `--set`, such as ("bonus_scale=0.1",).
        - `workers`: processes that step copies of the environment; 0: this process. `timeout`: seconds that a step may
          take there. `max_faults`: faults of the environment that learning survives. `action_scale`: the largest size
          of an action that has no bound (`GymnasiumWorld.of`).
        - `verbose`: 0 prints nothing, 1 prints how long compiling takes and a line for every `log_interval` iterations.
        - `tensorboard_log`: a folder. `device`: "auto", "cpu", "cuda" (or "gpu"), or "cuda:1" for one of several.
        """
        chosen, host = find_device(device), Host(workers, timeout, max_faults, action_scale)
        with use_device(chosen):
            wanted = Wanted(reward, terminal, algo, horizon, seed, settings, host)
            self._begin(set_up(env, wanted), verbose, tensorboard_log, chosen)

    def _begin(self, made: Made, verbose: int, tensorboard_log: str | Path | None, device: Any) -> None:
        """Set every attribute of an agent that has learned nothing."""
        if verbose not in (0, 1, 2):
            raise ConfigError(f"verbose={verbose!r}: give 0 (silent) or 1 (a line for each iteration)")
        use_cache()
        self.verbose, self.tensorboard_log, self.seed = int(verbose), tensorboard_log, made.config.seeds[0]
        self._take_over(made)
        self.iteration, self.findings = 0, Findings(made.world.mdp.states, 1)
        self._succeeded: bool | None = None  # whether an evaluation had a success; None before the first
        self.last_steps: Transitions | None = None
        self.logger, self._device = Logger(None), device
        self._learner: DeepLearner | None = None
        self.data_steps = 0  # the logged steps that the agent has started from
        self._bonus, self._newest = 0.0, False
        self._first_step = 0  # env steps at which `num_timesteps` begins
        self.log_folder: Path | None = None
        self._generator = np.random.default_rng(self.seed)

    def _take_over(self, made: Made) -> None:
        self.made, self.world, self.keys = made, made.world, made.keys
        self.config, self.algorithm, self.problem = made

    def __repr__(self) -> str:
        return f"<DeepPCMLP: {self.made.describe()}, {self._env_steps:,} env steps in {self.iteration} iterations>"

    @property
    def learner(self) -> DeepLearner:
        """Everything that was learned so far, with a leading axis for the seed."""
        if self._learner is None:
            with use_device(self._device):
                self._learner = self.algorithm.start(self.keys, self.world.mdp, self.config.num_iterations)
        return self._learner

    @property
    def _env_steps(self) -> int:
        return 0 if self._learner is None else int(self._learner.env_steps[0])

    @property
    def num_timesteps(self) -> int:
        """Env steps taken so far, or since `learn` was last called with `reset_num_timesteps`."""
        return self._env_steps - self._first_step

    def get_env(self) -> Any:
        """Return the Gymnasium environment, the name of a task that is computed by JAX, or None if there is neither."""
        if isinstance(self.problem.world, GymnasiumWorld):
            return self.problem.world.environments.first
        return None if isinstance(self.problem.world, Absent) else self.config.task_name

    def set_env(
        self,
        env: Any,
        *,
        reward: Callable | None = None,
        terminal: Callable | None = None,
        workers: int = 0,
        timeout: float = 60.0,
        max_faults: int = 100,
    ) -> None:
        """Continue in another copy of the environment, or give a loaded agent its environment.

        The arguments are those of the constructor. What was learned stays, so the environment has to have the same
        name and spaces. Functions that were given before need not be given again.
        """
        before = saved.functions_of(self.world.mdp) if self.config.task_name.startswith(PREFIX) else {}
        functions = reward or before.get("reward"), terminal or before.get("terminal")
        facts, host = saved.describe(self.config, self.world.mdp), Host(workers, timeout, max_faults)
        with use_device(self._device):
            made = saved.set_up_again(facts, env, *functions, host, trust_code=True, where="set_env")
            if self._learner is not None:
                self._learner = saved.restore(named_arrays(self._learner), made, "set_env")
            self._take_over(made)

    def start_from(self, data: str) -> "DeepPCMLP":
        """Learn from the steps of a Minari dataset before the first `learn`, and return the agent. The steps fill the
        replay, Sigma and the model. They count as `data_steps`, not as env steps."""
        with use_device(self._device):
            self._learner, self.data_steps = learning.start_from(self.made, self.iteration, data)
        return self

    def learn(
        self,
        total_timesteps: int | float,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str = "DeepPCMLP",
        reset_num_timesteps: bool = False,
        progress_bar: bool = False,
        *,
        eval_episodes: int | None = None,
    ) -> "DeepPCMLP":
        """Take `total_timesteps` more env steps, in whole iterations, and return the agent.

        - `callback`: called after every iteration: a function `callback(agent, metrics)`, an object with `on_step()`
          such as a `BaseCallback` of stable-baselines3, or a list of these. Learning ends when one returns False. If
          one raises, the agent keeps what it learned up to its last whole iteration.
        - `log_interval`: iterations between two lines of `verbose=1` and two points in TensorBoard.
        - `tb_log_name`: the beginning of the folder's name in `tensorboard_log`.
        - `reset_num_timesteps`: whether `num_timesteps` counts from 0 again; what was learned stays.
        - `progress_bar`: show a progress bar; where the output is not a terminal, about twenty lines.
        - `eval_episodes`: episodes to evaluate after every iteration. By default 20 if something uses them (a callback,
          `verbose`, TensorBoard or the progress bar) and episodes are cheap: the task is computed by JAX and the policy
          does not search. Otherwise 0, because an episode takes real steps of your environment or much time.

        `metrics` has what model and planner measured, `iteration`, `env_steps`, `wall_s`, `rewards_seen` (real steps
        so far with a reward above 0), `ends_seen` (real steps so far that ended an episode before the horizon)
        and, after an evaluation, `eval_return_mean`, `eval_return_std` and, if the task has a success, `eval_success`.
        """
        number = learning.count_iterations(self.config, self.problem, total_timesteps)
        callbacks = as_callbacks(callback, self, number * int(self.config.steps_per_iteration))
        log_interval = learning.check_count("log_interval", log_interval, 1)
        is_heard = bool(callbacks or progress_bar or self.verbose or self.tensorboard_log)
        evaluator = learning.choose_evaluator(self.problem, self.algorithm, self.keys, eval_episodes, is_heard)
        if reset_num_timesteps:
            self._first_step, self.log_folder = self._env_steps, None
        callbacks = learning.open_listeners(self, number, log_interval, tb_log_name, progress_bar) + callbacks
        began = time.perf_counter()
        try:
            with answer_ctrl_c(), use_device(self._device), listening(callbacks):
                for _ in range(number):
                    # Only a complete iteration counts: if the environment fails, the agent is unchanged.
                    iteration = self.algorithm.iterate(self.keys, self.world, self.learner, self.iteration + 1)
                    metrics = self._finish(iteration)
                    metrics |= learning.score(evaluator, self.learner, self.problem.success_return)
                    if "eval_success" in metrics:
                        self._succeeded = bool(self._succeeded) or metrics["eval_success"] > 0
                    if not notify(callbacks, self, metrics | {"wall_s": time.perf_counter() - began}):
                        break
        finally:
            self.logger.close()
        if (progress_bar or self.verbose) and (line := self.nothing_found):
            print(line)
        return self

    def _finish(self, iteration: Iteration) -> dict[str, Any]:
        """Take over a complete iteration; return what was measured in it."""
        assert isinstance(iteration.learner, DeepLearner)
        steps = learning.take_steps(iteration)
        self._learner, self.iteration, self.last_steps = iteration.learner, self.iteration + 1, steps
        self.findings.add([jax.tree.map(lambda values: values[None], steps)])
        measured = learning.measure(iteration)
        self._bonus = measured["bonus_mean"]  # per step
        counts = {**self._counts(), "env_steps": self._env_steps}
        return measured | {name: float(count) for name, count in counts.items()}

    def _counts(self) -> dict[str, int]:
        """Return the counts that learning continues from."""
        return {"iteration": self.iteration, "data_steps": self.data_steps, **self.findings.counts(0)}

    @property
    def nothing_found(self) -> str | None:
        """A line that says what to do if no real step so far paid a reward; None if one did, or none is looked for."""
        state = {"succeeded": self._succeeded, "bonus": self._bonus, "longer": "learn(...)"}
        return None if self.algorithm.reward_free else self.findings.describe_nothing(self._env_steps, **state)

    def policy(self, *, explore: bool = False) -> Policy:
        """Return the policy to deploy, or the one that `load` chose; or the one that explores."""
        return take(self.learner.policy if explore else choose_policies(self.learner, self._newest), 0)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray | np.integer, Any]:
        """Return the action that `env.step` takes, for one observation or each of a batch, and the next step's memory.

        - `observation`: an observation of the environment, such as a dict, or a batch with a leading axis; or vectors.
        - `state`: the memory that the last call returned, None at an episode's start; a search keeps its plan there.
        - `episode_start`: for each observation of a batch, whether an episode begins with it.
        - `deterministic`: whether to leave out the policy's noise.
        """
        with use_device(self._device):
            asked = observation, state, episode_start, deterministic
            return predict(self.policy(), self.world.mdp, *asked, self._generator)

    def evaluate(self, episodes: int = 20) -> tuple[float, float]:
        """Return the mean and standard deviation of the return of the policy that `predict` uses, without its noise,
        over a number of episodes that are not used for learning."""
        episodes = learning.check_count("episodes", episodes, 1)
        with use_device(self._device):
            policies = choose_policies(self.learner, self._newest).resolve()
            returns = self.problem.world.evaluate(evaluation_keys(self.keys), policies, episodes)
        return float(np.mean(returns)), float(np.std(returns))

    def get_vec_normalize_env(self) -> None:
        """Return None: there is no normalising wrapper. Callbacks of stable-baselines3 call this."""

    def save(self, path: str | Path) -> None:
        """Write everything that learning needs to continue as one safetensors file; loading it executes no code."""
        saved.save(Path(path), self.config, self.world.mdp, self.learner, self._counts())

    @staticmethod
    def load(
        path: str | Path,
        env: Any = None,
        *,
        reward: Callable | None = None,
        terminal: Callable | None = None,
        iteration: int | str | None = None,
        workers: int = 0,
        timeout: float = 60.0,
        max_faults: int = 100,
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        device: str = "auto",
        trust_code: bool = False,
    ) -> "DeepPCMLP":
        """Load an agent that `save` wrote.

        - `path`: the file.
        - `env`, `reward`, `terminal`: what the agent was made with; the file does not contain them. Without
          `env`, an agent for a named task gets its task back; any other can only `predict` until `set_env` is called.
        - `iteration`: "last" or its number, to act by the newest policy from now on, even if another one is deployed.
        - `workers` … `device`: as in the constructor.
        - `trust_code`: whether code that the agent's settings name may be imported.
        """
        facts, arrays = saved.read(Path(path))
        newest = saved.chooses_newest(facts, iteration, str(path))
        host, chosen = Host(workers, timeout, max_faults), find_device(device)
        with use_device(chosen):
            made = saved.set_up_again(facts, env, reward, terminal, host, trust_code=trust_code, where=str(path))
            agent = DeepPCMLP.__new__(DeepPCMLP)
            agent._begin(made, verbose, tensorboard_log, chosen)
            agent._learner = saved.restore(arrays, made, str(path))
        agent.iteration, agent._newest, agent.data_steps = int(facts["iteration"]), newest, facts.get("data_steps", 0)
        agent.findings.rewards_seen[0], agent.findings.ends_seen[0] = facts["rewards_seen"], facts["ends_seen"]
        return agent
