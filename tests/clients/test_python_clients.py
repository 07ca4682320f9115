"""Python packages on other versions of `letta-client` than the tests' own, against a live server."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.served import Served
from tests.acceptance.wire_model import ANTHROPIC, OPENAI, Call, WireModel
from tests.parts import lacks

HERE = Path(__file__).parent
PACKAGES = Path(sys.prefix) / "clients"
HELLO = "Hello from the model"
SAILS: Call = ("core_memory_append", {"label": "human", "content": "Sails"})
SKIS: Call = ("core_memory_append", {"label": "human", "content": "Skis"})


def _runs(script: str, packages: str, *arguments: str) -> None:
    """Runs a program with these packages before the installed ones. Raises AssertionError with its errors."""
    folder = PACKAGES / packages
    if not folder.is_dir():
        lacks("clients", f"{packages} is not installed")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LETTA_", "OPENAI_"))}
    env = kept | {"PYTHONPATH": str(folder)}
    command = (sys.executable, str(HERE / script), *arguments)
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_letta_client_0_1_works_unmodified(server: Served, model: WireModel) -> None:
    model.will(HELLO, HELLO, HELLO, [SAILS], "Noted", [SKIS], "Noted too", HELLO)
    _runs("letta_client_0_1.py", "letta-client-0.1", server.url, ANTHROPIC)


def test_agentic_learning_works_unmodified(server: Served, model: WireModel) -> None:
    model.will(*[HELLO] * 12)  # also for the sleeptime agent, which looks at the conversation when it likes
    _runs("agentic.py", "agentic-learning", server.url, OPENAI, f"{model.url}/v1")
    assert "Ada sails" in json.dumps(model.asked[0]["messages"]), "the memory is in the prompt of the recorded call"
