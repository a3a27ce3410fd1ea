"""Rewards at every step: Deep PC-MLP on the nine robots and the pendulum, one set of hyperparameters for all of them.

(paper: section 7.2, the dense table; 200,000 env steps, the paper's four seeds. The pendulum, of which 4,000 steps are
enough, has the same settings for a smaller budget.)

    python -m pcmlp.experiments.dense                       # all of it; a GPU is wanted
    python -m pcmlp.experiments.dense half-cheetah/pcmlp    # one run
"""

import argparse
from functools import partial
from typing import Any

import numpy as np

from pcmlp.experiments.kept import PAPER_SEEDS, Asked, parser, run_asked
from pcmlp.published import MODEL_BASED, PAPER, dense_table
from pcmlp.tasks.mujoco import DENSE_TASKS

NAME = "dense"
_FIRST = ("half-cheetah", "slim-humanoid-et", "hopper-et", "walker2d-et")  # those the paper gains most on
_ORDER = (*_FIRST, *(task for task in DENSE_TASKS if task not in _FIRST))


_asked = partial(Asked, seeds=PAPER_SEEDS)

RUNS: dict[str, Asked] = {
    **{f"{task}/pcmlp": _asked(200_000) for task in _ORDER},
    "pendulum/pcmlp": _asked(4_000, ("preset=dense",)),
    # what each part of the preset changes
    "half-cheetah/plain-critics": _asked(200_000, ("planner.normed=false", "margin=3", "keeps_better=false")),
    "half-cheetah/no-bonus": _asked(200_000, ("bonus_scale=0",)),
    "half-cheetah/ensemble": _asked(200_000, ("model.members=5",)),
    # reward and termination learned, in environments that we know nothing of
    "gym:InvertedPendulum-v5/pcmlp": Asked(8_000, seeds=(0, 1, 2)),
    "gym:Pusher-v5/pcmlp": Asked(8_000, ("preset=dense",), seeds=(0, 1, 2)),
}


def row_of(name: str, summary: dict[str, Any]) -> dict[str, Any]:
    task, label = name.split("/")
    returns = [seed["final_return"] for seed in summary["seeds"]]
    published = dense_table().get(task, {})
    others = [published[name].mean for name in MODEL_BASED if name in published]
    return {
        "task": task,
        "run": label,
        "env_steps": summary["seeds"][0]["env_steps"],
        "final_return": round(float(np.mean(returns)), 1),
        "std": round(float(np.std(returns)), 1),
        "worst_return": round(min(returns), 1),
        "best_return": round(max(returns), 1),
        "paper": published[PAPER].mean if PAPER in published else "",
        "best_of_benchmark": max(others) if others else "",
        "wall_s": round(summary["wall_s"]),
        "device": summary["device"],
    }


def run_one(places: argparse.Namespace, name: str) -> dict[str, Any]:
    return row_of(name, RUNS[name].kept(places, NAME, name)[1])


def main() -> None:
    run_asked(parser(__doc__ or ""), NAME, RUNS, run_one)


if __name__ == "__main__":
    main()
