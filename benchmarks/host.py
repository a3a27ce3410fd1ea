"""The host part of `pcmlp bench --host TASK` alone: it takes seconds, where the whole benchmark takes minutes.

python benchmarks/host.py                               # half-cheetah, four seeds
"""

import json

import tyro

from pcmlp.bench.whole import host_config, host_seconds
from pcmlp.runs.cache import prepare
from pcmlp.runs.summary import device, versions


def main(task: str = "half-cheetah", seeds: int = 4) -> None:
    """Measure an iteration and print the seconds as JSON."""
    prepare()
    print(json.dumps({**host_seconds(host_config(task, seeds)), "device": device(), "versions": versions()}, indent=2))


if __name__ == "__main__":
    tyro.cli(main)
