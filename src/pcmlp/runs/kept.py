"""The policies of single iterations that a run keeps, `policy/NNNNNN.safetensors`, beside those that it deploys.

The policy that a run deploys may not be the newest one (`algorithms.trials`). So the run also keeps the policies that
each evaluated iteration has planned for deployment, for `--iteration`. A policy that searches contains its model and is
not kept. There are at most `MOST` files in addition to that of the newest iteration: before there would be more, every
second one is removed. Which ones are left depends only on the configuration and the newest iteration, so a run that was
killed and resumed has the same ones.
"""

from pathlib import Path

from pcmlp.runs.config import RunConfig
from pcmlp.runs.durable import FRESH
from pcmlp.runs.evaluate import count_due, is_due
from pcmlp.runs.folder import Lock
from pcmlp.runs.policy import file_of, kept_iterations, planned_policies, save_policies
from pcmlp.types import Learner

MOST = 100


def keep(folder: Path, lock: Lock, learner: Learner, config: RunConfig, now: int) -> None:
    """Write the policies that iteration `now` has planned; remove those that are no longer kept, and those of later
    iterations, which a resumed run does again."""
    policies = planned_policies(learner)
    if policies is None:
        return
    lock.check()
    save_policies(folder, policies, config, iteration=now)
    unwanted = [file_of(folder, n) for n in kept_iterations(folder) if not is_kept(config, n, now)]
    for left in (*unwanted, *folder.glob(f"*{FRESH}")):
        if left.is_file():
            left.unlink()


def is_kept(config: RunConfig, n: int, now: int) -> bool:
    """Return whether iteration n is kept after iteration `now`: the newest one, and of those that are evaluated the
    first one and every 1st, 2nd, 4th, ... after it."""
    count, every = count_due(config, now), 1
    while count // every >= MOST:
        every *= 2
    return n == now or (n < now and is_due(config, n) and count_due(config, n) % every == 0)
