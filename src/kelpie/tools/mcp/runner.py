"""Calls of remote tools: the runner of all tools of MCP servers.

A failing server is a failed call, with the reason; it never fails the turn. Arguments that do not fit the tool's own
schema are the server's business: Kelpie has checked them against what the model was offered.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kelpie.core.conversations.questions import ROUNDS_MAX, ToolQuestions
from kelpie.core.errors import McpError, SecretUnreadable, ToolError
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.tools import Tool
from kelpie.mcp.client.answers import CallAnswer, CallResult, InputGiven, InputNeeded
from kelpie.mcp.client.inbound import Progress
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.protocol.http_headers import mirrored, mirrored_properties
from kelpie.mcp.protocol.tasks import Task
from kelpie.storage.tools import mcp_servers, mcp_tools
from kelpie.storage.tools.mcp_tools import ToolOrigin
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.mcp import tasks
from kelpie.tools.mcp.tool_results import outcome_of
from kelpie.world.database import Tx
from kelpie.world.world import World

NO_SERVER = "'{}' was not run: its MCP server was deleted. Use another tool."
NO_TASK = "The MCP server made a task of this call, and nobody would follow it: it was not made in a conversation."


class McpToolRunner:
    """The `ExternalTool` of every tool of an MCP server."""

    def __init__(self, world: World, pool: ConnectionPool) -> None:
        self._world = world
        self._pool = pool
        self.task_due: Callable[[], None] = _nothing  # called after a call has begun a task

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Raises ToolError."""
        given = None if call.answered is None else _given(call.answered)
        server, found = await self.answer(
            tool, arguments, within_s=call.quota.wall_s, given=given, progress=call.progress
        )
        if isinstance(found, Task):
            begun = await tasks.begin(self._world, server, tool, call, found)
            self.task_due()
            return begun
        return _outcome(server, found, call.answered)

    async def attempt(self, tool: Tool, arguments: Mapping[str, Any], within_s: float | None = None) -> Outcome:
        """Runs a tool for no agent. Raises ToolError."""
        return _outcome(*await self.answer(tool, arguments, within_s=within_s))

    async def answer(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        *,
        within_s: float | None = None,
        given: InputGiven | None = None,
        progress: Progress | None = None,
    ) -> tuple[McpServer, CallAnswer]:
        """The server of a tool, and what it answers. Raises ToolError."""
        server, origin = await self._found(tool)
        headers = mirrored(mirrored_properties(origin.remote.get("inputSchema") or {}), arguments)

        async def work(session: Session) -> CallAnswer:
            return await session.call(
                origin.remote_name,
                arguments,
                mirrored=headers,
                given=given,
                progress=progress,
                as_task=origin.remote.get("needs_task") is True,
            )

        try:
            connection = await self._pool.get(server)
            return server, await connection.use(work, within_s)
        except McpError as error:
            raise ToolError(error.message) from error

    async def _found(self, tool: Tool) -> tuple[McpServer, ToolOrigin]:
        keyring = self._world.keyring

        def read(tx: Tx) -> tuple[McpServer, ToolOrigin] | None:
            origin = mcp_tools.origin(tx, tool.id)
            server = None if origin is None else mcp_servers.anybodys(tx, origin.server_id, keyring)
            return None if origin is None or server is None else (server, origin)

        try:
            found = await self._world.database.read(read)
        except SecretUnreadable as error:
            raise ToolError(str(error)) from error
        if found is None or found[0].organization_id != tool.organization_id:
            raise ToolError(NO_SERVER.format(tool.name))
        return found


def _outcome(server: McpServer, found: CallAnswer, before: ToolQuestions | None = None) -> Outcome:
    if isinstance(found, CallResult):
        return outcome_of(found)
    if isinstance(found, InputNeeded):
        return _asks(server.server_name, found, before)
    raise ToolError(NO_TASK)


def _nothing() -> None:
    """Nobody follows tasks."""


def _given(answered: ToolQuestions) -> InputGiven:
    return InputGiven(answered.questions, answered.answers, answered.state)


def _asks(server: str, needed: InputNeeded, before: ToolQuestions | None) -> Outcome:
    """The outcome of a call that asks a person. Raises ToolError when it asks too often, or nothing."""
    rounds = 1 if before is None else before.rounds + 1
    if rounds > ROUNDS_MAX:
        raise ToolError(f"MCP server '{server}' asked {ROUNDS_MAX} times for input; the call was given up.")
    known = {} if before is None else before.answers
    answers = {key: known[key] for key in needed.questions if key in known} if needed.state is None else {}
    asked = ToolQuestions(server, needed.questions, answers, needed.state, rounds)
    if not asked.open:
        raise ToolError(f"MCP server '{server}' wants an answer and asks no question; the call was given up.")
    return Outcome(f"Not finished: a person must answer first. {asked.text()}", ok=False, asks=asked)
