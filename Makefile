# Every target works in a fresh clone; what is already done is not done again.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Options for pytest, as in: make test ARGS="tests/unit -k lease"
ARGS ?=
# Processes that run tests side by side, each with a Spark session of its own: more than two
# cores, because tests wait a third of their time.
JOBS ?= 3

.PHONY: help setup servers demo check test test-long bench docs wheels reference lock clean

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

servers: ## install the servers that the tests run
	@bash scripts/servers.sh

test: setup servers ## all tests but the long ones; ends with those that took most time
	$(PYTEST) -n $(JOBS) --dist worksteal --durations=40 --durations-min=1 $(ARGS)

test-long: setup ## the tests that take minutes
	@bash scripts/servers.sh long
	$(PYTEST) -m long $(ARGS)

bench: setup ## measure start-up and throughput, and print the figures
	@for script in benchmarks/bench_*.py; do \
	  if [ -e "$$script" ]; then echo "== $$script"; $(BIN)/python "$$script"; fi; \
	done

docs: setup servers ## check that every example in the documentation runs
	$(PYTEST) tests/docs $(ARGS)

wheels: setup ## build the wheels of Headrace and of its SDK
	@$(BIN)/python -m hatchling build -t wheel
	@cd packages/headrace-sdk && ../../$(BIN)/python -m hatchling build -t wheel -d ../../dist

reference: setup ## generate docs/reference from the code
	$(BIN)/python scripts/reference.py

lock: ## update package versions and write both requirements files
	@bash scripts/lock.sh

clean: ## remove what set-up and the tools made; the cache of jars stays
	rm -rf .venv .tools build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
