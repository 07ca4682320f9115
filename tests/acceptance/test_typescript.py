"""The official TypeScript client against a real server: tests/typescript/client.mjs, a section a test."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, OPENAI, Call, WireModel
from tests.parts import lacks

HERE = Path(__file__).parent.parent / "typescript"
HELLO = "Hello from the model"  # which one of the wires streams without its spaces

SECTIONS: dict[str, list[str | list[Call]]] = {
    "agents": [],
    "messages": [HELLO, "again"],
    "streams": [HELLO, HELLO, "one two three", "Still here"],
    "background": [HELLO, "later"],
    "tools": [[("square", {"x": 7})], "49"],
    "approvals": [[("square", {"x": 5})], "25"],
    "clientTools": [[("look", {"at": "sea"})], "Waves, then"],
    "memory": [],
    "conversations": [HELLO],
    "agentFiles": [HELLO],
    "templates": [],
    "folders": [],
    "schedules": [],
    "errors": [],
}
NEEDS_CELLS = ("tools", "approvals")


@pytest.mark.parametrize(
    ("section", "handle"),
    [(section, handle) for section, script in SECTIONS.items() for handle in (HANDLES if script else (OPENAI,))],
)
def test_the_typescript_client_works_unmodified(server: Served, model: WireModel, section: str, handle: str) -> None:
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules").is_dir():
        lacks("node", "make test installs Node.js and the package @letta-ai/letta-client where it may")
    if section in NEEDS_CELLS and shutil.which("bwrap") is None:
        lacks("sandbox", "bubblewrap is not installed")
    model.will(*SECTIONS[section])
    command = (node, str(HERE / "client.mjs"), section, server.url, handle)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
