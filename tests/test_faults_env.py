"""Environments that misbehave: what they spoil is in no data, everything else is as if nothing had happened."""

import functools
import io
import os
import pickle
import signal
import subprocess
import sys
import time

import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from faulty import FaultyEnv, arm, calls
from rich.console import Console

from pcmlp.boundary import Layout
from pcmlp.errors import ConfigError, EnvironmentFault
from pcmlp.observed import Fault, Faults, ObservationCheck, Observed
from pcmlp.runs import checkpoint
from pcmlp.runs.config import resolve
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train
from pcmlp.tasks.environments import Environments
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import Policy, Problem
from pcmlp.workers import Copies, Workers

HORIZON = 8
KEYS = jr.split(jr.key(0), 1)

gymnasium.register("pcmlp-test/Faulty-v0", FaultyEnv, max_episode_steps=100)


class Noisy(Policy):
    """Uniform actions, or half of what it saw last."""

    noise: jax.Array

    def init(self):
        return None

    def __call__(self, key, carry, state):
        return carry, self.noise * jr.uniform(key, (1,), minval=-1.0) + 0.5 * state[2:]

    def deterministic(self):
        return Noisy(jnp.zeros_like(self.noise))


POLICIES = Noisy(jnp.ones(1))


def luck(state, action, next_state):
    return next_state[1] + next_state[2] + 0.0 * action[0]


def make_world(folder, make=None, length=1000, **changes):
    make = functools.partial(FaultyEnv, folder, length) if make is None else make
    return GymnasiumWorld.of(make, reward=luck, horizon=HORIZON, **changes)


def collect(world):
    """Two lanes of a horizon, [lanes, steps, ...]: global step 2t + 1 is lane 0's at time t."""
    rows, walked = world.collect(KEYS, POLICIES, 2 * HORIZON)
    assert rows is walked
    return jax.tree.map(lambda x: np.asarray(x).reshape(2, HORIZON, *x.shape[2:]), rows)


def draw(world):
    return jax.tree.map(np.asarray, world.draw(KEYS, POLICIES, 2))


def evaluate(world):
    return np.asarray(world.evaluate(KEYS, POLICIES, 2))


def assert_same(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def lane_of(rows, lane, steps=slice(None)):
    return jax.tree.map(lambda x: x[lane, steps], rows)


def assert_blank(rows):
    assert all(not np.any(x) for x in jax.tree.leaves(rows))


def assert_spoilt_once(rows, clean, lane, at):
    """The lane's first episode was spoilt at that time and another one begun; the rest is untouched."""
    assert_same(lane_of(rows, 1 - lane), lane_of(clean, 1 - lane))
    assert_blank(lane_of(rows, lane, slice(at + 1)))
    after = lane_of(rows, lane, slice(at + 1, None))
    np.testing.assert_array_equal(after.state[:, 0], np.arange(HORIZON - at - 1))
    np.testing.assert_array_equal(after.last, np.arange(at + 1, HORIZON) == HORIZON - 1)
    assert after.valid.all()
    assert (after.state[:, 1] != clean.state[lane, 0, 1]).all()  # begun elsewhere
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(rows))


# -- in this process ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "kind"), [
    ("raise", "raised"), ("nan", "not finite"), ("inf", "not finite"), ("overflow", "not finite"),
    ("outside", "outside"), ("shape", "shape"), ("scalar", "shape"),
    ("none", "malformed"), ("old api", "malformed"), ("words", "malformed"),
])  # fmt: skip
@pytest.mark.fault(
    "an environment raises in a step, or returns an observation that is not finite, far outside its space or malformed",
    "its episode is rejected and counted, the environment is made again, the rest is kept",
)
def test_a_fault_in_a_step(tmp_path, fault, kind):
    world = make_world(tmp_path)
    clean = collect(world)
    assert clean.valid.all()
    arm(tmp_path, step_9=fault)
    assert_spoilt_once(collect(world), clean, lane=0, at=4)
    assert world.faults.kinds == {kind: 1}
    assert world.faults.rejected == 5
    assert world.faults.restarts == calls(tmp_path, "make") == 1
    assert str(world.faults) == f"environment faults: {kind} 1; 5 transitions rejected, 1 restarts"
    assert_same(collect(world), clean)  # and it is over
    assert world.faults.total == 1


def test_nothing_is_wrong(tmp_path):
    world = make_world(tmp_path)
    clean = collect(world)
    arm(tmp_path, step_9="rounding")
    rows = collect(world)
    assert rows.valid.all()
    np.testing.assert_array_equal(rows.next_state[0, 4, 1], np.float32(1.0005))
    assert_same(lane_of(rows, 1), lane_of(clean, 1))
    assert world.faults == Faults()
    assert str(world.faults) == "no environment faults"


def test_episodes_before_the_fault_are_kept(tmp_path):
    world = make_world(tmp_path, length=3)
    clean = collect(world)
    np.testing.assert_array_equal(clean.last[0], [0, 0, 1, 0, 0, 1, 0, 1])
    arm(tmp_path, step_9="nan")  # in the second episode
    rows = collect(world)
    assert_same(lane_of(rows, 0, slice(3)), lane_of(clean, 0, slice(3)))
    assert_blank(lane_of(rows, 0, slice(3, 5)))
    np.testing.assert_array_equal(rows.state[0, 5:, 0], [0, 1, 2])
    np.testing.assert_array_equal(rows.last[0, 5:], [0, 0, 1])
    assert_same(lane_of(rows, 1), lane_of(clean, 1))
    assert world.faults.rejected == 2


def test_what_follows_a_fault_is_reproducible(tmp_path):
    world = make_world(tmp_path, length=3)
    arm(tmp_path, step_9="nan")
    rows = collect(world)
    arm(tmp_path, step_9="nan")
    assert_same(collect(world), rows)
    assert len(np.unique(rows.state[rows.state[..., 0] == 0][:, 1])) > 4  # no two episodes are the same


def test_a_stream_with_nothing_left_is_walked_again(tmp_path):
    world = make_world(tmp_path)
    clean = collect(world)
    arm(tmp_path, step_15="raise")  # lane 0's last one
    rows = collect(world)
    assert rows.valid.all()
    np.testing.assert_array_equal(rows.state[0, :, 0], np.arange(HORIZON))
    assert rows.state[0, 0, 1] != clean.state[0, 0, 1]
    assert_same(lane_of(rows, 1), lane_of(clean, 1))
    assert world.faults.rejected == HORIZON
    assert calls(tmp_path, "step") == 3 * HORIZON  # lane 1 was walked once


@pytest.mark.parametrize("fault", ["raise", "nan", "outside", "shape", "none"])
@pytest.mark.fault("an environment raises in a reset", "it is reset again, a bounded number of times")
def test_a_fault_in_a_reset(tmp_path, fault):
    world = make_world(tmp_path)
    clean, returns = collect(world), evaluate(world)
    arm(tmp_path, reset_1=fault)
    rows = collect(world)
    assert rows.valid.all()
    assert rows.state[0, 0, 1] != clean.state[0, 0, 1]  # a seed may be what is wrong
    assert_same(lane_of(rows, 1), lane_of(clean, 1))
    assert (world.faults.total, world.faults.rejected, world.faults.restarts) == (1, 0, 1)
    arm(tmp_path, reset_1=fault)
    assert_same(evaluate(world), returns)
    assert world.faults.restarts == calls(tmp_path, "reset") - 1 == 2


@pytest.mark.fault("an environment that cannot be made again at once", "tried again, a bounded number of times")
def test_an_environment_that_cannot_be_made_again_at_once(tmp_path):
    world = make_world(tmp_path)
    clean = collect(world)
    arm(tmp_path, step_9="nan", make_1="raise", make_2="raise")
    assert_spoilt_once(collect(world), clean, lane=0, at=4)
    assert world.faults.kinds == {"not finite": 1, "raised": 2}
    assert world.faults.restarts == 1
    assert world.faults.last == "make raised ValueError: the joint broke"


@pytest.mark.fault("a fault in an evaluation", "the episode is repeated with its seed")
def test_evaluation_walks_an_episode_again_with_its_seed(tmp_path):
    world = make_world(tmp_path)
    clean = evaluate(world)
    assert clean[0, 0] != clean[0, 1]
    # lane 0 in its step 5; then, while lane 1 is through at 13, in its step 2 of two more walks
    arm(tmp_path, step_9="raise", step_15="nan", step_17="inf")
    assert_same(evaluate(world), clean)
    assert world.faults.total == 3
    assert world.faults.rejected == 9
    arm(tmp_path, step_every="raise")
    with pytest.raises(EnvironmentFault, match="failed 5 times in a row"):
        evaluate(world)


def test_a_spoilt_draw_is_drawn_again(tmp_path):
    world = make_world(tmp_path)
    clean_rows, clean_walked = draw(world)
    assert clean_rows.valid.all()
    arm(tmp_path, step_1="nan")
    rows, walked = draw(world)
    assert rows.valid.all()
    assert_same(lane_of(rows, 0, 1), lane_of(clean_rows, 0, 1))  # the other draw
    assert rows.state[0, 0, 1] != clean_rows.state[0, 0, 1]
    np.testing.assert_array_equal(walked.valid, clean_walked.valid)  # what was rejected was not walked
    np.testing.assert_array_equal(walked.last, clean_walked.last)
    assert np.isfinite(walked.next_state).all()


@pytest.mark.fault(
    "an environment that always fails", "the run stops with a line that names it, what was wrong and how often"
)
def test_a_lane_that_always_fails_ends_it(tmp_path):
    world = make_world(tmp_path)
    clean = collect(world)
    arm(tmp_path, step_every="raise")
    with pytest.raises(EnvironmentFault) as caught:
        collect(world)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("environment <FaultyEnv")
    for part in (
        "failed 5 times in a row",
        "step raised ValueError: the joint broke, at step 1 of an episode",
        "raised 9; 9 transitions rejected",  # lane 1 failed beside it
        "; fix the error that it raises",
    ):
        assert part in line
    arm(tmp_path)  # it was mended
    assert_same(collect(world), clean)
    arm(tmp_path, step_9="raise")  # and has its tries again
    assert_spoilt_once(collect(world), clean, lane=0, at=4)
    arm(tmp_path, reset_every="nan")
    with pytest.raises(EnvironmentFault, match="failed 5 times in a row.* reset gave .* nan at coordinate 1 "):
        collect(world)


@pytest.mark.fault("more faults than `max_faults`", "the run stops with a line")
def test_too_many_faults_in_all(tmp_path):
    world = make_world(tmp_path, max_faults=2)
    arm(tmp_path, step_3="outside", step_16="outside")
    collect(world)
    assert world.faults.total == 2
    world.environments.forget_faults()  # another run may have as many
    arm(tmp_path, step_3="outside", step_16="outside")
    collect(world)
    assert world.faults.total == 2
    arm(tmp_path, step_1="outside")
    with pytest.raises(EnvironmentFault) as caught:
        collect(world)
    for part in (
        "failed 3 times, with max_faults=2",
        "2.5 at coordinate 1, far outside of the observation space: 0 to 1",
        "widen its observation_space if such values are right, or give a larger max_faults",
    ):
        assert part in str(caught.value)


def test_faults_while_it_is_tried_out(tmp_path, monkeypatch):
    """Gymnasium's own checks are over at the first sample."""
    sample = Environments.sample

    def armed(self):
        arm(tmp_path, step_5="nan", reset_3="raise")
        return sample(self)

    monkeypatch.setattr(Environments, "sample", armed)
    world = make_world(tmp_path)
    assert world.faults.kinds == {"not finite": 1, "raised": 1}
    assert np.isfinite(world.mdp.initial.states).all()


def test_an_environment_that_nothing_makes_again_is_reset(tmp_path):
    world = make_world(tmp_path, FaultyEnv(tmp_path))
    arm(tmp_path, step_4="raise")
    rows, _ = world.collect(KEYS, POLICIES, HORIZON)
    np.testing.assert_array_equal(rows.valid[0], np.arange(HORIZON) > 3)
    np.testing.assert_array_equal(rows.state[0, 4:, 0], np.arange(4))
    assert calls(tmp_path, "make") == 0


def test_one_that_was_handed_in_stays_open_and_others_are_closed(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(FaultyEnv, "close", lambda self: closed.append(self))
    given = gymnasium.make("pcmlp-test/Faulty-v0", folder=tmp_path)
    world = GymnasiumWorld.of(given, reward=luck, horizon=HORIZON)
    closed.clear()
    arm(tmp_path, step_1="raise", step_2="raise")  # once in each lane
    collect(world)
    assert len(closed) == 1
    assert given.unwrapped not in closed
    world.close()
    assert len(closed) == 3
    assert given.unwrapped not in closed
    assert collect(world).valid.all()


def test_what_a_space_admits():
    low, high = np.array([-np.inf, 0.0, -np.inf, 0.0, 1e6]), np.array([np.inf, np.inf, 10.0, 0.5, 1e6 + 1.0])
    check = ObservationCheck(low, high)
    inside = np.array([0.0, 5.0, 5.0, 0.25, 1e6 + 0.5])

    def fault(index, value):
        observed = Observed.blank(2, (5,))
        observed.observation[:] = inside
        with np.errstate(over="ignore"):
            observed.observation[1, index] = value
        checked = check("step", observed)
        assert not checked.fault[0]
        assert set(checked.messages) == set(np.flatnonzero(checked.fault))
        return checked.fault[1]

    assert not any(fault(0, value) for value in (-1e30, 1e30, 0.0))
    assert not any((fault(1, -0.9), fault(1, 1e30), fault(2, 19.9), fault(3, 0.9), fault(3, -0.4), fault(4, 1e6 + 1.9)))
    outside = fault(1, -1.1), fault(2, 20.1), fault(3, 1.1), fault(3, -0.6), fault(4, 1e6 + 9)
    assert outside == (Fault.OUTSIDE,) * 5
    assert fault(0, np.nan) == fault(0, -np.inf) == fault(0, 1e39) == fault(3, np.inf) == Fault.NOT_FINITE
    failed = Observed.blank(1, (5,))  # zeros are outside, but what failed first counts
    failed.fail(0, Fault.RAISED, "step raised")
    assert check("step", failed).messages == {0: "step raised"}


def test_observations_are_rounded_to_32_bits(tmp_path):
    env = FaultyEnv(tmp_path)
    copies = Copies(lambda: env, Layout.vector(3), env)
    assert not copies.ask("reset", [0], [3]).fault.any()
    observed = copies.ask("step", [0], np.array([[0.1]]))
    assert observed.observation.dtype == np.float32
    np.testing.assert_array_equal(observed.observation[0], np.float32([1.0, env.luck, 0.1]))


@pytest.mark.fault("an environment that ignores `reset(seed)`", "a line says that runs are not reproducible")
def test_a_run_that_is_not_reproducible_says_so(tmp_path):
    assert make_world(tmp_path).notes == []
    make = functools.partial(FaultyEnv, tmp_path)
    for env in (
        functools.partial(make, ignore_seed=True),
        functools.partial(make, ignore_in_steps=True),
        gymnasium.make("pcmlp-test/Faulty-v0", folder=tmp_path, ignore_seed=True),
    ):
        world = GymnasiumWorld.of(env, reward=luck, horizon=HORIZON, seeds=2)
        (line,) = world.notes
        assert "gives different observations after the same reset(seed), so runs are not reproducible" in line
        assert "\n" not in line
    assert collect(world).valid.all()


# -- in workers --------------------------------------------------------------------------------------------------------


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def within_10_s(happens):
    until = time.monotonic() + 10.0
    while not happens() and time.monotonic() < until:
        time.sleep(0.02)
    return happens()


def processes(world):
    return [worker.pid for worker in world.environments._copies._running.values()]


@pytest.fixture
def in_workers(tmp_path):
    worlds = []

    def build(workers, **changes):
        worlds.append(make_world(tmp_path, workers=workers, **changes))
        return worlds[-1]

    yield build
    for world in worlds:
        pids = processes(world)
        world.close()
        assert not any(map(alive, pids))


def test_two_workers(tmp_path, in_workers):
    """As in this process; then one of them raises, one is killed, and one is interrupted."""
    here = make_world(tmp_path)
    clean, drawn, returns = collect(here), draw(here), evaluate(here)
    world = in_workers(2, timeout=30.0)
    for pid in (first := processes(world)):
        os.kill(pid, signal.SIGINT)  # Ctrl-C, which is for the run to act on
    assert_same((collect(world), draw(world), evaluate(world)), (clean, drawn, returns))
    assert processes(world)[: len(first)] == first
    assert len(processes(world)) == 2
    assert os.getpid() not in processes(world)

    arm(tmp_path, step_9="raise")
    rows = collect(world)
    lane = int(np.argmin(rows.valid[:, 0]))  # whichever came first
    assert_spoilt_once(rows, clean, lane, at=4)
    assert world.faults.kinds == {"raised": 1}

    before = processes(world)
    arm(tmp_path, step_9="crash")
    rows = collect(world)
    lane = int(np.argmin(rows.valid[:, 0]))
    assert_spoilt_once(rows, clean, lane, at=4)
    assert world.faults.kinds == {"raised": 1, "died": 1}
    assert world.faults.last == "its process died in step (by SIGKILL), at step 5 of an episode"
    assert world.faults.restarts == 2
    assert len(set(before) & set(processes(world))) == 1

    os.kill(processes(world)[0], signal.SIGKILL)  # while nothing is asked of it
    assert_same(evaluate(world), returns)
    assert world.faults.kinds == {"raised": 1, "died": 2}


def test_an_interrupt_leaves_no_answer_behind(tmp_path, in_workers, monkeypatch):
    world = in_workers(1)
    clean = collect(world)
    receive, asked = Workers._receive, []

    def interrupted(self, worker, order, count):
        asked.append(order)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return receive(self, worker, order, count)

    monkeypatch.setattr(Workers, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect(world)
    assert processes(world) == []
    assert_same(collect(world), clean)
    assert world.faults.total == 0


@pytest.mark.fault(
    "an environment in a worker process hangs", "ended after `timeout`, made again, its episode rejected"
)
def test_what_hangs_in_a_step(tmp_path, in_workers):
    """It does not even listen to the signal to end; what shared its process begins another episode too."""
    world = in_workers(1, timeout=1.5)
    clean = collect(world)
    (pid,) = processes(world)
    arm(tmp_path, step_9="hang deaf")
    rows = collect(world)
    assert not alive(pid)
    assert_blank(lane_of(rows, 0, slice(5)))
    assert_blank(lane_of(rows, 1, slice(5)))
    np.testing.assert_array_equal(rows.state[:, 5:, 0], [[0, 1, 2]] * 2)
    assert rows.valid[:, 5:].all()
    assert world.faults.kinds == {"hung": 1}
    assert (world.faults.rejected, world.faults.restarts) == (9, 2)
    assert world.faults.last == "step took more than 1.5 s, at step 5 of an episode"
    assert_same(collect(world), clean)


def test_a_process_that_dies_at_the_second_of_its_lanes(tmp_path, in_workers):
    """The first has taken its step, and nobody will know where that led."""
    world = in_workers(1)
    clean = collect(world)
    arm(tmp_path, step_10="crash")
    rows = collect(world)
    assert_blank(jax.tree.map(lambda x: x[:, :5], rows))
    np.testing.assert_array_equal(rows.state[:, 5:, 0], [[0, 1, 2]] * 2)
    assert rows.valid[:, 5:].all()
    assert world.faults.kinds == {"died": 1}
    assert (world.faults.rejected, world.faults.restarts) == (9, 2)
    assert world.faults.last == "its process died in step (by SIGKILL), at step 5 of an episode"
    assert world.environments._in_a_row == {1: 1}  # only the second lane is blamed
    assert_same(collect(world), clean)


def test_the_time_limit_is_for_each_lane(tmp_path, in_workers):
    """Two that are slow together take longer than one may."""
    world = in_workers(1, timeout=1.2)
    clean = collect(world)
    arm(tmp_path, reset_1="slow", reset_2="slow")
    assert_same(collect(world), clean)
    assert world.faults.total == 0


def test_what_hangs_in_a_reset_while_another_is_on_its_way(tmp_path, in_workers):
    world = in_workers(1, timeout=1.5)
    arm(tmp_path, step_3="raise", reset_3="hang")  # lane 0 in its second step, and as it begins again
    rows = collect(world)
    np.testing.assert_array_equal(rows.valid[0], np.arange(HORIZON) > 1)
    np.testing.assert_array_equal(rows.valid[1], np.arange(HORIZON) > 2)
    np.testing.assert_array_equal(rows.state[1, 3:, 0], np.arange(5))
    assert world.faults.kinds == {"raised": 1, "hung": 1}
    assert world.faults.rejected == 4


@pytest.mark.fault("a worker process dies again and again", "the run stops with a line")
def test_a_worker_that_always_dies_ends_it(tmp_path, in_workers):
    world = in_workers(1)
    arm(tmp_path, reset_every="die")
    with pytest.raises(EnvironmentFault, match=r"5 times in a row.*died in reset \(exit code 3\).*stderr") as caught:
        collect(world)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("schedule", [{"make_every": "die"}, {"make_3": "die"}], ids=["at once", "at its second lane"])
def test_a_worker_that_cannot_start(tmp_path, schedule):
    arm(tmp_path, **schedule)  # as a script does that starts workers when it is imported
    with pytest.raises(ConfigError, match="cannot be made a second time: its process died in make .*__name__"):
        make_world(tmp_path, workers=1, seeds=3)


@pytest.mark.parametrize(("changes", "line"), [
    ({"workers": -1}, "workers=-1: "),
    ({"timeout": 0.0}, "timeout=0.0: "),
    ({"max_faults": -1}, "max_faults=-1: "),
    ({"workers": 1, "make": lambda: FaultyEnv("/tmp")}, r"workers=1: .*cannot be sent .*functools\.partial"),
    ({"workers": 1, "make": FaultyEnv("/tmp")}, "workers=1: .*, but it is not registered.*; give a function"),
])  # fmt: skip
def test_bad_input(tmp_path, changes, line):
    with pytest.raises(ConfigError, match=line) as caught:
        make_world(tmp_path, **changes)
    assert "\n" not in str(caught.value)


def test_workers_import_no_jax():
    code = "import pcmlp.workers, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


ORPHANS = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
from functools import partial
from faulty import FaultyEnv
from pcmlp.boundary import Layout
from pcmlp.workers import Workers
if __name__ == "__main__":
    workers = Workers(pickle.dumps(partial(FaultyEnv, sys.argv[2])), Layout.vector(3), 1, 60.0)
    print(workers.ask("make", [0], [None]).fault[0] or "made", workers._running[0].pid, flush=True)
    workers.ask("reset", [0], [0])
"""


@pytest.mark.fault("a run with workers is killed", "no worker outlives it")
def test_no_worker_outlives_a_run_that_was_killed(tmp_path):
    (tmp_path / "script.py").write_text(ORPHANS)
    arm(tmp_path, reset_every="hang")
    command = [sys.executable, tmp_path / "script.py", os.path.dirname(__file__), tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        made, pid = run.stdout.readline().split()
        assert made == "made"
        assert within_10_s(lambda: calls(tmp_path, "reset") == 1)  # it hangs now
        assert alive(pid)
        run.kill()
    assert within_10_s(lambda: not alive(pid))


def test_a_world_that_is_forgotten_ends_its_workers(tmp_path):
    workers = Workers(pickle.dumps(functools.partial(FaultyEnv, tmp_path)), Layout.vector(3), 1, 60.0)
    assert not workers.ask("make", [0], [None]).fault.any()
    pid = workers._running[0].pid
    assert alive(pid)
    del workers
    assert not alive(pid)


# -- a whole run -------------------------------------------------------------------------------------------------------


def train_on(world, out, monkeypatch, settings):
    monkeypatch.setattr("pcmlp.tasks.registered.on_gymnasium", lambda *_: Problem(world))
    settings = (*settings, "task.simulator=gymnasium", f"task.horizon={HORIZON}", "eval_episodes=2")
    config = resolve("mountain-car", "pcmlp", (0,), 96, settings)
    console = Console(file=io.StringIO(), width=300)
    return train(config, out, console=console, resume=True)["status"], console.file.getvalue()


@pytest.mark.slow
@pytest.mark.fault(
    "an environment fails for good in the middle of a run", "the last good state is saved, and resumable"
)
def test_a_run_survives_a_fault_and_stops_at_too_many(tmp_path, monkeypatch, tiny_trpo):
    world, out = make_world(tmp_path), tmp_path / "run"
    arm(tmp_path, step_30="nan", **{f"step_{number}": "raise" for number in range(150, 200)})
    with pytest.raises(EnvironmentFault, match="failed 5 times in a row"):
        train_on(world, out, monkeypatch, tiny_trpo)
    assert read_summary(out)["status"] == "failed"
    saved = checkpoint.iterations(out / "checkpoint")[-1]
    assert 1 <= saved < 4
    arm(tmp_path)  # it was mended
    status, said = train_on(world, out, monkeypatch, tiny_trpo)
    assert status == "finished"
    assert f"continuing after iteration {saved}" in said
    assert "environment faults: not finite 1, raised " in said
    assert all(np.isfinite(read_metrics(out)["eval_return_mean"]))
