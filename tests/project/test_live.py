"""`make test-live` where nothing is set up: every test is skipped with what to set, and the last lines say so."""

import os
import subprocess
import sys
from pathlib import Path

from kelpie.core.settings.settings import VARIABLES
from kelpie.llm.routing.providers import ALL_OFFERS

ROOT = Path(__file__).parents[2]


def test_without_keys_everything_is_skipped_with_the_remedy() -> None:
    """The tests with the model on this machine need no key; whether they run depends on what is installed."""
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES and "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "live", "tests/live", "-p", "no:cacheprovider",
         "--ignore", "tests/live/test_real_model.py"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    last = done.stdout[done.stdout.index(" live ") :]
    assert all(f"{offer.name}: not run: Set {offer.variable}" in last for offer in ALL_OFFERS)
    assert "web: not run: Set TAVILY_API_KEY, EXA_API_KEY, BRAVE_API_KEY or SEARXNG_BASE_URL to search the web" in last
    assert done.stdout.splitlines()[-1].startswith("0 passed, 0 failed")
