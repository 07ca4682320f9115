"""Packages of tools on the disk: every set is in a directory of its own, installed once and never changed afterwards.

A set is installed in a cell (`installer_cell.py`). Before it gets its name it is checked: it holds directories and
ordinary files only, belongs to the server, and has ordinary modes.
"""

import asyncio
import os
import platform
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, RequiredPackages
from kelpie.world.files import untrusted_tree
from kelpie.world.packages import programs
from kelpie.world.packages.installer_cell import SET_BYTES_MAX, SET_ENTRIES_MAX, PackageInstaller, too_large
from kelpie.world.packages.installers import TEMPORARY
from kelpie.world.processes.processes import Processes

PROBE_S = 30.0
SETS_KEPT = 64
STALE_S = 3600.0  # an unfinished installation that is older belongs to a server that is gone
UNUSUAL = "the packages contain {}, which is refused"

_UNFINISHED = ".part"
_PROBE_ENV = ("PATH", "HOME", "LANG", "LC_ALL")


class Packages(Protocol):
    def find(self, wanted: RequiredPackages) -> str | None:
        """The directory of an installed set."""
        ...

    async def install(self, wanted: RequiredPackages, in_use: Iterable[str]) -> str:
        """Installs a set and returns its directory; sets that are unused for longest are removed, except those in use.

        Raises ToolError with the installer's message.
        """
        ...

    async def command(self, index: Index, place: str, package: str, program: str | None) -> list[str]:
        """The command, in a cell, of a program of an installed set. Raises ToolError if it has none of this name."""
        ...

    async def node_reads_types(self) -> bool | None:
        """True if this machine's Node strips types from TypeScript by itself; None without Node."""
        ...


class LocalPackages:
    """Packages on this machine's disk."""

    def __init__(self, installer: PackageInstaller, processes: Processes, directory: Path) -> None:
        self._installer = installer
        self._processes = processes
        self._directory = directory
        self._reads_types: bool | None = None

    def find(self, wanted: RequiredPackages) -> str | None:
        found = self._directory_of(wanted)
        try:
            os.utime(found)  # it was used now
        except OSError:
            return None
        return str(found)

    async def install(self, wanted: RequiredPackages, in_use: Iterable[str]) -> str:
        place = self._directory_of(wanted)
        part = place.with_name(f"{place.name}-{uuid.uuid4().hex}{_UNFINISHED}")
        try:
            part.mkdir(parents=True, mode=0o700)
            await self._installer.install(wanted, part)
            await asyncio.to_thread(_settle, part, place)
        except OSError as error:
            names = ", ".join(wanted.lines)
            why = error.strerror or "I/O error"
            raise ToolError(f"{names} could not be installed with {wanted.index}: {why}") from error
        finally:
            await asyncio.to_thread(untrusted_tree.remove, str(part))
        await asyncio.to_thread(self._make_room, {*in_use, str(place)})
        return str(place)

    async def command(self, index: Index, place: str, package: str, program: str | None) -> list[str]:
        return await asyncio.to_thread(programs.command, index, place, package, program)

    async def node_reads_types(self) -> bool | None:
        if self._reads_types is None:
            asked = ("node", "-p", "typeof require('node:module').stripTypeScriptTypes")
            env = _part_of(os.environ)
            try:
                done = await self._processes.run(asked, env=env, timeout_s=PROBE_S, output_bytes_max=1024)
            except OSError:
                return None  # asked again the next time: it may be installed meanwhile
            self._reads_types = done.stdout.strip() == b"function"
        return self._reads_types

    def _directory_of(self, wanted: RequiredPackages) -> Path:
        return self._directory / f"{wanted.index}-{wanted.key(_platform(wanted.index))}"

    def _make_room(self, kept: set[str]) -> None:
        """Removes the least recently used sets beyond the limit, and unfinished ones after a crash."""
        there = sorted((used, each) for each in self._directory.iterdir() if (used := _used(each)) is not None)
        now = max((used for used, _ in there), default=0.0)
        whole = [each for _, each in there if not each.name.endswith(_UNFINISHED)]
        old = [each for each in whole[: max(0, len(whole) - SETS_KEPT)] if str(each) not in kept]
        stale = [each for used, each in there if each.name.endswith(_UNFINISHED) and now - used > STALE_S]
        for each in (*old, *stale):
            untrusted_tree.remove(str(each))


def _part_of(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in _PROBE_ENV if name in env}


def _used(place: Path) -> float | None:
    """The time of its last use; None if another process has just removed it."""
    try:
        return place.stat().st_mtime
    except OSError:
        return None


def _platform(index: Index) -> str:
    version = f"{sys.implementation.cache_tag}" if index is Index.pip else ""
    return f"{version}-{platform.system()}-{platform.machine()}"


def _settle(part: Path, place: Path) -> None:
    """Moves a finished set to its directory. Raises ToolError for one that is too large or holds unusual files."""
    untrusted_tree.remove(str(part / TEMPORARY))
    size, entries = untrusted_tree.measure(str(part), SET_ENTRIES_MAX)
    if size > SET_BYTES_MAX or entries > SET_ENTRIES_MAX:
        raise ToolError(too_large(size))
    try:
        untrusted_tree.seal(str(part), os.geteuid(), os.getegid())
    except untrusted_tree.UnusualEntry as unusual:
        raise ToolError(UNUSUAL.format(unusual)) from unusual
    if not place.is_dir():
        os.sync()  # a name that outlives a power cut must not stand for files that did not
        part.rename(place)
