"""The workspaces of agents: one directory each under the data directory, where an agent's files outlive its calls.

Their contents were written by untrusted code. So nothing here follows a link or opens a file: directories are created,
measured and removed (`untrusted_tree.py`), and files are read and written only from within a cell.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId
from kelpie.world.files import untrusted_tree

DIRECTORY = "workspaces"
ENTRIES_MAX = 10_000  # files and directories of one workspace


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a workspace."""

    bytes: int = 0
    entries: int = 0
    free_bytes: int | None = None  # on its disk; None: unknown


class Workspaces(Protocol):
    async def directory(self, agent_id: AgentId) -> str:
        """The directory of an agent, created if needed. Raises ToolError when it cannot be."""
        ...

    async def size(self, agent_id: AgentId) -> Size:
        """The size of a workspace; zero where there is none."""
        ...

    async def names(self) -> list[AgentId]:
        """The agents that have a workspace, sorted."""
        ...

    async def remove(self, agent_id: AgentId) -> None:
        """Removes a workspace with all its contents; a missing one is no error."""
        ...


class DirectoryWorkspaces:
    """Workspaces on this machine's disk."""

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir / DIRECTORY

    async def directory(self, agent_id: AgentId) -> str:
        path = self._root / agent_id
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._root.chmod(0o700)  # an agent's code owns its own directory, and can make that readable for everyone
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ToolError(f"the workspace cannot be created on the server: {error.strerror}") from error
        return str(path)

    async def size(self, agent_id: AgentId) -> Size:
        return await asyncio.to_thread(_size, self._root / agent_id)

    async def names(self) -> list[AgentId]:
        return await asyncio.to_thread(_names, self._root)

    async def remove(self, agent_id: AgentId) -> None:
        await asyncio.to_thread(untrusted_tree.remove, str(self._root / agent_id))


def _size(path: Path) -> Size:
    total, entries = untrusted_tree.measure(str(path), ENTRIES_MAX)
    try:
        disk = os.statvfs(path)
    except OSError:
        return Size(total, entries)
    return Size(total, entries, disk.f_bavail * disk.f_frsize)


def _names(root: Path) -> list[AgentId]:
    try:
        with os.scandir(root) as found:
            return sorted(AgentId(entry.name) for entry in found if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
