"""Fixtures for the tests of memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kelpie.world.world import World
from tests.tools.workshop import open_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as opened:
        yield opened
