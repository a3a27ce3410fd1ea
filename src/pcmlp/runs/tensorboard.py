"""The numbers of `metrics.csv` for TensorBoard: `tensorboard/seed-N` in the run folder, against env steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcmlp.runs.folder import Row

_NOT_SHOWN = ("iteration", "seed", "env_steps")


class Boards:
    """A writer for each seed, or for none; a context manager."""

    def __init__(self, writers: dict[int, Any]):
        self._writers = writers

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows if self._writers else ():
            writer = self._writers[row["seed"]]
            for name, value in row.items():
                if name not in _NOT_SHOWN and value is not None:
                    writer.add_scalar(name, value, row["env_steps"])
            writer.flush()

    def __enter__(self) -> "Boards":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()


def open_boards(folder: Path, seeds: Sequence[int], kept: Sequence[Row]) -> Boards:
    """`kept` are the rows that a resumed run has: whatever was written after them is not shown again."""
    from tensorboardX import SummaryWriter

    last = {row["seed"]: row["env_steps"] for row in kept}
    return Boards(
        {
            seed: SummaryWriter(str(folder / f"seed-{seed}"), purge_step=last[seed] + 1 if seed in last else None)
            for seed in seeds
        }
    )
