"""Every pinned package: its version, its licence and what needs it.

`python tests/dependencies.py > docs/dependencies.md` writes the page; `make pins` does so too.

Versions come from `constraints.txt` and `locked`, licences from the metadata of installed packages, in `.venv` and in
`.venv-tools`. Which extra needs a package is found by following what each package requires.
"""

import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKED = sorted((ROOT / "locked").glob("*.txt"))
PLATFORMS = [("linux", "Linux"), ("darwin", "Darwin"), ("win32", "Windows")]
ENVIRONMENTS = [
    {"python_version": python, "python_full_version": f"{python}.5", "sys_platform": short, "platform_system": long}
    for python in ("3.11", "3.12", "3.13")
    for short, long in PLATFORMS
]
# Packages that are not installed here, by how their names begin: what METADATA in their wheels says.
STATED = {
    "appnope": "BSD-2-Clause",
    "colorama": "BSD License",
    "jax-cuda12-": "Apache-2.0",
    "nvidia-cuda-cccl-": "NVIDIA Proprietary Software",
    "nvidia-": "LicenseRef-NVIDIA-Proprietary",
}
HEAD = """# Dependencies

[constraints.txt](../constraints.txt) fixes the version of every package that pcmlp and its [extras](start.md#extras)
need. The folder [locked](../locked) has the SHA-256 hashes of all files of these versions, for every platform. `make
demo` and `make test` install wheels that it lists and nothing else: pip refuses a file with another hash. Neither
names an index; pip uses the one that you have configured.

<!-- docs-test: read: installs packages and needs the internet -->
```sh
make sbom     # sbom.json: what is installed in .venv, with licences, as CycloneDX 1.6, checked against its schema
make audit    # the known vulnerabilities of every pinned version, from PyPI; it fails if there are any
.venv/bin/python -m pip install --no-deps --only-binary :all: --require-hashes -r locked/cuda.txt  # the extra `cuda`
```

`make audit` needs the internet. If PyPI does not answer for every package, it fails and says so. The tools of both
commands are pinned too (`tools` below) and have an environment of their own, `.venv-tools`. `sbom.json` has the path
of your checkout in the entry of pcmlp.

Two things are not checked by a hash: Node.js, which pyright downloads if the machine has none, and what you install
with `pip install -c constraints.txt`, which fixes versions only.

The licences are those that the packages declare. `base` is what every installation needs, `build` is what builds
pcmlp, and the other names are extras. `test` is named only where no other extra needs the package.

"""


def read_pins(path):
    """Return the version of each package that a file of requirements pins."""
    pins = re.findall(r"^([\w.-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def read_wanted():
    """Return what pyproject.toml requires: by extra, and as `base`, `build` and `tools`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {
        "base": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
        "build": project["build-system"]["requires"],
        "tools": project["dependency-groups"]["tools"],
    }
    return {kind: [Requirement(line) for line in lines] for kind, lines in wanted.items()}


def find_installed():
    """Return the installed packages by name: those of the tools, and over them those of this Python."""
    tools = [str(path) for path in (ROOT / ".venv-tools").glob("lib/python*/site-packages")]
    found = [*distributions(path=tools), *reversed(list(distributions()))]
    return {canonicalize_name(package.name): package for package in found}


def find_needed(requirements, installed):
    """Return the names of all packages that these requirements need, on any platform and Python."""
    needed, waiting = set(), [(canonicalize_name(r.name), r.extras) for r in requirements if r.name != "pcmlp"]
    while waiting:
        name, extras = waiting.pop()
        if (name, *sorted(extras)) in needed:
            continue
        needed.add((name, *sorted(extras)))
        for line in (installed[name].requires or []) if name in installed else []:
            inner = Requirement(line)
            places = [{**place, "extra": extra} for place in ENVIRONMENTS for extra in extras or {""}]
            if inner.marker is None or any(inner.marker.evaluate(place) for place in places):
                waiting.append((canonicalize_name(inner.name), inner.extras))
    return {name for name, *_ in needed}


def state_licence(name, installed):
    """Return the licence that a package declares: the expression, the line or the classifiers of its metadata."""
    for start, licence in STATED.items():
        if name.startswith(start):
            return licence
    metadata = installed[name].metadata
    line = (metadata.get("License-Expression") or metadata.get("License") or "").strip()
    if line and "\n" not in line and line != "UNKNOWN":
        return line
    kinds = [kind for kind in metadata.get_all("Classifier", []) if kind.startswith("License ::")]
    return " or ".join(kind.split(" :: ")[-1] for kind in kinds)


def list_rows(installed):
    """Return the row of the table for each pinned package whose licence is known here."""
    wanted = read_wanted()
    needed = {kind: find_needed(requirements, installed) for kind, requirements in wanted.items()}
    for kind in ("cuda", "tools"):  # `make test` does not install them, so what they require is not known there
        needed[kind] = set(read_pins(ROOT / "locked" / f"{kind}.txt"))
    rows = {}
    for name, version in sorted({k: v for path in LOCKED for k, v in read_pins(path).items()}.items()):
        kinds = [kind for kind in wanted if name in needed[kind]]
        kinds = ["base"] if "base" in kinds else [kind for kind in kinds if kind != "test"] or kinds
        if name in installed or name.startswith(tuple(STATED)):
            rows[name] = f"| {name} | {version} | {state_licence(name, installed)} | {', '.join(kinds)} |"
    return rows


def write_page():
    """Return the page."""
    table = ["| package | version | licence | needed by |", "|---|---|---|---|", *list_rows(find_installed()).values()]
    return HEAD + "\n".join(table) + "\n"


if __name__ == "__main__":
    sys.stdout.write(write_page())
