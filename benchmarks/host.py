"""The part of `pcmlp bench --host TASK` that is about the host alone: seconds, where all of it takes minutes.

python benchmarks/host.py                               # half-cheetah, four seeds
"""

import json

import tyro

from pcmlp.bench.host import host_config, host_seconds
from pcmlp.runs.cache import prepare
from pcmlp.runs.summary import device, versions


def main(task: str = "half-cheetah", seeds: int = 4) -> None:
    prepare()
    print(json.dumps({**host_seconds(host_config(task, seeds)), "device": device(), "versions": versions()}, indent=2))


if __name__ == "__main__":
    tyro.cli(main)
