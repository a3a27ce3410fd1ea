"""Two processes and one run folder: at most one of them writes, also where no lock keeps them apart."""

import json
import threading

import pytest

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.runs import checkpoint, folder, run, train
from pcmlp.runs.config import resolve
from pcmlp.runs.episodes import EpisodeLog
from pcmlp.runs.evaluate import Evaluator
from pcmlp.runs.folder import InUse, Lock, once_free
from pcmlp.runs.metrics import MetricsFile

LOST = "another process has taken over this run"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(folder, "_RETRY_S", 0.05)


def signed_by_another(run):
    """As a file server lets it happen, or a file system without locks: the same file, signed again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "fcntl", None)
        return Lock(run)


@pytest.mark.fault("two processes were given one lock", "the first stops before it writes")
def test_the_later_of_two_has_the_lock(tmp_path):
    with Lock(tmp_path) as first:
        first.check()
        before = (tmp_path / "lock").stat().st_ino
        with signed_by_another(tmp_path) as second:
            assert (tmp_path / "lock").stat().st_ino == before
            with pytest.raises(RunStopped, match=LOST):
                first.check()
            second.check()


def test_a_signature_that_is_shorter_leaves_nothing_of_the_one_before(tmp_path):
    (tmp_path / "lock").write_text("x" * 1000)
    with Lock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["host"]


class TestLockOfTheDead:
    @pytest.fixture
    def held(self, tmp_path):
        """As if by another machine, whose name is `dead`."""
        with Lock(tmp_path) as held:
            told = json.loads((tmp_path / "lock").read_text())
            (tmp_path / "lock").write_text(json.dumps({**told, "host": "dead"}))
            held._signature = (tmp_path / "lock").read_bytes()
            yield held

    def taken(self, run, seconds, dead):
        """What looked at the lock that it was given."""
        done = []

        def do():
            with Lock(run) as mine:
                mine.check()
                done.append((run / "lock").stat().st_ino)

        once_free(run, do, seconds, lambda: dead)
        return done

    def test_it_is_waited_for(self, held, tmp_path):
        file = (tmp_path / "lock").stat().st_ino
        threading.Timer(0.3, held.close).start()
        assert self.taken(tmp_path, 60.0, {"dead"}) == [file]

    @pytest.mark.fault(
        "a file server holds the lock of a machine that died", "the run continues elsewhere after a while"
    )
    def test_it_is_taken_from_a_machine_that_died_which_then_writes_nothing(self, held, tmp_path):
        file = (tmp_path / "lock").stat().st_ino
        held.check()
        assert self.taken(tmp_path, 0.0, {"dead"}) != [file]
        with pytest.raises(RunStopped, match=LOST):
            held.check()

    def test_it_stays_with_a_machine_that_nobody_knows(self, held, tmp_path):
        with pytest.raises(InUse, match=r"in use by process \d+ on dead since"):
            self.taken(tmp_path, 0.0, {"another"})
        held.check()

    @pytest.mark.parametrize("text", ["", '{"process": 1, "ho', "[]", "{}"])
    def test_it_stays_with_whoever_is_about_to_sign(self, held, tmp_path, text):
        (tmp_path / "lock").write_text(text)
        with pytest.raises(InUse, match="in use by another process"):
            self.taken(tmp_path, 0.0, {"dead", "another process"})

    def test_what_is_wrong_besides_is_not_tried_again(self, tmp_path):
        def refuses():
            raise ConfigError("no")

        with pytest.raises(ConfigError, match="no"):
            once_free(tmp_path, refuses, 60.0, set)


def small(steps=12):
    return resolve("combination-lock", seeds=(0,), steps=steps, settings=("task.horizon=3", "task.actions=2"))


def written(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"}


class TestLostInTheMiddle:
    """The lock goes to another process right after something; what comes next is not written."""

    def lose_after(self, patch, run, owner, name, times=1):
        real, called = getattr(owner, name), []

        def loses(*args, **options):
            made = real(*args, **options)
            called.append(name)
            if len(called) == times:
                signed_by_another(run).close()
                seen.update(written(run))
            return made

        seen = {}
        patch.setattr(owner, name, loses)
        return seen

    @pytest.mark.parametrize(
        ("owner", "name", "times"),
        [
            (Evaluator, "returns", 1),  # then row 0
            (EpisodeLog, "append", 1),  # then the row
            (Evaluator, "returns", 2),  # then the row
            (MetricsFile, "append", 2),  # then the checkpoint
            (checkpoint, "save", 1),  # then the log
            (checkpoint, "save", 4),  # then the policies
            (run, "save_policies", 1),  # then the summary
        ],
    )
    @pytest.mark.usefixtures("every_iteration_saved")
    def test_a_run_writes_nothing_more(self, tmp_path, monkeypatch, owner, name, times):
        seen = self.lose_after(monkeypatch, tmp_path, owner, name, times)
        with pytest.raises(RunStopped, match=LOST):
            train.train(small(), tmp_path)
        assert seen
        assert written(tmp_path) == seen

    def test_neither_does_one_that_is_taken_up(self, tmp_path, monkeypatch):
        train.train(small(), tmp_path)
        (tmp_path / "summary.json").unlink()
        with (tmp_path / "metrics.csv").open("a") as metrics:
            metrics.write("5,0,")
        seen = self.lose_after(monkeypatch, tmp_path, train, "latest_checkpoint")
        with pytest.raises(RunStopped, match=LOST):
            train.train(small(), tmp_path, resume=True)
        assert seen
        assert written(tmp_path) == seen

    def test_one_that_is_taken_up_signs_before_it_reads(self, tmp_path, monkeypatch):
        train.train(small(), tmp_path)
        (tmp_path / "summary.json").unlink()
        before, real, at_reading = (tmp_path / "lock").read_bytes(), train.latest_checkpoint, []

        def reads(*args):
            at_reading.append((tmp_path / "lock").read_bytes())
            return real(*args)

        monkeypatch.setattr(train, "latest_checkpoint", reads)
        train.train(small(), tmp_path, resume=True)
        assert at_reading == [(tmp_path / "lock").read_bytes()] != [before]
