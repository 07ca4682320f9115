"""What takes turns: `make test` runs a part of what costs much, another one with every change of the product.

Whose turn it is depends on `src` as it is in the commit that is checked out, so a commit that changes only tests or
documents runs the same parts again. `make soak` runs what is left out.
"""

import hashlib
import subprocess
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

ROOT = Path(__file__).parents[1]
SOURCE = "HEAD:src"
NO_SOURCE = "no commit"  # where git or the repository is missing: every turn is the first
FIRST_MAX = 1_000_000


@lru_cache(maxsize=1)
def source() -> str:
    """The hash of `src` in the commit that is checked out, or `NO_SOURCE`."""
    try:
        asked = subprocess.run(("git", "rev-parse", SOURCE), cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return NO_SOURCE
    return asked.stdout.strip() if asked.returncode == 0 else NO_SOURCE


def first_seed(name: str, of: str) -> int:
    """Where something of this name begins for a source."""
    if of == NO_SOURCE:
        return 0
    return int.from_bytes(hashlib.sha256(f"{of} {name}".encode()).digest()[:8]) % FIRST_MAX


def in_turns(what: str, values: Mapping[str, Any], parts: int, of: str | None = None) -> list[ParameterSet]:
    """The values as parameters under their ids, of which one part has its turn; the others are left to `make soak`."""
    turn = first_seed(what, source() if of is None else of)
    return [
        pytest.param(value, id=name, marks=() if (at + turn) % parts == 0 else pytest.mark.soak)
        for at, (name, value) in enumerate(values.items())
    ]


def on_turn(what: str, places: Collection[int], of: str | None = None) -> bool:
    """Checks whether a combination has its turn, whose values stand at these places of their lists.

    Those that have are a chessboard: every value is in it, and of three lists or more every pair of values of two.
    """
    return (sum(places) + first_seed(what, source() if of is None else of)) % 2 == 0


def take_turns(items: list[pytest.Item], names: Collection[str]) -> None:
    """Leaves every second combination of these parameters to `make soak`, where a test has several of them."""
    for item in items:
        call = getattr(item, "callspec", None)
        places = [place for name, place in call.indices.items() if name in names] if call is not None else []
        if len(places) > 1 and not on_turn(item.nodeid.partition("[")[0], places):
            item.add_marker(pytest.mark.soak)
