# make demo       installs into .venv and reproduces the digits suite; ends with the path of the report
# make test       installs the test extra too, then lint, types and all tests
# make lint       style and types only
# make test-gpu   the tests that need a CUDA device
#
# PYTHON=/path/to/python3.11 chooses the interpreter, VENV=DIR another environment.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory  # the last line of `make demo` is the report's path
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$python -c '$(RECENT)' >/dev/null 2>&1; then echo $$python; break; fi; done)

.PHONY: help demo test lint test-gpu clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(VENV)/.installed
	@$(BIN)/attndrop reproduce --suite digits

test: $(VENV)/.installed-test lint
	$(BIN)/python -m pytest -n 2 -m "not gpu"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-gpu: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m gpu

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp is written when everything is in; it is stale when what there is to install has changed.
# pip's own messages go to stderr, so that stdout ends with what was asked for.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,.)

$(VENV)/.installed-test: pyproject.toml constraints.txt
	$(call install,.[test])
	@touch $(VENV)/.installed

define install
	@if ! $(or $(PYTHON),false) -c '$(RECENT)' >/dev/null 2>&1; then \
		echo "make: attndrop needs Python 3.11 or newer, and '$(or $(PYTHON),python3)' is not:" \
			"install one or name it, as in: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
		exit 1; fi
	@if ! $(BIN)/python -c '$(RECENT)' >/dev/null 2>&1; then \
		echo "Making $(VENV) with $$($(PYTHON) --version)" >&2; \
		rm -rf $(VENV); $(PYTHON) -m venv $(VENV); fi
	@echo "Installing attndrop into $(VENV): some minutes the first time" >&2
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '$(1)' >&2
	@touch $@
endef
