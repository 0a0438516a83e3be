# `make` lists the targets. `make test PYTHON=3.13` rebuilds .venv with that interpreter first.

BIN := .venv/bin
# The first that is new enough: on some systems python3 is older than a python3.12 beside it.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
FOUND := $(shell for each in python3 python3.13 python3.12 python3.11; do \
	$$each -c "$(NEW_ENOUGH)" 2>/dev/null && echo $$each && break; done)
BOOTSTRAP := $(or $(FOUND),python3) scripts/bootstrap.py

.DEFAULT_GOAL := help
# Whole files go to one of the processes each, so that those that share a kernel's template stay together.
ALL_CORES := --numprocesses=auto --dist=loadfile

.PHONY: help bootstrap system demo test slow check bench docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bootstrap: ## create or refresh .venv
	@$(BOOTSTRAP) $(if $(PYTHON),--python $(PYTHON))

system: # what the tests need from the operating system
	@sh scripts/system_packages.sh

demo: ## run the demonstration, which needs only the default install
	@$(BOOTSTRAP) --default $(if $(PYTHON),--python $(PYTHON))
	@$(BIN)/kernelbox tour --no-pauses

test: bootstrap system ## run the tests on all cores; ARGS="-k timeout" runs pytest with these arguments
	$(BIN)/python -m pytest $(or $(ARGS),$(ALL_CORES) -m "not slow")

slow: bootstrap ## run the tests that take long or install programs
	@sh scripts/system_packages.sh chromium:chromium buildah:buildah mmdebstrap:mmdebstrap bwrap:bubblewrap \
		socat:socat rg:ripgrep
	$(BIN)/python -m pytest $(ALL_CORES) -m slow

check: bootstrap ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: bootstrap ## run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

docs: bootstrap ## build the documentation into site/
	rm -rf site # not --clean, which empties .cache, where tests keep their environments
	$(BIN)/zensical build --strict
	$(BIN)/python scripts/llms_txt.py

lock: ## update requirements-dev.lock
	@$(BOOTSTRAP) --lock

# Not .kernelbox: kernels may be alive in it, and `kernelbox wipe` ends those properly.
clean: ## remove environments, caches and built files
	rm -rf .venv .bootstrap .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
