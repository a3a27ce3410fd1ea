"""How long a run takes, said before it starts: counts of operations against numbers that can be worked out by hand."""

import dataclasses

import pytest

from pcmlp.models import Neural
from pcmlp.runs import expect
from pcmlp.runs.config import build, resolve
from pcmlp.settings import setting

PEAK = 2.5e11  # of two cores, benchmarks/cpu-2-cores.json


@pytest.fixture(autouse=True)
def _peak(monkeypatch):
    monkeypatch.setattr(expect, "measure_peak", lambda: PEAK)


def line_of(task, algo, settings=(), steps=None, seeds=(0,), todo=None):
    config = resolve(task, algo, seeds, steps, settings)
    return expect.describe_time(config, build(config)[0].world, todo or config.num_iterations)


def test_operations_of_a_network():
    assert expect.network(3, 500, 500, 2) == 2 * (3 * 500 + 500 * 500 + 500 * 2)


@pytest.mark.parametrize(
    ("algo", "steps", "settings", "seeds", "measured"),
    [  # seconds without compiling, of kept results on two cores and of benchmarks/cpu-2-cores.json
        ("pcmlp", 200, ("rounds=1", "eval_episodes=1"), 1, 2 * 2.2),
        ("pcmlp", 200, ("rounds=1", "eval_episodes=1"), 4, 2 * 9.9),
    ],
)
def test_the_estimate_of_a_paper_round(algo, steps, settings, seeds, measured):
    config = resolve("mountain-car", algo, range(seeds), steps, settings)
    seconds = sum(expect.count_operations(config, build(config)[0].world)) / PEAK
    assert measured / 2 < seconds < 2 * measured


def test_a_slow_combination_says_so_and_what_makes_it_faster():
    line = line_of("mountain-car", "pets")
    assert line.startswith("about ")
    assert "h on this machine (" in line
    assert "s per env step" in line
    assert "--set eval_episodes=1 reduces this to " in line
    few = line_of("mountain-car", "pets", ("eval_episodes=1",), todo=5)
    assert "eval_episodes" not in few


def test_a_run_of_minutes_needs_no_line():
    assert line_of("mountain-car", "pcmlp", steps=400) is None
    assert line_of("mountain-car", "trpo") is None
    assert line_of("combination-lock", "pcmlp-linear") is None


class Sized(Neural):
    """A model of the user, with another meaning of `sizes`."""

    sizes: int = setting(3, "how large")


def test_parts_of_the_user_may_have_other_settings():
    config = resolve("mountain-car", "pcmlp", (0,), 400)
    config = dataclasses.replace(config, algorithm=dataclasses.replace(config.algorithm, model=Sized()))
    assert expect.describe_time(config, build(config)[0].world, 1) is None


def test_simulators_on_the_host_take_their_time():
    config = resolve("half-cheetah", "random", (0, 1, 2, 3), 200_000)
    line = expect.describe_time(config, build(config)[0].world, config.num_iterations)
    assert line.startswith("about ")
    assert "min on this machine" in line


@pytest.mark.parametrize(
    ("seconds", "said"), [(90, "90 s"), (150, "2 min"), (7_300, "2 h"), (5 * 86_400, "5 days"), (3_700, "62 min")]
)
def test_durations(seconds, said):
    assert expect.show_time(float(seconds)) == said
