# One virtual environment, .venv: `make demo` installs the base into it, `make test` the test tools as well.
# The files in locked/ list every package that is needed; pip refuses a file whose hash is not there, and builds nothing.
PYTHON ?= python3
PIP := -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all:

.PHONY: demo test slow faults fuzz soak docs package lint pins sbom audit clean

demo: .venv/base
	.venv/bin/python -m pcmlp.experiments.demo

test: .venv/test lint
	.venv/bin/python -m pytest

slow: .venv/test
	.venv/bin/python -m pytest -m slow

# Every fault that is injected, with fifty kills; docs/reliability.md gets its tables from it.
faults: .venv/test
	.venv/bin/python -m pytest -m 'fault or bad_input' --kills=50 --reliability=docs/reliability.md

# Damaged run folders, and what the commands make of them. It continues where it stopped; bad cases are printed.
CASES ?= 100000
fuzz: .venv/test
	.venv/bin/python tests/fuzz.py --cases $(CASES)

# kill -9 at random moments of random configurations, on full disks, in bad environments; it continues up to KILLS.
KILLS ?= 200
soak: .venv/test
	.venv/bin/python tests/soak.py --kills $(KILLS)

# The docs as a site, site/index.html; every warning is an error.
docs: .venv/test
	.venv/bin/python -m sphinx -q -W --keep-going -d .venv/doctrees docs site

# What is published: dist/ with the source archive, and with the wheel that is built from this archive alone.
package: .venv/base
	rm -rf dist
	.venv/bin/python -c 'from setuptools import build_meta; build_meta.build_sdist("dist")'
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation -w dist dist/*.tar.gz

lint: .venv/test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright

# Exact versions (constraints.txt), hashes (locked/) and licences (docs/dependencies.md) for the ranges of pyproject.toml.
# Versions stay as they are, except with UPGRADE=--upgrade or UPGRADE='--upgrade-package NAME'.
# Only PyPy needs cffi and pycparser (for pyzmq), and JAX does not run there.
LOCK = .venv-tools/bin/uv pip compile --quiet --no-config --universal --fork-strategy fewest --python-version 3.11 \
  --no-annotate --no-emit-package cffi --no-emit-package pycparser --custom-compile-command 'make pins'
HASH = $(LOCK) --generate-hashes -c constraints.txt
pins: .venv-tools/ready
	echo setuptools | $(LOCK) pyproject.toml - --all-extras $(UPGRADE) -o constraints.txt
	echo setuptools | $(HASH) pyproject.toml - -o locked/base.txt
	echo setuptools | $(HASH) pyproject.toml - --extra test -o locked/test.txt
	echo setuptools | $(HASH) pyproject.toml - --extra cuda -o locked/cuda.txt
	$(HASH) --group tools $(UPGRADE) -o locked/tools.txt
	$(MAKE) .venv/test .venv-tools/ready
	.venv/bin/python tests/dependencies.py > docs/dependencies.md

# What is installed in .venv, with licences, as CycloneDX: sbom.json. The tool checks it against the schema.
sbom: .venv/base .venv-tools/ready
	.venv-tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --gather-license-texts \
	  --output-reproducible --validate -o sbom.json .venv/bin/python

# Known vulnerabilities of the pinned versions. It asks PyPI, so it needs the internet.
audit: .venv-tools/ready
	@.venv-tools/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off $(addprefix -r ,$(wildcard locked/*.txt)) \
	  2> .venv-tools/audit.log && cat .venv-tools/audit.log || { grep '^Found' .venv-tools/audit.log || \
	  echo 'make audit: the pins are not checked: PyPI did not answer for every package; run it with access to the internet (details: .venv-tools/audit.log)'; exit 1; }

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

.venv/base: .venv/python pyproject.toml locked/base.txt
	.venv/bin/python $(PIP) --require-hashes -r locked/base.txt
	.venv/bin/python $(PIP) --no-build-isolation -e .
	touch $@

.venv/test: .venv/base locked/test.txt
	.venv/bin/python $(PIP) --require-hashes -r locked/test.txt
	touch $@

.venv-tools/ready: locked/tools.txt
	$(PYTHON) -m venv .venv-tools
	.venv-tools/bin/python $(PIP) --require-hashes -r locked/tools.txt
	touch $@

clean:
	rm -rf .venv .venv-tools .pytest_cache .ruff_cache build dist site sbom.json  # runs/ is yours
