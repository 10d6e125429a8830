# gemmbench: short verbs. `make help` lists them; all that they create is .venv, build/ and tools' caches.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# What is imported is compiled then, once: most of what is installed never is (hence --no-compile below). Containers may
# forbid Python to keep what it compiles; every process would begin with doing that again, for seconds.
unexport PYTHONDONTWRITEBYTECODE
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input

# Tests at a time, on two cores: some wait for their processes
THREE  := -n 3

.DEFAULT_GOAL := help
.PHONY: help setup run test check fmt races faults drivers browser gate soak plots readme man docs dist bench clean
.DELETE_ON_ERROR:

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-15s%s\n", $$1, $$2}'

setup: $(VENV)/.dev  ## create .venv with gemmbench, a CPU driver and the tools for tests

run: $(VENV)/.run  ## gemmbench peak on this machine; make run ARGS="square --max 512" for anything else
	@$(BIN)/gemmbench $(or $(ARGS),peak)

test: $(VENV)/.dev  ## every test but those of races, faults and browser; make test ARGS="-k plan" for some of them
	$(BIN)/python -m pytest -m "not races and not browser" --ignore tests/faults $(THREE) --dist worksteal $(ARGS)

check: $(VENV)/.dev  ## lint, format, types, import rules, the size of the package, and that no generated page is stale
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_layers.py
	$(BIN)/python -m tools.generate_readme --check
	$(BIN)/python -m tools.man_page --check
	$(BIN)/python -m tools.plain_english
	$(BIN)/python tools/house.py --check

fmt: $(VENV)/.dev  ## format the code and fix what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

races: $(VENV)/.dev  ## run every kernel at small sizes under Oclgrind, which finds data races
	@command -v oclgrind >/dev/null || { echo "make races needs Oclgrind: sudo apt-get install oclgrind" >&2; exit 2; }
	$(BIN)/python -m pytest -m races $(THREE) tests/races $(ARGS)

faults: $(VENV)/.dev  ## kill, starve, damage and interrupt runs, a few times each
	$(BIN)/python -m pytest $(THREE) --dist worksteal tests/faults $(ARGS)

drivers: $(VENV)/.dev  ## verify every kernel in every type on every OpenCL device found
	$(BIN)/gemmbench square --sizes 100 --kernel all --baseline none --device all --no-peak --budget 0.01 \
	  --dtype float,double,half,bfloat16,tf32,char,e4m3,e5m2,e4m3-half,e4m3-bfloat16,e5m2-half,e5m2-bfloat16 $(ARGS)

browser: $(VENV)/.dev  ## look at reports in Chromium, driven over its own protocol (apt-get install chromium)
	GEMMBENCH_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -m browser tests/browser $(ARGS)

gate: $(VENV)/.dev  ## try the gate: kernels interleaved with themselves are the same, one with more work is slower
	$(BIN)/python tools/gate.py

soak: $(VENV)/.dev  ## kill, starve, damage and interrupt runs in full, 25 minutes; verification in full; runs with a neighbour
	GEMMBENCH_SOAK=1 $(BIN)/python -m pytest -m fault -n 2 --dist worksteal tests/faults
	$(BIN)/python -m tools.verification
	$(BIN)/python -m tools.neighbour_check

plots: $(VENV)/.dev  ## draw the gallery again from the saved runs in plots/, and list it in its README
	@$(BIN)/python -m tools.gallery

readme: $(VENV)/.run  ## write the generated tables of README.md and docs/ again, from the saved runs
	@$(BIN)/python -m tools.generate_readme

man: $(VENV)/.run  ## write the man page, docs/gemmbench.1, again from --help; man -l docs/gemmbench.1 shows it
	@$(BIN)/python -m tools.man_page

docs: $(VENV)/.run  ## build the site into build/site; a link that leads nowhere is an error
	@test -x $(BIN)/mkdocs || $(PIP) install --quiet --no-compile -e ".[docs]"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/.dev  ## build dist/, check it, and run tests of the unpacked sdist in an environment of its own
	@$(PIP) install --quiet --no-compile -e ".[release]"
	rm -rf dist build/dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	mkdir -p build/dist && tar -xzf dist/*.tar.gz -C build/dist --strip-components=1
	$(MAKE) -C build/dist test ARGS='$(or $(ARGS),-k "packaging or completion or man_page or link")'

bench: $(VENV)/.run  ## peak and clpeak on the same driver, and what Python costs for each launch
	@status=0; for script in tools/bench/*.py; do \
	  echo "$$script"; $(BIN)/python "$$script" || status=$$?; echo; done; exit $$status

clean:  ## remove what make created
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -exec rm -rf {} +

# --- the environment: the stamps make a second run instant, and a changed pyproject.toml installs again -----

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.10 or newer is needed: sudo apt-get install python3 python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "Python 3.10 or newer is needed, and $(PYTHON) is `$(PYTHON) -V 2>&1`: make PYTHON=python3.12 takes another" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot create environments; on Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 2; }
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 2; }

$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "Installing gemmbench and a CPU driver into $(VENV), once; this downloads some hundred megabytes." >&2
	@test $(VENV)/.dev -nt pyproject.toml || $(PIP) install --quiet --no-compile -e ".[cpu]"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "Installing gemmbench, a CPU driver and the tools for tests into $(VENV), once." >&2
	@$(PIP) install --quiet --no-compile -e ".[cpu,dev]"
	@touch $@ $(VENV)/.run
