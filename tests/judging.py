"""What a command makes of a damaged folder: refuses it, gives the same result, or does what it must not do.

    refused    exit code 1 or 2 and one line on stderr, nothing written; of a report: a line says that it left a run out
    same       the result of the undamaged folder, times and the command that was typed aside
    other      another result, or a refusal after something was written
    traceback  an exception that nobody caught, or a refusal in more than one line
    hang       no answer within `LIMIT` seconds

A `Stage` has a few runs of milliseconds, and a case is a copy of one of them. Three things are left out, because they
cost more than all the rest and read nothing: most pictures, the measured speed of the machine, and repeated parsing of
the same words.
"""

import contextlib
import functools
import gc
import io
import json
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

import h5py
import jax
import numpy as np
import pytest
from damaged_arrays import payloads, record
from fuzzing import Place, damage
from same_run import assert_same_run
from staging import Stage

from pcmlp import cli
from pcmlp.report import page
from pcmlp.runs import expect
from pcmlp.runs.durable import load_facts_and_arrays

VERDICTS = ("refused", "same", "other", "traceback", "hang")
BAD = VERDICTS[2:]
LIMIT = 20.0
ROOM = 4 * 2**30  # bytes that a case may take
PATIENCE = 600.0  # with an undamaged folder, for which programs are compiled
PICTURES = 0.02  # share of the reports that have their pictures drawn
DATASET = "pcmlp/fuzz-v0"
MOST_MAPPINGS = 25_000
OPTIONAL = re.compile(r"(summary|eval|experiment)\.json|places\.csv|who\.csv|episodes|log|held$|lock$|deep$|combination-lock$|umaze$")


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
        resume = {name: (*words, "--out", case, "--resume") for name, words in stage.words.items()}
        plan = ("plan", case, "--attempts", "1", "--rounds", "1", "--out", out)
        export, report = ("export", case, "--minari", DATASET), ("report", case, "--out", out)
        state, policy, log = "config|metrics|summary|checkpoint|log|episodes", "config|plan|policy", "config|log|episodes"
        page_ = "config|metrics|summary|log|episodes|csv|experiment"
        scenes = [
            Scene("resume", "killed/lock", resume["lock"], Judge.resumed, state, 2),
            Scene("resume", "failed/lock", resume["lock"], Judge.resumed, state),
            Scene("resume", "whole/lock", resume["lock"], Judge.finished, "config|summary"),
            Scene("eval", "whole/lock", ("eval", case, *few), Judge.evaluated, policy),
            Scene("export", "whole/lock", export, Judge.exported, log),
            Scene("report", "whole/lock", report, Judge.reported, page_),
            Scene("report", "experiment", report, Judge.reported, page_, 4),
            Scene("resume", "killed/deep", resume["deep"], Judge.resumed, state),
            Scene("eval", "whole/deep", ("eval", case, *few), Judge.evaluated, policy),
            Scene("eval", "plan", ("eval", case, *few), Judge.evaluated, policy, 2),
            Scene("plan", "whole/deep", plan, Judge.planned, state, 2),
            Scene("export", "whole/deep", export, Judge.exported, log),
            Scene("report", "whole/deep", report, Judge.reported, page_, 2),
            Scene("report", "killed/deep", report, Judge.reported, page_),
        ]
        self.scenes = [scene for scene in scenes if (stage.root / scene.folder).exists()]
        self.pictures = False

    def __enter__(self) -> "Judge":
        """Leave out what costs much and reads nothing."""
        self._patch = patch = pytest.MonkeyPatch()
        draw, parse = page._static_pictures, functools.cache(lambda words: real_parse(list(words)))
        real_parse, draws = cli.parse, {"static_pictures": lambda group: draw(group) if self.pictures else {}}
        patch.setitem(page._environment().globals, *next(iter(draws.items())))
        patch.setattr("pcmlp.commands.runs.draw_pictures", lambda out: [])
        patch.setattr(expect, "measure_peak", lambda *_: 1e11)
        patch.setattr(cli, "parse", lambda words: parse(tuple(words)))
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
        for cuts in ((), (cut_rows,), (cut_log,), (cut_rows, cut_log)) if killed else ((),):
            self.set_up(scene)
            for cut in cuts:
                cut(self.case)
            code, said, complaint = self.run(scene, PATIENCE)
            assert (code, complaint) == (0, ""), f"{scene}: {code} {said} {complaint}"
            found.append(scene.outcome(self, said))
        return found

    def set_up(self, scene: Scene) -> None:
        """Lay out the undamaged folder."""
        if Path("/proc/self/maps").read_bytes().count(b"\n") > MOST_MAPPINGS:
            jax.clear_caches()
            gc.collect()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.stage.root / scene.folder, self.case)
        self.outside.mkdir()
        (self.outside / "theirs").write_text("theirs")

    def run(self, scene: Scene, limit: float = LIMIT) -> tuple[int, str, str]:
        """Run the command; return its exit code, stdout and stderr."""

        def late(*_):
            raise Hang

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, limit)
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
            if isinstance(error, Hang):
                return "hang", where(traceback.extract_tb(error.__traceback__))
            return "traceback", f"{type(error).__name__}: {error}"[:150] + where(traceback.extract_tb(error.__traceback__))
        lines = complaint.splitlines()
        if code in (1, 2):
            changed = sorted(name for name, held in contents(self.root).items() if before.get(name) != held)
            gone = sorted(before.keys() - contents(self.root).keys())
            if "not enough memory" in complaint:
                return "other", f"read without a limit: {complaint}"
            if changed or gone:
                return "other", f"refused after writing {', '.join([*changed, *gone])}: {complaint}"
            return ("refused", complaint) if len(lines) == 1 else ("traceback", f"{len(lines)} lines: {complaint}")
        if code != 0:
            return "other", f"exit code {code}: {complaint or said[-200:]}"
        left_out = [line for line in lines if line.startswith("left out: ")]
        if scene.name == "report" and left_out:
            return ("refused", left_out[0]) if left_out == lines else ("traceback", complaint)
        try:
            found = scene.outcome(self, said)
        except Exception as error:
            return "other", f"{type(error).__name__}: {error}"
        if found in expected or scene.name in ("report", "export") and is_absent(what):
            return "same", ""
        return "other", difference(expected[0], found)

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def resumed(self, said: str) -> Any:
        """The run that came out, which has to be the uninterrupted one."""
        assert_same_run(self.stage.whole(self.case), self.case)
        return shown_table(said)

    def finished(self, said: str) -> Any:
        """The table of a finished run; if it was not taken for finished, also the run."""
        return shown_table(said) if "already finished" in said else self.resumed(said)

    def evaluated(self, said: str) -> Any:
        """The evaluation."""
        record = json.loads((self.case / "eval.json").read_text())
        return {name: value for name, value in record.items() if name not in ("device", "versions")}

    def planned(self, said: str) -> Any:
        """The plan and its policies."""
        record = json.loads((self.out / "plan.json").read_text())
        arrays = load_facts_and_arrays(self.out / "policy/policy.safetensors")[1]
        kept = {name: record[name] for name in ("aim", "task", "algo", "iteration", "search", "attempts", "seeds")}
        return kept, {name: array.tobytes() for name, array in arrays.items()}

    def exported(self, said: str) -> Any:
        """The dataset."""
        folder, held = self.datasets / DATASET / "data", {}

        def note(name, item):
            held[name] = {key: str(value) for key, value in item.attrs.items()}
            if isinstance(item, h5py.Dataset):
                held[name]["values"] = (str(item.dtype), np.asarray(item).tolist())

        with h5py.File(folder / "main_data.hdf5") as file:
            file.visititems(note)
        facts = json.loads((folder / "metadata.json").read_text())
        return held, {name: value for name, value in facts.items() if name not in ("command", "versions")}

    def reported(self, said: str) -> Any:
        """The page without times, the command, the versions and the device."""
        text = (self.out / "report.html").read_text()
        text = re.sub(r"(settings</summary>\s*)<pre>.*?</pre>", r"\1", text, flags=re.DOTALL)
        text = re.sub(r"· versions:.*?(?=· (certificate|folder): )", "", text, flags=re.DOTALL)
        text = re.sub("<noscript>.*?</noscript>", "", text, flags=re.DOTALL)
        last = re.compile(r"<td[^>]*>[^<]*</td>\s*</tr>")
        tables = re.compile("<table.*?</table>", re.DOTALL)
        return tables.sub(lambda found: last.sub("", found[0]) if "wall s" in found[0] else found[0], text).split("\n")


def cut_rows(run: Path) -> None:
    """Drop the last iteration of a run with two seeds from its rows."""
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(lines[:-2]))


def cut_log(run: Path) -> None:
    """Drop the last record of the log."""
    log = run / "episodes" / "log"
    log.write_bytes(b"".join(map(record, payloads(log.read_bytes())[:-1])))


def shown_table(said: str) -> str:
    """The results of each seed, as the command prints them."""
    return re.search(r"finished: .*?(?=\n[\d.]+ s, of which)", said, re.DOTALL)[0]


def is_absent(what: str) -> bool:
    """Whether something was only taken away that need not be there: nothing false is shown instead."""
    file, _, way = what.partition(": ")
    taken = way.split()[0] in ("removed", "renamed") or way == "folder_in_place" and "." not in file.rpartition("/")[2]
    return taken and bool(OPTIONAL.search(file))


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


def difference(expected: Any, found: Any) -> str:
    """Where two outcomes differ, in a few words."""
    if isinstance(expected, list) and isinstance(found, list):
        pairs = [(a.strip(), b.strip()) for a, b in zip(expected, found, strict=False) if a != b]
        a, b = pairs[0] if pairs else (f"{len(expected)} lines", f"{len(found)} lines")
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
        return f"{a[max(0, at - 40) : at + 60]!r} is now {b[max(0, at - 40) : at + 60]!r}"
    a, b = repr(expected), repr(found)
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    return f"{a[max(0, at - 40) : at + 60]} is now {b[max(0, at - 40) : at + 60]}"
