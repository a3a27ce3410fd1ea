"""Pins, hashes and licences agree with pyproject.toml and with one another; nothing is installed unchecked."""

import re
import subprocess

import dependencies
import pytest
from dependencies import LOCKED, ROOT, find_installed, find_needed, list_rows, read_pins, read_wanted
from packaging.utils import canonicalize_name

CONSTRAINTS = ROOT / "constraints.txt"
PINS = read_pins(CONSTRAINTS)
PAGE = (ROOT / "docs" / "dependencies.md").read_text()


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_every_pin_has_hashes(path):
    lines = re.sub(r"\\\n\s*", "", path.read_text()).splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) == len(read_pins(path)) > 20
    for line in pins:
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; [^-]+)?( ?--hash=sha256:[0-9a-f]{64})+", line), line


@pytest.mark.parametrize("path", [CONSTRAINTS, *LOCKED], ids=lambda path: path.name)
def test_no_pin_names_a_host(path):
    for line in path.read_text().splitlines():
        assert "://" not in line
        assert " @ " not in line
        assert not line.startswith(("-", "/", ".")), line


def test_hashes_belong_to_the_pinned_versions():
    locked = {path.stem: read_pins(path) for path in LOCKED}
    assert locked["base"] | locked["test"] | locked["cuda"] == PINS
    assert {name: version for name, version in locked["tools"].items() if name in PINS}.items() <= PINS.items()


@pytest.mark.parametrize("kind", read_wanted())
def test_what_is_required_is_locked(kind):
    """pip installs what is locked and nothing else (--no-deps), so all that a package requires must be there too."""
    file = {"base": "base", "build": "base", "cuda": "cuda", "tools": "tools"}.get(kind, "test")
    locked = read_pins(ROOT / "locked" / f"{file}.txt")
    requirements = [requirement for requirement in read_wanted()[kind] if requirement.name != "pcmlp"]
    for requirement in requirements:
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), (
            f"{requirement}: run make pins"
        )
    assert find_needed(requirements, find_installed()) <= locked.keys()


def test_the_page_lists_every_pin_with_its_licence():
    assert PAGE.startswith(dependencies.HEAD)
    rows = {line.split(" | ")[0].strip("| "): line for line in PAGE.splitlines() if line.startswith("| ")}
    del rows["package"]
    assert rows.keys() == set().union(*map(read_pins, LOCKED))
    assert all(all(cell.strip() for cell in row.strip("|").split("|")) for row in rows.values())
    known = list_rows(find_installed())
    assert len(known) >= len(PINS)
    assert known.items() <= rows.items(), "run make pins"


def test_make_installs_only_what_has_a_hash():
    steps = subprocess.run(
        ["make", "--dry-run", "--always-make", ".venv/test", ".venv-tools/ready"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    installs = [step for step in steps.splitlines() if " pip install " in step]
    assert len(installs) == 4
    for step in installs:
        assert " --no-deps --only-binary :all: " in step
        assert re.search(r" --require-hashes -r locked/\w+\.txt$| --no-build-isolation -e \.$", step), step


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        ("No known vulnerabilities found", 0, "No known vulnerabilities found"),
        ("Found 1 known vulnerability in 1 package", 1, "Found 1 known vulnerability in 1 package"),
        ("ERROR:pip_audit._cli:jax: could not be audited", 1, "run it with access to the internet"),
        ("Traceback: \\nrequests.exceptions.ConnectionError: no such host", 1, "run it with access to the internet"),
    ],
)
def test_the_audit_says_what_it_found_in_one_line(tmp_path, answer, status, line):
    """A stand-in for pip-audit: the real one needs the internet."""
    tool = tmp_path / ".venv-tools" / "bin" / "pip-audit"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\nprintf '{answer}\\n' >&2\nexit {status}\n")
    tool.chmod(0o755)
    (tmp_path / "locked").symlink_to(ROOT / "locked")
    (tmp_path / ".venv-tools" / "ready").touch()
    done = subprocess.run(
        ["make", "--no-print-directory", "-f", ROOT / "Makefile", "audit"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (status == 0)
    assert done.stdout.count("\n") == 1
    assert line in done.stdout
