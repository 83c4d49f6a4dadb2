# make test      the default suite          make demo    train, test and look at a run on the digits
# make test-slow the slow tests, budgeted   make bench   the overhead benchmark
# make test-all  both, with a log           make docs    run the examples of the pages, write generated parts
# make lint      ruff, import contract      make matrix  which features are proven, by which tests
# make types     mypy                       make clean   remove what was built, and .venv
#
# Each target makes .venv from nothing when it is missing or when pyproject.toml or constraints.txt changed.

SHELL := /bin/bash
PYTHON ?= python3
PYTEST_ARGS ?=
BIN := .venv/bin
RUN := OMP_NUM_THREADS=1 $(BIN)/python
DEV := .venv/.stamp-dev
DEMO := .venv/.stamp-demo
BENCH_ARGS ?=

.PHONY: demo test test-slow test-all lint types bench docs matrix clean
.DEFAULT_GOAL := test

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

$(DEV): pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $(DEV) $(DEMO)

# What the demo needs is quicker to install than the whole set-up.
$(DEMO): pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[tensorboard]' scikit-learn
	@touch $(DEMO)

demo: $(DEMO)
	$(RUN) examples/digits/train.py

test: $(DEV)
	$(RUN) -m pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(DEV)
	$(RUN) -m tools.slow_tests $(PYTEST_ARGS)

test-all: $(DEV)
	@mkdir -p docs/evidence
	@set -o pipefail; { \
		echo "$$($(BIN)/python --version), torch $$($(BIN)/python -c 'import torch; print(torch.__version__)')"; \
		$(RUN) -m pytest -m "not slow" --no-header --durations=20 $(PYTEST_ARGS) \
		&& $(RUN) -m tools.slow_tests --budget 1000000 --record --no-header $(PYTEST_ARGS); \
	} 2>&1 | sed 's|$(CURDIR)/||g' | tee docs/evidence/test-all.log
	$(RUN) -m tools.feature_matrix

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(DEV)
	$(BIN)/mypy

bench: $(DEV)
	$(RUN) -m benchmarks.overhead $(BENCH_ARGS)

docs: $(DEV)
	$(RUN) -m tools.make_aliases
	$(RUN) -m tools.policy_table
	$(RUN) -m tools.warning_codes
	$(RUN) -m tools.check_docs

matrix: $(DEV)
	$(RUN) -m tools.feature_matrix

clean:
	rm -rf .venv build dist src/*.egg-info .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
