"""What scripts call often must not load the rig. No timing here: what is not imported costs nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("typer", "rich", "fastapi", "starlette", "sqlalchemy", "pydantic", "uvicorn", "httpx", "alembic")


# What a server that only waits for requests has not run: its first use imports it.
NOT_AT_THE_START = (
    "alembic", "aiohttp", "click", "cryptography", "multiprocessing", "numpy", "openai", "typer",
    "sqlalchemy.dialects.postgresql",
    "kelpie.agent.facts.model_question", "kelpie.agent.inbox.send", "kelpie.agent.multi_agent.group_chat",
    "kelpie.agent.resources.agents", "kelpie.agent.turn.activation", "kelpie.agent.turn.loop",
    "kelpie.batches.batches", "kelpie.llm.anthropic.messages", "kelpie.memory.blocks", "kelpie.search.text.bm25",
    "kelpie.server.letta.agents.routes", "kelpie.server.letta.templates.routes", "kelpie.server.mcp.routes",
    "kelpie.server.openai.chat_routes", "kelpie.storage.checkpoints.recall",
    "kelpie.tools.web.search_providers.providers", "kelpie.world.egress.proxy",
)  # fmt: skip

# Starts a server, asks it for its health, ends it, and says which modules have run.
SERVING = """
import os, signal, sys, threading, urllib.request
from pathlib import Path
from kelpie.cli.main import run
from kelpie.world.files.data_dir import DataDir
from kelpie.world.lazy_imports import LazyModule

announce = DataDir.announce

def ask(url):
    assert urllib.request.urlopen(url + "/v1/health/", timeout=60).status == 200
    print("ran:", *(name for name, it in list(sys.modules.items()) if it and type(it) is not LazyModule))
    os.kill(os.getpid(), signal.SIGTERM)

def announced(self, address):
    announce(self, address)
    threading.Thread(target=ask, args=(address,)).start()

DataDir.announce = announced
assert run(["server", "start", "--foreground"]) == 0
"""


def environment(data_dir: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return kept | {"KELPIE_DATA_DIR": str(data_dir), "KELPIE_PORT": "0", "PATH": ""}


def loaded_by(code: str, data_dir: Path) -> set[str]:
    """The top-level modules that are loaded once the code has run."""
    report = "import sys as _s; print(*sorted({name.split('.')[0] for name in _s.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        env=environment(data_dir),
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["server", "status"]])
def test_quick_commands_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    loaded = loaded_by(f"from kelpie.cli.main import run; run({arguments!r})", tmp_path)
    assert "kelpie" in loaded
    assert not loaded & {*HEAVY, "asyncio"}


def test_the_check_sees_what_is_loaded(tmp_path: Path) -> None:
    loaded = loaded_by("import kelpie.cli.app", tmp_path)
    assert "typer" in loaded
    of_servers = {"fastapi", "sqlalchemy", "uvicorn", "rich", "asyncio"}
    assert not loaded & of_servers, "talking to a server does not load one"


def test_the_server_process_loads_no_command_line_framework(tmp_path: Path) -> None:
    # The data directory is a file: the server is loaded, and ends at once.
    (tmp_path / "file").write_text("")
    code = "from kelpie.cli.main import run; assert run(['server', 'start', '--foreground']) == 1"
    loaded = loaded_by(code, tmp_path / "file")
    assert "fastapi" in loaded
    assert not loaded & {"typer", "alembic", "openai"}
    assert "markdown_it" not in loaded, "rich, which is hidden, would have brought it"


def test_a_server_that_waits_has_run_only_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVING], env=environment(tmp_path), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    ran = set(done.stdout.partition("ran: ")[2].split())
    assert {"kelpie.server.letta.compatibility.health_routes", "kelpie.storage.tables", "fastapi"} <= ran
    early = sorted(ran & set(NOT_AT_THE_START))
    assert early == [], "import it lazily (kelpie/world/lazy_imports.py) where it was imported"
