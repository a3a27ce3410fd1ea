"""Programs of NVIDIA's driver, as small scripts that answer as those do, for machines without a GPU."""

import os
from pathlib import Path

SMI = "0, GPU-aa11, NVIDIA H200, 143771, 143000, {mode}\n1, GPU-bb22, NVIDIA H200, 143771, 20000, Default\n"

# `-f` is the daemon, which is a process that sleeps; without arguments, it gives the orders of stdin to the daemon.
CONTROL = """#!/bin/sh
pid="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -f ]; then
  echo "start $CUDA_VISIBLE_DEVICES" >> "$FAKE_MPS_CALLS"
  [ -z "$FAKE_MPS_BROKEN" ] || { echo "$FAKE_MPS_BROKEN" >&2; exit 1; }
  echo $$ > "$pid"
  exec sleep 600
fi
read order
echo "$order" >> "$FAKE_MPS_CALLS"
if [ ! -f "$pid" ] || ! kill -0 "$(cat "$pid")" 2> /dev/null; then
  echo "Cannot find MPS control daemon process"
  exit 1
fi
case "$order" in quit*) kill "$(cat "$pid")"; rm "$pid";; esac
"""


def install(folder: Path, monkeypatch, *, mode="Default", mps=True):
    """Put the programs on PATH; return the file in which the fake daemon notes its orders."""
    folder.mkdir()
    calls = folder / "calls"
    calls.touch()
    scripts = {"nvidia-smi": f"#!/bin/sh\ncat <<END\n{SMI.format(mode=mode)}END\n"}
    scripts |= {"nvidia-cuda-mps-control": CONTROL} if mps else {}
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_MPS_CALLS", str(calls))
    monkeypatch.setattr("pcmlp.experiments.gpu._PLUGINS", ("json",))  # as if JAX had its plugin for CUDA
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "JAX_PLATFORMS", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    return calls
