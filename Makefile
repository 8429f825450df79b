# Every target works in a fresh clone; what is already done is not done again.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Options for pytest, as in: make test ARGS="tests/unit -k lease"
ARGS ?=

.PHONY: help setup demo check test test-long bench docs reference lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install Python packages, Java, Spark's jars; offline once done
	@bash scripts/setup.sh

demo: setup ## move the flights of 2013 through topics into tables, and check them
	@$(BIN)/headrace demo

check: setup ## format, lint, types, architecture: what CI runs before the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PYTEST) -q -p no:randomly tests/unit/test_house.py

test: setup ## all tests but the long ones
	$(PYTEST) $(ARGS)

test-long: setup ## the tests that take minutes
	$(PYTEST) -m long $(ARGS)

bench: setup ## measure start-up and throughput, and print the figures
	@for script in benchmarks/bench_*.py; do \
	  if [ -e "$$script" ]; then echo "== $$script"; $(BIN)/python "$$script"; fi; \
	done

docs: setup ## check that every example in the documentation runs
	$(PYTEST) tests/docs $(ARGS)

reference: setup ## write docs/reference anew from the code
	$(BIN)/python scripts/reference.py

lock: ## choose package versions anew and write both requirements files
	@bash scripts/lock.sh

clean: ## remove what set-up and the tools made; the cache of jars stays
	rm -rf .venv .tools build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
