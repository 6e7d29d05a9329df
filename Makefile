# Every target sets up what it needs: nothing has to be installed by hand but Python 3.11 or later.
PYTHON ?= python3
BIN := .venv/bin
STATUS := import lpunits; print('==> the operator:', lpunits.ops.status())
ADVISORIES := import urllib.request as r; r.urlopen('https://api.osv.dev/v1/vulns/GHSA-53q9-r3pm-6pq6', timeout=5)
# Every bound "name[extra]>=version" of the extras as "name==version".
LOWEST := import re, tomllib; \
  extras = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; \
  found = {re.sub(r'\[.*\]|;.*|\s', '', bound).replace('>=', '==') for some in extras.values() for bound in some}; \
  print(*sorted(found), sep='\n')
OLD_WARNINGS := $(foreach kind,Deprecation PendingDeprecation Future,-W default::$(kind)Warning)
SANITIZED := tests/test_ops.py tests/test_functional.py tests/fuzz
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: reproduce test test-fast test-lowest soak fuzz kill sanitize check bench docs wheel clean
.DELETE_ON_ERROR:

reproduce: .venv/.paper  ## every experiment on embedded or generated data, then a report
	@$(BIN)/python -c "$(STATUS)"
	@$(BIN)/lpunits run all --scale quick --jobs 2
	@$(BIN)/lpunits report

test: .venv/.dev  ## run every test, and every example in the documentation
	@$(BIN)/python -c "$(STATUS)"
	@echo "==> running the tests"
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

test-fast: .venv/.dev  ## the tests that take a moment, for daily work
	@$(BIN)/python -m pytest -q -n 2 -m "not slow" tests

test-lowest: .venv-lowest/.core  ## the core tests with the oldest versions that pyproject.toml allows
	@.venv-lowest/bin/python -m pip install -qq --force-reinstall --no-deps .
	@.venv-lowest/bin/python -m pytest -q -m "not slow" $(OLD_WARNINGS) tests
	@.venv-lowest/bin/python -m pytest -q $(OLD_WARNINGS) tests/paper/search/test_study.py tests/paper/cli

soak: .venv/.dev  ## ten minutes of everything at once: memory, open files, processes left behind
	@$(BIN)/python benchmarks/soak.py

fuzz: .venv/.dev  ## an hour of random calls of the operator and the layers
	@LPUNITS_FUZZ=3600 $(BIN)/python -m pytest -q tests/fuzz

kill: .venv/.dev  ## twenty kills at random moments of training, music, runs and searches
	@LPUNITS_KILLS=20 $(BIN)/python -m pytest -q tests/paper/training/test_kill.py \
	  tests/paper/search/test_kill.py tests/paper/search/test_share.py

sanitize: .venv/.dev  ## the operator built to stop at every access out of bounds and every overflow
	@echo "==> building the operator with AddressSanitizer and UndefinedBehaviorSanitizer"
	@rm -rf build/sanitized && mkdir -p build/sanitized && cp -r src/lpunits build/sanitized
	@$(BIN)/python hatch_build.py build/sanitized/lpunits/ops -O1 -g -fno-omit-frame-pointer \
	  -fsanitize=address,undefined -fno-sanitize-recover=all
	@PYTHONPATH=build/sanitized ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so)" \
	  $(BIN)/python -m pytest -q -s -p no:cacheprovider $(SANITIZED)

check: .venv/.dev  ## style, types, known vulnerabilities
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> pip-audit"
	@if $(BIN)/python -c "$(ADVISORIES)" 2>/dev/null; \
	then $(BIN)/pip-audit --vulnerability-service osv --requirement constraints.txt --no-deps --disable-pip; \
	else echo "skipped: the service of advisories, osv.dev, cannot be reached"; fi

bench: .venv/.dev  ## time the unit against its alternatives; nothing else should be running
	@$(BIN)/python benchmarks/run.py

docs: .venv/.dev  ## the documentation, as HTML
	@echo "==> building the documentation"
	@$(BIN)/sphinx-build -q -W docs docs/_build
	@echo "documentation: docs/_build/index.html"

wheel: .venv/.dev  ## one wheel for every Python from 3.11 and every torch from 2.10 on
	@$(BIN)/python -m pip wheel -qq --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean:  ## remove everything that the other targets made
	rm -rf .venv .venv-lowest build dist docs/_build reproduction .hypothesis .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@echo "==> creating .venv"
	@$(PYTHON) -m venv .venv

# A stamp per set of extras; older than what it is made from means stale. torch comes first, because
# the operator is compiled for the torch that is there.
.venv/.paper: EXTRAS = paper
.venv/.dev: EXTRAS = paper,sklearn,parquet,ray,postgresql,export,pyg,sentence-transformers,dev
.venv/.paper .venv/.dev: pyproject.toml constraints.txt hatch_build.py $(wildcard csrc/*) | .venv/bin/python
	@echo "==> installing lpunits[$(EXTRAS)] into .venv (a minute or two)"
	@$(BIN)/python -m pip install -qq --constraint constraints.txt torch
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --editable ".[$(EXTRAS)]"
	@touch $@

# Of torch, that of constraints.txt: its older versions exist for CPUs on an index of their own.
.venv-lowest/.core: pyproject.toml constraints.txt
	@echo "==> installing the oldest versions into .venv-lowest"
	@$(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python -c "$(LOWEST)" > .venv-lowest/lowest.txt
	@grep "^torch==" constraints.txt >> .venv-lowest/lowest.txt
	@.venv-lowest/bin/python -m pip install -qq --constraint .venv-lowest/lowest.txt torch
	@.venv-lowest/bin/python -m pip install -qq --constraint .venv-lowest/lowest.txt \
	  ".[paper]" hypothesis mpmath pytest
	@touch $@
