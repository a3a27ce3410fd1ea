"""The source that made a run: its git revision, and whether its files were those of the revision.

A wheel that is installed on another machine has no checkout. Whoever builds it knows the revision, and gives it in
the environment variable PCMLP_REVISION.
"""

import functools
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

VARIABLE = "PCMLP_REVISION"


class Source(NamedTuple):
    """The revision of the source, and whether `src` has no changes and no new files; None if it is not known."""

    revision: str | None
    clean: bool | None


@functools.cache
def find_source() -> Source:
    """Return the source of this process: that of the checkout, or what the environment says."""
    return _read_checkout(Path(__file__).parent) or Source(os.environ.get(VARIABLE, "").strip() or None, None)


def _read_checkout(folder: Path) -> Source | None:
    """Return the source in the checkout around a folder; None if there is none, or if it is that of another project."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.strip()

    try:
        root = git("rev-parse", "--show-toplevel")
        if not (Path(root) / "src" / "pcmlp").is_dir():
            return None
        return Source(git("rev-parse", "HEAD"), not git("-C", root, "status", "--porcelain", "src"))
    except (OSError, subprocess.SubprocessError):
        return None
