"""What a command makes of a damaged folder: refuses it, gives the same result, or does what it must not do.

    refused    exit code 1 or 2 and one line on stderr, nothing written; of report and export: a line about
               the run that was left out or the log that is damaged
    same       the result of the undamaged folder, times and the command that was typed aside
    other      another result, or a refusal after something was written
    traceback  an exception that nobody expected, or a refusal in more than one line
    hang       no answer within `LIMIT` seconds

A `Stage` has a few runs of milliseconds, and a case is a copy of one of them. Four things are left out, because they
cost more than all the rest and read nothing: most pictures, the measured speed of the machine, and what is done again
for the same words or the same configuration: parsing, and finding the shapes of the learner's arrays.
"""

import contextlib
import functools
import gc
import inspect
import io
import random
import re
import resource
import shutil
import signal
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import outcomes
import pytest
from fuzzing import Place, damage
from staging import SETTINGS, Stage

from pcmlp import cli
from pcmlp.report import page
from pcmlp.runs import expect
from pcmlp.runs.config import to_json

VERDICTS = ("refused", "same", "other", "traceback", "hang")
BAD = VERDICTS[2:]
LIMIT = 20.0
ROOM = 4 * 2**30  # bytes that a case may take
PATIENCE = 600.0  # with an undamaged folder, for which programs are compiled
PICTURES = 0.02  # share of the reports that have their pictures drawn
MOST_MAPPINGS = 25_000


class Case(NamedTuple):
    """A case and what came of it."""

    number: int
    scene: str
    what: str  # was damaged, and how
    verdict: str
    line: str  # the refusal, or the place of the exception


class Scene(NamedTuple):
    """A command on a copy of a folder of the stage."""

    name: str
    folder: str
    words: tuple[str, ...]
    outcome: Callable[["Judge", str], Any]  # of what was printed
    reads: str  # the files that the command reads, which are damaged more often than the others
    weight: int = 1


class Hang(BaseException):
    """Nothing in the code catches it."""


class Judge:
    """The scenes, in a folder of its own."""

    def __init__(self, stage: Stage, root: Path):
        self.stage, self.root = stage, root
        self.case, self.out, self.outside, self.datasets = (root / name for name in ("case", "out", "outside", "data"))
        case, out, few = str(self.case), str(self.out), ("--episodes", "2")
        resume = {name: ("train", *words, "--out", case, "--resume") for name, words in SETTINGS.items()}
        plan = ("plan", case, "--attempts", "1", "--rounds", "1", "--out", out)
        export, report = ("export", case, "--minari", outcomes.DATASET), ("report", case, "--out", out)
        state, policy, log = "config|metrics|summary|checkpoint|episodes", "config|plan|policy", "config|episodes"
        page_ = "json|csv|episodes"
        scenes = [
            Scene("resume", "killed/lock", resume["lock"], outcomes.resumed, state, 2),
            Scene("resume", "failed/lock", resume["lock"], outcomes.resumed, state),
            Scene("resume", "whole/lock", resume["lock"], outcomes.finished, "config|summary"),
            Scene("eval", "whole/lock", ("eval", case, *few), outcomes.evaluated, policy),
            Scene("export", "whole/lock", export, outcomes.exported, log),
            Scene("report", "whole/lock", report, outcomes.reported, page_),
            Scene("report", "experiment", report, outcomes.reported, page_, 4),
            Scene("resume", "killed/deep", resume["deep"], outcomes.resumed, state),
            Scene("eval", "whole/deep", ("eval", case, *few), outcomes.evaluated, policy),
            Scene("eval", "whole/deep", ("eval", case, "--iteration", "2", *few), outcomes.evaluated, policy),
            Scene("eval", "plan", ("eval", case, *few), outcomes.evaluated, policy, 2),
            Scene("plan", "whole/deep", plan, outcomes.planned, state, 2),
            Scene("export", "whole/deep", export, outcomes.exported, log),
            Scene("report", "whole/deep", report, outcomes.reported, page_, 2),
            Scene("report", "killed/deep", report, outcomes.reported, page_),
        ]
        self.scenes = [scene for scene in scenes if (stage.root / scene.folder).exists()]
        self.pictures, self.cases = False, 0

    def __enter__(self) -> "Judge":
        """Leave out what costs much and reads nothing."""
        self._patch = patch = pytest.MonkeyPatch()
        draw, parse = page._static_pictures, functools.cache(lambda words: real_parse(list(words)))
        real_parse, draws = cli.parse, {"static_pictures": lambda group: draw(group) if self.pictures else {}}
        patch.setitem(page._environment().globals, *next(iter(draws.items())))
        patch.setattr("pcmlp.commands.runs.draw_pictures", lambda out: [])
        patch.setattr(expect, "measure_peak", lambda *_: 1e11)
        patch.setattr(cli, "fail_unexpectedly", raise_again)  # a line that says "unexpected" is a traceback here
        patch.setattr(cli, "parse", lambda words: parse(tuple(words)))
        patch.setattr(eqx, "filter_eval_shape", remember_shapes(eqx.filter_eval_shape))
        patch.setenv("MINARI_DATASETS_PATH", str(self.datasets))
        patch.setenv("COLUMNS", "200")
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        shutil.rmtree(self.root, ignore_errors=True)

    def judge(self, number: int) -> Case:
        """Run a case."""
        rng = random.Random(number)
        scene = rng.choices(self.scenes, [scene.weight for scene in self.scenes])[0]
        expected = self.expect(scene)
        self.pictures = scene.name == "report" and rng.random() < PICTURES
        self.set_up(scene)
        what = damage(self.case, rng, Place(self.stage.root, self.outside), scene.reads)
        verdict, line = self.compare(scene, what, expected)
        return Case(number, f"{scene.name} {scene.folder}", what, verdict, " ".join(line.split())[:300])

    @functools.cache  # noqa: B019 (a process has one judge)
    def expect(self, scene: Scene) -> list[Any]:
        """Return the outcome of the undamaged folder; in a report of a killed run, also without what was written after
        its last checkpoint, because a torn end is dropped."""
        killed = scene.name == "report" and scene.folder.startswith("killed")
        found = []
        for cuts in (
            ((), (outcomes.cut_rows,), (outcomes.cut_log,), (outcomes.cut_rows, outcomes.cut_log)) if killed else ((),)
        ):
            self.set_up(scene)
            for cut in cuts:
                cut(self.case)
            code, said, complaint = self.run(scene, PATIENCE)
            assert (code, complaint) == (0, ""), f"{scene}: {code} {said} {complaint}"
            found.append(scene.outcome(self, said))
        return found

    def set_up(self, scene: Scene) -> None:
        """Lay out the undamaged folder."""
        self.cases += 1
        if self.cases % 50 == 0 and Path("/proc/self/maps").read_bytes().count(b"\n") > MOST_MAPPINGS:
            jax.clear_caches()
            gc.collect()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.stage.root / scene.folder, self.case)
        self.outside.mkdir()
        (self.outside / "theirs").write_text("theirs")

    def run(self, scene: Scene, limit: float | None = None) -> tuple[int, str, str]:
        """Run the command; return its exit code, stdout and stderr."""

        def late(*_):
            raise Hang

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, limit or LIMIT)
        said, complaint = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
                code = cli.main(list(scene.words))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        return code, said.getvalue(), complaint.getvalue()

    def compare(self, scene: Scene, what: str, expected: list[Any]) -> tuple[str, str]:
        """Return the verdict on a damaged folder and a line about it."""
        before = contents(self.root)
        try:
            code, said, complaint = self.run(scene)
        except BaseException as error:
            place = where(traceback.extract_tb(error.__traceback__))
            return ("hang", place) if isinstance(error, Hang) else ("traceback", f"{repr(error)[:150]}{place}")
        lines = complaint.splitlines()
        if code in (1, 2):
            after = contents(self.root)
            changed = sorted(name for name, held in after.items() if before.get(name) != held)
            gone = sorted(before.keys() - after.keys())
            if "not enough memory" in complaint:
                return "other", f"read without a limit: {complaint}"
            if changed or gone:
                return "other", f"refused after writing {', '.join([*changed, *gone])}: {complaint}"
            return ("refused", complaint) if len(lines) == 1 else ("traceback", f"{len(lines)} lines: {complaint}")
        if code != 0:
            return "other", f"exit code {code}: {complaint or said[-200:]}"
        if scene.name in ("report", "export") and lines:
            said_so = all(re.search("^left out: |: (damaged|edited)", line) for line in lines)
            return ("refused", lines[0]) if said_so else ("traceback", complaint)
        try:
            found = scene.outcome(self, said)
        except Exception as error:
            return "other", f"{type(error).__name__}: {error}"
        if found in expected or scene.name in ("report", "export", "plan") and outcomes.is_absent(what):
            return "same", ""
        return "other", outcomes.difference(expected[0], found)


def raise_again(error: BaseException) -> int:
    """Raise an error that the command line would turn into a line about an unexpected error."""
    raise error


def remember_shapes(find: Callable[..., Any]) -> Callable[..., Any]:
    """Return `eqx.filter_eval_shape` that traces a function of a configuration only once."""
    known: dict[Any, Any] = {}

    def remembered(function: Callable[..., Any], *args: Any) -> Any:
        uses = inspect.getclosurevars(function).nonlocals
        if "config" not in uses:
            return find(function, *args)
        key = (function.__code__, to_json(uses["config"]), repr(uses["algorithm"]), repr(uses.get("search")))
        if key not in known:
            known[key] = find(function, *args)
        return known[key]

    return remembered


def contents(root: Path) -> dict[str, Any]:
    """What is in a folder, but for the lock, which says who looked last."""
    held = {}
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        small = stat.S_ISREG(about.st_mode) and about.st_size < 2**22
        name = str(path.relative_to(root))
        if path.name != "lock":
            held[name] = path.read_bytes() if small else (stat.S_IFMT(about.st_mode), about.st_size)
    return held


def where(frames: traceback.StackSummary) -> str:
    """The last line of pcmlp among some frames."""
    ours = [frame for frame in frames if "/src/pcmlp/" in frame.filename]
    return f" at {ours[-1].filename.rpartition('/src/pcmlp/')[2]}:{ours[-1].lineno} {ours[-1].name}" if ours else ""
