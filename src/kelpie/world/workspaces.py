"""The workspaces of agents: a directory of each under the data directory, where its files outlive its calls.

What lies in one was written by somebody else's code. So nothing here follows a link or opens a file: directories are
made, measured and removed, and whoever reads or writes does so from within a cell.
"""

import asyncio
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId

DIRECTORY = "workspaces"
ENTRIES_MAX = 10_000  # files and directories of one workspace


@dataclass(frozen=True, slots=True)
class Size:
    """How much lies in a workspace."""

    bytes: int = 0
    entries: int = 0


class Workspaces(Protocol):
    async def place(self, agent_id: AgentId) -> str:
        """The directory of an agent, made if need be. Raises ToolError when it cannot be."""
        ...

    async def size(self, agent_id: AgentId) -> Size:
        """How much lies there; nothing where there is none."""
        ...

    async def names(self) -> list[AgentId]:
        """The agents that have one, in their order."""
        ...

    async def remove(self, agent_id: AgentId) -> None:
        """Removes it with all that lies in it; one that is not there is no trouble."""
        ...


class DirectoryWorkspaces:
    """On this machine's disk."""

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir / DIRECTORY

    async def place(self, agent_id: AgentId) -> str:
        path = self._root / agent_id
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ToolError(f"the workspace cannot be made on the server: {error.strerror}") from error
        return str(path)

    async def size(self, agent_id: AgentId) -> Size:
        return await asyncio.to_thread(_size, self._root / agent_id)

    async def names(self) -> list[AgentId]:
        return await asyncio.to_thread(_names, self._root)

    async def remove(self, agent_id: AgentId) -> None:
        await asyncio.to_thread(_remove, self._root / agent_id)


def _size(path: Path) -> Size:
    """Counts until it is clear that there is too much; what vanishes meanwhile does not count."""
    total, entries, left = 0, 0, [str(path)]
    while left and entries <= ENTRIES_MAX:
        try:
            with os.scandir(left.pop()) as found:
                for entry in found:
                    entries += 1
                    about = entry.stat(follow_symlinks=False)
                    total += about.st_blocks * 512
                    if stat.S_ISDIR(about.st_mode):
                        left.append(entry.path)
        except OSError:
            continue
    return Size(total, entries)


def _names(root: Path) -> list[AgentId]:
    try:
        with os.scandir(root) as found:
            return sorted(AgentId(entry.name) for entry in found if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def _remove(path: Path) -> None:
    for place, directories, _ in os.walk(path):  # which goes on into them only after this
        for name in directories:
            inner = Path(place, name)
            if not inner.is_symlink():
                inner.chmod(stat.S_IRWXU)  # its owner may have closed it for itself
    shutil.rmtree(path, ignore_errors=True)
