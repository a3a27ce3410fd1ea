"""GPUs and MPS, with programs in the place of NVIDIA's that answer as those do: no GPU is needed."""

import contextlib
import math
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import fake_gpu
import pytest
from waiting import wait_until

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.experiments import mps, pool, share
from pcmlp.experiments.gpu import Gpu, find_gpu, list_gpus, parse_gpus

H200 = Gpu("0", "GPU-aa11", "NVIDIA H200", 150.0, 150.0, "Default")


@pytest.fixture
def calls(tmp_path, monkeypatch):
    monkeypatch.setattr(mps, "_DEFAULT_PIPES", str(tmp_path / "default"))  # whatever this machine has there
    return fake_gpu.install(tmp_path / "bin", monkeypatch)


class TestGPU:
    def test_what_nvidia_smi_answers(self, calls):
        first, second = list_gpus()
        assert first == Gpu("0", "GPU-aa11", "NVIDIA H200", 143771 * 2**20 / 1e9, 143000 * 2**20 / 1e9, "Default")
        assert (second.uuid, round(second.free)) == ("GPU-bb22", 21)

    def test_output_of_another_form(self):
        assert parse_gpus("No devices were found\n") == []
        [unified] = parse_gpus("0, GPU-cc33, NVIDIA GB10, [N/A], [N/A], Default")
        assert unified.total == unified.free == math.inf

    @pytest.mark.parametrize(
        ("variable", "value", "found"),
        [
            ("CUDA_VISIBLE_DEVICES", "1,0", "1"),
            ("CUDA_VISIBLE_DEVICES", "GPU-bb", "1"),
            ("CUDA_VISIBLE_DEVICES", "", None),
            ("CUDA_VISIBLE_DEVICES", "-1", None),
            ("JAX_PLATFORMS", "cpu", None),
            ("JAX_PLATFORMS", "cuda,cpu", "0"),
        ],
    )
    def test_the_gpu_that_jax_uses(self, calls, monkeypatch, variable, value, found):
        monkeypatch.setenv(variable, value)
        gpu = find_gpu()
        assert (gpu and gpu.index) == found

    def test_without_the_plugin_jax_uses_no_gpu(self, calls, monkeypatch):
        assert find_gpu() is not None
        monkeypatch.setattr("pcmlp.experiments.gpu._PLUGINS", ("no_such_plugin",))
        assert find_gpu() is None

    def test_nvidia_smi_that_fails(self, calls):
        (calls.parent / "nvidia-smi").write_text("#!/bin/sh\necho no driver; exit 9\n")
        assert list_gpus() == []


class TestShare:
    def test_the_number_of_runs_on_a_gpu(self):
        assert share.on_gpu(None, H200, 16).jobs == 4
        assert share.on_gpu(None, H200, 64).jobs == 12  # as much as fits
        assert share.on_gpu(None, H200._replace(free=5.0), 16).jobs == 1
        assert share.on_gpu(7, H200, 2).jobs == 7
        assert share.on_gpu(None, H200._replace(mode="Exclusive_Process"), 16).jobs == 4  # MPS is one process
        assert share.on_gpu(None, H200._replace(total=math.inf, free=math.inf), 16).jobs == 4

    def test_the_number_of_runs_on_a_cpu(self):
        assert [share.on_cpu(None, cores, 64.0).jobs for cores in (1, 2, 4, 16)] == [1, 1, 2, 8]
        assert share.on_cpu(None, 16, 6.5).jobs == 3
        assert share.on_cpu(5, 2, 64.0).jobs == 5
        with pytest.raises(ConfigError, match="--jobs 5: a run may take 2 GB, and 6 GB of memory are free: 3 fit;"):
            share.on_cpu(5, 2, 6.5)

    def test_without_mps_one_run(self):
        here = share.on_gpu(None, H200, 16, "it is not there")
        assert here == (1, "one process at a time uses the GPU: it is not there, and without MPS processes take turns")
        assert share.on_gpu(1, H200, 16, "it is not there") == (1, "")

    def test_the_share_of_memory(self, monkeypatch):
        monkeypatch.delenv(share.FRACTION, raising=False)
        assert share.memory_share(4, [H200]) == {share.FRACTION: "0.2125"}
        assert share.memory_share(2, [H200, H200._replace(free=75.0)]) == {share.FRACTION: "0.2125"}
        monkeypatch.setenv(share.FRACTION, "0.4")  # for all together
        assert share.memory_share(4, [H200]) == {share.FRACTION: "0.1000"}

    def test_variables_of_a_process(self, monkeypatch):
        monkeypatch.setenv("PCMLP_A", "old")
        with share.variables_set({"PCMLP_A": None, "PCMLP_B": "new"}):
            assert "PCMLP_A" not in os.environ
            assert os.environ["PCMLP_B"] == "new"
        assert os.environ["PCMLP_A"] == "old"
        assert "PCMLP_B" not in os.environ


class TestDaemon:
    def test_it_is_private_and_ends_with_its_context(self, calls, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        with mps.Daemon() as daemon:
            made = daemon.environment()
            pipes = Path(made[mps.PIPES])
            assert stat.S_IMODE(pipes.parent.stat().st_mode) == 0o700
            assert len(str(pipes)) < 60  # a socket in it needs a short path
            assert mps.answers(str(pipes))
            assert daemon.environment() == made
        assert not pipes.parent.exists()
        orders = calls.read_text().splitlines()
        assert orders[-1].startswith("quit")
        starts = [order for order in orders if order.startswith("start")]  # it may be asked before it has started
        assert starts == ["start "]  # it sees all GPUs: a process chooses among those that the daemon sees

    @pytest.mark.fault("the MPS daemon of a sweep is killed", "the next run starts another daemon")
    def test_a_daemon_that_died_is_started_again(self, calls):
        with mps.Daemon() as daemon:
            first = Path(daemon.environment()[mps.PIPES])
            os.kill(int((first / "nvidia-cuda-mps-control.pid").read_text()), signal.SIGKILL)
            wait_until(lambda: not first.parent.exists())
            second = daemon.environment()[mps.PIPES]
            assert second != str(first)
            assert mps.answers(second)

    @pytest.mark.fault("the command dies that has an MPS daemon", "the daemon ends, and its folder is removed")
    def test_it_ends_with_a_command_that_is_killed(self, calls):
        code = "import time; from pcmlp.experiments.mps import Daemon\n"
        code += "with Daemon() as d: print(d.environment()['CUDA_MPS_PIPE_DIRECTORY'], flush=True); time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as command:
            pipes = Path(command.stdout.readline().strip())
            daemon = int((pipes / "nvidia-cuda-mps-control.pid").read_text())
            command.kill()
        wait_until(lambda: not pipes.parent.exists())
        assert not mps._is_alive(daemon)

    @pytest.mark.fault("the host of an MPS daemon is killed too", "the next command removes what it left")
    def test_what_a_killed_host_left_is_removed(self, calls):
        with mps.Daemon() as killed:
            pipes = Path(killed.environment()[mps.PIPES])
            daemon = int((pipes / "nvidia-cuda-mps-control.pid").read_text())
            killed._host.kill()
            killed._host.wait()
            assert mps.answers(str(pipes))  # nobody ended it
            mps.remove_stale()
        wait_until(lambda: not mps._is_alive(daemon))
        assert not pipes.parent.exists()

    def test_it_does_not_start(self, calls, monkeypatch):
        monkeypatch.setenv("FAKE_MPS_BROKEN", "no permission")
        before = set(Path("/tmp").glob("pcmlp-mps-*"))
        said = r"the MPS daemon does not start \(no permission\); give --jobs 1"
        with pytest.raises(RunStopped, match=said), mps.Daemon() as daemon:
            daemon.environment()
        assert set(Path("/tmp").glob("pcmlp-mps-*")) <= before


@contextlib.contextmanager
def other_daemon(folder):
    """A daemon that somebody else has started."""
    folder.mkdir()
    env = {**os.environ, mps.PIPES: str(folder)}
    with subprocess.Popen([mps.CONTROL, "-f"], env=env) as process:
        wait_until((folder / "nvidia-cuda-mps-control.pid").exists)
        yield process
        process.kill()


class TestSomebodyElsesDaemon:
    @pytest.mark.parametrize("given", [True, False])
    def test_it_is_used_and_not_stopped(self, calls, tmp_path, monkeypatch, capsys, given):
        folder = tmp_path / ("given" if given else "default")
        if given:
            monkeypatch.setenv(mps.PIPES, str(folder))
        with other_daemon(folder) as other:
            with pool.share_gpu(H200, 4) as variables:
                assert variables() == {share.FRACTION: "0.2125", mps.PIPES: str(folder)}
            assert other.poll() is None
        assert capsys.readouterr().out.startswith(f"MPS: the daemon at {folder} is used; it was there before, and")
        assert "quit" not in calls.read_text()

    def test_one_that_does_not_answer_is_ignored(self, calls, tmp_path, monkeypatch):
        (tmp_path / "given").mkdir()
        monkeypatch.setenv(mps.PIPES, str(tmp_path / "given"))
        assert mps.find_other() is None
        with pool.share_gpu(H200, 4) as variables:
            assert variables()[mps.PIPES] != str(tmp_path / "given")
