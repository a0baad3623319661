# Two commands on a fresh clone: `make demo` and `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# One BLAS thread: a decision sits beside training, and must be reproducible.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help demo test coverage docs lint types layers check bench forecast latency regret rivals clock store faults kills ray workers crowd paper figures fuzz clean

help:  ## show this help
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "freezethaw needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml .ci/system-packages | $(BIN)/python
	.ci/system-packages
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.demo

# torch first, so that nothing else brings another build of it; on Linux without a GPU, PIP_EXTRA_INDEX_URL=
# https://download.pytorch.org/whl/cpu spares gigabytes, and `make test LIBRARIES=` does without: their tests skip
LIBRARIES ?= $(VENV)/.libraries
$(VENV)/.libraries: pyproject.toml | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -e '.[libraries]'
	@touch $@

demo: $(VENV)/.demo  ## tune a small real model on scikit-learn's digits
	$(BIN)/python examples/digits.py

# twice as many processes as cores: many tests wait for other processes, signals or a browser
TEST_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(min(2 * (os.cpu_count() or 1), 8))')

test: $(VENV)/.dev $(LIBRARIES)  ## the whole test suite
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal $(ARGS)

COVERED := model policy store
coverage: $(VENV)/.dev  ## branch coverage of model, policy and store: at least 90 % (ten minutes)
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov-branch --cov-fail-under=90 $(COVERED:%=--cov=freezethaw.%) $(COVERED:%=tests/%) \
		tests/test_study.py tests/test_tell.py $(ARGS)

docs: $(VENV)/.dev  ## build the documentation, without a warning, and run its doctests
	$(BIN)/python -m sphinx -q -W --keep-going -b doctest docs docs/_build/doctest
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

lint: $(VENV)/.dev  ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## strict type checking
	$(BIN)/mypy

layers: $(VENV)/.dev  ## who may import whom
	$(BIN)/lint-imports

check: lint types layers  ## lint, types and layers

forecast: $(VENV)/.dev  ## benchmark: forecasts of real curves
	$(BIN)/python -m benchmarks.forecast $(ARGS)

latency: $(VENV)/.dev  ## benchmark: seconds and memory of the model
	$(BIN)/python -m benchmarks.latency $(ARGS)

REGRET ?= build/regret
RIVALS_VENV ?= build/rivals

regret: $(VENV)/.dev  ## benchmark: regret of the search, beside published rivals; RIVALS=1 runs those too
	$(if $(RIVALS),$(MAKE) rivals)
	$(BIN)/python -m benchmarks.regret --all --out $(REGRET) $(ARGS)
	$(BIN)/python -m benchmarks.ablation --out $(REGRET) $(ARGS)

# torch first: on Linux the index of CPU builds saves gigabytes
$(RIVALS_VENV)/.ready: benchmarks/rivals/requirements.txt
	$(PYTHON) -m venv $(RIVALS_VENV)
	$(RIVALS_VENV)/bin/python -m pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu $$(grep '^torch==' $<)
	$(RIVALS_VENV)/bin/python -m pip install --quiet -r $<
	@touch $@

rivals: $(RIVALS_VENV)/.ready  ## run the rivals of the regret benchmark; what is in build/regret is not repeated
	PYTHONPATH=src:. $(RIVALS_VENV)/bin/python -W ignore -m benchmarks.rivals.run --out $(REGRET) $(RIVALS_ARGS)

clock: $(VENV)/.dev $(LIBRARIES)  ## benchmark: real training by the clock, beside Optuna (hours)
	$(BIN)/python -m benchmarks.clock $(ARGS)

store: $(VENV)/.dev  ## benchmark: commits per second of many processes, against the bare driver
	$(BIN)/python -m benchmarks.store $(ARGS)

faults: $(VENV)/.dev  ## benchmark: workers killed, stopped and misled, at full counts
	$(BIN)/python -m benchmarks.faults $(ARGS)

kills: $(VENV)/.dev  ## benchmark: a real tune with its processes killed, and what the runtime costs
	$(BIN)/python -m benchmarks.faults.runtime $(ARGS)

ray: $(VENV)/.dev  ## benchmark: the Ray engine with actors, a node and the driver killed, and what it costs
	$(BIN)/python -m benchmarks.faults.ray $(ARGS)

workers: $(VENV)/.dev  ## benchmark: what a second worker brings
	$(BIN)/python -m benchmarks.workers $(ARGS)

crowd: $(VENV)/.dev  ## benchmark: 64 simulated workers on a large study
	$(BIN)/python -m benchmarks.crowd $(ARGS)

bench: forecast latency regret clock store faults kills ray workers crowd  ## all benchmarks; with RIVALS=1 rivals too

# resumable, study by study; ARGS="--problem pmf" is one problem, ARGS="--processes 16" takes more cores
paper: $(VENV)/.dev  ## the paper's experiments, figures and findings; QUICK=1: a small version in minutes
	$(BIN)/python -m experiments.compare $(if $(QUICK),--quick) $(ARGS)
	$(BIN)/python -m experiments.forecasts $(if $(QUICK),--quick)
	$(if $(QUICK),,$(BIN)/python -m experiments.results)
	$(BIN)/python -m experiments.draw $(if $(QUICK),--quick)
	$(BIN)/python -m experiments.findings $(if $(QUICK),--quick)

figures: $(VENV)/.dev  ## redraw the pictures of the docs
	$(BIN)/python -m docs.draw

fuzz: $(VENV)/.dev  ## the HTTP API under schemathesis: no request is an error of the server (minutes)
	$(BIN)/python -m pip install --quiet 'schemathesis>=4'
	$(BIN)/python -m benchmarks.fuzz $(ARGS)

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
