"""Fixtures of the server's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kelpie.app import Kelpie
from tests.server.rig import Puppet, client_of, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[tuple[Kelpie, Puppet]]:
    async with open_house(tmp_path) as opened:
        yield opened


@pytest.fixture
def kelpie(house: tuple[Kelpie, Puppet]) -> Kelpie:
    return house[0]


@pytest.fixture
def puppet(house: tuple[Kelpie, Puppet]) -> Puppet:
    return house[1]


@pytest.fixture
async def client(kelpie: Kelpie) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(kelpie) as opened:
        yield opened
