"""The GPUs of this machine, read from `nvidia-smi`.

Nothing here uses CUDA: a process that does so takes GPU memory, and blocks all others in exclusive mode.
"""

import importlib.util
import math
import os
import shutil
import subprocess
from typing import NamedTuple

_QUERY = "index,uuid,name,memory.total,memory.free,compute_mode"
_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")  # one of them is installed if JAX can use a GPU of NVIDIA
_ANSWER_S = 30.0
_MIB = 2**20 / 1e9  # in GB
EXCLUSIVE, PROHIBITED = "Exclusive_Process", "Prohibited"  # compute modes


class Gpu(NamedTuple):
    """A GPU of this machine."""

    index: str
    uuid: str
    name: str
    total: float  # GB; infinite if it is not known
    free: float
    mode: str  # Default, Exclusive_Process or Prohibited


def list_gpus() -> list[Gpu]:
    """Return the GPUs of NVIDIA in this machine."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if answer.returncode else parse_gpus(answer.stdout)


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs that the output of nvidia-smi describes; lines of another form are messages."""
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [
        Gpu(index, uuid, name, _to_gb(total), _to_gb(free), mode)
        for index, uuid, name, total, free, mode in (cells for cells in lines if len(cells) == len(Gpu._fields))
    ]


def _to_gb(mib: str) -> float:
    """Return GB; a GPU without memory of its own answers [N/A]."""
    return float(mib) * _MIB if mib.isdigit() else math.inf


def find_gpu() -> Gpu | None:
    """Return the GPU that JAX will use, the first that it may see; None if it will use none of NVIDIA."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and platforms.split(",")[0] not in ("cuda", "gpu"):
        return None
    if not any(importlib.util.find_spec(name) for name in _PLUGINS):
        return None
    gpus, visible = list_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus[0] if gpus else None
    first = visible.split(",")[0].strip()
    return next((gpu for gpu in gpus if first and (first == gpu.index or gpu.uuid.startswith(first))), None)
