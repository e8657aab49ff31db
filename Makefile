# One door for people, hooks and CI. A fresh machine needs Python 3.11+, make and a network to PyPI.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-fast pytest coverage check lint types format setup docs wheels dist clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make the environment in .venv, with every extra

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/aaren/ops/cpu/*.[ch] src/aaren/export/*.[ch])
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing aaren and all extras into $(VENV) (minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: setup ## the main job: four tasks learned, the operator and a long stream measured, one page; five minutes
	@$(BIN)/aaren demo --out runs/demo

check: lint types ## format, lint, import layers, types

lint: setup
	@$(BIN)/ruff format --check src tests examples benchmarks docs/conf.py docs/generate.py hatch_build.py
	@$(BIN)/ruff check src tests examples benchmarks docs/conf.py docs/generate.py hatch_build.py
	@$(BIN)/lint-imports

types: setup
	@$(BIN)/mypy

pytest: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q --durations=10 -m "not long"

test: lint ## the checks, and all tests but the long ones; types are checked beside them
	@$(MAKE) --no-print-directory -j2 types pytest

test-all: check ## the checks, then every test, also those of minutes (up to an hour)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q --durations=20

test-fast: setup ## what a developer runs between edits
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow and not long"

coverage: setup ## the lines of src that `make test` runs, in this process and in those it starts
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not long" --cov --cov-report=term:skip-covered

format: setup ## rewrite files in the house's format
	@$(BIN)/ruff format src tests examples benchmarks docs/conf.py docs/generate.py hatch_build.py
	@$(BIN)/ruff check --fix src tests examples benchmarks docs/conf.py docs/generate.py hatch_build.py

docs: setup ## build the documentation; warnings are errors
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

wheels: setup ## cross-compile the wheels of all platforms into dist, and check them
	@.ci/wheels dist

dist: wheels ## sdist and wheels into dist; installed without a network, README's lines run
	@.ci/try-wheel dist

clean: ## remove what can be made again
	@rm -rf $(VENV) build dist docs/_build src/aaren/ops/cpu/_kernels.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
