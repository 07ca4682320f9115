"""Fixtures for the tests of tools."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kelpie.world.world import World
from tests.tools.workshop import Workshop, open_workshop, open_world


@pytest.fixture
def shop() -> Iterator[Workshop]:
    with open_workshop() as opened:
        yield opened


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as opened:
        yield opened
