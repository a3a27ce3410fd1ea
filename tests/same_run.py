"""Whether two run folders hold the same run, bit for bit, columns of times aside."""

import numpy as np

from pcmlp.runs import checkpoint
from pcmlp.runs.episodes import read
from pcmlp.runs.folder import read_metrics, read_summary


def assert_same_run(whole, again):
    first, second = ((out / "metrics.csv").read_text().splitlines() for out in (whole, again))
    assert first[0] == second[0]
    equal_but_for_times(read_metrics(whole), read_metrics(again))
    last = checkpoint.iterations(whole / "checkpoint")[-1]
    learner = f"checkpoint/{last:06d}/learner.safetensors"  # with the covariance
    for file in ("policy/policy.safetensors", learner, "config.json"):
        assert (whole / file).read_bytes() == (again / file).read_bytes(), file
    for one, other in zip(read(whole / "episodes"), read(again / "episodes"), strict=True):
        assert one.iteration == other.iteration
        equal_but_for_times(one.arrays, other.arrays)
    assert read_summary(whole)["seeds"] == read_summary(again)["seeds"]


def equal_but_for_times(once, again):
    assert once.keys() == again.keys()
    for name in once:
        if not name.endswith("_s"):
            np.testing.assert_array_equal(once[name], again[name])
