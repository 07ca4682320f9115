"""The official TypeScript client against a real server: tests/typescript/client.mjs, a section a test."""

import shutil
import subprocess
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, OPENAI, Call, WireModel
from tests.parts import lacks
from tests.turns import in_turns

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


def wires_in_turns() -> list[ParameterSet]:
    """Every section, with the wires of OpenAI and Anthropic by turns where a model is asked."""
    found: list[ParameterSet] = []
    for section, script in SECTIONS.items():
        wires = HANDLES if script else (OPENAI,)
        found += in_turns(f"typescript {section}", {f"{section}-{each}": (section, each) for each in wires}, len(wires))
    return found


@pytest.mark.parametrize("asked", wires_in_turns())
def test_the_typescript_client_works_unmodified(server: Served, model: WireModel, asked: tuple[str, str]) -> None:
    section, handle = asked
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules").is_dir():
        lacks("node", "make test installs Node.js and the package @letta-ai/letta-client where it may")
    if section in NEEDS_CELLS and shutil.which("bwrap") is None:
        lacks("sandbox", "bubblewrap is not installed")
    model.will(*SECTIONS[section])
    command = (node, str(HERE / "client.mjs"), section, server.url, handle)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
