"""Several runs at a time on one device: each is the run of `pcmlp train`, whatever happens to its neighbours."""

import io
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import fake_gpu
import jax
import pytest
from rich.console import Console
from same_run import assert_same_run
from waiting import wait_until

from pcmlp.cli import main
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.experiments import order, pool, share, table
from pcmlp.experiments.catalogue import sparse_job
from pcmlp.experiments.experiment import Done, machine_columns, timed_tables
from pcmlp.experiments.job import FULL, Job, run_local
from pcmlp.experiments.job_process import Progress, attempt_jobs
from pcmlp.experiments.order import Queue
from pcmlp.experiments.outcome import Outcome, Tally
from pcmlp.report.reading import load
from pcmlp.runs import checkpoint
from pcmlp.runs.compiling import program_key
from pcmlp.runs.config import to_json
from pcmlp.runs.summary import device_memory_mb, read_summary
from pcmlp.runs.train import train

SMALL = ("task.horizon=2", "task.actions=2", "eval_episodes=2")


def lock(label, seed=0, steps=8, settings=SMALL):
    return Job("test", "combination-lock", label, "pcmlp-linear", steps, settings, (seed,))


class TestBadInput:
    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("given", "mode", "mps", "said"),
        [
            ("0", None, False, "--jobs 0: give 1 or more, or leave it out"),
            ("two", None, False, "jobs=two: not a whole number"),
            ("9999", None, False, "--jobs 9999: a run may take 2 GB, and"),
            ("20", "Default", True, "--jobs 20: a run may take 10 GB, and 150 of 151 GB of the GPU are free: 12 fit"),
            (
                "4",
                "Default",
                False,
                "--jobs 4: nvidia-cuda-mps-control, a part of NVIDIA's driver, is not on PATH",
            ),
            ("4", "Exclusive_Process", False, "the GPU, whose compute mode is Exclusive_Process, takes one process"),
            ("4", "Prohibited", True, "NVIDIA H200: its compute mode is Prohibited, so no process can use it; nvidia-"),
        ],
    )
    def test_one_line(self, given, mode, mps, said, tmp_path, monkeypatch, capsys, record_property):
        monkeypatch.chdir(tmp_path)
        if mode is not None:
            fake_gpu.install(tmp_path / "bin", monkeypatch, mode=mode, mps=mps)
        command = f"paper sparse --scale smoke --jobs {given}"
        assert main(shlex.split(command)) == 2
        out, err = capsys.readouterr()
        assert said in err
        assert err.count("\n") == 1
        assert not out
        assert not any(tmp_path.glob("r*"))
        on = "" if mode is None else f" (a GPU in mode {mode}{'' if mps else ', no MPS'})"
        record_property("bad input", (f"{command}{on}", err.removeprefix("pcmlp: ").strip()))

    def test_without_mps_one_run_at_a_time_uses_the_gpu(self, tmp_path, monkeypatch, capsys):
        fake_gpu.install(tmp_path / "bin", monkeypatch, mps=False)
        run = []
        monkeypatch.setattr(pool, "run_local", lambda jobs, runs, results: run.extend(jobs))
        pool.connect(None)(jobs := [lock("a"), lock("b")], tmp_path / "runs", tmp_path / "results")
        assert run == jobs
        assert capsys.readouterr().out.startswith("one process at a time uses the GPU: nvidia-cuda-mps-control")

    def test_another_kind_of_device(self, monkeypatch):
        monkeypatch.setattr(pool, "check_device", lambda: "tpu")
        assert pool.connect(None) is run_local
        with pytest.raises(ConfigError, match="--jobs 2: only a CPU or a GPU of NVIDIA takes several runs"):
            pool.connect(2)

    @pytest.mark.parametrize("asked", [None, 4])
    def test_a_daemon_that_does_not_start(self, tmp_path, monkeypatch, capsys, asked):
        fake_gpu.install(tmp_path / "bin", monkeypatch)
        monkeypatch.setattr("pcmlp.experiments.mps._DEFAULT_PIPES", str(tmp_path / "default"))
        monkeypatch.setattr(share, "count_cores", lambda: 16)
        monkeypatch.setenv("FAKE_MPS_BROKEN", "no permission")
        monkeypatch.setenv(pool._PREALLOCATE, "false")  # as it is set by `connect`, and put back
        run = []
        monkeypatch.setattr(pool, "run_local", lambda jobs, runs, results: run.extend(jobs))
        jobs, engine = [lock("a"), lock("b")], pool.connect(asked)
        if asked is None:
            engine(jobs, tmp_path / "runs", tmp_path / "results")
            assert "does not start (no permission); give --jobs 1; one process at a time" in capsys.readouterr().out
            assert run == jobs
        else:
            with pytest.raises(RunStopped, match="the MPS daemon does not start"):
                engine(jobs, tmp_path / "runs", tmp_path / "results")


class TestQueue:
    def queue(self, *jobs, monkeypatch, seconds=None, compilers=4):
        monkeypatch.setattr(order, "expected_seconds", lambda job, results: (seconds or {}).get(job.label, 1.0))
        return Queue([(job,) for job in jobs], Path(), compilers=compilers, has_cache=True)

    def test_the_longest_first_and_the_unknown_before_them(self, monkeypatch):
        jobs = [sparse_job("mountain-car", name) for name in ("trpo", "sac", "pcmlp")]
        queue = self.queue(*jobs, monkeypatch=monkeypatch, seconds={"trpo": 5.0, "sac": 7.0, "pcmlp": None})
        assert [job.label for (job,) in queue.waiting] == ["pcmlp", "sac", "trpo"]

    def test_who_shares_a_program_waits_for_the_first_to_compile_it(self, monkeypatch):
        ours, control, other = (sparse_job("mountain-car", name) for name in ("pcmlp", "no-bonus", "trpo"))
        assert program_key(ours.config()) == program_key(control.config()) != program_key(other.config())
        queue = self.queue(ours, control, other, monkeypatch=monkeypatch)
        assert [queue.take(), queue.take(), queue.take()] == [(ours,), (other,), None]
        queue.note_iteration((other,))
        assert queue.take() is None
        queue.note_iteration((ours,))
        assert queue.take() == (control,)
        queue.put_back([(control,)])
        assert queue.take() == (control,)

    def test_only_so_many_compile_at_the_same_time(self, monkeypatch):
        jobs = [sparse_job("mountain-car", name) for name in ("pcmlp", "trpo", "sac", "no-bonus")]
        queue = self.queue(*jobs, monkeypatch=monkeypatch, compilers=2)
        assert [queue.take(), queue.take(), queue.take()] == [(jobs[0],), (jobs[1],), None]
        queue.note_iteration((jobs[0],))  # its control has nothing to compile, so it does not count
        assert [queue.take(), queue.take(), queue.take()] == [(jobs[2],), (jobs[3],), None]

    def test_another_compiles_if_the_first_fails(self, monkeypatch):
        ours, control, off = (sparse_job("mountain-car", name) for name in ("pcmlp", "no-bonus", "covariance-off"))
        queue = self.queue(ours, control, off, monkeypatch=monkeypatch)
        assert queue.take() == (ours,)
        queue.note_end((ours,))
        assert [queue.take(), queue.take()] == [(control,), None]

    def test_without_a_cache_nobody_waits(self):
        jobs = [sparse_job("mountain-car", name) for name in ("pcmlp", "no-bonus")]
        queue = Queue([(job,) for job in jobs], Path(), compilers=4, has_cache=False)
        assert {queue.take(), queue.take()} == {(job,) for job in jobs}


class TestTable:
    def test_a_row(self, monkeypatch):
        now = [100.0]
        monkeypatch.setattr(table.time, "monotonic", lambda: now[0])
        row = table.Row(lock("a", steps=400), began=100.0)
        assert row.cells()[1:] == ("0 of 400", "–", "1 s", "–")
        for after, progress in ((50.0, Progress(0, 10, 0.0, 0.5)), (60.0, Progress(1, 10, 40.0, 2.5))):
            now[0] = 100.0 + after
            row.update(progress)
        assert row.left is None
        now[0] = 170.0
        row.update(Progress(2, 10, 80.0, None))  # not evaluated: the last result stays
        assert row.cells()[1:] == ("80 of 400", "2.50", "70 s", "80 s")

    def test_on_a_terminal_it_is_live_and_elsewhere_a_line_at_times(self, monkeypatch):
        row, now = table.Row(lock("a", steps=400)), [time.monotonic()]
        row.update(Progress(1, 10, 40.0, 2.5))
        monkeypatch.setattr(table.time, "monotonic", lambda: now[0])
        for is_terminal in (True, False):
            console = Console(file=io.StringIO(), force_terminal=is_terminal, width=120)
            with table.JobTable(console, lambda: [row]) as shown:
                shown.counts = "3 waiting"
                shown.print_at_times()
                now[0] += 301.0
                shown.print_at_times()
                shown.print_at_times()
            said = console.file.getvalue()
            assert said.count("test/combination-lock/a") == (said.count("job ") if is_terminal else 1)
            assert ("3 waiting" in said) == is_terminal
            assert ("40 of 400 steps, return 2.50, " in said) != is_terminal


def test_the_first_error_is_raised_and_all_are_named():
    said = []
    tally = Tally(said.append)
    for name, outcome in (("a", Outcome("", "finished")), ("b", Outcome("", "failed", "b: full disk"))):
        tally.add(Path(name), outcome)
    tally.add(Path("c"), Outcome("node 7", "refused", "c: another run"))
    with pytest.raises(RunStopped, match="b: full disk"):
        tally.close(1.0, 0)
    assert said[-4:-1] == ["b: failed: full disk", "c: refused on node 7: another run", said[-2]]
    assert said[-2:] == ["1 finished, 1 failed, 1 refused; 0 begun again; 1 s", "not finished: b, c"]


class TestErrors:
    """What a run raises is its outcome; but if its device is lost, its process ends, and the run begins again."""

    @pytest.fixture
    def attempted(self, tmp_path, monkeypatch):
        def attempt(error):
            def run_job(*_, **__):
                raise error

            monkeypatch.setattr("pcmlp.experiments.job.run_job", run_job)
            monkeypatch.setattr("pcmlp.runs.cache.prepare", lambda: None)
            [outcome] = attempt_jobs([asdict(lock("a"))], tmp_path, tmp_path, multiprocessing.Pipe()[1], on_gpu=False)
            return outcome

        return attempt

    def test_a_lost_device(self, attempted):
        with pytest.raises(jax.errors.JaxRuntimeError, match="CUDA_ERROR"):
            attempted(jax.errors.JaxRuntimeError("INTERNAL: CUDA_ERROR_MPS_SERVER_NOT_READY"))

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "not enough memory (RESOURCE_EXHAUSTED"),
            (ValueError("no such row"), "unexpected error, ValueError: no such row"),
        ],
    )
    def test_other_errors(self, attempted, error, said):
        outcome = attempted(error)
        assert outcome.status == "failed"
        assert said in outcome.line


class TestSharedDevice:
    """The seconds of a run that shared its device are no measure of speed."""

    def test_it_is_in_the_summary_and_stays_when_the_run_goes_on_alone(self, tmp_path):
        shared = tmp_path / "run"
        first = [lambda run, numbers: numbers["iteration"] < 1]  # stop after it
        train(lock("a", steps=12).config(), shared, shared_device=True, callbacks=first)
        assert read_summary(shared)["status"] == "stopped"
        assert read_summary(shared)["shared_device"] is True
        train(lock("a", steps=12).config(), shared, resume=True)
        summary = read_summary(shared)
        assert (summary["status"], summary["shared_device"], summary["virtual_steps_per_s"]) == ("finished", True, None)
        assert load(shared).wall_s is None

    def test_a_run_alone_has_its_seconds(self, tmp_path):
        train(lock("a").config(), tmp_path / "run")
        assert read_summary(tmp_path / "run")["shared_device"] is False
        assert read_summary(tmp_path / "run")["peak_memory_mb"] is None  # a CPU
        assert load(tmp_path / "run").wall_s > 0

    def test_the_most_memory_of_a_device(self, monkeypatch):
        stats = {"bytes_in_use": 5_000_000, "peak_bytes_in_use": 1_844_960_000}
        monkeypatch.setattr("pcmlp.runs.summary.jax.devices", lambda: [SimpleNamespace(memory_stats=lambda: stats)])
        assert device_memory_mb() == 1845.0

    def test_tables_leave_the_seconds_out(self, monkeypatch):
        job = lock("a")
        alone = {"wall_s": 7.4, "device": "gpu"}
        assert machine_columns(job, alone) == {"wall_s": 7, "device": "gpu"}  # an older result has no such field
        assert machine_columns(job, {**alone, "shared_device": True}) == {"wall_s": "", "device": "gpu"}
        monkeypatch.setattr(Done, "summary", lambda *_: {**alone, "shared_device": True})
        with pytest.raises(ConfigError, match="combination-lock/a: timed while other runs used the device; remove it"):
            next(timed_tables(Done((job,), FULL, Path("runs"), Path("results"))))


def test_side_by_side_they_are_the_runs_of_train(tmp_path, monkeypatch, capfd):
    """One of three is refused; the others do not notice."""
    monkeypatch.setattr(share, "free_memory", lambda: 64.0)  # whatever else runs here
    jobs = [lock("a"), lock("b", 1), lock("c", 2)]
    runs, results = tmp_path / "runs", tmp_path / "results"
    (runs / jobs[1].where).mkdir(parents=True)
    other = replace(jobs[1], settings=(*SMALL, "ridge=0.5")).config()
    (runs / jobs[1].where / "config.json").write_text(to_json(other))
    with pytest.raises(ConfigError, match="test/combination-lock/b: holds another run; remove it"):
        pool.connect(2)(jobs, runs, results)
    said = capfd.readouterr().out
    assert "3 runs, 2 at a time" in said
    assert "2 finished" in said
    assert "1 refused" in said
    for job in (jobs[0], jobs[2]):
        train(job.config(), tmp_path / "alone" / job.where)
        assert_same_run(tmp_path / "alone" / job.where, runs / job.where)
        assert read_summary(results / job.where)["shared_device"] is True
        assert "iteration 1/" in (runs / job.where).with_name(f"{job.label}.log").read_text()
        assert "iteration 1/" not in said


SWEEP = """if True:
    import json, sys
    from dataclasses import replace
    from pathlib import Path
    from pcmlp import signals
    from pcmlp.experiments import pool, share
    from pcmlp.experiments.job import Job
    from pcmlp.runs.cache import prepare
    share.free_memory = lambda: 64.0  # whatever else runs here
    if __name__ == "__main__":
        prepare()
        made = (Job(**fields) for fields in json.loads(sys.argv[1]))
        jobs = [replace(job, settings=tuple(job.settings), seeds=tuple(job.seeds)) for job in made]
        with signals.handled(ends_process=True):
            try:
                pool.connect(2)(jobs, Path("runs"), Path("results"))
            except KeyboardInterrupt:
                sys.exit(130)
"""
LONG = ("task.horizon=3", "task.actions=2")


class Sweep:
    """The same command as often as it takes, in a process of its own."""

    def __init__(self, folder, jobs):
        self.folder, self.jobs = folder, jobs
        self.env = {**os.environ, "PCMLP_CACHE": str(folder / "cache")}
        self.env["XLA_FLAGS"] = "--xla_backend_optimization_level=0"

    def start(self):
        words = [sys.executable, "-c", SWEEP, json.dumps([asdict(job) for job in self.jobs])]
        into = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
        self.command = subprocess.Popen(words, cwd=self.folder, env=self.env, **into)
        return self.command

    def run(self, job):
        return self.folder / "runs" / job.where

    def process_of(self, job):
        """The process of a job that has saved some of its iterations."""

        def has_saved():
            assert self.command.poll() is None, self.command.stdout.read()
            return checkpoint.iterations(self.run(job) / "checkpoint")[-1:] > [2]

        wait_until(has_saved, 200.0)
        return json.loads((self.run(job) / "lock").read_text())["process"]

    def check(self):
        """Every run is the undisturbed one."""
        alone = [sys.executable, "-c", ALONE, json.dumps([asdict(job) for job in self.jobs])]
        subprocess.run(alone, cwd=self.folder, env=self.env, check=True, capture_output=True)
        for job in self.jobs:
            assert_same_run(self.folder / "alone" / job.where, self.run(job))


ALONE = """if True:
    import json, sys
    from pathlib import Path
    from pcmlp.experiments.job import Job, run_local
    from pcmlp.runs.cache import prepare
    prepare()
    run_local([Job(**fields) for fields in json.loads(sys.argv[1])], Path("alone"), Path("alone-results"))
"""


@pytest.fixture
def sweep(tmp_path):
    return Sweep(tmp_path, [lock(f"lock-{i}", i, 3_000, LONG) for i in range(3)])


@pytest.mark.slow
@pytest.mark.fault("a run of a sweep on one device is killed", "it begins again from its checkpoint, bit for bit")
def test_a_job_is_killed(sweep):
    with sweep.start() as command:
        os.kill(sweep.process_of(sweep.jobs[0]), signal.SIGKILL)
        said, _ = command.communicate(timeout=300)
    assert command.returncode == 0
    assert "lock-0: its process died (by SIGKILL); it begins again from its last checkpoint" in said
    assert "3 finished; 1 begun again" in said
    sweep.check()


@pytest.mark.slow
@pytest.mark.fault("the command of a sweep is killed", "its runs end with it, and the same command continues at once")
def test_the_scheduler_is_killed(sweep):
    with sweep.start() as command:
        process = sweep.process_of(sweep.jobs[0])
        command.kill()
        wait_until(lambda: not Path(f"/proc/{process}").exists(), 5.0)
    with sweep.start() as again:
        said, _ = again.communicate(timeout=300)
    assert again.returncode == 0
    assert "3 finished; 0 begun again" in said
    assert "continuing after iteration" in sweep.run(sweep.jobs[0]).with_name("lock-0.log").read_text()
    sweep.check()


@pytest.mark.slow
@pytest.mark.fault("Ctrl-C in a sweep on one device", "runs end after their iteration; twice, they end at once")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(sweep, times):
    sweep.jobs = [replace(job, steps=30_000) for job in sweep.jobs]
    with sweep.start() as command:
        sweep.process_of(sweep.jobs[0])
        for _ in range(times):
            os.killpg(command.pid, signal.SIGINT)  # as a terminal does
        said, _ = command.communicate(timeout=60)
    assert command.returncode == 130
    assert not any((sweep.folder / "results").glob("**/summary.json"))
    if times == 1:
        assert "Ctrl-C: stopping after this iteration" in said
        assert "3 stopped; 0 begun again" in said
        assert read_summary(sweep.run(sweep.jobs[0]))["status"] == "stopped"


@pytest.mark.slow
@pytest.mark.fault("a run of a sweep on one device dies every time", "it is given up, the others finish")
def test_a_job_that_always_dies(sweep):
    with sweep.start() as command:
        first = sweep.process_of(sweep.jobs[0])
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: sweep.process_of(sweep.jobs[0]) != first, 200.0)
        os.kill(sweep.process_of(sweep.jobs[0]), signal.SIGKILL)
        said, _ = command.communicate(timeout=300)
    assert command.returncode == 1
    assert "lock-0: its process died twice (by SIGKILL), perhaps for lack of memory, and" in said
    assert "2 finished, 1 failed; 1 begun again" in said or "1 failed, 2 finished; 1 begun again" in said
