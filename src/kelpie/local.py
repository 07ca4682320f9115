"""Kelpie on this machine: its clock, network, processes and disk as the adapters of the ports in `world`."""

import os
import random
from functools import partial
from pathlib import Path

from kelpie.app import Kelpie
from kelpie.core.dates.time_zones import check_timezone
from kelpie.core.errors import ConfigurationError, InvalidInput
from kelpie.core.settings.settings import SECRET_VARIABLES, Settings
from kelpie.core.tools.mcp_servers import McpConfig
from kelpie.observe import logs
from kelpie.tools.mcp.server_file import read_servers
from kelpie.world import machine
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.clock import SystemClock
from kelpie.world.embedding.minilm import MiniLm
from kelpie.world.files import json_file, password_file
from kelpie.world.files.data_dir import DataDir, absolute_path, restrict_database
from kelpie.world.files.disk_space import disk_space
from kelpie.world.files.key_file import DIRECTORY, NAME, FileKeys, SettingKeys
from kelpie.world.files.uploads import DirectoryUploads
from kelpie.world.files.workspaces import DirectoryWorkspaces
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.keyring import Keyring
from kelpie.world.open_files import lacks_files
from kelpie.world.packages.installer_cell import CellInstaller
from kelpie.world.packages.store import LocalPackages
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.sqlite.database import SqliteDatabase
from kelpie.world.world import World

DATABASE_FILE = "kelpie.db"
PACKAGES_DIR = "packages"  # of tools

_log = logs.get("app")


def open_kelpie(settings: Settings) -> Kelpie:
    """A Kelpie with this machine's adapters, ready to be started. Raises ConfigurationError in one clear sentence."""
    try:
        check_timezone(settings.default_timezone)
    except InvalidInput as error:
        raise ConfigurationError("KELPIE_DEFAULT_TIMEZONE", error.remedy) from None
    data_dir = DataDir.open(settings.data_dir)
    data_dir.lock()
    uploads = DirectoryUploads(data_dir.path)
    try:
        uploads.clear()
        path = _database_path(settings, data_dir)
        restrict_database(path)
        database = SqliteDatabase.open(path)
    except BaseException:  # raised again; the lock must not keep the next start out
        data_dir.close()
        raise
    if settings.sandbox_isolation == "none":
        _log.warning(
            "isolation_optional",
            "sandbox.isolation is none: tool code runs without isolation where this machine cannot isolate it",
        )
    world = World(
        clock=SystemClock(),
        ids=RandomIds(),
        random=random.Random(),
        database=database,
        http=NetworkHttp(),
        processes=SystemProcesses(),
        uploads=uploads,
        embedder=MiniLm(
            settings.embedding_dir,
            data_dir.path / "models",
            precision=settings.embedding_precision,
            idle_s=settings.embedding_idle_s,
        ),
        cells=BubblewrapCells(
            kept=data_dir.path / "isolation.json",
            lowered=_warn_of_missing_isolation if settings.sandbox_isolation == "none" else None,
        ),
        workspaces=DirectoryWorkspaces(data_dir.path),
        memory_bytes=machine.memory_bytes(),
        lacks_files=lacks_files,
        disk_space=partial(disk_space, data_dir.path),
        keyring=_keyring(settings, data_dir),
    )
    return Kelpie(
        world,
        settings,
        packages=_packages(world, settings, data_dir.path),
        data_dir=data_dir,
        password_kept=password_file.read(data_dir.path),
        mcp_file=partial(_mcp_servers, settings.mcp_file) if settings.mcp_file else None,
    )


def _mcp_servers(path: str) -> dict[str, McpConfig]:
    """The servers of the operator's file. Raises InvalidInput."""
    return read_servers(json_file.read(absolute_path(path)), os.environ, SECRET_VARIABLES)


def _keyring(settings: Settings, data_dir: DataDir) -> Keyring:
    if settings.encryption_key is not None:
        return Keyring(store=SettingKeys(settings.encryption_key))
    named = settings.encryption_key_file
    return Keyring(store=FileKeys(absolute_path(named) if named else data_dir.path / DIRECTORY / NAME))


def _packages(world: World, settings: Settings, data_dir: Path) -> LocalPackages | None:
    if not settings.packages or world.cells is None:
        return None
    installer = CellInstaller(world.cells, world.processes, data_dir, private=settings.egress_private)
    return LocalPackages(installer, world.processes, data_dir / PACKAGES_DIR)


def _database_path(settings: Settings, data_dir: DataDir) -> Path:
    url = settings.database_url
    if url is None:
        return data_dir.path / DATABASE_FILE
    if not url.startswith("sqlite:///"):
        raise ConfigurationError("KELPIE_DATABASE_URL", "this version stores in SQLite; use sqlite:///path/to/file.db")
    return Path(url.removeprefix("sqlite:///"))


def _warn_of_missing_isolation(reason: str) -> None:
    _log.warning("isolation_missing", "Tool code runs without isolation, as sandbox.isolation allows", reason=reason)
