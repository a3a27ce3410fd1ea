"""Published numbers of others: returns on the dense tasks after 200,000 env steps.

`mbbl_200k.csv` has the results table of the benchmark that the paper follows (Wang et al. 2019; model-free algorithms
there have a million steps) and the paper's own row. They are quoted beside ours, and marked as quoted: they have
other simulators and settings, and four seeds, of which only mean and standard deviation are known.
"""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

PAPER = "pc-mlp (paper)"
# The ten algorithms that the paper ranks itself among: only those that learn a model.
MODEL_BASED = ("RS", "MB-MF", "PETS-CEM", "PETS-RS", "ME-TRPO", "GPS", "PILCO", "SVG", "MB-MPO", "SLBO")

# The three cells of the paper's table that are not the benchmark's: task, column, mean, std as the paper prints them.
DIFFERING = (
    ("walker2d-et", "Best MBBL", 312.5, 493.4),
    ("reacher", "PETS-CEM", -15.1, 1.7),
    ("swimmer-v0", "SLBO", 46.1, 18.4),
)
BUDGET = 200_000  # env steps of each seed
PRINTED_RANKS = {PAPER: (2.4, 1.5), "SLBO": (4.0, 5.0), "PETS-CEM": (5.6, 6.0)}  # mean and median, of 11


class Quoted(NamedTuple):
    """A published return: its mean and standard deviation over seeds, and who published it."""

    mean: float
    std: float
    source: str


@cache
def dense_table() -> dict[str, dict[str, Quoted]]:
    """Return the published returns, task -> algorithm -> return."""
    table: dict[str, dict[str, Quoted]] = {}
    text = (files(__name__) / "mbbl_200k.csv").read_text()
    for row in csv.DictReader(text.splitlines()):
        quoted = Quoted(float(row["mean"]), float(row["std"]), row["source"])
        table.setdefault(row["task"], {})[row["algorithm"]] = quoted
    return table


def best_published(task: str) -> tuple[str, Quoted]:
    """Return the best of the benchmark's algorithms that learn a model, and its return."""
    row = dense_table()[task]
    name = max((name for name in MODEL_BASED if name in row), key=lambda name: row[name].mean)
    return name, row[name]
