"""`pcmlp train`: a run is opened or taken up, shown while it is under way, and concluded whatever ends it."""

from pathlib import Path
from typing import Any

from rich.console import Console

from pcmlp.runs.build import build
from pcmlp.runs.certificate import check_threshold, note, standing
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.episodes import EpisodeLog
from pcmlp.runs.folder import RunFolder, check_free, read_summary
from pcmlp.runs.interrupt import stop_when_asked
from pcmlp.runs.lock import Lock
from pcmlp.runs.notes import faults_of, heading, notes_of, reward_free_note, say
from pcmlp.runs.progress import show_progress
from pcmlp.runs.resume import ENDED, check_same, is_finished, left_off
from pcmlp.runs.run import Run, seed_keys
from pcmlp.runs.tensorboard import Boards, open_boards
from pcmlp.types import RunStopped


def train(
    config: RunConfig,
    out: Path,
    *,
    command: str = "",
    console: Console | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    stop_when_certified: float | None = None,
) -> dict[str, Any]:
    """Runs the configuration into the folder `out` and returns the summary; bad input writes nothing.

    With `resume` a run that is there goes on after its last checkpoint, and is left alone if it is finished. With
    `stop_when_certified` it is finished at the first iteration after which no seed's certificate is above that.
    """
    console = console or Console()
    check_threshold(config, stop_when_certified)
    run = open_run(config, out, resume)
    if run is None:
        say(console, f"{out}: finished already; nothing to resume")
        return read_summary(out)
    say(console, heading(config, out, run.done))
    for line in [*notes_of(run.algo.world, config.algo), *reward_free_note(config, run.task)]:
        say(console, line)
    if changes := run.changes():
        say(console, f"not bit for bit as it was ({', '.join(changes)})")
    if stop_when_certified is not None:
        run.threshold = stop_when_certified
        say(console, note(stop_when_certified, standing(config, run.algo)))
    if tensorboard:
        run.boards = boards_if_any(run, console)
    status, failure = "interrupted", None
    with run.lock, run.compiling, run.boards, EpisodeLog(run.folder.episodes) as log, stop_when_asked(console) as asked:
        try:
            with show_progress(console, run.algo.num_iterations) as progress:
                status = run.loop(log, progress, asked)
        except (KeyboardInterrupt, BrokenPipeError):  # asked twice, or nobody reads our lines: this iteration is lost
            pass
        except RunStopped as error:
            status, failure = "failed", error
        try:
            summary = run.conclude(status, command)
        except RunStopped as error:
            raise failure or error from error
    if faults := faults_of(run.algo.world):
        say(console, faults)
    if failure is not None:
        raise failure
    if status not in ENDED and command:
        say(console, f"to go on: {command}{'' if '--resume' in command.split() else ' --resume'}")
    return summary


def open_run(config: RunConfig, out: Path, resume: bool) -> Run | None:
    """A run in a new folder, or the one that is there, taken up; None where that is finished."""
    if not (resume and (out / "config.json").exists()):
        check_free(out)
        task, algo = build(config)
        return Run(config, task, algo, *RunFolder.create(out, to_json(config)), seed_keys(config))
    check_same(config, out)
    task, algo = build(config)
    if is_finished(out, config, algo.num_iterations):
        return None
    lock = Lock(out)
    try:
        run = Run(config, task, algo, RunFolder(out), lock, seed_keys(config))
        run.take_up(left_off(config, algo, run.keys, out))
    except BaseException:
        lock.close()
        raise
    return run


def boards_if_any(run: Run, console: Console) -> Boards:
    try:
        return open_boards(run.folder.path / "tensorboard", run.config.seeds, run.rows)
    except ImportError:
        say(console, "--tensorboard: needs tensorboardX, going on without; pip install 'pcmlp[tensorboard]'")
    except OSError as error:
        say(console, f"--tensorboard: {error.strerror} ({error.filename}), going on without; metrics.csv has it all")
    return Boards({})
