"""Packages of tools on the disk: every set lies in a directory of its own, installed once and never changed afterwards.

Installing runs no code of the packages: pip takes wheels only, and npm runs no scripts. The installer is started with
an environment of its own, in which nothing of the server's is but what it needs to find the index.
"""

import asyncio
import importlib.util
import os
import platform
import shutil
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import ToolError
from kelpie.core.requirements import Index, Needed
from kelpie.world.processes import Finished, Processes

INSTALL_S = 300.0
PROBE_S = 30.0
OUTPUT_BYTES_MAX = 256 * 1024
TOLD_CHARS_MAX = 2000
SET_BYTES_MAX = 1024**3
SETS_KEPT = 64
STALE_S = 3600.0  # an unfinished installation that is older belongs to a server that is gone

_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PASSED_TOO = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PREFIXES = ("PIP_", "UV_", "NPM_CONFIG_")
_UNFINISHED = ".part"


class Packages(Protocol):
    def find(self, wanted: Needed) -> str | None:
        """The directory of a set that is installed."""
        ...

    async def install(self, wanted: Needed, in_use: Iterable[str]) -> str:
        """Installs a set and gives its directory; sets that nobody used for long make room, but for those in use.

        Raises ToolError with what the installer said.
        """
        ...

    async def node_reads_types(self) -> bool | None:
        """Whether this machine's Node takes the types out of TypeScript by itself; None without Node."""
        ...


class LocalPackages:
    def __init__(self, processes: Processes, directory: Path) -> None:
        self._processes = processes
        self._directory = directory
        self._reads_types: bool | None = None

    def find(self, wanted: Needed) -> str | None:
        found = self._place(wanted)
        if not found.is_dir():
            return None
        os.utime(found)  # it was used now
        return str(found)

    async def install(self, wanted: Needed, in_use: Iterable[str]) -> str:
        place = self._place(wanted)
        part = place.with_name(f"{place.name}-{uuid.uuid4().hex}{_UNFINISHED}")
        try:
            part.mkdir(parents=True, mode=0o755)
            done = await self._processes.run(
                _command(wanted, part),
                env=_environment(os.environ),
                timeout_s=INSTALL_S,
                output_bytes_max=OUTPUT_BYTES_MAX,
            )
            _check(wanted, done)
            await asyncio.to_thread(_settle, part, place)
        except OSError as error:
            names = ", ".join(wanted.lines)
            raise ToolError(f"{names} could not be installed with {wanted.index}: {error.strerror or error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
        await asyncio.to_thread(self._make_room, {*in_use, str(place)})
        return str(place)

    async def node_reads_types(self) -> bool | None:
        if self._reads_types is None:
            command = ("node", "-p", "typeof require('node:module').stripTypeScriptTypes")
            try:
                done = await self._processes.run(
                    command, env=_environment(os.environ), timeout_s=PROBE_S, output_bytes_max=1024
                )
            except OSError:
                return None  # asked again the next time: it may be installed meanwhile
            self._reads_types = done.stdout.strip() == b"function"
        return self._reads_types

    def _place(self, wanted: Needed) -> Path:
        return self._directory / f"{wanted.index}-{wanted.key(_platform(wanted.index))}"

    def _make_room(self, kept: set[str]) -> None:
        """Removes what was used least lately beyond the bound, and what a crash left unfinished."""
        there = sorted((each for each in self._directory.iterdir()), key=lambda each: each.stat().st_mtime)
        now = max((each.stat().st_mtime for each in there), default=0.0)
        unfinished = [each for each in there if each.name.endswith(_UNFINISHED)]
        whole = [each for each in there if each not in unfinished]
        old = [each for each in whole[: max(0, len(whole) - SETS_KEPT)] if str(each) not in kept]
        for each in (*old, *(one for one in unfinished if now - one.stat().st_mtime > STALE_S)):
            shutil.rmtree(each, ignore_errors=True)


def _platform(index: Index) -> str:
    version = f"{sys.implementation.cache_tag}" if index is Index.pip else ""
    return f"{version}-{platform.system()}-{platform.machine()}"


def _command(wanted: Needed, into: Path) -> list[str]:
    if wanted.index is Index.npm:
        quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev", "--loglevel=error")
        return ["npm", "install", *quiet, "--prefix", str(into), "--", *wanted.lines]
    wheels = ("--only-binary", ":all:", "--target", str(into))
    if importlib.util.find_spec("pip") is not None:
        pip = (sys.executable, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet")
        return [*pip, *wheels, "--", *wanted.lines]
    return ["uv", "pip", "install", "--quiet", "--python", sys.executable, *wheels, "--", *wanted.lines]


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What an installer may know of our environment: where things are and how the index is reached."""
    return {
        name: value
        for name, value in ours.items()
        if name.upper() in (*_PASSED, *_PASSED_TOO) or name.upper().startswith(_PREFIXES)
    }


def _check(wanted: Needed, done: Finished) -> None:
    names = ", ".join(wanted.lines)
    if done.timed_out:
        raise ToolError(f"installing {names} with {wanted.index} took longer than {INSTALL_S:g} s and was given up")
    if done.code != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").splitlines()
        why = "\n".join(line for line in said if not line.startswith("WARNING")).strip()[-TOLD_CHARS_MAX:]
        raise ToolError(f"{wanted.index} could not install {names}: {why}")


def _settle(part: Path, place: Path) -> None:
    """Gives a finished set its place. Raises ToolError for one that is too large."""
    size = sum(file.lstat().st_size for file in part.rglob("*"))
    if size > SET_BYTES_MAX:
        raise ToolError(f"the packages take {size // 1024**2} MB, and a set may take {SET_BYTES_MAX // 1024**2} MB")
    if not place.is_dir():
        os.sync()  # a name that outlives a power cut must not stand for files that did not
        part.rename(place)
