# What a person types: `make run`, `make test`, `make down`. Everything else is a part of these.
# Recipes run with the tools that setup installed on PATH (scripts/env.sh); setup itself finds or installs them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Docker, mounts and cgroups need root; say so once and go on through sudo.
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo -E -H)
ENV := . scripts/env.sh;
PYTEST_ARGS ?=

.PHONY: help setup testtools run down test unit lint gotest pytest gen bench fmt

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | column -t -s $$'\t'

setup: ## find or install everything that the other targets need
	@scripts/setup

testtools: ## fetch or build what only the tests need: engines, PostgreSQL, API server, Cilium's policy engine
	@scripts/setup --for-tests
	@$(ENV) .venv/bin/python -m tests.support.gobuild

run: ## bring up the stack `local` and play one attempt; the environment stays up
	@scripts/run

down: ## destroy the stack `local` and end an engine that setup started
	@scripts/down

test: setup testtools lint gotest pytest ## everything that CI runs

lint: ## every static check
	@$(ENV) $(SUDO) env PATH="$$PATH" .venv/bin/python tools/lint.py

gotest: ## the supervisor's own tests
	@$(ENV) cd images/supervisor && go test ./...

pytest: ## every Python test
	@$(ENV) $(SUDO) env PATH="$$PATH" .venv/bin/python -m pytest $(PYTEST_ARGS)

unit: ## the quick tests only
	@$(ENV) .venv/bin/python -m pytest tests/unit $(PYTEST_ARGS)

gen: ## everything that is generated and committed
	@$(ENV) .venv/bin/python tools/gen_proto.py
	@$(ENV) .venv/bin/python -m seccomp.generate

bench: setup ## the figures: prints a table, writes build/bench.json
	@$(ENV) $(SUDO) env PATH="$$PATH" .venv/bin/python -m tests.bench

fmt: ## format everything
	@$(ENV) .venv/bin/ruff format . && .venv/bin/ruff check --fix . && gofmt -w images/supervisor
