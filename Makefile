# Every target sets itself up in .venv: all it needs is Python 3.11 or newer and make.

PYTHON ?= python3
WORKERS ?= 2
RUNS ?= runs
TESTS ?= tests
# For `make test-wheel`: versions (3.12) or paths.
PYTHONS ?= all

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
MINIMUM := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help quickstart test test-python test-slow soak lint format bench scaling results docs dist test-wheel clean distclean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c '$(MINIMUM)' 2>/dev/null || { \
	  echo "mesax needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." \
	       "Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# pip compiles to bytecode on one core, and all that is never imported here too: doing it here saves a third of the wait.
SELDOM := /(tests|pip|setuptools|mypyc?|pygments/lexers|OpenGL|fontTools/(ttLib|varLib)|ray/(autoscaler|dashboard|data|llm|rllib|serve|train|tune))/
define install
	$(PIP) -e '$(1)'
	@$(BIN)/python -m compileall -q -j 0 -x '$(SELDOM)' $(VENV)/lib >/dev/null || true
	@touch $@
endef

# One stamp per group of dependencies, so that each target installs only what it uses.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,.)

# At once with the core, if that is not there yet.
$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,.[dev])
	@[ -e $(VENV)/.core ] || touch $(VENV)/.core

$(VENV)/.docs: $(VENV)/.core
	$(call install,.[docs])

$(VENV)/.dist: $(VENV)/.core
	$(call install,.[dist])

# Learn the five targets of an unseen map: with MESA, for which what pays is learned too, with random episodes in place of its explorers, and with its learner
# alone; then compare. The controls learn on the other core.
QUICKSTART := learned uniform plain
BRIEF := --schedule.total-steps 500_000
LEARN = $(BIN)/mesax run $(1) mpe-2a5l --out $(RUNS)/quickstart-$(1) --reuse --workers 1 $(BRIEF)
CONTROLS = $(RUNS)/quickstart-controls.log
quickstart: $(VENV)/.core  ## Run MESA and two controls on a particle world, draw a picture, say what MESA gains
	@mkdir -p $(RUNS)
	@{ $(call LEARN,uniform) --quiet && $(call LEARN,plain) --quiet; } >$(CONTROLS) 2>&1 & controls=$$!; \
	$(call LEARN,learned) || { code=$$?; wait $$controls; exit $$code; }; \
	wait $$controls || { code=$$?; cat $(CONTROLS) >&2; exit $$code; }
	@$(BIN)/mesax report $(QUICKSTART:%=$(RUNS)/quickstart-%)
	@$(BIN)/mesax compare $(QUICKSTART:%=$(RUNS)/quickstart-%)

# Workers and the commands that tests start use each other's bytecode. NumPy's other threads would wait for work by turning
# in circles, on cores that other workers need.
test: $(VENV)/.dev  ## Run the tests (not those marked slow)
	env -u PYTHONDONTWRITEBYTECODE OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(TESTS) -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 15 -m 'not slow'

# An environment for each version, beside .venv: `make test-python PYTHON=python3.13 TESTS=tests/envs`, for example.
OWN_VENV = .venv-$(shell $(PYTHON) -c 'import sys; print("{}.{}".format(*sys.version_info))')
test-python:  ## Run the tests on another Python, PYTHON=python3.13, in an environment of its own
	@$(MAKE) --no-print-directory VENV=$(OWN_VENV) PYTHON=$(PYTHON) test

# These compute for minutes: here programs are optimized as for users (tests/conftest.py says how the others are compiled).
test-slow: $(VENV)/.dev  ## Run the tests marked slow
	XLA_FLAGS=--xla_backend_optimization_level=1 $(BIN)/python -m pytest -n $(WORKERS) -m slow

soak: $(VENV)/.dev  ## Kill runs at random moments, resume them, compare every byte (an hour)
	$(BIN)/python benchmarks/soak.py --kills 30 --workers $(WORKERS) --out $(RUNS)/soak

lint: $(VENV)/.dev  ## Check format, style, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## Measure speed and compile times
	$(BIN)/python benchmarks/climb.py
	$(BIN)/python benchmarks/learners.py
	$(BIN)/python benchmarks/particles.py
	$(BIN)/python benchmarks/swimmer.py

scaling: $(VENV)/.core  ## Measure how cost grows with agents, landmarks, actions, tasks (docs/scale.md)
	$(BIN)/python benchmarks/scaling.py

results: $(VENV)/.core  ## Run what Table 2 of docs/results.md lacks (hours) and print it
	$(BIN)/mesax reproduce table-2 --run

docs: $(VENV)/.docs  ## Build the documentation into site/ and check its links
	$(BIN)/zensical build --clean --strict
	$(BIN)/python tools/check_site.py site

dist: $(VENV)/.dist  ## Build wheel and source archive into dist/, check both, run the wheel in a clean environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/check_dist.py dist --run

test-wheel: $(if $(wildcard dist/*.whl),,dist)  ## Run the wheel of dist/ on every Python at hand, or PYTHONS="3.11 3.12"
	$(or $(wildcard $(BIN)/python),$(PYTHON)) tools/check_dist.py dist --run --pythons $(PYTHONS)

clean:  ## Remove caches and builds; .venv and runs/ stay
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache site dist build
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## Remove .venv too
	rm -rf $(VENV) .venv-3.*
