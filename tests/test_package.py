"""`make package`: the contents of the wheel and the source archive; the wheel works in an empty environment."""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from documented import ROOT

import pcmlp

SOURCES = {
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src" / "pcmlp").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
DATA = {"pcmlp/published/mbbl_200k.csv", "pcmlp/report/templates/page.html", "pcmlp/report/templates/page.css"}
NAME = f"pcmlp-{pcmlp.__version__}"
NO_INDEX = ("Could not find a version", "No matching distribution", "Max retries exceeded", "name resolution")


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Return the folder with the wheel and the source archive that `make package` makes from a copy of this tree."""
    copy = tmp_path_factory.mktemp("package") / "copy"
    for folder in ("src", "tests", "docs"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for file in ("LICENSE", "Makefile", "MANIFEST.in", "README.md", "pyproject.toml", "results/verdict.csv"):
        (copy / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    (copy / "build" / "lib" / "pcmlp").mkdir(parents=True)
    (copy / "build" / "lib" / "pcmlp" / "removed.py").write_text("")  # of an earlier version
    (copy / ".venv").symlink_to(sys.prefix)
    made = subprocess.run(
        ["make", "--assume-old=.venv/base", "package"], cwd=copy, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr
    return copy / "dist"


def test_the_wheel_has_the_package_and_nothing_else(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))
    inside = {name for name in names if not name.startswith(f"{NAME}.dist-info/")}
    assert DATA <= SOURCES
    assert inside == SOURCES
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert (metadata["Version"], metadata["License-Expression"]) == (pcmlp.__version__, "MIT")


def test_the_source_archive_has_the_package_and_what_builds_it(dist):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {Path(name).relative_to(NAME).as_posix() for name in (file.name for file in files if file.isfile())}
        files.extract(f"{NAME}/LICENSE", dist, filter="data")
    assert {f"src/{name}" for name in SOURCES} <= names
    assert (dist / NAME / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    outside = {name for name in names if not name.startswith("src/")}
    assert outside == {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}


@pytest.mark.slow  # it installs JAX, and trains
def test_the_wheel_passes_the_demo_in_an_empty_environment(dist, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    environment |= {"PCMLP_CACHE": str(tmp_path / "cache"), "COLUMNS": "200"}

    def run(*words):
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200)

    venv.create(tmp_path / "env", symlinks=True, with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    (wheel,) = dist.glob("*.whl")
    installed = run(python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel))
    if installed.returncode and any(sign in installed.stderr for sign in NO_INDEX):
        pytest.skip("pip finds no package index with the versions of constraints.txt")
    assert installed.returncode == 0, installed.stderr
    assert run(python, "-m", "pip", "check").returncode == 0
    place = run(python, "-c", "import pcmlp; print(pcmlp.__file__)").stdout
    assert place.startswith(str(tmp_path / "env"))
    assert pcmlp.__version__ in run(str(tmp_path / "env" / "bin" / "pcmlp"), "--version").stdout
    demo = run(python, "-m", "pcmlp.experiments.demo")
    assert demo.returncode == 0, demo.stderr
    assert "Only the bonus for what the policy cover has not seen leads the car out of the valley." in demo.stdout
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 50_000
