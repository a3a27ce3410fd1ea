"""`pcmlp train`, `eval`, `plan` and `export`: the commands that make and use a run folder."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from pcmlp.commands import INTERRUPTED, STOPPED, Ints, Switch, cell, prepare_device, unset
from pcmlp.signals import finish_iterations, print_to_stderr


@dataclass(frozen=True)
class Train:
    """Train an algorithm on a task, all seeds at once, into a run folder.

    For example:
      pcmlp train mountain-car --seeds 0 1 --steps 400
      pcmlp train gym:Pendulum-v1 --algo sac --set planner.sizes=64,64 --out runs/pendulum
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """A task of `pcmlp list`, gym:ID, or FILE.py:NAME of your own."""
    algo: Annotated[str | None, unset("ALGO", "the first that `pcmlp list` names for the task")] = None
    """An algorithm of `pcmlp list`, or FILE.py:NAME of your own method."""
    seeds: Ints = ("0", "1", "2", "3")
    """Seeds; all of them train in one program."""
    steps: Annotated[str | None, unset("INT", "the preset's; 2000 on small tasks, 200000 on robots")] = None
    """Env steps of each seed."""
    out: Annotated[Path | None, unset("DIR", "runs/TASK-ALGO")] = None
    """The run folder, new or empty."""
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE [KEY=VALUE ...]")] = ()
    """Any other setting, such as bonus_scale=0 or task.horizon=10; `pcmlp list ALGO` shows the keys."""
    data: Annotated[str | None, unset("MINARI", "no data")] = None
    """Start from the steps of this Minari dataset; for Deep PC-MLP and methods with its loop."""
    reward_free: Switch = False
    """Explore without the task's reward."""
    resume: Switch = False
    """Continue the run in --out after its last checkpoint; start it if there is none."""
    trust_code: Switch = False
    """With --resume: import the files of code that the run in --out uses, if any."""
    stop_when_certified: Annotated[str | None, unset("EPS", "never")] = None
    """End after the first iteration in which the certificate of every seed is at most EPS."""
    tensorboard: Switch = False
    """Write every number of metrics.csv for TensorBoard as well."""
    wandb: Annotated[str | None, unset("PROJECT", "no")] = None
    """Also send every number of metrics.csv to this project at Weights & Biases."""

    def run(self, command: str) -> int:
        """Train, draw the pictures and show the results of each seed."""
        finish_iterations()
        prepare_device(self.task if self.algo is None else f"{self.task}, {self.algo}")
        from pcmlp.runs import train as training
        from pcmlp.runs.config import resolve
        from pcmlp.runs.dataset import find_data
        from pcmlp.settings import parse_float

        settings = [item for items in self.set for item in items] + ["reward_free=true"] * self.reward_free
        config = resolve(self.task, self.algo, self.seeds, self.steps, settings)
        if self.data is not None:
            config = replace(config, data=find_data(self.data))
        given = self.stop_when_certified
        out = self.out or Path("runs") / re.sub("[:/]", "-", f"{self.task}-{config.algo}")
        console = Console()
        summary = training.train(
            config,
            out,
            command=command,
            console=console,
            resume=self.resume,
            trust_code=self.trust_code,
            tensorboard=self.tensorboard,
            wandb=self.wandb,
            stop_when_certified=None if given is None else parse_float("stop_when_certified", given),
        )
        pictures = [] if summary["status"] == "interrupted" else draw_pictures(out)
        show_summary(console, summary, out)
        seconds = {name: f"{summary[f'{name}_s']:.1f} s" for name in ("wall", "compile", "save")}
        spent = "{wall}, of which {compile} compiling, {save} saving".format(**seconds)
        console.print("; ".join([spent, *map(str, pictures)]), highlight=False, soft_wrap=True)
        return {"finished": 0, "certified": 0, "stopped": STOPPED}.get(summary["status"], INTERRUPTED)


def draw_pictures(out: Path) -> list[Path | str]:
    """Draw the run and return the files, or why there are none: an error in a picture must not fail the run."""
    from pcmlp.errors import first_line

    try:
        from pcmlp.report.figures import draw  # imported here, because matplotlib is slow to import

        return list(draw(out)) if (out / "metrics.csv").exists() else []
    except Exception as error:
        return [f"no pictures ({type(error).__name__}: {first_line(error)}); pcmlp report {out} draws them later"]


def show_summary(console: Console, summary: dict[str, Any], out: Path) -> None:
    """Print the results of each seed."""
    from pcmlp.runs.callbacks import say
    from pcmlp.runs.summary import closing_lines

    columns = {"seed": "seed", "env_steps": "env steps"}
    if summary.get("reward_free") and summary["explored_of"]:
        columns["explored"] = f"share of {summary['explored_of']} explored"
    else:
        columns |= {
            "final_return": "return",
            "final_success": "success",
            "env_steps_to_success": "env steps to success",
        }
        columns["env_steps_to_sustained_success"] = "sustained"
    table = Table(*columns.values(), title=f"{summary['status']}: {out}")
    for seed in summary["seeds"]:
        table.add_row(*(cell(seed.get(name)) for name in columns))
    console.print(table)
    for line in closing_lines(summary):
        say(console, line)


@dataclass(frozen=True)
class Eval:
    """Evaluate the deployed policies of a run, or those of a plan under its reward.

    For example:
      pcmlp eval runs/mountain-car-pcmlp --episodes 20 --video
      pcmlp eval runs/mountain-car-pcmlp --iteration 5
    """

    path: Annotated[Positional[Path], arg(metavar="RUN_OR_PLAN")]
    """The folder of a run or a plan, such as runs/mountain-car-pcmlp."""
    episodes: Annotated[str | None, unset("INT", "20, or 300 for hand-egg")] = None
    """Episodes of each seed."""
    trust_code: Switch = False
    """Import the files of code that the run or plan uses, if any."""
    seed: Annotated[str | None, unset("INT", "the episodes of the run's own evaluations")] = None
    """The seed of the episodes."""
    iteration: Annotated[str | None, unset("INT|last", "those that are deployed")] = None
    """Evaluate the policies that this iteration has planned, deployed or not."""
    video: Switch = False
    """Film an episode of the first seed as well: video.mp4."""

    def run(self, command: str) -> int:
        """Evaluate, and film if asked."""
        prepare_device(f"evaluating {self.path}")
        from pcmlp.report.films import Episode, check_filmed, write_video
        from pcmlp.runs.evaluate import evaluate_run, film_episode
        from pcmlp.runs.policy import load_run
        from pcmlp.settings import parse_int
        from pcmlp.successes import describe_success

        episodes = None if self.episodes is None else parse_int("episodes", self.episodes)
        seed = None if self.seed is None else parse_int("seed", self.seed)
        saved = load_run(self.path, iteration=self.iteration, trust_code=self.trust_code)
        if self.video:
            check_filmed(saved.config.task_name)
        result = evaluate_run(saved, episodes, seed)
        console = Console()
        which = "" if saved.iteration is None else f", iteration {saved.iteration}"
        title = f"{result['task']}, {result['algo']}{which}: {result['episodes']} episodes"
        table = Table("seed", "return", "std", "success", title=title)
        for row in result["seeds"]:
            table.add_row(*(cell(row[name]) for name in ("seed", "return_mean", "return_std", "success")))
        console.print(table)
        for line in describe_success(result["all_seeds"]):
            console.print(line, highlight=False, soft_wrap=True)
        files = [self.path / "eval.json"]
        if self.video:
            film = Episode(*film_episode(saved, seed))
            files.append(write_video(self.path / "video.mp4", saved.config.task_name, film))
        console.print("; ".join(map(str, files)), highlight=False, soft_wrap=True)
        return 0


@dataclass(frozen=True)
class Plan:
    """Plan for a new reward in the model that a run has learned, without new samples.

    For example:
      pcmlp plan runs/point-umaze-pcmlp --reward rewards.py:corner
      pcmlp plan runs/point-umaze-pcmlp --reward rewards.py:corner --search
    """

    path: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder, such as runs/mountain-car-pcmlp."""
    reward: Annotated[str | None, unset("FILE.py:NAME", "the task's own reward")] = None
    """A function of (state, action, next_state) in jax.numpy."""
    terminal: Annotated[str | None, unset("FILE.py:NAME", "the task's own end")] = None
    """A function of the same kind, true where an episode ends."""
    success: Annotated[str | None, unset("FILE.py:NAME", "by the return")] = None
    """A function of the same kind: `eval` counts an episode as a success if it is true at some step."""
    success_return: Annotated[str | None, unset("FLOAT", "the task's, if --reward is not given")] = None
    """Or: `eval` counts an episode as a success if its return is at least this."""
    seeds: Annotated[tuple[str, ...], unset("INT [INT ...]", "all of them")] = ()
    """The seeds of the run to plan for."""
    attempts: Annotated[str | None, unset("INT", "3")] = None
    """New policies to plan from; the one with the highest imagined return is kept."""
    rounds: Annotated[str | None, unset("INT", "5 with TRPO; with SAC, enough for 20,000 steps")] = None
    """Calls of the planner for each attempt."""
    search: Switch = False
    """Plan at every step instead, among actions of the exploring policy; for rewards that are paid on the way."""
    num_plans: Annotated[str | None, unset("INT", "200")] = None
    """Imagined episodes that a search chooses from."""
    plan_length: Annotated[str | None, unset("INT", "15")] = None
    """Steps of each of these episodes."""
    iteration: Annotated[str | None, unset("INT|last", "the exploring policy")] = None
    """For a search: take the actions of the policy that this iteration has planned for deployment."""
    out: Annotated[Path | None, unset("DIR", "RUN-plan-NAME or RUN-search-NAME")] = None
    """The folder for the policies, new or empty."""
    trust_code: Switch = False
    """Import the files of code that the run itself uses, if any."""

    def run(self, command: str) -> int:
        """Plan, and show the imagined returns."""
        prepare_device(f"planning with {self.path}")
        from pcmlp.runs import plan as planning
        from pcmlp.runs.callbacks import say
        from pcmlp.runs.policy import Aim
        from pcmlp.settings import parse_float, parse_int

        given = self.success_return
        threshold = None if given is None else parse_float("success_return", given)
        aim = Aim(self.reward, self.terminal, self.success, threshold)
        texts = {name: getattr(self, name) for name in ("attempts", "rounds", "num_plans", "plan_length")}
        counts = {name: parse_int(name, text) for name, text in texts.items() if text is not None}
        seeds = [parse_int("seeds", seed) for seed in self.seeds]
        learned = planning.load_learned(self.path, seeds, trust_code=self.trust_code)
        how = planning.choose_way(learned, self.search, counts)
        learned = planning.choose_guide(learned, self.search, self.iteration, trust_code=self.trust_code)
        console, out = Console(), self._out()
        paid = aim.reward or f"the reward of {learned.config.task_name}"
        known = f"in the model of {self.path} after {learned.env_steps:,.0f} env steps, without new ones"
        say(console, f"planning for {paid} {known}")
        record = planning.plan_run(learned, aim, out, how, command, console)
        attempts = [] if self.search else ["of each attempt"]
        table = Table("seed", "imagined return", *attempts, title=f"planned: {out}")
        for seed in record["seeds"]:
            tried = [] if self.search else ["  ".join(map(cell, seed["by_attempt"]))]
            table.add_row(cell(seed["seed"]), cell(seed["imagined_return"]), *tried)
        console.print(table)
        trust = " --trust-code" if aim.places or learned.config.code else ""
        say(console, f"{record['wall_s']:.1f} s; in the real world: pcmlp eval {out}{trust}")
        return 0

    def _out(self) -> Path:
        name = "task" if self.reward is None else self.reward.rpartition(":")[2]
        run = self.path if self.path.name not in ("", "..") else self.path.resolve()
        return self.out or run.with_name(f"{run.name}-{'search' if self.search else 'plan'}-{Path(name).stem}")


@dataclass(frozen=True)
class Export:
    """Write the episodes of a run as a Minari dataset.

    For example:
      pcmlp export runs/mountain-car-pcmlp --minari pcmlp/mountain-car-v0
    """

    path: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder, such as runs/mountain-car-pcmlp."""
    minari: Annotated[str, arg(metavar="NAME")]
    """The name of the dataset, such as pcmlp/mountain-car-v0; it goes to Minari's folder (MINARI_DATASETS_PATH)."""
    trust_code: Switch = False
    """Import the files of code that the run uses, if any."""

    def run(self, command: str) -> int:
        """Export the episodes."""
        prepare_device(f"exporting {self.path}")
        from pcmlp.runs.export import export

        dataset = export(self.path, self.minari, trust_code=self.trust_code, say=print_to_stderr)
        held = f"{dataset.total_episodes} episodes, {dataset.total_steps} steps"
        print(f"{self.minari}: {held}, in {dataset.spec.data_path}")
        print(f"to load it: minari.load_dataset({self.minari!r})")
        return 0
