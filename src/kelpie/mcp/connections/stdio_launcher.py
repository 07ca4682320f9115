"""Programs of stdio servers: their packages are installed once, and they run in the sandbox with what they are granted.

They see a scratch directory, their packages, and the directories of their configuration that the operator allows; they
have no network but the hosts of their configuration. Nothing of the server's own environment reaches them.
"""

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import InvalidInput, McpError, McpFault, SandboxUnavailable, ToolError
from kelpie.core.tools.confinement import MEGABYTE, Confinement
from kelpie.core.tools.mcp_servers import McpConfig, McpServer
from kelpie.core.tools.package_requirements import RequiredPackages
from kelpie.mcp.connections.packaged_commands import PackagedCommand, packaged
from kelpie.sandbox.port import Mount, Runner, Sandbox, SandboxJob, SandboxProcess
from kelpie.world.packages.programs import PYTHON_PACKAGES

MEMORY_MB = 512
PROCESSES = 128
LAST_WORDS_BYTES = 64 * 1024  # of standard error that are kept
LIFE_S = 30 * 24 * 3600.0  # of processor time; its owner ends it when it is idle
NO_SANDBOX = "this server has no sandbox, and a stdio server runs nowhere else"
_DIRECTORIES = "config.kelpie_options.directories"
_HIDDEN = ("/proc", "/sys", "/dev", "/run", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")


class InstalledPackages(Protocol):
    """A set of packages that is held while it is used."""

    @property
    def mounts(self) -> tuple[Mount, ...]: ...

    async def command(self, package: str, program: str | None) -> list[str]:
        """The command, inside a cell, of a program of the set. Raises ToolError if there is none."""
        ...


class PackageSets(Protocol):
    def held(self, wanted: RequiredPackages, consumer: Consumer) -> AbstractAsyncContextManager[InstalledPackages]:
        """Installs a set once, and holds it. Raises ToolError."""
        ...


@dataclass(frozen=True, slots=True)
class StdioLauncher:
    """`directories` are those that the operator lets configurations grant; `memory_mb_max` is the most of any."""

    sandbox: Sandbox | None
    packages: PackageSets
    directories: tuple[str, ...] = ()
    memory_mb_max: int | None = None

    def launch(self, server: McpServer) -> "Launch":
        return Launch(self, server)


class Launch:
    """One start of a server's program."""

    def __init__(self, launcher: StdioLauncher, server: McpServer) -> None:
        self._launcher = launcher
        self._server = server
        self._kept = AsyncExitStack()
        self._argv: list[str] = []
        self._mounts: tuple[Mount, ...] = ()

    async def prepare(self) -> None:
        """Installs what the program needs. Raises McpError."""
        config = self._server.config
        command = config.command or ""
        try:
            found = packaged(command, config.args)
            self._argv = [command, *config.args]
            if found is not None:
                await self._install(found)
            self._mounts += granted(config, self._launcher.directories)
        except (ToolError, InvalidInput) as error:
            raise McpError(McpFault.unreachable, str(error)) from error

    async def start(self) -> SandboxProcess:
        """Raises SandboxUnavailable, or ToolError for a host that it may not reach."""
        sandbox, config = self._launcher.sandbox, self._server.config
        if sandbox is None:
            raise SandboxUnavailable(NO_SANDBOX)
        request = json.dumps({"argv": self._argv, "talks": True}).encode()
        job = SandboxJob(
            Runner.command,
            request,
            {**_PYTHON, **(config.env or {})},
            self._mounts,
            self._confinement(),
            consumer=Consumer(self._server.organization_id),
        )
        return _HeldProcess(await sandbox.start(job), self._kept)

    async def release(self) -> None:
        """Lets go of what was prepared and not started."""
        await self._kept.aclose()

    async def _install(self, found: PackagedCommand) -> None:
        consumer = Consumer(self._server.organization_id)
        installed = await self._kept.enter_async_context(self._launcher.packages.held(found.wanted, consumer))
        self._mounts = installed.mounts
        self._argv = [*await installed.command(found.package, found.program), *found.args]

    def _confinement(self) -> Confinement:
        options, most = self._server.config.options, self._launcher.memory_mb_max
        memory = options.memory_mb or MEMORY_MB
        return Confinement(
            wall_s=LIFE_S,
            memory_bytes=(memory if most is None else min(memory, most)) * MEGABYTE,
            processes=PROCESSES,
            output_bytes=LAST_WORDS_BYTES,
            egress=options.egress,
        )


# A line must leave the program when it is written; packages of an installed set are found by its subprocesses as well.
_PYTHON = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": PYTHON_PACKAGES}


class _HeldProcess:
    """A program, with the packages that it holds."""

    def __init__(self, process: SandboxProcess, kept: AsyncExitStack) -> None:
        self._process = process
        self._kept = kept
        self.send = process.send
        self.receive = process.receive
        self.last_words = process.last_words

    async def close(self) -> None:
        try:
            await self._process.close()
        finally:
            await self._kept.aclose()


def granted(config: McpConfig, allowed: Sequence[str]) -> tuple[Mount, ...]:
    """The directories that a configuration grants. Raises InvalidInput for one that the operator does not allow."""
    for each in config.options.directories:
        path = PurePosixPath(each.path)
        if not path.is_absolute() or ".." in path.parts:
            raise InvalidInput(_DIRECTORIES, f"'{each.path[:200]}' is not an absolute path without '..'")
        if any(path.is_relative_to(hidden) for hidden in _HIDDEN):
            raise InvalidInput(_DIRECTORIES, f"'{each.path[:200]}' cannot be granted")
        if not any(path.is_relative_to(PurePosixPath(root)) for root in allowed):
            raise InvalidInput(
                _DIRECTORIES,
                f"'{each.path[:200]}' is not below a directory of the setting mcp.directories "
                "(KELPIE_MCP_DIRECTORIES), with which the operator allows directories",
            )
    return tuple(Mount(each.path, each.path, each.writable, ours=False) for each in config.options.directories)
