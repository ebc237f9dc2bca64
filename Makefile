# foretrain's commands. `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SUITE ?=
DATA ?= $(or $(FORETRAIN_DATA),../shared/datasets)

.DEFAULT_GOAL := help
# Tests start many processes: without bytecode each of them compiles the package again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo test test-all long tools coverage lint validate spread calibrate bench docs clean graphs

help:  ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(STAMP)

setup: $(STAMP)  ## Create .venv and install foretrain with its development tools

demo: setup  ## Show what foretrain answers today
	PATH="$(CURDIR)/$(BIN):$$PATH" bash scripts/demo.sh

lint: setup  ## Lint, format check, plain English, types, layer contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/check_words.py
	$(BIN)/mypy
	$(BIN)/lint-imports

PYTEST := sh scripts/in_mount_namespace.sh $(BIN)/pytest -n 2 --dist worksteal

test: lint tools  ## Lint, then every test but the long ones
	$(PYTEST) -m "not long"

test-all: test long  ## `make test`, then `make long`: everything CI checks

long: setup tools  ## The tests that `make test` leaves out (tests/long.yaml lists them)
	$(PYTEST) -m long

tools:  ## Install what the tests run besides Python: a browser, fonts, iproute2, PostgreSQL, Slurm (as root on Debian)
	@sh scripts/install_test_tools.sh

coverage: setup tools  ## The tests again, with what they cover (half as fast)
	sh scripts/in_mount_namespace.sh $(BIN)/pytest -n 2 --cov --cov-report=term --cov-report=xml:build/coverage.xml

validate: setup  ## Accuracy on public measurements (SUITE=name for one; FORETRAIN_DATA names the data)
	$(if $(SUITE),,$(BIN)/python scripts/refresh_offers.py --data $(DATA) --check)
	$(BIN)/python -m validation $(if $(SUITE),--suite $(SUITE))

spread: setup  ## Fit power in training, intervals and own timings to SUITE=transfer and SUITE=own_timings (run these first)
	$(BIN)/python -m calibration.steps.training_power build/transfer/steps.csv
	$(BIN)/python -m calibration.steps.spread build/transfer/residuals.csv
	$(BIN)/python -m calibration.steps.error_transfer build/own_timings/rows.csv

graphs: setup  ## Verify the graphs that ship with the package where sources changed, and record what differs (5 minutes)
	$(BIN)/python scripts/record_graphs.py

calibrate: setup  ## Fit the shipped calibrations anew to the public measurements (an hour or two)
	FORETRAIN_HOME=build/validation $(BIN)/python -m calibration --data $(DATA) --graphs build/timm_graphs

bench: setup  ## foretrain's own speed against its targets, also as the table of docs/performance.md
	$(BIN)/python -m benchmarks --page

docs: setup  ## Build the documentation into site/
	$(BIN)/python scripts/render_docs.py
	$(BIN)/mkdocs build --strict

clean:  ## Remove everything the other commands made
	rm -rf $(VENV) build dist site out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.*
