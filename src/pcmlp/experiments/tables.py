"""Tables of experiments as CSV, and the rows that several of them share."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcmlp.experiments.job import Job
from pcmlp.runs.durable import room_for, write_text

Row = dict[str, Any]
Rows = list[Row]


def write_table(path: Path, rows: Rows) -> None:
    """Write a table as CSV and print it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with room_for(path.name, path.parent, len(text.getvalue())):
        write_text(path, text.getvalue())
    print(f"\n{path}")
    for row in rows:
        print("  " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def solved_row(job: Job, summary: dict[str, Any]) -> Row:
    """Return the row of a run that has a goal: how many seeds reached it, when, and their final results. A seed that
    never reached it counts as slower than any other, so there is no median if half of the seeds did not."""
    seeds = summary["seeds"]
    needed = steps_to_success(summary)
    median, most = np.median(needed), needed.max()
    return {
        "task": job.task,
        "run": job.label,
        "env_steps": seeds[0]["env_steps"],
        "solved": f"{np.isfinite(needed).sum()} of {len(seeds)}",
        "median_steps": int(median) if np.isfinite(median) else "",
        "most_steps": int(most) if np.isfinite(most) else "",
        "final_return": round(float(np.mean([s["final_return"] for s in seeds])), 2),
        "worst_return": round(min(s["final_return"] for s in seeds), 2),
        "final_success": round(float(np.mean([s["final_success"] for s in seeds])), 3),
    }


def steps_to_success(summary: dict[str, Any]) -> np.ndarray:
    """Return the steps that each seed needed; infinite for a seed that never succeeded."""
    steps = [seed["env_steps_to_success"] for seed in summary["seeds"]]
    return np.array([np.inf if needed is None else needed for needed in steps])


def return_row(job: Job, summary: dict[str, Any]) -> Row:
    """Return the row of a run in which every step is rewarded: the final results of its seeds."""
    returns = [seed["final_return"] for seed in summary["seeds"]]
    return {
        "task": job.task,
        "run": job.label,
        "env_steps": summary["seeds"][0]["env_steps"],
        "final_return": round(float(np.mean(returns)), 1),
        "std": round(float(np.std(returns)), 1),
        "worst_return": round(min(returns), 1),
        "best_return": round(max(returns), 1),
    }


def machine_columns(summary: dict[str, Any]) -> Row:
    """Return the columns about the machine of a run."""
    return {"wall_s": round(summary["wall_s"]), "device": summary["device"]}


def slope(rows: Sequence[Row], x: str, y: str) -> float | str:
    """Return the slope of ln y against ln x over the rows; empty for fewer than two rows or numbers that are not
    finite."""
    with np.errstate(divide="ignore"):  # an error may be 0
        logs = np.log([[float(row[x]), float(row[y])] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]) if len(rows) > 1 and np.isfinite(logs).all() else ""
