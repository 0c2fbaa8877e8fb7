# The commands of this repo: `make help` lists them (GNU make 4 and bash). Each sets up what it needs in
# .venv first, and may be interrupted and run again. pip keeps its own configuration: a mirror, a proxy
# or an index with CPU builds of torch set there is used.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-all bench lint schemas constraints clean venv

# Nothing that these commands start reports its use to anyone or asks a model hub for files.
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

RECIPE ?= rlvr
# Rollouts of each of the demo's trials. A population divides them among its
# members; a generator and a solver need many for a step.
DEMO_ROLLOUTS = $(if $(filter populora,$(RECIPE)),5760,$(if $(filter infuser,$(RECIPE)),2880,1920))

IN_VENV := .venv/bin/python
PIP := $(IN_VENV) -m pip --require-virtualenv
TORCH = $(shell grep -m1 -i '^torch==' constraints.txt)
GPU_TESTS = $(if $(shell nvidia-smi -L 2>/dev/null),,-m "not gpu")
FRESH_ENOUGH := import sys; assert sys.version_info >= (3, 11)

# The first Python of 3.11 or newer that can fill a virtual environment, else the first of 3.11 or newer.
PYTHON ?= $(shell for needs in ensurepip sys; do \
	for name in python3.14 python3.13 python3.12 python3.11 python3; do \
		$$name -c '$(FRESH_ENOUGH)' 2>/dev/null && $$name -c "import $$needs" 2>/dev/null && echo $$name && exit; \
	done; done)

help: ## List the commands
	@sed -nE 's/^([a-z%-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: .venv/.installed-dev ## Run a first campaign, 2 rounds of 8 short trials that train a small model (RECIPE=populora for another)
	@.venv/bin/seedbed run --substrate pocket --recipe $(RECIPE) --rounds 2 --width 8 --worker sampler --seed 0 --rollouts $(DEMO_ROLLOUTS) --looks-per-round 2

test: .venv/.installed-dev ## Run the tests that any machine can run in minutes (ARGS="-k word" for some)
	@$(IN_VENV) -m pytest -n auto --dist loadfile -m "not slow and not gpu and not browser" $(ARGS)

test-all: .venv/.installed-dev ## Run every test, those for a GPU where there is one
	@$(IN_VENV) -m pytest $(GPU_TESTS) $(ARGS)

bench: .venv/.installed-dev ## Run every benchmark
	@$(IN_VENV) -m tests.benchmarks

bench-%: .venv/.installed-dev ## Run one benchmark, say bench-NAME
	@$(IN_VENV) -m tests.benchmarks $*

lint: .venv/.installed-dev ## Check style, types and who imports whom
	@$(IN_VENV) -m ruff check .
	$(IN_VENV) -m ruff format --check .
	.venv/bin/basedpyright
	.venv/bin/lint-imports --no-logo

schemas: .venv/.installed-core ## Write the published JSON Schemas
	@$(IN_VENV) -m flows.schemas

constraints: PYTHON := python3.11
constraints: ## Write constraints.txt: keeps the pins it has, adds what is missing (needs python3.11)
	@scratch=$$(mktemp -d)
	trap 'rm -rf "$$scratch"' EXIT
	$(PYTHON) -m venv "$$scratch/venv"
	grep -v '^#' constraints.txt > "$$scratch/pins" || true
	if [[ -n "$(TORCH)" ]]; then "$$scratch/venv/bin/pip" install $(TORCH); fi
	"$$scratch/venv/bin/pip" install -c "$$scratch/pins" -e '.[dev,local,postgresql]'
	grep '^#' constraints.txt > "$$scratch/new"
	"$$scratch/venv/bin/pip" freeze --exclude-editable | sed -E 's/\+[A-Za-z0-9.]+$$//' \
		| grep -viE '^(nvidia|cuda|triton)' | LC_ALL=C sort -f >> "$$scratch/new"
	cp "$$scratch/new" constraints.txt
	echo "constraints.txt pins $$(grep -vc '^#' constraints.txt) releases."

clean: ## Remove caches and byte code; delete .venv by hand to set up from nothing
	@rm -rf .pytest_cache .ruff_cache .import_linter_cache
	find . -name .venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

.venv/.installed-core: pyproject.toml constraints.txt
	@echo "Setting up Seedbed in .venv: usually one or two minutes, about 700 MB on disk."
	$(PIP) install -c constraints.txt -e . || { $(SETUP_FAILED); }
	touch $@
	echo "Set up in $$SECONDS s."

# torch goes first, alone: pip then takes the build that this machine is offered for exactly that release.
.venv/.installed-dev: pyproject.toml constraints.txt
	@echo "Setting up Seedbed, its tests and the training stack in .venv: usually about 2 minutes and 2.3 GB"
	echo "on disk with a CPU build of torch; where the package index offers a CUDA build, 3 GB more to download."
	echo "[1/2] $(TORCH)"
	$(PIP) install -c constraints.txt $(TORCH) || { $(SETUP_FAILED); }
	echo "[2/2] everything else"
	$(PIP) install -c constraints.txt -e '.[dev,local]' || { $(SETUP_FAILED); }
	touch .venv/.installed-core $@
	echo "Set up in $$SECONDS s."

define SETUP_FAILED
echo "Wanted: the packages that constraints.txt pins. Found: pip stopped, its reason is above." >&2; \
echo "Do: see to the network or the disk and run the same command; finished downloads are kept." >&2; exit 1
endef

# A .venv that is missing, half made or older than 3.11 is made anew, and then everything in it.
ifeq ($(shell $(IN_VENV) -c 'import pip; $(FRESH_ENOUGH)' 2>/dev/null && echo works),)
.venv/.installed-core .venv/.installed-dev: venv
endif

venv:
	@python=$$(command -v "$(PYTHON)" || true)
	if [[ -z $$python ]] || ! "$$python" -c '$(FRESH_ENOUGH)' 2>/dev/null; then
		echo "Wanted: Python 3.11 or newer." >&2
		echo "Found: $${python:-none}$(if $(PYTHON), for PYTHON=$(PYTHON), among python3.14 to python3.11 and python3)." >&2
		echo "Do: install one (Debian 12, Ubuntu 24.04 or newer: apt-get install python3 python3-venv), or name one:" >&2
		echo "    make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2
		exit 1
	fi
	package="python$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
	echo "Making .venv with $$("$$python" --version)."
	if "$$python" -c 'import ensurepip' 2>/dev/null; then
		"$$python" -m venv --clear .venv
	elif "$$python" -m pip --python "$$python" --version >/dev/null 2>&1; then
		"$$python" -m venv --clear --without-pip .venv
		"$$python" -m pip --python .venv/bin/python install pip
	elif [[ $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then
		echo "This Python cannot fill a virtual environment: installing the Debian package $$package."
		apt-get update
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$$package"
		"$$python" -m venv --clear .venv
	else
		echo "Wanted: a Python that can fill a virtual environment." >&2
		echo "Found: $$python has neither ensurepip nor pip." >&2
		echo "Do: sudo apt-get install $$package, then run the same command." >&2
		exit 1
	fi
