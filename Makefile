# Every target sets up what it needs: nothing has to be installed by hand but Python 3.11 or later.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: reproduce test check bench docs clean
.DELETE_ON_ERROR:

reproduce: .venv/.paper  ## every experiment on embedded or generated data, then a report
	@$(BIN)/lpunits run all --scale quick --jobs 2
	@$(BIN)/lpunits report

test: .venv/.dev  ## run every test, and every example in the documentation
	@echo "==> running the tests"
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile

check: .venv/.dev  ## style and types
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy

bench: .venv/.dev  ## time the unit against its alternatives; nothing else should be running
	@$(BIN)/python benchmarks/run.py

docs: .venv/.dev  ## the documentation, as HTML
	@echo "==> building the documentation"
	@$(BIN)/sphinx-build -q -W docs docs/_build
	@echo "documentation: docs/_build/index.html"

clean:  ## remove everything that the other targets made
	rm -rf .venv build docs/_build reproduction .hypothesis .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@echo "==> creating .venv"
	@$(PYTHON) -m venv .venv

# A stamp per set of extras; older than pyproject.toml or constraints.txt means stale.
.venv/.paper: EXTRAS = paper
.venv/.dev: EXTRAS = paper,ray,postgresql,export,dev
.venv/.paper .venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "==> installing lpunits[$(EXTRAS)] into .venv (a minute or two)"
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --editable ".[$(EXTRAS)]"
	@touch $@
