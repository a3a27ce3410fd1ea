# One virtual environment, .venv: `make demo` installs the base into it, `make test` the test tools as well.
PYTHON ?= python3
PIP := .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test slow faults fuzz soak docs lint clean

demo: .venv/base
	.venv/bin/python -m pcmlp.experiments.demo

test: .venv/test lint
	.venv/bin/python -m pytest

slow: .venv/test
	.venv/bin/python -m pytest -m slow

# Every fault that is injected, with fifty kills; docs/reliability.md gets its tables from it.
faults: .venv/test
	.venv/bin/python -m pytest -m 'fault or bad_input' --kills=50 --reliability=docs/reliability.md

# Damaged run folders: what the commands make of them. Continues where it stopped; a bad case is printed with its number.
CASES ?= 100000
fuzz: .venv/test
	.venv/bin/python tests/fuzz.py --cases $(CASES)

# kill -9 at random moments of random configurations, on full disks, in bad environments. Continues up to KILLS.
KILLS ?= 200
soak: .venv/test
	.venv/bin/python tests/soak.py --kills $(KILLS)

# The docs as a site, site/index.html; every warning is an error.
docs: .venv/docs
	.venv/bin/python -m sphinx -q -W --keep-going -d .venv/doctrees docs site

lint: .venv/test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

.venv/base: .venv/python pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

.venv/test: .venv/base
	$(PIP) -e '.[test]'
	touch $@

.venv/docs: .venv/base
	$(PIP) -e '.[docs]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache site  # runs/ is yours
