# What users and contributors run. Each command sets up what it needs first; `make` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
# Tests wait more than they work, so more than two of them fit on two cores.
JOBS ?= 6
BY_FILE = --dist=loadfile --no-loadscope-reorder
PY := .venv/bin/python
# Recipes read these from the environment, where a path may hold any character.
export RUNS CONFIG TO OUT RUN NOTE FOR KEY KILL NODE
STEPWATCH = $(PY) -m stepwatch
WITH = $${CONFIG:+--config "$$CONFIG"}

# `$(call required,NAME,usage)` ends make with one line and status 2 where the variable is missing.
required = $(if $(value $(1)),,$(error Usage: make $@ $(2)))

.PHONY: help up down status demo-reset test-alert mark silence actions agent evidence tensorboard config alerts discover gpu-release inspect gpu-check backtest generate test test-fast test-world trainer-logs check bench mutate parity parity-mutations formats pictures judge runtime development

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "  RUNS=folder DEMO=1 NATIVE=1 SERVICE=1 for up, SERVICE=1 for down, TO=receiver for test-alert, RUN=name for mark, silence, alerts and evidence,"
	@echo "  TO=folder for tensorboard, OUT=folder for evidence, NODE=name for agent,"
	@echo "  FOR=time for silence and gpu-release,"
	@echo "  CONFIG=file for all of these, ARGS='-k name' for tests and bench,"
	@echo "  ARGS=--suggest for backtest, JOBS=number for test, MINUTES=number for test-world"

up: runtime ## Start the stack, or apply config.yaml to the running one; containers if Docker answers
	@$(STEPWATCH) up $(WITH) $${RUNS:+--runs "$$RUNS"} $(if $(DEMO),--demo) $(if $(NATIVE),--native) $(if $(SERVICE),--service)

down: runtime ## Stop the stack; data and logs stay
	@$(STEPWATCH) down $(WITH) $(if $(SERVICE),--service)

status: runtime ## Show the state of each part of the stack, and firing alerts
	@$(STEPWATCH) status $(WITH)

demo-reset: runtime ## Restart the demo of `make up DEMO=1` from the beginning
	@$(STEPWATCH) demo-reset $(WITH)

test-alert: runtime ## Send a test message to a receiver: make test-alert TO=name
	$(call required,TO,TO=receiver. Example: make test-alert TO=chat (its name in config.yaml))
	@$(STEPWATCH) test-alert $(WITH) "$$TO"


mark: runtime ## Re-baseline a run after an intended change: make mark RUN=name NOTE=text
	$(call required,RUN,RUN=name [NOTE=text]. Example: make mark RUN=ppo/gsm8k NOTE='new data')
	@$(STEPWATCH) mark $(WITH) $${NOTE:+"--note=$$NOTE"} -- "$$RUN"

silence: runtime ## Mute all alerts of a run: make silence RUN=name FOR=2h
	$(call required,RUN,RUN=name [FOR=time] [NOTE=text]. Example: make silence RUN=ppo/gsm8k FOR=2h)
	@$(STEPWATCH) silence $(WITH) $${FOR:+"--for=$$FOR"} $${NOTE:+"--note=$$NOTE"} -- "$$RUN"

actions: runtime ## Show actions on runs; stop all: make actions KILL=on
	@$(STEPWATCH) actions $(WITH) $${KILL:+"--kill-switch=$$KILL"}

agent: runtime ## On a hub: create the password of a node: make agent NODE=name > hub-password; RENEW=1, REVOKE=1; without NODE list nodes
	@$(STEPWATCH) agent $(WITH) $(if $(RENEW),--renew) $(if $(REVOKE),--revoke) $${NODE:+-- "$$NODE"}

evidence: runtime ## Collect evidence about a run in one archive: make evidence RUN=name
	$(call required,RUN,RUN=name [OUT=folder]. Example: make evidence RUN=ppo/gsm8k)
	@$(STEPWATCH) evidence $(WITH) $${OUT:+"--out=$$OUT"} -- "$$RUN"

tensorboard: runtime ## Write all runs as event files of TensorBoard: make tensorboard TO=folder [FOLLOW=1]
	$(call required,TO,TO=folder [FOLLOW=1]. Example: make tensorboard TO=./tensorboard)
	@$(STEPWATCH) tensorboard $(WITH) $${RUNS:+"--runs=$$RUNS"} $(if $(FOLLOW),--follow) "--to=$$TO"

config: runtime ## Print all keys of config.yaml with defaults and reasons, or one: make config KEY=alerts.KL
	@$(STEPWATCH) config $(if $(KEY),--explain "$$KEY",--defaults)

alerts: runtime ## Show the limits in effect, for all runs or one: make alerts RUN=name
	@$(STEPWATCH) alerts $(WITH) $${RUN:+-- "$$RUN"}

discover: runtime ## Let Prometheus scrape running containers labelled stepwatch.scrape=PORT
	@$(PY) generate.py --discover docker

gpu-release: runtime ## Release the GPUs, to reset one or change MIG: make gpu-release FOR=60s
	@$(STEPWATCH) gpu-release $(WITH) $${FOR:+"--for=$$FOR"}

inspect: runtime ## Show the runs and signals found in logs or on a page: make inspect RUNS=folder, file or URL
	@$(STEPWATCH) inspect $(WITH) "$${RUNS:-./runs}"

gpu-check: runtime ## Compare the GPU exporter with nvidia-smi and NVML, where there is a GPU
	@$(PY) -m tools.gpu_check

backtest: runtime ## Show which alerts old runs would have raised: make backtest RUNS=folder or file
	@$(STEPWATCH) backtest $(WITH) "$${RUNS:-./runs}" $(ARGS)

generate: runtime ## Render config.yaml for the containers, and reload Alertmanager
	@$(PY) generate.py --reload $(WITH)

test: development ## Run the usual tests, ten minutes; the first run downloads Prometheus and Alertmanager
	@$(PY) -m tests.real
	@$(PY) -m pytest --numprocesses=$(JOBS) $(BY_FILE) --durations=20 --durations-min=5 $(ARGS)

# Without the plugin that collects all garbage at the end of each process, for seconds.
test-fast: development ## Run the quick tests that start no program: about a minute
	@$(PY) -m pytest --fast --numprocesses=3 --dist=worksteal -p no:unraisableexception $(ARGS)

test-world: development ## Run what `make test` leaves out, by worth: containers, browsers, faults, real trainers (5 GB)
	@$(PY) -m tests.real $(if $(MINUTES),programs,world)
	@$(PY) -m pytest -m "world or hypothesis" --numprocesses=$(JOBS) $(BY_FILE) $(if $(MINUTES),--minutes=$(MINUTES)) $(ARGS)

trainer-logs: development ## Regenerate the logs of tests/logs with real trainers: make trainer-logs ARGS=trl/
	@$(PY) -m tests.real.trainers $(ARGS)

check: development ## Lint, format, types, and whether generated files are current
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@$(PY) generate.py --check

drift: development ## For developers: which keys the newest trainers log that Stepwatch does not know (downloads them)
	@$(PY) -m tools.drift

bench: development ## Measure what docs/benchmarks.md shows
	@$(PY) -m tests.real programs
	@$(PY) -m benchmarks $(ARGS)

mutate: development ## Check that the rules' tests notice every change of a rule
	@$(PY) -m tests.real
	@$(PY) -m pytest -q -m world --numprocesses=2 tests/rules/test_mutants.py

parity: development ## Check that the product does what tests/parity froze of it, in two minutes
	@$(PY) -m tests.real
	@$(PY) -m pytest tests/parity --numprocesses=2 $(BY_FILE) $(ARGS)

parity-mutations: development ## Check that parity notices twenty changes of the product
	@$(PY) -m tests.real
	@$(PY) -m tests.parity.mutations $(ARGS)

formats: development ## Update docs/formats.md with what is read from the real logs
	@$(PY) -m tests.formats

pictures: development ## Redraw the pictures of the documents, in ten minutes; ARGS='--out DIR': all dashboards
	@$(if $(ARGS),:,$(PY) -m tests.runs.light.screenshots)
	@$(PY) -m tests.grafana.pictures $(ARGS)

judge: development ## Score the rules on the real logs, and write docs/alert-quality.md
	@$(PY) -m tests.real
	@$(PY) -m tests.judge

runtime:
	@$(PYTHON) -m stepwatch.system.environment requirements.lock

development:
	@$(PYTHON) -m stepwatch.system.environment requirements-dev.lock
