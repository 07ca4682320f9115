"""MCP over the standard input and output of a program in the sandbox: one JSON message per line."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from kelpie.core.errors import McpError, McpFault, ToolError
from kelpie.mcp.protocol.messages import (
    Failure,
    Message,
    NotAMessage,
    Notification,
    Request,
    RequestId,
    Result,
    decode,
    encode,
)
from kelpie.mcp.transports.pending import PendingRequests
from kelpie.mcp.transports.port import Inbound, TransportLimits, nobody, timed_out, too_large
from kelpie.sandbox.port import SandboxProcess
from kelpie.world.cells.port import ChannelClosed

GARBAGE_LINES_MAX = 200  # that are no messages: some programs print a few before they begin
WORDS_CHARS_MAX = 600  # of standard error, in the reason for an end

Start = Callable[[], Awaitable[SandboxProcess]]


class StdioTransport:
    closing_cancels = False
    probes = True

    def __init__(self, start: Start, limits: TransportLimits) -> None:
        self.version: str | None = None
        self.inbound: Inbound = nobody
        self._start = start
        self._limits = limits
        self._process: SandboxProcess | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending = PendingRequests()
        self._garbage = ""
        self._garbage_lines = 0
        self._alive = True

    @property
    def alive(self) -> bool:
        return self._alive

    async def start(self) -> None:
        try:
            self._process = await self._start()
        except ToolError as error:
            self._alive = False
            raise McpError(McpFault.unreachable, str(error)) from error
        self._reader = asyncio.create_task(self._read(self._process))

    async def request(self, request: Request, headers: Mapping[str, str], *, patient: bool = False) -> Result | Failure:
        self._pending.add(request.id)
        try:
            await self._send(request)
            return await self._pending.answer(request.id, None if patient else self._limits.read_s)
        finally:
            self._pending.remove(request.id)

    async def tell(self, message: Notification | Result | Failure) -> None:
        await self._send(message)

    async def listen(self, ready: Callable[[], None]) -> None:
        """Everything arrives on the one stream."""
        ready()

    async def close(self) -> None:
        self._alive = False
        if self._reader is not None:
            self._reader.cancel()
        if self._process is not None:
            await self._process.close()
        self._pending.end(McpError(McpFault.closed, "the connection was closed"))

    async def _send(self, message: Message) -> None:
        assert self._process is not None, "start() comes first"
        try:
            async with asyncio.timeout(self._limits.read_s):
                await self._process.send(encode(message) + b"\n")
        except TimeoutError:
            raise timed_out("it did not read its input", self._limits.read_s) from None
        except ChannelClosed:
            raise self._ended() from None

    async def _read(self, process: SandboxProcess) -> None:
        """Reads messages until the program ends, or writes what cannot be read."""
        left = bytearray()
        while data := await process.receive():
            self._pending.sign_of_life()
            begin = 0
            left += data
            while (end := left.find(b"\n", begin)) >= 0:
                if end - begin > self._limits.answer_bytes:
                    break
                self._take(bytes(left[begin:end]).strip())
                begin = end + 1
            del left[:begin]
            if len(left) > self._limits.answer_bytes:
                await self._stop(too_large(self._limits.answer_bytes))
                return
            if self._garbage_lines > GARBAGE_LINES_MAX:
                why = f"it writes text instead of messages, such as: {self._garbage}"
                await self._stop(McpError(McpFault.malformed, why))
                return
        await self._stop(self._ended())

    async def _stop(self, error: McpError) -> None:
        self._alive = False
        self._pending.end(error)
        if self._process is not None:
            await self._process.close()

    def _take(self, line: bytes) -> None:
        if not line:
            return
        try:
            message = decode(line)
        except NotAMessage:
            self._garbage_lines += 1
            self._garbage = line[:80].decode("utf-8", "replace")
            return
        if isinstance(message, Result | Failure):
            self._pending.resolve(message)
        else:
            self.inbound(message, self._only_request())

    def _only_request(self) -> RequestId | None:
        """The request that a message of the server belongs to: known only while there is just one."""
        ids = self._pending.ids
        return ids[0] if len(ids) == 1 else None

    def _ended(self) -> McpError:
        words = "" if self._process is None else self._process.last_words()
        said = words[-WORDS_CHARS_MAX:].strip() or self._garbage
        return McpError(McpFault.closed, "its program has ended" + (f": {said}" if said else ""))
