# Everything runs in .venv, made here; the only things needed beforehand are python3 (3.11 or newer) with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
SYSTEM_PACKAGES := tmux openssh-server bubblewrap libseccomp2 systemd chromium gcc libc6-dev util-linux

.PHONY: help setup demo test check lint format types imports bench fuzz accuracy torture screens system-packages clean

help:
	@echo "make demo   set up and watch a sweep on the simulated server"
	@echo "make test   set up and run the tests"
	@echo "make check  format, lint, types, import contracts, tests"
	@echo "make bench | fuzz | accuracy | torture | screens | system-packages | clean"

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,humaneval]'
	@touch $@

setup: $(VENV)/.ready

demo: setup
	@$(BIN)/spectop demo

# Tests mostly wait for processes, so three run at once on two cores; `make test JOBS=1` runs them in order.
JOBS ?= 3

test: setup
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

check: lint types imports test

bench: setup
	$(BIN)/python -m benchmarks

fuzz: setup
	$(BIN)/python -m tests.fuzz

accuracy: setup
	$(BIN)/python -m tests.accuracy

torture: setup
	$(BIN)/python -m tests.torture

screens: setup
	$(BIN)/python -m tests.screens

system-packages:
	$(SUDO) apt-get update -qq
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends $(SYSTEM_PACKAGES)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
