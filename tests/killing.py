"""Runs that are killed at random moments, resumed until they end, and compared with an uninterrupted one."""

import os
import shutil
import signal
import subprocess
import sys
import time

from same_run import assert_same_run


class Trials:
    """The command `pcmlp train` in processes of its own, with one compile cache for all of them."""

    def __init__(self, folder, words, cache=None):
        self.folder = folder
        self.words = words
        self.limit = None  # called in the new process, to limit what it may do
        self.env = {**os.environ, "PCMLP_CACHE": str(cache or folder / "cache"), "COLUMNS": "200"}
        self.whole = folder / "whole"
        took = folder / "seconds"  # written last: with it, the uninterrupted run of an earlier process is used
        if not took.exists():
            for _ in range(2):  # the first one fills the cache
                shutil.rmtree(self.whole, ignore_errors=True)
                begun = time.perf_counter()
                (folder / "said").write_text(self.complete(self.whole))
            took.write_text(str(time.perf_counter() - begun))
        self.seconds, self.said = float(took.read_text()), (folder / "said").read_text()

    def start(self, out):
        command = [sys.executable, "-m", "pcmlp.cli", "train", *self.words, "--out", str(out), "--resume"]
        into = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, env=self.env, text=True, preexec_fn=self.limit, **into)

    def complete(self, out):
        process = self.start(out)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said
        return said

    def kill(self, count, rng):
        """`count` kills at random moments, over as many runs as that takes; each run is then ended and compared."""
        kills = runs = 0
        while kills < count:
            kills += self.kill_one(self.folder / f"killed-{runs}", min(5, count - kills), rng)
            runs += 1
        return kills

    def kill_one(self, out, most, rng, stopped=None):
        """Kill one run at most so many times, let it end and compare it. If it may stop by itself, with exit code 1,
        then `stopped` gets what it said, and it is started again."""
        kills = 0
        while True:
            process = self.start(out)
            try:
                said, _ = process.communicate(timeout=rng.uniform(0.1, 0.9) * self.seconds if kills < most else 600)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                assert kills < most, "it does not end"
                kills += 1
                continue
            if process.returncode == 0:
                break
            assert stopped is not None, said
            assert process.returncode == 1, said
            stopped(said)
        assert_same_run(self.whole, out)
        return kills
