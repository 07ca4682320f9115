"""Fixtures of the server's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kelpie.app import Kelpie
from tests.server.rig import Puppet, client_of, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[tuple[Kelpie, Puppet]]:
    async with open_rig(tmp_path) as opened:
        yield opened


@pytest.fixture
def kelpie(rig: tuple[Kelpie, Puppet]) -> Kelpie:
    return rig[0]


@pytest.fixture
def puppet(rig: tuple[Kelpie, Puppet]) -> Puppet:
    return rig[1]


@pytest.fixture
async def client(kelpie: Kelpie) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(kelpie) as opened:
        yield opened
