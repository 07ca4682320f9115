"""What most of these tests need: a model that speaks both wires, a server of its own that asks it, and both clients.

Each file has its own model and server; one that needs another model, or other settings, brings a fixture of that name.
Combinations of clients, wires and ways of asking take turns.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import Runner
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.port import CellPlan
from tests.acceptance.sdk import KINDS, sdk_client
from tests.acceptance.served import Served, served
from tests.acceptance.wire_model import WireModel, wire_model, wires
from tests.parts import lacks
from tests.turns import take_turns

HERE = Path(__file__).parent
COMBINED = ("client", "handle", "way", "streaming", "stream", "tokens", "background", "agent", "agent_type", "own")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before pytest leaves out what is marked with `soak`."""
    take_turns([item for item in items if item.path.is_relative_to(HERE)], COMBINED)


@pytest.fixture(scope="module")
def model() -> Iterator[WireModel]:
    with wire_model() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data"), **wires(model.url)) as running:
        yield running


@pytest.fixture(params=KINDS)
async def client(request: pytest.FixtureRequest, server: Served) -> AsyncIterator[Any]:
    async with sdk_client(request.param, server.url) as made:
        yield made


@pytest.fixture(scope="session")
def sandboxed() -> None:
    """Skips where this machine cannot hold code of tools, with the reason."""

    async def tried() -> None:
        cells = BubblewrapCells()
        try:
            await (await cells.start(CellPlan(Runner.command))).kill()
        finally:
            await cells.close()

    try:
        asyncio.run(tried())
    except SandboxUnavailable as error:
        lacks("sandbox", str(error))
