"""Mistakes of a newcomer: each gets one line that names the remedy, and docs/mistakes.md shows it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mistakes
import pytest

from pcmlp.algorithms.deep import Deep

PAGE = (Path(__file__).parents[1] / "docs" / "mistakes.md").read_text()
RENEW = "run python tests/mistakes.py > docs/mistakes.md"


@pytest.mark.bad_input
@pytest.mark.parametrize(("words", "remedy"), mistakes.COMMANDS)
def test_a_command_gets_one_line_that_helps(words, remedy, monkeypatch):
    monkeypatch.setattr(Deep, "start", None)  # whoever compiles fails
    line = mistakes.command_line(words)
    assert line.startswith("pcmlp: ")
    assert remedy in line
    assert mistakes.command_row(words, line) in PAGE, RENEW


@pytest.fixture(scope="module")
def python_lines():
    """In a process without type checks, which would refuse a text for a number before the library does."""
    env = {**os.environ, "PCMLP_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, mistakes.__file__, "python"], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.bad_input
@pytest.mark.parametrize(("code", "remedy"), mistakes.PYTHON)
def test_python_gets_one_line_that_helps(code, remedy, python_lines):
    line = python_lines[code]
    assert remedy in line
    assert "\n" not in line
    assert mistakes.row(code, line) in PAGE, RENEW


def test_the_page_has_nothing_else():
    assert PAGE.count("\n| `") == len(mistakes.COMMANDS) + len(mistakes.PYTHON), RENEW
    assert PAGE.startswith(mistakes.ABOUT), RENEW
