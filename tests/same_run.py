"""Whether two run folders hold the same run, bit for bit, columns of times aside."""

import numpy as np

from pcmlp.runs import checkpoint
from pcmlp.runs.arrays import load_facts_and_arrays
from pcmlp.runs.episodes import read
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary


def assert_same_run(whole, again):
    first, second = ((out / "metrics.csv").read_text().splitlines() for out in (whole, again))
    assert first[0] == second[0]
    equal_but_for_times(read_metrics(whole), read_metrics(again))
    last = checkpoint.iterations(whole / "checkpoint")[-1]
    for file in ("policy/policy.safetensors", f"checkpoint/{last:06d}.safetensors"):  # the learner, with the covariance
        (facts, arrays), (other_facts, other_arrays) = (load_facts_and_arrays(out / file) for out in (whole, again))
        assert facts["config_sha256"] == other_facts["config_sha256"]
        assert arrays.keys() == other_arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, other_arrays[name], err_msg=f"{file}: {name}", strict=True)
    assert (whole / "config.json").read_bytes() == (again / "config.json").read_bytes()
    for one, other in zip(read(whole / "episodes"), read(again / "episodes"), strict=True):
        assert one.iteration == other.iteration
        equal_but_for_times(vars(one.rows), vars(other.rows))
    assert read_summary(whole)["seeds"] == read_summary(again)["seeds"]


def equal_but_for_times(once, again):
    assert once.keys() == again.keys()
    for name in once:
        if not name.endswith("_s"):
            np.testing.assert_array_equal(once[name], again[name])
