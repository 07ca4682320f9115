"""The Vercel AI SDK provider against a live server: tests/clients/vercel.mjs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.served import Served
from tests.acceptance.wire_model import ANTHROPIC, Call, WireModel
from tests.parts import lacks

HERE = Path(__file__).parent
HELLO = "Hello from the model"
SAILS: Call = ("core_memory_append", {"label": "human", "content": "Sails"})
SKIS: Call = ("core_memory_append", {"label": "human", "content": "Skis"})


@pytest.mark.needs("node")
def test_the_vercel_provider_works_unmodified(server: Served, model: WireModel) -> None:
    node = shutil.which("node")
    if not (HERE / "node_modules" / "@letta-ai" / "vercel-ai-sdk-provider").is_dir():
        lacks("clients", "the Vercel provider is not installed")
    assert node is not None
    model.will(HELLO, HELLO, [SAILS], "Noted", [SKIS], "Noted too", HELLO)
    command = (node, str(HERE / "vercel.mjs"), server.url, ANTHROPIC)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
