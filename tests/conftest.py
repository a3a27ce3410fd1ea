"""Every shape in a signature is checked, and JAX may not promote types or ranks on its own."""

import gc
import math
import os
import re
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("pcmlp", "beartype.beartype")
os.environ.setdefault("PCMLP_CACHE", "off")  # what a test compiles is nobody's business

MOST_MAPPINGS = 25_000


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=2, help="how often runs are killed")
    parser.addoption("--reliability", metavar="FILE.md", help="write the tables of faults and bad inputs into it")


# A test compiles hundreds of small programs and runs each a few times, so it is cheapest not to optimise them. XLA's
# fusion emitters and its split into parallel modules take almost half of the time to compile a small program.
CHEAP = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


# Tracing creates millions of lasting objects, and JAX searches for arrays to free at each garbage collection. With
# Python's defaults, collections take a tenth of the time of a test that compiles, so they run less often here.
ALLOCATIONS = 50_000


# These files take longest, so they begin first. Otherwise one worker could still run one of them while the other worker
# is idle.
LONGEST = (
    "groups|kernels|paper|plan|oracle|kept|agent|trials|planners|jobs|notebooks|chain|certificate|geometry|eval_every|"
    "kills|reward_scale"
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: re.fullmatch(f"test_({LONGEST})", item.path.stem) is None)


def pytest_configure(config):
    gc.set_threshold(ALLOCATIONS, 20, 100)
    if config.option.markexpr == "not slow":  # what is slow runs the programs that users run
        os.environ.setdefault("XLA_FLAGS", " ".join(CHEAP))


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
    """Drop compiled programs between two files if there are many: Linux gives a process 65,530 memory mappings, a
    program takes several, and XLA crashes when there are no more."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module")
def every_iteration_saved():
    """A checkpoint after every iteration, whatever it costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pcmlp.runs.run.SAVING_SHARE", math.inf)
        yield


@pytest.fixture(autouse=True)
def _noted(request, record_property):
    """What a test shows about a fault, for the table of `--reliability`."""
    if fault := request.node.get_closest_marker("fault"):
        record_property("fault", fault.args)


def pytest_terminal_summary(terminalreporter, config):
    if config.option.reliability:
        from reliability import write_tables

        notes = [note for report in terminalreporter.stats.get("passed", []) for note in report.user_properties]
        write_tables(config.option.reliability, notes, config.option.kills)


@pytest.fixture(scope="session")
def tiny():
    """Settings of Deep PC-MLP for a stage of milliseconds; tests that share them share what they compile."""
    return (
        "samples_per_policy=20",
        "rounds=2",
        "replay_size=50",
        "model.sizes=16,16",
        "model.steps=2",
        "model.batch=16",
    )


@pytest.fixture(scope="session")
def tiny_trpo(tiny):
    return (
        *tiny,
        "features.sizes=16,16",
        "planner.updates=1",
        "planner.streams=8",
        "planner.length=10",
        "planner.policy_sizes=8",
        "planner.value_sizes=8",
        "planner.value_batch=20",
    )


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The folders of runs and results of experiments, in an empty folder; the runs that were trained, which only look
    as if they had been; and the status that they end with."""
    from written_jobs import write_trained

    def train(config, out, *, command, **_):
        trained.append(out)
        return write_trained(config, out, command, status[0])

    trained, status = [], ["finished"]
    monkeypatch.setattr("pcmlp.experiments.job.train", train)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs", tmp_path / "results", trained, status
