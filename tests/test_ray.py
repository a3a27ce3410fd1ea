"""Jobs on a Ray cluster: what comes out is what a local run gives, also where a node dies in the middle of them."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from dataclasses import asdict
from pathlib import Path

import pytest
from same_run import assert_same_run, equal_but_for_times
from waiting import wait_until

from pcmlp.cli import main
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.experiments import ray_cluster, ray_engine, ray_task
from pcmlp.experiments.gpu import Gpu
from pcmlp.experiments.job import KEPT, SCALES, Job
from pcmlp.experiments.paper import EXPERIMENTS
from pcmlp.runs import checkpoint
from pcmlp.runs.folder import InUse, Lock
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train

SMALL = ("task.horizon=2", "task.actions=2", "eval_episodes=2")
LOCK = ("task.horizon=3", "task.actions=2")
CAR = ("task.horizon=20", "eval_episodes=4")


def job(label, settings=SMALL, steps=8, task="combination-lock", algo="pcmlp-linear", seeds=(0,)):
    return Job("test", task, label, algo, steps, settings, seeds)


class TestBadInput:
    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("address", "said"),
        [
            ("127.0.0.1:1", "--address 127.0.0.1:1: does not answer"),
            ("nonsense", "--address nonsense: not HOST:PORT"),
            ("127.0.0.1:99999", "--address 127.0.0.1:99999: does not answer"),
        ],
    )
    def test_an_address_that_does_not_answer(self, address, said, tmp_path, monkeypatch, capsys, record_property):
        monkeypatch.chdir(tmp_path)
        command = f"paper sparse --scale smoke --engine ray --address {address}"
        assert main(shlex.split(command)) == 2
        out, err = capsys.readouterr()
        assert err.startswith(f"pcmlp: {said}")
        assert err.count("\n") == 1
        assert not out
        assert not any(tmp_path.glob("r*"))
        record_property("bad input", (command, err.removeprefix("pcmlp: ").strip()))

    def test_what_answers_is_no_cluster(self, monkeypatch):
        monkeypatch.setattr(ray_cluster, "_ANSWER_S", 3)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            begun = time.monotonic()
            with pytest.raises(ConfigError, match="no Ray cluster answers in 3 s") as refused:
                ray_engine.connect(f"127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - begun < 10
        assert "\n" not in str(refused.value)

    def test_ray_is_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(ConfigError, match=r"Ray is not installed; pip install 'pcmlp\[ray\]'"):
            ray_engine.connect(None)


def test_a_task_takes_a_gpu_where_there_is_one_and_else_some_cores():
    def node(gpus, cores):
        return {"Resources": {"GPU": gpus, "CPU": cores} if gpus else {"CPU": cores}}

    cpus, one, gpus, head = node(0, 32), node(0, 1), node(4, 16), {"Resources": {}}
    assert ray_engine.choose_resources([cpus, head]) == {"num_gpus": 0, "num_cpus": 2}
    assert ray_engine.choose_resources([one]) == {"num_gpus": 0, "num_cpus": 1}
    on_gpus = ray_engine.choose_resources([cpus, gpus])
    assert on_gpus == {"num_gpus": 1, "num_cpus": 1}
    assert [ray_engine.fits(place, on_gpus) for place in (cpus, gpus, head)] == [False, True, False]
    with pytest.raises(ConfigError, match="no node with a GPU or a core"):
        ray_engine.choose_resources([head])
    for jobs in (4, 8):  # so many tasks have room on each GPU, and on the cores beside it
        shared = ray_engine.choose_resources([cpus, gpus, node(2, 4)], jobs)
        assert shared == {"num_gpus": 1 / jobs, "num_cpus": 2 / jobs}
    with pytest.raises(ConfigError, match="--jobs 4: the cluster has no GPU, and a run takes 2 cores; leave it out"):
        ray_engine.choose_resources([cpus], 4)


class TestSharedGPUs:
    def found(self, *modes, has_mps=True, free=140.0, cores=16):
        gpus = [Gpu(str(i), f"GPU-{i}", "H200", 143.0, free, mode) for i, mode in enumerate(modes)]
        return ray_task.Found(None, {}, gpus, has_mps, cores)

    def test_every_node_must_allow_as_many(self):
        large, small = self.found("Default"), self.found("Default", free=24.0)
        assert ray_engine.share_gpus(None, [("one", large)], 99).jobs == 4
        assert ray_engine.share_gpus(None, [("one", large), ("two", small)], 99).jobs == 2
        assert ray_engine.share_gpus(3, [("one", large)], 99).jobs == 3
        assert ray_engine.share_gpus(3, [("one", large)], 2).jobs == 2  # there are no more jobs
        assert ray_engine.share_gpus(None, [("one", self.found("Default", "Default"))], 99).jobs == 2  # of 16 cores
        with pytest.raises(ConfigError, match="--jobs 3: a run may take 10 GB, and 24 of 143 GB .*: 2 fit"):
            ray_engine.share_gpus(3, [("one", large), ("two", small)], 99)

    def test_a_node_without_mps_takes_one_run_for_each_gpu(self):
        without = [("one", self.found("Default")), ("two", self.found("Default", has_mps=False))]
        share = ray_engine.share_gpus(None, without, 99)
        assert share.jobs == 1
        assert "node two: no MPS daemon answers (nvidia-cuda-mps-control -d), and without" in share.note
        with pytest.raises(ConfigError, match="--jobs 2: node two: no MPS daemon answers"):
            ray_engine.share_gpus(2, without, 99)

    def test_other_gpus_are_shared_only_if_asked(self):
        unknown = [("one", self.found())]
        assert ray_engine.share_gpus(None, unknown, 99).jobs == 1
        assert ray_engine.share_gpus(4, unknown, 99).jobs == 4


def test_what_a_task_asks_for_some_node_has_all_of():
    """A GPU's node may offer no core, and the core of another is no use to it."""
    gpu, cores = {"Resources": {"GPU": 1}}, {"Resources": {"CPU": 8}}
    resources = ray_engine.choose_resources([gpu, cores])
    assert [ray_engine.fits(node, resources) for node in (gpu, cores)] == [True, False]


@pytest.mark.fault("Ray does not come up on this machine", "refused after a while, with a line")
def test_a_cluster_of_this_machine_that_does_not_start(monkeypatch):
    monkeypatch.setattr(ray_cluster, "_HOST", "import time; time.sleep(60)")
    monkeypatch.setattr(ray_cluster, "_START_S", 0.5)
    begun = time.monotonic()
    with pytest.raises(ConfigError, match="no cluster starts on this machine"), ray_cluster.local_cluster():
        pass
    assert time.monotonic() - begun < 30


def test_only_machines_that_were_nodes_and_died_are_lost():
    nodes = [("one", True), ("two", False), ("three", False), ("three", True)]  # one node of two, or one come back
    known = [{"NodeManagerHostname": host, "Alive": alive} for host, alive in nodes]
    assert ray_task.lost_hosts(known) == {"two"}


class Ray:
    """As much of it as a `Sweep` asks for: one task, which is done at the third look, and nodes that come and go."""

    def __init__(self, answer, nodes=([],)):
        self.exceptions = ray_engine.load_ray().exceptions
        self.answer = answer
        self.looks = [[{"Alive": True, "Resources": {"CPU": cores}} for cores in now] for now in nodes]

    def wait(self, references, timeout):
        return (references if len(self.looks) == 1 else []), None

    def nodes(self):
        return self.looks.pop(0)

    def get(self, reference):
        if reference == "board":
            return []
        raise self.answer


class TestSweep:
    def sweep(self, ray):
        return ray_engine.Sweep(ray, [job("one")], {"num_gpus": 0.0, "num_cpus": 2.0})

    @pytest.mark.fault("no node is left that can take a run of a sweep", "a line says so, once, and the runs wait")
    def test_runs_that_no_node_can_take_are_reported(self, capsys):
        ray = Ray(RuntimeError(), nodes=([2], [1], [], [2, 1], [1], [1]))
        board = types.SimpleNamespace(take=types.SimpleNamespace(remote=lambda: "board"))
        with pytest.raises(RuntimeError):
            self.sweep(ray).wait(board, {"task": 0}, lambda: False)
        assert capsys.readouterr().out.count("no node of the cluster can take the remaining runs") == 2

    def test_how_a_task_came_to_nothing(self):
        errors = ray_engine.load_ray().exceptions
        in_use = errors.RayTaskError("work", "its trace", InUse("run: in use by somebody")).as_instanceof_cause()
        for error, kind, said in (
            (errors.WorkerCrashedError(), RunStopped, "its node or process died every time"),
            (errors.TaskUnschedulableError("no such node"), RunStopped, "Ray did not run it .*no such node"),
            (in_use, ConfigError, "^run: in use by somebody$"),
        ):
            sweep = self.sweep(Ray(error))
            sweep.end(0, "task")
            with pytest.raises(kind, match=said):
                raise sweep.tally.errors[0]


def test_a_folder_that_is_not_shared_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_task, "_SEEN_S", 0.0)
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    with ray_cluster.shared_token((str(here),)) as token:
        assert ray_task.not_shared((str(here),), token) is None
        assert ray_task.not_shared((str(here), str(there)), token) == str(there)
    assert not any(here.iterdir())


@pytest.mark.slow
def test_a_job_on_a_cluster_of_this_machine(tmp_path):
    only = "combination-lock/horizon-5"
    [asked] = EXPERIMENTS["combination_lock"].jobs_at(SCALES["smoke"], (only,), None)
    words = f"paper combination_lock --scale smoke --only {only} --results results --runs runs --engine ray"
    command = [sys.executable, "-m", "pcmlp.cli", *words.split()]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (made.returncode, made.stderr) == (0, "")
    assert f"{asked.where}: finished on" in made.stdout
    assert "1 finished; 0 begun again" in made.stdout
    train(asked.config(), tmp_path / "local")
    assert_same_run(tmp_path / "local", tmp_path / "runs" / asked.where)
    assert_same_results(tmp_path / "local", tmp_path / "results" / asked.where)
    assert not any(tmp_path.glob("*/.shared-*"))


def assert_same_results(run, result):
    assert {file.name for file in result.iterdir()} >= set(KEPT)
    assert (run / "metrics.csv").read_text().splitlines()[0] == (result / "metrics.csv").read_text().splitlines()[0]
    equal_but_for_times(read_metrics(run), read_metrics(result))


TWO_NODES = """if True:
    import sys
    from ray.cluster_utils import Cluster
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    second = made.add_node(num_cpus=2)
    print(made.address, second.all_processes["raylet"][0].process.pid, flush=True)
    sys.stdin.read()
    made.shutdown()
"""


class Node:
    """A process by its id, and those that it has started."""

    def __init__(self, pid):
        self.pid = pid

    def runs(self, process):
        try:
            return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]) == self.pid
        except OSError:  # it has ended
            return False

    def kill(self):
        """As if the plug were pulled."""
        processes = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        for process in (self.pid, *filter(self.runs, processes)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    """The address of a cluster of two nodes with two cores each, and the node that is not its head."""
    monkeypatch.setenv("PCMLP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")  # as in conftest.py
    ray_engine.load_ray()
    with subprocess.Popen(
        [sys.executable, "-c", TWO_NODES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as host:
        address, raylet = host.stdout.readline().split()
        yield address, Node(int(raylet))
        host.stdin.close()


def kill_in_the_middle(node, jobs, runs, killed):
    """Once a job on the node has saved some of its iterations, and not the last."""
    while not killed:
        for asked in jobs:
            run = runs / asked.where
            try:
                process = json.loads((run / "lock").read_text())["process"]
            except (FileNotFoundError, ValueError):
                continue
            saved = checkpoint.iterations(run / "checkpoint")
            if node.runs(process) and saved and saved[-1] >= 3 and not (run / "summary.json").exists():
                node.kill()
                killed.append((asked, saved[-1]))
                return
        time.sleep(0.02)


LOCAL = """if True:
    import json, sys
    from pathlib import Path
    from pcmlp.experiments.job import Job, run_local
    from pcmlp.runs.cache import prepare
    prepare()
    run_local([Job(**fields) for fields in json.loads(sys.argv[1])], Path("local/runs"), Path("local/results"))
"""


@pytest.mark.slow
@pytest.mark.fault("a node of a Ray cluster dies in a sweep of 8 runs", "all 8 finish, with the metrics of local runs")
def test_a_node_dies_in_a_sweep_of_8_runs(two_nodes, tmp_path, tiny_trpo, capsys):
    address, node = two_nodes
    jobs = [job(f"lock-{i}", LOCK, 450, seeds=(i, i + 10)) for i in range(6)]
    jobs += [job(f"car-{i}", (*CAR, *tiny_trpo), 600, "mountain-car", "pcmlp", (i,)) for i in range(2)]
    fields = json.dumps([asdict(each) for each in jobs])
    # In a process of its own, as pcmlp has it, and before the sweep, which then finds compiled what it needs.
    subprocess.run([sys.executable, "-c", LOCAL, fields], cwd=tmp_path, check=True, capture_output=True)
    killed = []
    killer = threading.Thread(target=kill_in_the_middle, args=(node, jobs, tmp_path / "runs", killed), daemon=True)
    killer.start()
    begun = time.monotonic()
    ray_engine.connect(address)(jobs, tmp_path / "runs", tmp_path / "results")
    seconds = time.monotonic() - begun
    said = capsys.readouterr().out
    asked, saved = killed[0]
    assert re.search(f"{asked.where}: begun on .*, again: its node or process died", said)
    assert "8 finished; " in said
    assert "raylet" not in said  # Ray keeps its own troubles to itself
    for each in jobs:
        assert_same_run(tmp_path / "local/runs" / each.where, tmp_path / "runs" / each.where)
        assert_same_results(tmp_path / "local/runs" / each.where, tmp_path / "results" / each.where)
    with capsys.disabled():
        print(f"\n{said}{asked.where}: its node was killed after iteration {saved}; {seconds:.0f} s on the cluster")


ONE_GPU = """if True:
    import sys
    from ray.cluster_utils import Cluster
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False})
    print(made.address, flush=True)
    sys.stdin.read()
    made.shutdown()
"""


@pytest.mark.slow
def test_two_runs_share_a_gpu(tmp_path, monkeypatch, capsys):
    """A GPU that only Ray believes in: the scheduling is the same."""
    monkeypatch.setenv("PCMLP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    ray_engine.load_ray()
    words = [sys.executable, "-c", ONE_GPU]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        jobs = [job("one"), job("two", seeds=(1,))]
        ray_engine.connect(host.stdout.readline().strip(), 2)(jobs, tmp_path / "runs", tmp_path / "results")
        host.stdin.close()
    said = capsys.readouterr().out
    assert said.rindex("begun on") < said.index("finished on")  # both at once, on the only GPU
    assert all(read_summary(tmp_path / "results" / each.where)["shared_device"] for each in jobs)


@pytest.mark.slow
@pytest.mark.fault("another process has a run of a sweep for minutes", "Ray tries again, and the sweep ends well")
def test_a_run_that_is_in_use_is_tried_again(two_nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine, "_LOCK_S", 0.0)
    asked, said = job("one"), []
    run = tmp_path / "runs" / asked.where
    run.mkdir(parents=True)

    def listen(console, line):
        said.append(line)
        if "again: " in line:
            held.close()

    monkeypatch.setattr(ray_engine, "say", listen)
    with Lock(run) as held:
        ray_engine.connect(two_nodes[0])([asked], tmp_path / "runs", tmp_path / "results")
    assert sum("begun on" in line for line in said) > 1
    assert said[-1].startswith("1 finished; ")


SWEEP = """if True:
    import sys
    from pathlib import Path
    from pcmlp.experiments.job import Job
    from pcmlp.experiments.ray_engine import connect
    settings = ("task.horizon=3", "task.actions=2")
    jobs = [Job("test", "combination-lock", f"lock-{i}", "pcmlp-linear", 30_000, settings, (i,)) for i in range(99)]
    try:
        connect(None)(jobs, Path("runs"), Path("results"))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.fault("Ctrl-C in a sweep on a Ray cluster", "runs end after their iteration, others are taken back")
def test_ctrl_c_is_passed_on(tmp_path):
    words = [sys.executable, "-c", SWEEP]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True) as sweep:
        runs = tmp_path / "runs/test/combination-lock"
        wait_until(lambda: any(runs.glob("*/checkpoint/*.safetensors")), 200)
        os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does
        said = sweep.communicate(timeout=200)[0]
    assert sweep.returncode == 130
    assert "Ctrl-C: stopping after this iteration" in said
    assert "99 stopped; 0 begun again" in said
    saved = [checkpoint.iterations(run / "checkpoint")[-1] for run in runs.iterdir()]
    assert 0 < len(saved) < 99
    assert {read_summary(run)["status"] for run in runs.iterdir()} == {"stopped"}
    assert [read_summary(run)["iterations"] for run in runs.iterdir()] == saved
    assert not any((tmp_path / "results").iterdir())
