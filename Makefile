# What users and contributors run. Each command sets up what it needs first; `make` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
PY := .venv/bin/python
# Recipes read these from the environment, where a path may hold any character.
export RUNS CONFIG

.PHONY: help up down status generate test check bench runtime development

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "  RUNS=folder CONFIG=file for up, CONFIG=file for generate, ARGS='-k name' for test and bench"

up: runtime ## Start the stack here, or apply config.yaml to the running one
	@$(PY) -m stepwatch up $${RUNS:+--runs "$$RUNS"} $${CONFIG:+--config "$$CONFIG"}

down: runtime ## Stop the stack; data and logs stay
	@$(PY) -m stepwatch down

status: runtime ## Show how each part of the stack is
	@$(PY) -m stepwatch status

generate: runtime ## Render config.yaml for Prometheus, Alertmanager and Grafana
	@$(PY) generate.py $${CONFIG:+--config "$$CONFIG"}

test: development ## Run all tests; gets the programs that they need, which takes minutes once
	@$(PY) -m tests.real
	@$(PY) -m pytest $(ARGS)

check: development ## Lint, format, types, and whether generated files are current
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@$(PY) generate.py --check

bench: development ## Measure what docs/benchmarks.md shows
	@$(PY) -m tests.real
	@$(PY) -m benchmarks $(ARGS)

runtime:
	@$(PYTHON) -m stepwatch.environment requirements.lock

development:
	@$(PYTHON) -m stepwatch.environment requirements-dev.lock
