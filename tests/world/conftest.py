"""A package store whose installers run in cells of this machine, and indexes for it."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import Runner
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.port import CellPlan
from kelpie.world.packages.installer_cell import CellInstaller
from kelpie.world.packages.store import LocalPackages
from kelpie.world.processes.processes import SystemProcesses
from tests.package_index import Web
from tests.parts import lacks

_SETTINGS = ("PIP_", "UV_", "NPM_CONFIG_")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture
def index() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


@pytest.fixture
def inside() -> Iterator[Web]:
    """A server that nobody who registers a tool is to reach."""
    web = Web()
    yield web
    web.close()


@pytest.fixture
def plain_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installers without any setting of this machine."""
    for name in os.environ:
        if name.upper().startswith(_SETTINGS) or name.upper() in _PROXIES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("NPM_CONFIG_FETCH_RETRIES", "0")
    monkeypatch.setenv("NPM_CONFIG_GLOBALCONFIG", str(tmp_path / "none"))


@pytest.fixture
async def cells(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BubblewrapCells]:
    found = BubblewrapCells(kept=tmp_path_factory.getbasetemp() / "isolation.json")  # tested once, not for every test
    try:
        cell = await found.start(CellPlan(Runner.command))
    except SandboxUnavailable as error:
        lacks("sandbox", str(error))
    await cell.kill()
    yield found
    await found.close()


@pytest.fixture
def shelf(tmp_path: Path, cells: BubblewrapCells, plain_settings: None) -> LocalPackages:
    installer = CellInstaller(cells, SystemProcesses(), tmp_path / "data")
    return LocalPackages(installer, SystemProcesses(), tmp_path / "data/packages")
