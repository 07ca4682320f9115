"""Memory does not grow with use: 10,000 turns on one agent and an hour with 500 agents, measured by `bench/loop.py`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TURNS, MINUTES = 10_000, 60
KB_PER_1000_TURNS_MAX = 256  # 10,000 turns may leave 2.5 MB, which the allocator's own unrest can be


@pytest.mark.soak
def test_memory_stays_level() -> None:
    command = ["bench/loop.py", "--only", "memory", "--turns", str(TURNS), "--minutes", str(MINUTES)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["memory"]
    slopes = {name: found[name]["kb_per_1000_turns"] for name in ("one_agent", "many_agents")}
    assert max(slopes.values()) < KB_PER_1000_TURNS_MAX, found
