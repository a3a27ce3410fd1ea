"""The command line: `pcmlp list`, `train`, `eval`, `plan`, `export`, `paper`, `report`, `watch`, … (arguments.py).

Exit codes: 0; 1 and one line on stderr where a run cannot go on; 2 and one line for bad input; 75 for a run that was
asked to stop and did so after an iteration; 130 for one that was stopped in the middle of one. 1, 75 and 130 can be
resumed. What needs JAX imports it, so that help is quick.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import OmitSubcommandPrefixes

from pcmlp.arguments import Bench, Command, Doctor, Eval, Export, List, Paper, Plan, Report, Theory, Train, Watch

_FAILED = 1
_BAD_INPUT = 2
_STOPPED = 75  # "try again later" of sysexits.h
_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """The exit code; help ends the process itself."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            command = parse(words)
    except SystemExit as stop:
        if not stop.code:  # help
            raise
        return fail(one_line(said.getvalue()))
    try:
        return run(command, words)
    except KeyboardInterrupt:  # before the run folder was there
        return _INTERRUPTED
    except BrokenPipeError:  # whoever read our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, RuntimeError) as error:
        from pcmlp.types import RunStopped

        if isinstance(error, RunStopped):
            return fail(str(error), _FAILED)
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # JAX's word for it
            raise
        remedy = "give fewer --seeds, or less of replay_size, planner.streams or model.sizes; --resume goes on"
        return fail(f"not enough memory ({first_of(error)}); {remedy}", _FAILED)
    except ValueError as error:
        from pcmlp.types import ConfigError

        if not isinstance(error, ConfigError):
            raise
        return fail(str(error))


def parse(words: list[str]) -> Any:
    return tyro.cli(
        Command,
        args=words,
        prog="pcmlp",
        description="Model-based reinforcement learning that explores (PC-MLP).",
        config=(OmitSubcommandPrefixes,),
    )


def one_line(box: str) -> str:
    """tyro's box about arguments it does not know, without its borders and without help on the flags it names.

    Where what is printed cannot hold borders, a box has rules of dashes.
    """
    lines = [re.sub("^-+$", "", line.strip("│╭╮╰╯─ ")) for line in box.splitlines()[1:]]
    lines = lines[1:] if lines[:1] == [""] else lines
    said = " ".join(lines[: lines.index("")]) if "" in lines else " ".join(lines)
    named = dict.fromkeys(line.split()[0] for line in lines if line.startswith("--"))
    given = {word.split("=")[0].rstrip(",") for word in said.split()}
    meant = [name for name in named if name not in given]  # another command's flag of that name is no help
    meant_words = f"; perhaps you meant {' or '.join(meant)}" if meant else ""
    return f"{said.removesuffix('.')}{meant_words}; pcmlp --help shows what there is"


def first_of(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return said[0] if said else type(error).__name__


def fail(line: str, code: int = _BAD_INPUT) -> int:
    print(f"pcmlp: {' '.join(line.split())}", file=sys.stderr)
    return code


def run(
    command: List | Train | Eval | Plan | Export | Paper | Report | Watch | Bench | Theory | Doctor, words: list[str]
) -> int:
    if isinstance(command, List | Theory):
        from pcmlp import shown

        return shown.names() if isinstance(command, List) else shown.theory_of(command.setting)
    if isinstance(command, Report | Watch):
        os.environ["JAX_PLATFORMS"] = "cpu"  # to draw takes no accelerator, and must not take one from a run
        return report(command) if isinstance(command, Report) else watch(command)
    if isinstance(command, Doctor):
        from pcmlp import doctor

        return doctor.main()
    from pcmlp.runs.cache import prepare

    prepare(tiny=isinstance(command, Paper) and command.scale == "smoke")
    if isinstance(command, Paper) and command.engine == "ray":  # a GPU is for the processes of the cluster
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    check_devices()
    if isinstance(command, Eval):
        return evaluate(command)
    if isinstance(command, Plan):
        return plan(command, words)
    if isinstance(command, Export):
        return export(command)
    if isinstance(command, Bench):
        return bench(command)
    if isinstance(command, Paper):
        return paper(command)
    return train(command, words)


def bench(command: Bench) -> int:
    from pcmlp.bench import Sizes, main
    from pcmlp.runs.parse import parse_int
    from pcmlp.types import ConfigError

    seeds = tuple(parse_int("seeds", text) for text in command.seeds)
    if any(count < 2 for count in seeds):
        raise ConfigError(f"seeds={' '.join(command.seeds)}: one is timed anyway; give numbers of at least 2")
    return main(command.out, Sizes(seeds=seeds or None, solve=command.solve, host=command.host))


def check_devices() -> None:
    """That there is what JAX_PLATFORMS asks for; JAX says so late, and for a missing CUDA not in words."""
    import jax

    from pcmlp.types import ConfigError

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        asked = os.environ.get("JAX_PLATFORMS", "")
        remedy = "unset it to use what there is; a GPU needs pip install 'pcmlp[cuda]'"
        raise ConfigError(f"JAX_PLATFORMS={asked}: JAX finds no such device; {remedy}") from error


def train(command: Train, words: list[str]) -> int:
    from pcmlp.runs.config import resolve
    from pcmlp.runs.meaning import check_meant
    from pcmlp.runs.parse import parse_float

    settings = [item for items in command.set for item in items] + ["reward_free=true"] * command.reward_free
    config = resolve(command.task, command.algo, command.seeds, command.steps, settings)
    check_meant(config, settings)
    given = command.stop_when_certified
    threshold = None if given is None else parse_float("stop_when_certified", given)
    out = command.out or Path("runs") / re.sub("[:/]", "-", f"{command.task}-{config.algo}")
    from pcmlp.runs import train as training

    console = Console()
    summary = training.train(
        config,
        out,
        command=shlex.join(["pcmlp", *words]),
        console=console,
        resume=command.resume,
        tensorboard=command.tensorboard,
        stop_when_certified=threshold,
    )
    pictures = pictures_of(out)
    show_summary(console, summary, out)
    seconds = {name: f"{summary[f'{name}_s']:.1f} s" for name in ("wall", "compile", "save")}
    spent = "{wall}, of which {compile} compiling, {save} saving".format(**seconds)
    console.print("; ".join([spent, *map(str, pictures)]), highlight=False, soft_wrap=True)
    return {"finished": 0, "certified": 0, "stopped": _STOPPED}.get(summary["status"], _INTERRUPTED)


def pictures_of(out: Path) -> list[Path | str]:
    """What was drawn, or why nothing was: the run is on disk, and no picture may spoil that."""
    try:
        from pcmlp.report.pictures import draw  # matplotlib takes its time, which nobody waits for before the first row

        return list(draw(out)) if (out / "metrics.csv").exists() else []
    except Exception as error:
        return [f"no pictures ({type(error).__name__}: {first_of(error)}); pcmlp report {out} draws them later"]


def show_summary(console: Console, summary: dict[str, Any], out: Path) -> None:
    table = Table("seed", "env steps", "return", "success", "env steps to success", title=f"{summary['status']}: {out}")
    for seed in summary["seeds"]:
        names = ("seed", "env_steps", "final_return", "final_success", "env_steps_to_success")
        table.add_row(*(cell(seed[name]) for name in names))
    console.print(table)


def cell(value: int | float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def evaluate(command: Eval) -> int:
    from pcmlp.report.frames import Episode, check_filmed, write_video
    from pcmlp.runs.evaluate import evaluate_run, filmed_episode
    from pcmlp.runs.parse import parse_int
    from pcmlp.runs.policy import load_run

    episodes = parse_int("episodes", command.episodes)
    seed = None if command.seed is None else parse_int("seed", command.seed)
    saved = load_run(command.run, trust_code=command.trust_code)
    if command.video:
        check_filmed(saved.config.task_name)
    result = evaluate_run(saved, episodes, seed)
    console = Console()
    table = Table("seed", "return", "std", "success", title=f"{result['task']}, {result['algo']}: {episodes} episodes")
    for row in result["seeds"]:
        table.add_row(*(cell(row[name]) for name in ("seed", "return_mean", "return_std", "success")))
    console.print(table)
    made = [command.run / "eval.json"]
    if command.video:
        film = Episode(*filmed_episode(saved, seed))
        made.append(write_video(command.run / "video.mp4", saved.config.task_name, film))
    console.print("; ".join(map(str, made)), highlight=False, soft_wrap=True)
    return 0


def plan(command: Plan, words: list[str]) -> int:
    from pcmlp.runs import plan as planning
    from pcmlp.runs.aim import Aim
    from pcmlp.runs.notes import say
    from pcmlp.runs.parse import parse_float, parse_int

    given = command.success_return
    threshold = None if given is None else parse_float("success_return", given)
    aim = Aim(command.reward, command.terminal, command.success, threshold)
    texts = {name: getattr(command, name) for name in ("attempts", "rounds", "num_plans", "plan_length")}
    counts = {name: parse_int(name, text) for name, text in texts.items() if text is not None}
    how = planning.how_asked(command.run, command.search, counts)
    name = "task" if command.reward is None else command.reward.rpartition(":")[2]
    run = command.run if command.run.name not in ("", "..") else command.run.resolve()
    out = command.out or run.with_name(f"{run.name}-{'search' if command.search else 'plan'}-{Path(name).stem}")
    seeds = [parse_int("seeds", seed) for seed in command.seeds]
    learned = planning.load_learned(command.run, seeds, trust_code=command.trust_code)
    console = Console()
    paid = aim.reward or f"the reward of {learned.config.task_name}"
    known = f"in the model of {command.run} after {learned.env_steps:,.0f} env steps, with no new one"
    say(console, f"planning for {paid} {known}")
    record = planning.plan_run(learned, aim, out, how, command=shlex.join(["pcmlp", *words]))
    table = Table("seed", "imagined return", *[] if command.search else ["of each attempt"], title=f"planned: {out}")
    for seed in record["seeds"]:
        attempts = "  ".join(map(cell, seed["by_attempt"]))
        table.add_row(cell(seed["seed"]), cell(seed["imagined_return"]), *[] if command.search else [attempts])
    console.print(table)
    say(console, f"{record['wall_s']:.1f} s; in the real world: pcmlp eval {out}{' --trust-code' if aim.code else ''}")
    return 0


def export(command: Export) -> int:
    from pcmlp.runs.export import export as to_minari

    dataset = to_minari(command.run, command.minari)
    held = f"{dataset.total_episodes} episodes, {dataset.total_steps} steps"
    print(f"{command.minari}: {held}, in {dataset.spec.data_path}")
    print(f"to load it: minari.load_dataset({command.minari!r})")
    return 0


def paper(command: Paper) -> int:
    from pcmlp.experiments.paper import paper as make
    from pcmlp.runs.parse import parse_int

    try:
        page = make(
            command.names,
            scale=command.scale,
            engine=command.engine,
            address=command.address,
            results=command.results,
            runs=command.runs,
            only=command.only,
            seeds=None if command.seeds is None else [parse_int("seeds", seed) for seed in command.seeds],
        )
    except KeyboardInterrupt:
        print("stopped; the same command goes on with it, and does nothing twice")
        return _INTERRUPTED
    print(page)
    return 0


def report(command: Report) -> int:
    from pcmlp.report import html

    page = html.report(list(command.paths))
    print(page)
    if command.figures:
        from pcmlp.report.figures import write_figures

        made = write_figures(html.read_runs(list(command.paths)), page.parent / "figures")
        print(f"{page.parent / 'figures'}: {len(made)} files")
    return 0


def watch(command: Watch) -> int:
    from pcmlp.report.watch import watch as serve
    from pcmlp.runs.parse import parse_int

    serve(command.folder, parse_int("port", command.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
