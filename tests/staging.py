"""The undamaged runs of the fuzzing, of milliseconds each: finished, killed, failed, with a plan and an experiment."""

import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from written_runs import write_experiment

from pcmlp import cli
from pcmlp.runs import checkpoint
from pcmlp.runs.config_file import load_config
from pcmlp.runs.train import train

SETTINGS = {
    "lock": ("combination-lock", "--seeds", "0", "7", "--steps", "12", "--set", "task.horizon=3", "task.actions=2",
             "eval_episodes=4"),
    "deep": ("point-umaze", "--algo", "pcmlp", "--reward-free", "--seeds", "3", "8", "--steps", "60", "--set",
             "task.horizon=20", "eval_episodes=2", "samples_per_policy=20", "rounds=2", "replay_size=50",
             "model.sizes=16,16", "model.steps=2", "model.batch=16", "features.sizes=16,16", "planner.updates=1",
             "planner.streams=8", "planner.length=10", "planner.policy_sizes=8", "planner.value_sizes=8",
             "planner.value_batch=20"),
}  # fmt: skip


class Killed(BaseException):
    """Nothing in the code catches it, as nothing catches a kill."""


class Stage:
    """The folder of the undamaged runs.

    whole/NAME   finished
    killed/NAME  killed before the last checkpoint was written: there are rows and records after the one before
    failed/lock  ended by an error, which its summary says
    plan         a plan in the model of whole/deep, with an evaluation
    experiment   both finished runs with a description and tables, as `pcmlp paper` lays them out
    """

    def __init__(self, root: Path, names: Sequence[str] = tuple(SETTINGS)):
        self.root = root
        self.words = {name: ["train", *SETTINGS[name]] for name in names}

    def whole(self, run: Path) -> Path:
        """Return the uninterrupted run that has the task of a run."""
        task = json.loads((run / "config.json").read_text())["task"]["name"]
        return self.root / "whole" / ("lock" if task == "combination-lock" else "deep")

    def build(self) -> None:
        """Make the runs."""
        run = self.root / "whole"
        for name, words in self.words.items():
            assert cli.main([*words, "--out", str(run / name)]) == 0
            assert cli.main(["eval", str(run / name), "--episodes", "2"]) == 0
            config = load_config(run / name)
            self.cut(config, self.root / "killed" / name, Killed)
        self.cut(load_config(run / "lock"), self.root / "failed" / "lock", OSError)
        if "deep" in self.words:
            aim = ["--success-return", "0.5", "--attempts", "1", "--rounds", "1"]
            assert cli.main(["plan", str(run / "deep"), *aim, "--out", str(self.root / "plan")]) == 0
            assert cli.main(["eval", str(self.root / "plan"), "--episodes", "2"]) == 0
        self.lay_out_experiment()
        for left in self.root.rglob("*.png"):
            left.unlink()

    def cut(self, config, out, error):
        """End a run by an error where it would write its last checkpoint."""
        save = checkpoint.save

        def dies(folder, learner, facts):
            if facts.iteration == config.num_iterations:
                raise error("cut off")
            save(folder, learner, facts)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "save", dies)
            with pytest.raises(error):
                train(config, out, console=Console(file=io.StringIO()))

    def lay_out_experiment(self):
        folder = self.root / "experiment"
        runs = {SETTINGS[name][0]: name for name in self.words}
        for task, name in runs.items():
            shutil.copytree(self.root / "whole" / name, folder / "held" / task / name)
        (folder / "held" / task / name / "places.csv").write_text("place,paid,success\nbelow,there,0\nturn,there,1\n")
        (folder / "held/who.csv").write_text("task,label,share,steps\npoint-umaze,deep,0.25,60\nlock,lock,0.5,12\n")
        write_experiment(folder / "held", *(f"held/{task}/{name}" for task, name in runs.items()))
