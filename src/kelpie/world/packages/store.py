"""Packages of tools on the disk: every set is in a directory of its own, installed once and never changed afterwards.

Installing runs no code of the packages (`installers.py`) and reaches no private network (`installer_network.py`). The
size on disk is checked meanwhile, because a small package can unpack into a very large one.
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
from kelpie.world.packages import integrity
from kelpie.world.packages.installer_network import installer_network
from kelpie.world.packages.installers import TEMPORARY, command, environment
from kelpie.world.processes.processes import Processes, ProcessResult

INSTALL_S = 300.0
PROBE_S = 30.0
OUTPUT_BYTES_MAX = 256 * 1024
TOLD_CHARS_MAX = 2000
SET_BYTES_MAX = 1024**3
SET_ENTRIES_MAX = 200_000
SETS_KEPT = 64
LOOK_S = 1.0
STALE_S = 3600.0  # an unfinished installation that is older belongs to a server that is gone

REFUSED = "\nThe server refused a download that a package or the index asked for: {} See docs/tools.md."

_UNFINISHED = ".part"


class Packages(Protocol):
    def find(self, wanted: RequiredPackages) -> str | None:
        """The directory of an installed set."""
        ...

    async def install(self, wanted: RequiredPackages, in_use: Iterable[str]) -> str:
        """Installs a set and returns its directory; sets that are unused for longest are removed, except those in use.

        Raises ToolError with the installer's message.
        """
        ...

    async def node_reads_types(self) -> bool | None:
        """True if this machine's Node strips types from TypeScript by itself; None without Node."""
        ...


class LocalPackages:
    """Packages on this machine's disk; for `private` see `installer_network.py`."""

    def __init__(self, processes: Processes, directory: Path, *, private: bool = False) -> None:
        self._processes = processes
        self._private = private
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
            (part / TEMPORARY).mkdir(parents=True, mode=0o755)
            env = environment(os.environ, part)
            way = installer_network(self._processes, wanted.index, env, private=self._private)
            async with way as network:
                _check(wanted, await self._run(wanted, part, network.env), network.refused)
            await asyncio.to_thread(integrity.check, wanted, part)
            await asyncio.to_thread(_settle, part, place)
        except OSError as error:
            names = ", ".join(wanted.lines)
            raise ToolError(f"{names} could not be installed with {wanted.index}: {error.strerror or error}") from error
        finally:
            await asyncio.to_thread(untrusted_tree.remove, str(part))
        await asyncio.to_thread(self._make_room, {*in_use, str(place)})
        return str(place)

    async def _run(self, wanted: RequiredPackages, part: Path, env: Mapping[str, str]) -> ProcessResult:
        """Runs the installer, and ends it when it uses too much. Raises ToolError, OSError."""
        installing = asyncio.ensure_future(
            self._processes.run(command(wanted, part), env=env, timeout_s=INSTALL_S, output_bytes_max=OUTPUT_BYTES_MAX)
        )
        try:
            while not installing.done():
                await asyncio.wait((installing,), timeout=LOOK_S)
                size, entries = await asyncio.to_thread(untrusted_tree.measure, str(part), SET_ENTRIES_MAX)
                if size > 2 * SET_BYTES_MAX or entries > SET_ENTRIES_MAX:  # packed and unpacked
                    raise ToolError(_too_large(size))
            return installing.result()
        finally:
            installing.cancel()
            await asyncio.wait((installing,))

    async def node_reads_types(self) -> bool | None:
        if self._reads_types is None:
            asked = ("node", "-p", "typeof require('node:module').stripTypeScriptTypes")
            try:
                done = await self._processes.run(
                    asked, env=environment(os.environ), timeout_s=PROBE_S, output_bytes_max=1024
                )
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


def _used(place: Path) -> float | None:
    """The time of its last use; None if another process has just removed it."""
    try:
        return place.stat().st_mtime
    except OSError:
        return None


def _platform(index: Index) -> str:
    version = f"{sys.implementation.cache_tag}" if index is Index.pip else ""
    return f"{version}-{platform.system()}-{platform.machine()}"


def _check(wanted: RequiredPackages, done: ProcessResult, refused: str | None) -> None:
    """Raises ToolError with the installer's message, and the refused requests."""
    names = ", ".join(wanted.lines)
    if done.timed_out:
        raise ToolError(f"installing {names} with {wanted.index} took longer than {INSTALL_S:g} s and was stopped")
    if done.code != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").splitlines()
        why = "\n".join(line for line in said if not line.startswith("WARNING")).strip()[-TOLD_CHARS_MAX:]
        raise ToolError(f"{wanted.index} could not install {names}: {why}{REFUSED.format(refused) if refused else ''}")


def _settle(part: Path, place: Path) -> None:
    """Moves a finished set to its directory. Raises ToolError for one that is too large."""
    untrusted_tree.remove(str(part / TEMPORARY))
    size, entries = untrusted_tree.measure(str(part), SET_ENTRIES_MAX)
    if size > SET_BYTES_MAX or entries > SET_ENTRIES_MAX:
        raise ToolError(_too_large(size))
    if not place.is_dir():
        os.sync()  # a name that outlives a power cut must not stand for files that did not
        part.rename(place)


def _too_large(size: int) -> str:
    return (
        f"the packages are too large ({size // 1024**2} MB found); a set may have at most "
        f"{SET_BYTES_MAX // 1024**2} MB and {SET_ENTRIES_MAX} files"
    )
