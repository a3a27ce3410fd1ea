"""What a user is told while programs are compiled, and the remaining time afterwards. Nothing is compiled here."""

import io

import pytest
from rich.console import Console

from pcmlp.runs import compiling
from pcmlp.runs.callbacks import LiveProgress, listening, show_progress, show_time
from pcmlp.runs.compiling import Compiling
from pcmlp.runs.config import resolve
from pcmlp.runs.summary import COMPILE_EVENTS


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("PCMLP_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "cache_in_use", lambda: True)
    monkeypatch.setattr(compiling, "_compiled", set())
    return tmp_path


def told(*settings, seeds=(0,), others=()):
    return Compiling(resolve("mountain-car", "pcmlp", seeds, 1000, settings), *others).announce()


def compile_for(seconds, saved=0.0, each=None):
    with Compiling(resolve("mountain-car", "pcmlp", (0,), 1000)) as run:
        run._began -= 1000.0
        run._clock.hear(COMPILE_EVENTS[0], seconds)
        run._clock.hear("/jax/compilation_cache/compile_time_saved_sec", saved)
        run(None, {"iteration": 0.0})
        assert not compiling._compiled
        run(None, {"iteration": 1.0})
        if each:
            run._first -= each
            run._began = run._first - each - 25.0  # both iterations take as long; compiling took 25 s
            run(None, {"iteration": 2.0})
    assert told() is None  # in this process nothing is compiled again
    compiling._compiled.clear()


def test_the_wait_is_known_from_earlier_runs(place):
    assert told().endswith(" here, cached for the next run)")
    compile_for(50.0)
    assert told() == told("bonus_scale=0.5", seeds=(7,)) == "compiling (cached, about 6 s)"  # a tenth, until measured
    other = "compiling (about 60 s here, cached for the next run)"
    assert told("rounds=3") == told(seeds=(0, 1)) == told(others=(lambda s, a, n: 1.0,)) == other
    compile_for(2.5, saved=100.0)
    assert told() == "compiling (cached, about 3 s)"
    assert told("rounds=3") == "compiling (about 105 s here, cached for the next run)"
    compile_for(2.5, saved=100.0, each=30.0)
    assert (
        told() == "compiling (cached, about 25 s), then about 30 s for each iteration"
    )  # less of the wait was compiling
    (place / "compile-times.json").write_text("{broken")
    assert told().endswith(" here, cached for the next run)")


def test_the_first_wait_is_guessed_from_the_speed_of_a_core(monkeypatch):
    monkeypatch.setattr(compiling.os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    monkeypatch.setattr(compiling, "_count_s", lambda: 2 * compiling._COUNT_S)
    assert told() == "compiling (about 30 s here, cached for the next run)"


def test_without_a_cache_none_is_promised(place, monkeypatch):
    monkeypatch.setattr(compiling, "cache_in_use", lambda: False)
    assert told().endswith(" here)")
    (place / "file").touch()
    monkeypatch.setenv("PCMLP_CACHE", str(place / "file"))
    assert told().endswith(
        f"not cached, because {place}/file cannot be written: set PCMLP_CACHE to another, or to off)"
    )
    monkeypatch.setenv("PCMLP_CACHE", "off")
    compile_for(50.0)
    assert told().endswith(" here)")


def test_lines_say_how_long_it_takes():
    console = Console(file=io.StringIO())
    with listening([progress := show_progress(console, 10, note="compiling (about 60 s here)")]):
        for n in range(11):
            progress(None, {"iteration": float(n), "env_steps": 3.0 * n, "wall_s": 60.0 + 20 * n})
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "compiling (about 60 s here)"
    assert lines[2] == "iteration 1/10  env steps 3  80.0 s"
    assert lines[3] == "iteration 2/10  env steps 6  100.0 s, about 3 min left"
    assert lines[-1] == "iteration 10/10  env steps 30  260.0 s"


def test_a_terminal_has_a_clock_then_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    progress = show_progress(console, 10, 2, "compiling (about 60 s here)")
    assert isinstance(progress, LiveProgress)
    with listening([progress]):
        progress(None, {"iteration": 2.0, "env_steps": 6.0})
        waiting = console.file.getvalue()
        progress(None, {"iteration": 3.0, "env_steps": 9.0})
    assert "compiling (about 60 s here)" in waiting
    assert "0:00:00" in waiting
    assert "/10" not in waiting
    assert "env steps 9" in console.file.getvalue()


def test_rough_times():
    assert [show_time(s) for s in (0.2, 7.4, 58.0, 149.0, 600.0, 7200.0)] == [
        "1 s",
        "7 s",
        "60 s",
        "150 s",
        "10 min",
        "2 h",
    ]
