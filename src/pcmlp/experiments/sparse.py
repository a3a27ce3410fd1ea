"""Sparse rewards and a detour: Deep PC-MLP on mountain-car, acrobot, the U-maze and the hand, and its two controls.

(paper: section 7.1 and the vanishing bonus of section 7.5. The maze stands for the question that the two classic tasks
leave open, since going far is all they ask: whether it matters where the cover has been. There an imagination without
bounds, one that begins at the world's own starts alone, one exploring policy that goes on from iteration to iteration,
and all three at once show what each of our deviations changes.)

    python -m pcmlp.experiments.sparse                      # all of it; a GPU is wanted
    python -m pcmlp.experiments.sparse mountain-car/pcmlp   # one run
"""

import argparse
from typing import Any

from pcmlp.experiments.kept import PAPER_SEEDS, Asked, parser, run_asked, solved_row

NAME = "sparse"


_NO_BONUS, _NO_COVER = ("bonus_scale=0",), ("covariance=off",)
# The controls of the classic tasks draw fifteen episodes a policy, so that thirty thousand steps make ten policies.
_MANY = ("samples_per_policy=3000",)

RUNS: dict[str, Asked] = {
    "point-umaze/pcmlp": Asked(10_000),
    "point-umaze/no-bonus": Asked(20_000, _NO_BONUS),
    "point-umaze/covariance-off": Asked(20_000, _NO_COVER),
    "point-umaze/unbounded": Asked(10_000, ("bounded=false",)),
    "point-umaze/own-starts": Asked(10_000, ("replay_starts=0",)),
    "point-umaze/one-policy": Asked(10_000, ("fresh=false",)),
    "point-umaze/plain": Asked(10_000, ("bounded=false", "replay_starts=0", "fresh=false")),
    "mountain-car/pcmlp": Asked(3_000),
    "acrobot/pcmlp": Asked(2_000),
    "mountain-car/no-bonus": Asked(30_000, (*_NO_BONUS, *_MANY)),
    "mountain-car/covariance-off": Asked(30_000, (*_NO_COVER, *_MANY)),
    "acrobot/no-bonus": Asked(30_000, (*_NO_BONUS, *_MANY)),
    "acrobot/covariance-off": Asked(30_000, (*_NO_COVER, *_MANY)),
    "mountain-car/pcmlp-mppi": Asked(4_000, algo="pcmlp-mppi"),
    "acrobot/pcmlp-mppi": Asked(4_000, algo="pcmlp-mppi"),
    "hand-egg/pcmlp": Asked(60_000, seeds=PAPER_SEEDS),
    "hand-egg/no-bonus": Asked(60_000, _NO_BONUS, seeds=PAPER_SEEDS),
}


def run_one(places: argparse.Namespace, name: str) -> dict[str, Any]:
    return solved_row(name, RUNS[name].kept(places, NAME, name)[1])


def main() -> None:
    run_asked(parser(__doc__ or ""), NAME, RUNS, run_one)


if __name__ == "__main__":
    main()
