"""gym:ID: any registered environment by its name, with functions from a file or learned ones."""

import io
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from rich.console import Console

from pcmlp.cli import main
from pcmlp.errors import ConfigError, EnvironmentFault
from pcmlp.imagine import Unknown
from pcmlp.runs.config import build, build_problem, from_json, resolve, to_json
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.train import train
from pcmlp.tasks.host import GymnasiumWorld


class Corridor(gymnasium.Env):
    """Pays 1 a step until it is left at the right end."""

    def __init__(self, actions=None):
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (1,)) if actions is None else actions
        self.x = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.1, 0.1)
        return np.array([self.x]), {}

    def step(self, action):
        self.x += 0.2 * float(action[0])
        return np.array([self.x]), 1.0 + self.x, self.x > 0.3, False, {}


gymnasium.register("pcmlp-test/Corridor-v0", Corridor, max_episode_steps=10)
gymnasium.register("pcmlp-test/Endless-v0", Corridor)
gymnasium.register("pcmlp-test/Pairs-v0", lambda: Corridor(spaces.Tuple([spaces.Discrete(2)])), max_episode_steps=10)
gymnasium.register("pcmlp-test/Free-v0", lambda: Corridor(spaces.Box(-np.inf, np.inf, (1,))), max_episode_steps=10)
NAME = "gym:pcmlp-test/Corridor-v0"
TINY = ("eval_episodes=2", "outcome.sizes=16,16", "outcome.steps=2", "outcome.batch=16")


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_trpo):
    out, shown = tmp_path_factory.mktemp("runs") / "run", io.StringIO()
    config = resolve(NAME, "pcmlp", (0, 1), 40, (*tiny_trpo, *TINY))
    train(config, out, console=Console(file=shown, width=200))
    return out, shown.getvalue()


@pytest.fixture
def functions(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'imported')!r}).touch()\n"
        "def reward(state, action, next_state):\n    return 2.0 * next_state[0]\n"
        "def end(state, action, next_state):\n    return next_state[0] > 0.2\n"
        "def vector(state, action, next_state):\n    return next_state\n"
        "import jax.numpy as jnp\n"
        "def climb(state, action, next_state):\n    return -jnp.log(0.45 - next_state[0])\n"
        "def touch(state, action, next_state):\n    return jnp.where(next_state[0] > 0.4, jnp.inf, 0.0)\n"
        "def untraceable(state, action, next_state):\n    return 1.0 if state[0] > 0 else 0.0\n"
    )
    return path


def test_reward_and_termination_are_the_environments_own(run):
    """And learned: the line says so, and so do the columns."""
    out, shown = run
    assert "reward and termination: not given as a function" in shown
    metrics = read_metrics(out)
    assert {"reward_error", "end_error"} <= set(metrics)
    task = build_problem(resolve(NAME).task)
    assert isinstance(task.world.mdp.reward, Unknown)
    assert isinstance(task.world.mdp.terminal, Unknown)


def test_what_was_collected_is_what_it_paid(run):
    from pcmlp.runs.episodes import read

    (record, *_) = read(run[0] / "episodes")
    rows = record.rows
    valid = rows.valid
    np.testing.assert_allclose(rows.reward[valid], 1.0 + rows.next_state[valid][:, 0], rtol=1e-5)
    np.testing.assert_array_equal(rows.terminal[valid], rows.next_state[valid][:, 0] > 0.3)
    assert rows.terminal[valid].any()
    assert rows.state[valid][:, 0].max() <= 0.3  # no step goes on from an end


def test_the_run_is_evaluated_and_its_configuration_comes_back(run, capsys):
    assert main(["eval", str(run[0]), "--episodes", "2"]) == 0
    assert len(json.loads((run[0] / "eval.json").read_text())["seeds"]) == 2
    config = from_json((run[0] / "config.json").read_text())
    assert config.task_name == NAME
    assert from_json(to_json(config)) == config


@pytest.mark.slow
def test_an_agent_of_such_a_name_is_the_environments_and_its_file_brings_no_code(functions, tmp_path, tiny_trpo):
    from pcmlp import agent as agents
    from pcmlp.runs.arrays import load_facts_and_arrays, save_tree

    agent = agents.DeepPCMLP(NAME, settings=tiny_trpo)
    assert agent.config.task_name == NAME
    assert isinstance(agent.world.mdp.reward, Unknown)
    agent.learn(20)
    agent.save(tmp_path / "agent.safetensors")
    facts, _ = load_facts_and_arrays(tmp_path / "agent.safetensors")
    facts["config"]["task"]["reward"] = f"{functions}:reward"
    save_tree(tmp_path / "forged.safetensors", agent.learner, facts)
    assert agents.DeepPCMLP.load(tmp_path / "forged.safetensors", NAME).iteration == 1
    assert not (tmp_path / "imported").exists()
    given = agents.DeepPCMLP(NAME, reward=lambda s, a, n: n[0], settings=tiny_trpo)
    assert not isinstance(given.world.mdp.reward, Unknown)


def test_other_code_is_another_run(functions):
    before = resolve(NAME, settings=(f"task.reward={functions}:reward",))
    functions.write_text(functions.read_text().replace("2.0", "3.0"))
    assert resolve(NAME, settings=(f"task.reward={functions}:reward",)) != before
    with pytest.raises(ConfigError, match="changed since this run was started"):
        build(before)


def test_the_time_limit_is_the_horizon():
    assert resolve(NAME).task.horizon == 10
    assert resolve(NAME, settings=("task.horizon=5",)).task.horizon == 5
    assert resolve("gym:pcmlp-test/Endless-v0", settings=("task.horizon=7",)).task.horizon == 7


def test_functions_of_a_file(functions, tmp_path):
    config = resolve(NAME, settings=(f"task.reward={functions}:reward", f"task.terminal={functions}:end"))
    assert not (tmp_path / "imported").exists()
    mdp = build(config)[0].world.mdp
    assert (tmp_path / "imported").exists()
    assert float(mdp.reward(*np.float32([[0.0], [0.0], [0.25]]))) == 0.5
    assert bool(mdp.terminal(*np.float32([[0.0], [0.0], [0.25]])))


@pytest.mark.slow
def test_code_that_a_run_names_is_imported_only_if_trusted(functions, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    config = resolve(NAME, "random", (0,), 10, (f"task.reward={functions}:reward", "samples_per_policy=10"))
    train(config, out, console=Console(file=io.StringIO()))
    (tmp_path / "imported").unlink()
    monkeypatch.setattr("pcmlp.usercode._modules", {})  # as in a new process, which has imported nothing
    assert main(["eval", str(out), "--episodes", "1"]) == 2
    assert "--trust-code" in capsys.readouterr().err
    assert not (tmp_path / "imported").exists()
    assert main(["eval", str(out), "--episodes", "1", "--trust-code"]) == 0
    assert (tmp_path / "imported").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("gym:InvertedPendulm-v5", "InvertedPendulum-v5"),
        ("gym:", "not registered"),
        ("gym:my_module:Foo-v0", "names a module to import"),
        ("gym:pcmlp-test/Endless-v0", "has no time limit; give the steps of an episode, task.horizon=INT"),
        ("gym:pcmlp-test/Pairs-v0", "its action space is Tuple"),
        (
            "gym:pcmlp-test/Free-v0",
            "give action_scale, such as action_scale=1 (task.action_scale=1 on",
        ),
        (f"{NAME} --algo pcmlp-knr", "cannot be used with gym:pcmlp-test/Corridor-v0; give --algo pcmlp"),
        (f"{NAME} --set preset=paper", "pcmlp has none for gym:pcmlp-test/Corridor-v0; leave it out"),
        (f"{NAME} --set task.id=Other-v0", "give the task as an argument of its own"),
        (f"{NAME} --set task.horizon=11", "stops after 10 steps"),
        (f"{NAME} --set task.workers=-1", "workers=-1"),
        (f"{NAME} --set task.reward=reward", "give it as FILE.py:NAME"),
        (f"{NAME} --set task.reward=absent.py:reward", "there is no file"),
        (f"{NAME} --set task.reward=FILE:rewards", "the nearest is reward"),
        (f"{NAME} --set task.reward=FILE:vector", "not one float"),
        (f"{NAME} --set task.reward=FILE:untraceable", "JAX cannot trace it"),
        (f"{NAME} --set task.terminal=FILE:reward", "not one bool"),
        ("gym:MountainCarContinuous-v0 --set task.reward=FILE:climb", "reward=climb: is nan at state ["),
        ("gym:MountainCarContinuous-v0 --set task.reward=FILE:touch", "finite everywhere in the observation space"),
    ],
)
def test_bad_input(words, named, functions, tmp_path, capsys, record_property):
    out = tmp_path / "out"
    assert main(["train", *words.replace("FILE", str(functions)).split(), "--out", str(out)]) == 2
    line = capsys.readouterr().err.removeprefix("pcmlp: ").strip().replace(str(functions), "FILE.py")
    record_property("bad input", (f"train {words}".replace("FILE", "FILE.py"), line))
    assert "\n" not in line
    assert named in line
    assert not out.exists()


def test_a_file_that_cannot_be_imported(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    with pytest.raises(ConfigError, match="cannot be imported .ModuleNotFoundError"):
        build(resolve(NAME, settings=(f"task.reward={broken}:reward",)))


@pytest.mark.slow
def test_the_page_on_your_own_environment(tmp_path):
    """Its last program, as a reader would run it."""
    page = (Path(__file__).parents[1] / "docs" / "your-environment.md").read_text()
    program = tmp_path / "cart.py"
    program.write_text(page.split("```python\n")[-1].split("```")[0])
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600)
    assert run.stdout.splitlines()[-1] == "(10.0, 0.0)", run.stderr


def longer(tiny_trpo):
    return resolve(NAME, "pcmlp", (0, 1), 80, (*tiny_trpo, *TINY, "eval_every=0"))  # four iterations


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory, tiny_trpo):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(longer(tiny_trpo), out, console=Console(file=io.StringIO()))
    return read_metrics(out)


def same(here, there):
    assert list(here) == list(there)
    for name in here:
        if not name.endswith("_s"):
            np.testing.assert_array_equal(here[name], there[name], err_msg=name)


@pytest.mark.parametrize("where", ["collect", "score"])
def test_a_fault_loses_no_iteration_before_it(where, whole_run, tmp_path, tiny_trpo, monkeypatch):
    config, out = longer(tiny_trpo), tmp_path / "run"
    calls, whole = [], getattr(GymnasiumWorld, where)

    def failing(self, *inputs):
        """Fails for the third policy's episodes, or where iteration 1 is evaluated, after two of iteration 0."""
        calls.append(None)
        if len(calls) == 3:
            raise EnvironmentFault("it broke")
        return whole(self, *inputs)

    with monkeypatch.context() as patch:
        patch.setattr(GymnasiumWorld, where, failing)
        with pytest.raises(EnvironmentFault):
            train(config, out, console=Console(file=io.StringIO()))
    assert max(read_metrics(out)["iteration"]) == {"collect": 2, "score": 0}[where]
    train(config, out, console=Console(file=io.StringIO()), resume=True)
    same(whole_run, read_metrics(out))


DOCK = """
from pathlib import Path
import gymnasium
import numpy as np
from gymnasium import spaces
Path(__file__).with_name("imported").touch()


class Dock(gymnasium.Env):
    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, start=0.0):
        self.start = start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.array([self.start], np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.x = self.x + 0.1 * np.asarray(action, np.float32)
        return self.x.copy(), float(self.x[0] > 0.5), bool(self.x[0] > 0.5), False, {}


def far():
    return Dock(start=2.0)


class Needy(Dock):
    def __init__(self, size):
        super().__init__()


class Other:
    pass
"""


@pytest.fixture
def dock(tmp_path):
    (tmp_path / "dock.py").write_text(DOCK)
    return tmp_path / "dock.py"


def test_an_environment_of_the_users_file(dock):
    config = resolve(f"py:{dock}:Dock", "pcmlp", (0,), 40, ("task.horizon=12", "samples_per_policy=12"))
    assert config == resolve(f"{dock}:Dock", "pcmlp", (0,), 40, ("task.horizon=12", "samples_per_policy=12"))
    assert (config.task_name, config.task.kind, config.task.horizon) == (f"{dock}:Dock", "gym", 12)
    assert list(config.code) == [str(dock)]
    mdp = build_problem(config.task).world.mdp
    assert (mdp.horizon, mdp.states.size) == (12, 1)
    assert isinstance(mdp.reward, Unknown)
    with pytest.raises(ConfigError, match="task=.*uses code of a file.*trust_code=True"):
        from_json(to_json(config))
    assert from_json(to_json(config), trust_code=True) == config


def test_a_function_of_the_users_file_makes_the_environment_also_in_workers(dock, monkeypatch):
    monkeypatch.chdir(dock.parent)
    task = resolve("dock.py:far", settings=("task.horizon=12", "task.workers=1")).task
    world = build_problem(task).world
    np.testing.assert_array_equal(np.unique(world.environments.starts(3)), 2.0)
    world.close()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("py:FILE:Dock", "has no time limit; give the steps of an episode, task.horizon=INT"),
        ("py:FILE:Doc --set task.horizon=5", "has no Doc; the nearest is Dock"),
        ("py:FILE:Needy --set task.horizon=5", "cannot be made: TypeError: Needy.__init__() missing 1 required"),
        ("py:FILE:Other --set task.horizon=5", "is not a subclass of pcmlp.types.Task or gymnasium.Env; give one"),
        ("py:absent.py:Dock --set task.horizon=5", "there is no file absent.py; give FILE.py:NAME"),
    ],
)
def test_bad_environments_of_the_users_file(words, named, dock, tmp_path, capsys, record_property):
    out = tmp_path / "out"
    assert main(["train", *words.replace("FILE", str(dock)).split(), "--out", str(out)]) == 2
    line = capsys.readouterr().err.removeprefix("pcmlp: ").strip().replace(str(dock), "FILE.py")
    record_property("bad input", (f"train {words}".replace("FILE", "FILE.py"), line))
    assert named in line
    assert not out.exists()


@pytest.mark.slow
def test_a_run_on_an_environment_of_the_users_file(dock, capsys, monkeypatch):
    monkeypatch.chdir(dock.parent)
    words = "train py:dock.py:Dock --algo random --seeds 0 --steps 12 --set task.horizon=12 samples_per_policy=12"
    assert main([*words.split(), "eval_episodes=2", "--out", "run"]) == 0
    Path("imported").unlink()
    monkeypatch.setattr("pcmlp.usercode._modules", {})  # as in a new process, which has imported nothing
    assert main(["report", "run"]) == 0
    assert main(["eval", "run", "--episodes", "1"]) == 2
    assert "--trust-code" in capsys.readouterr().err
    assert not Path("imported").exists()
    assert main(["eval", "run", "--episodes", "1", "--trust-code"]) == 0
    assert Path("imported").exists()
