"""Simulated MCP servers that are programs in simulated cells and talk over standard input and output."""

import asyncio
import json
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.node import Node
from kelpie.sim.ports.cells import CellBroke, CellEnvironment, SimChannel
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.mcp.remote_server import Failed, RemoteServer, ServerBroke
from kelpie.world.cells.port import OrderOutput

COMMAND = "mcp-program"
OVERLAP_S = 3.0  # in which a program that was closed may still end, callback after callback late


class CellPrograms:
    """The programs of a run: the argument of the command names the server."""

    def __init__(self, machine: Machine, servers: list[RemoteServer], most: int) -> None:
        self.servers = {server.name: server for server in servers}
        self.started = 0
        self._machine = machine
        self._most = most
        self._ended = 0  # times that a program ended and no more ran than may
        self._running: dict[Node, list[str]] = {}  # by the life of the machine that they run on
        machine.world.program = self

    def running(self) -> list[str]:
        """The servers whose programs run now."""
        node = self._machine.node
        return [] if node is None else self._running.get(node, [])

    def config(self, server: RemoteServer) -> dict[str, Any]:
        env = {"SERVICE_TOKEN": server.token}
        return {"mcp_server_type": "stdio", "command": COMMAND, "args": [server.name], "env": env}

    async def __call__(self, inside: CellEnvironment, channel: SimChannel) -> None:
        server = self.servers[inside.request["argv"][1]]
        here = self._running.setdefault(inside.cells.node, [])
        here.append(server.name)
        self.started += 1
        if len(here) > self._most:
            self._machine.loop.call_later(OVERLAP_S, self._are_few, here, self._ended)
        talk = _Talk(server, channel)
        try:
            await talk.run()
        except ServerBroke:
            words = f"fatal: out of luck, SERVICE_TOKEN={inside.env['SERVICE_TOKEN']}"
            left = OrderOutput(code=1, result=None, stdout=b"", stderr=words.encode())
            raise CellBroke(left) from None
        finally:
            talk.end()
            here.remove(server.name)
            self._ended += len(here) <= self._most

    def _are_few(self, here: list[str], ended: int) -> None:
        if len(here) > self._most and ended == self._ended:
            told = f"{here} run, and the limit is {self._most}"
            self._machine.loop.fail(Broken("programs of servers are bounded", told))


class _Talk:
    """One process: it answers the lines that it reads, several at once."""

    def __init__(self, server: RemoteServer, channel: SimChannel) -> None:
        self._server = server
        self._channel = channel
        self._works: set[asyncio.Task[None]] = set()
        self._broken = asyncio.Event()

    async def run(self) -> None:
        """Raises ServerBroke."""
        self._begin(self._tell_changes())
        reading = asyncio.ensure_future(self._read())
        breaking = asyncio.ensure_future(self._broken.wait())
        self._works |= {reading, breaking}  # pyright: ignore[reportAttributeAccessIssue]
        await asyncio.wait((reading, breaking), return_when=asyncio.FIRST_COMPLETED)
        raise ServerBroke

    def end(self) -> None:
        for work in list(self._works):
            work.cancel()

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    async def _read(self) -> None:
        left = b""
        while True:
            left += await self._channel.read()
            *lines, left = left.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "id" in message and "method" in message:
                    self._begin(self._answer(message))
                else:
                    self._server.hear(message)

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            await self._say(await self._server.answer(message, self._say))
        except ServerBroke:
            self._broken.set()
        except Failed as failure:
            if failure.garbage:
                self._channel.write(f"{failure}\n".encode())
            error = {"code": -32603, "message": str(failure)}
            await self._say({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async def _say(self, message: dict[str, Any]) -> None:
        self._channel.write(json.dumps(message).encode() + b"\n")

    async def _tell_changes(self) -> None:
        while True:
            await self._server.changed.wait()
            await self._say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
