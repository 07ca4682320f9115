"""A session with one MCP server: the version agreed on, its tools, and calls of them.

The server is first asked with `server/discover`, which only the stateless generation answers; any other answer means
`initialize`. A request of the stateless generation whose answer breaks off is sent again under a new id.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from kelpie import __version__
from kelpie.core.errors import McpError, McpFault
from kelpie.mcp.client.answers import (
    CallAnswer,
    InputGiven,
    InputNeeded,
    RemoteTool,
    read_call,
    read_questions,
    read_tool,
)
from kelpie.mcp.client.inbound import InboundMessages, Progress, RunningCall
from kelpie.mcp.protocol import http_headers, tasks
from kelpie.mcp.protocol.envelope import META, PROGRESS_TOKEN, Envelope, sealed
from kelpie.mcp.protocol.messages import (
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
    Failure,
    Notification,
    Request,
    RequestId,
    Result,
)
from kelpie.mcp.protocol.tasks import Task, TaskStatus, read_task
from kelpie.mcp.protocol.versions import (
    LATEST_SESSION,
    LATEST_STATELESS,
    SESSION_VERSIONS,
    V2025_06,
    V2025_11,
    at_least,
    is_stateless,
    newest_common,
)
from kelpie.mcp.transports.port import StreamBroken, Transport, malformed, timed_out
from kelpie.observe import logs

CLIENT = {"name": "kelpie", "version": __version__}
PROBE_S_MAX = 5.0  # for an answer to `server/discover`; older programs may not answer what they do not know
REPEATS_MAX = 2  # of a stateless request whose answer broke off
REPEAT_S = 0.25  # before the first repeat; the second waits twice as long
PAGES_MAX, TOOLS_MAX = 100, 1000
TOOLS_S_MIN = 60.0  # that a list of tools is kept, whatever its server says
GOODBYE_S = 2.0
QUESTIONS_S = 5.0  # for a task to ask what it waits for, before 2026-07-28
NO_PERSON = "A task of this version of MCP cannot wait for a person, so the question was cancelled."
TASK_TTL_MS = 24 * 3600 * 1000  # that a server is asked to keep a task, 2025-11-25

_log = logs.get("mcp")


class Session:
    """`version` is None until `open` has agreed on one. `tools_changed` is called when the server says so."""

    def __init__(self, transport: Transport, tools_changed: Callable[[], None], *, session_only: bool = False) -> None:
        """With `session_only` the server is known to be of the older generation and is not asked first."""
        self.version: str | None = None
        self.server: Mapping[str, Any] = {}
        self.capabilities: Mapping[str, Any] = {}
        self.instructions: str | None = None
        self.lists_tools = False  # somebody has asked for its tools
        self._tools_end_at: float | None = None  # the list of tools is kept no longer; None: no end is known
        self._transport = transport
        self._session_only = session_only
        self._ids = count(1)
        self._inbound = InboundMessages(self._reply, tools_changed)
        self._background: set[asyncio.Task[None]] = set()
        transport.inbound = self._inbound.take

    @property
    def alive(self) -> bool:
        return self._transport.alive

    @property
    def stateless(self) -> bool:
        return is_stateless(self.version)

    # --- beginning and end -------------------------------------------------------------------------------------------

    async def open(self, connect_s: float) -> None:
        """Connects and agrees on a version. Raises McpError."""
        try:
            async with asyncio.timeout(connect_s):
                await self._transport.start()
                if not self._transport.probes or self._session_only or not await self._discover(connect_s):
                    await self._initialize()
        except TimeoutError:
            raise timed_out("it did not connect", connect_s) from None

    async def listen(self, ready: Callable[[], None]) -> None:
        """Follows what the server sends on its own, until that ends. Calls `ready` when it arrives from now on.
        Raises McpError."""
        if not self.stateless:
            await self._transport.listen(ready)
        elif self.changes_tools:
            self._inbound.subscribed = ready
            await self._send("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, self.version)

    @property
    def changes_tools(self) -> bool:
        """True if the server says when its tools change."""
        offered = self.capabilities.get("tools")
        return isinstance(offered, Mapping) and offered.get("listChanged") is True

    @property
    def tools_are_old(self) -> bool:
        """True if nobody has the tools or asks for them, or had them longer than the server says that they are kept."""
        ended = self._tools_end_at is not None and asyncio.get_running_loop().time() >= self._tools_end_at
        return ended or not self.lists_tools

    def expect_tools(self) -> None:
        """Somebody is going to ask for the tools."""
        self.lists_tools, self._tools_end_at = True, None

    async def close(self) -> None:
        for task in list(self._background):
            task.cancel()
        await self._transport.close()

    async def _discover(self, connect_s: float) -> bool:
        """Asks a server of the stateless generation what it is; False if it is of the older one."""
        version = LATEST_STATELESS
        try:
            async with asyncio.timeout(min(PROBE_S_MAX, connect_s / 2)):
                answer = await self._send("server/discover", {}, version)
                if isinstance(answer, Failure) and answer.code == UNSUPPORTED_VERSION:
                    version = _mutual(answer)
                    if version is None:
                        return False
                    answer = await self._send("server/discover", {}, version)
        except TimeoutError:
            return False
        except McpError as error:
            if error.kind is McpFault.malformed or (error.code is not None and error.kind is McpFault.refused):
                return False
            raise
        if isinstance(answer, Failure):
            return False
        version = newest_common(answer.result.get("supportedVersions"))
        if version is None:
            return False
        self._agreed(version, answer.result)
        info = answer.result.get(META)
        found = info.get("io.modelcontextprotocol/serverInfo") if isinstance(info, Mapping) else None
        self.server = found if isinstance(found, Mapping) else {}
        return True

    async def _initialize(self) -> None:
        params = {
            "protocolVersion": LATEST_SESSION,
            "capabilities": _capabilities(LATEST_SESSION),
            "clientInfo": CLIENT,
        }
        answer = await self._send("initialize", params, None)
        if isinstance(answer, Failure):
            raise _refused(answer)
        version = answer.result.get("protocolVersion")
        if not isinstance(version, str) or version not in SESSION_VERSIONS:
            known = ", ".join((*SESSION_VERSIONS, LATEST_STATELESS))
            raise McpError(McpFault.refused, f"it speaks version {str(version)[:40]} of MCP; Kelpie speaks {known}")
        self._agreed(version, answer.result)
        self._transport.version = version
        info = answer.result.get("serverInfo")
        self.server = info if isinstance(info, Mapping) else {}
        await self._transport.tell(Notification("notifications/initialized"))

    def _agreed(self, version: str, told: Mapping[str, Any]) -> None:
        self.version = version
        capabilities, instructions = told.get("capabilities"), told.get("instructions")
        self.capabilities = capabilities if isinstance(capabilities, Mapping) else {}
        self.instructions = instructions if isinstance(instructions, str) else None

    # --- tools -------------------------------------------------------------------------------------------------------

    async def tools(self) -> list[RemoteTool]:
        """All tools of the server, in its order. Raises McpError."""
        self.expect_tools()
        try:
            return await self._all_pages()
        except BaseException:  # raised again: nobody is going to get them
            self.lists_tools = False
            raise

    async def _all_pages(self) -> list[RemoteTool]:
        found: list[RemoteTool] = []
        cursor, kept_s = None, math.inf
        for _ in range(PAGES_MAX):
            page = await self._exchange("tools/list", {} if cursor is None else {"cursor": cursor})
            listed, cursor = page.get("tools"), page.get("nextCursor")
            if not isinstance(listed, list):
                raise malformed("the list of its tools is not a list")
            for each in listed:
                try:
                    found.append(read_tool(each))
                except ValueError as error:
                    raise malformed(f"it lists {error}") from None
            if len(found) > TOOLS_MAX:
                raise McpError(McpFault.too_large, f"it lists more than {TOOLS_MAX} tools")
            kept_s = min(kept_s, _kept_s(page))
            if not cursor:
                self._note_age(kept_s)
                return found
        raise McpError(McpFault.too_large, f"its list of tools has more than {PAGES_MAX} pages")

    def _note_age(self, kept_s: float) -> None:
        """A server that tells changes is believed; another's list is read again when it has ended."""
        if self.stateless and not self.changes_tools:
            self._tools_end_at = asyncio.get_running_loop().time() + max(kept_s, TOOLS_S_MIN)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        mirrored: Mapping[str, str] | None = None,
        given: InputGiven | None = None,
        progress: Progress | None = None,
        as_task: bool = False,
    ) -> CallAnswer:
        """Calls a tool. `mirrored` are headers that repeat arguments; `given` are answers to questions of an earlier
        call. Raises McpError."""
        given = given or InputGiven()
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
        if self.stateless:
            params |= {"inputResponses": given.responses()} if given.answers else {}
            params |= {"requestState": given.state} if given.state is not None else {}
        elif as_task and at_least(self.version or "", V2025_11):
            params["task"] = {"ttl": TASK_TTL_MS}
        running = RunningCall(progress, given)
        try:
            answer = read_call(await self._exchange("tools/call", params, mirrored or {}, running))
        except McpError as error:
            if running.asked:
                return _questions(running)
            if error.code == URL_ELICITATION_REQUIRED and isinstance(error, RefusedRequest):
                return _pages_to_visit(error)
            raise
        return _questions(running) if running.asked else answer

    # --- tasks -------------------------------------------------------------------------------------------------------

    async def task(self, task_id: str) -> Task:
        """The state of a task, with its result once it has one. Raises McpError."""
        found = _task(await self._exchange("tasks/get", {"taskId": task_id}))
        if not self.stateless and found.status is TaskStatus.input_required:
            return await self._without_person(found)
        if self.stateless or found.status is not TaskStatus.completed:
            return found
        result = await self._exchange("tasks/result", {"taskId": task_id})
        return Task(found.id, found.status, message=found.message, result=result)

    async def _without_person(self, task: Task) -> Task:
        """The task after its questions were cancelled. Before 2026-07-28 they come while the result is waited for, and
        nobody can hold that wait until a person answers."""
        running = RunningCall()
        with contextlib.suppress(TimeoutError):  # it goes on without an answer; its result is asked for later
            async with asyncio.timeout(QUESTIONS_S):
                await self._exchange("tasks/result", {"taskId": task.id}, running=running)
        asked = " ".join(question.message for question in running.asked.values())
        said = f"It asked a person: {asked[:1000]} {NO_PERSON}" if asked else task.message
        return replace(task, status=TaskStatus.working, message=said)

    async def cancel_task(self, task_id: str) -> None:
        """Raises McpError."""
        await self._exchange("tasks/cancel", {"taskId": task_id})

    async def answer_task(self, task_id: str, given: InputGiven) -> None:
        """Sends the answers to questions of a task. Raises McpError."""
        await self._exchange("tasks/update", {"taskId": task_id, "inputResponses": given.responses()})

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _exchange(
        self,
        method: str,
        params: Mapping[str, Any],
        mirrored: Mapping[str, str] | None = None,
        running: RunningCall | None = None,
    ) -> Mapping[str, Any]:
        """The result of a request. Raises McpError."""
        broken: StreamBroken | None = None
        for repeats in range(REPEATS_MAX + 1):
            if repeats:
                await asyncio.sleep(REPEAT_S * repeats)
            try:
                answer = await self._send(method, params, self.version, mirrored or {}, running)
            except StreamBroken as error:
                broken = error
                if not self.stateless:
                    break
            except McpError as error:
                if broken is None or error.kind is not McpFault.unreachable:
                    raise
            else:
                if isinstance(answer, Failure):
                    raise _refused(answer)
                return answer.result
        assert broken is not None, "only a broken answer goes on"
        raise broken  # never as out of reach, which would be tried again: the server has got the request

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        version: str | None,
        mirrored: Mapping[str, str] | None = None,
        running: RunningCall | None = None,
    ) -> Result | Failure:
        request_id = next(self._ids)
        if running is not None and running.progress is not None:
            params = {**params, META: {**params.get(META, {}), PROGRESS_TOKEN: request_id}}
        headers: dict[str, str] = {}
        if version is not None and is_stateless(version):
            params = sealed(params, Envelope(version, _capabilities(version), CLIENT))
            headers = {**http_headers.routing(version, method, params), **(mirrored or {})}
        if running is not None:
            self._inbound.calls[request_id] = running
        try:
            # The limit of connecting applies to the first two; the answer to the third comes when it ends.
            patient = method in ("server/discover", "initialize", "subscriptions/listen")
            return await self._transport.request(Request(request_id, method, params), headers, patient=patient)
        except asyncio.CancelledError:
            if method != "initialize" and not (self._transport.closing_cancels and headers):
                self._run(self._cancelled(request_id))
            raise
        finally:
            self._inbound.calls.pop(request_id, None)

    async def _cancelled(self, request_id: RequestId) -> None:
        await self._told(Notification("notifications/cancelled", {"requestId": request_id}))

    def _reply(self, answer: Result | Failure) -> None:
        self._run(self._told(answer))

    async def _told(self, message: Notification | Result | Failure) -> None:
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._transport.tell(message)
        except (McpError, TimeoutError) as error:
            _log.debug("mcp_message_lost", "MCP server did not take a message", error=str(error))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class RefusedRequest(McpError):
    """The server answered with a JSON-RPC error; `data` is what it says beside."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(McpFault.refused, failure.message[:2000] or f"error {failure.code}", code=failure.code)
        self.data = failure.data


def _refused(failure: Failure) -> RefusedRequest:
    return RefusedRequest(failure)


def _mutual(failure: Failure) -> str | None:
    """A version that the server names and Kelpie knows; None if it speaks the older generation only."""
    supported = failure.data.get("supported") if isinstance(failure.data, Mapping) else None
    common = newest_common(supported)
    if common is None and isinstance(supported, list) and not set(SESSION_VERSIONS) & {*map(str, supported)}:
        named = ", ".join(map(str, supported))[:200]
        raise McpError(McpFault.refused, f"it speaks only the versions {named} of MCP, which Kelpie does not know")
    return common


def _capabilities(version: str) -> dict[str, Any]:
    """What Kelpie offers to servers: questions to a person, and patience with tasks. No sampling, no roots."""
    if is_stateless(version):
        return {"elicitation": {"form": {}, "url": {}}, "extensions": {tasks.EXTENSION: {}}}
    if at_least(version, V2025_11):
        return {"elicitation": {"form": {}, "url": {}}, "tasks": {"cancel": {}}}
    return {"elicitation": {}} if at_least(version, V2025_06) else {}


def _questions(running: RunningCall) -> InputNeeded:
    """The questions of a call that was answered without the person: earlier ones stay, with their answers."""
    return InputNeeded({**running.given.questions, **running.asked})


def _pages_to_visit(error: RefusedRequest) -> InputNeeded:
    listed = error.data.get("elicitations") if isinstance(error.data, Mapping) else None
    if not isinstance(listed, list) or not listed:
        raise error
    asked = {f"page-{at}": {"method": "elicitation/create", "params": each} for at, each in enumerate(listed, 1)}
    return InputNeeded(read_questions(asked))


def _kept_s(page: Mapping[str, Any]) -> float:
    """How long a list may be kept; 0 if its server does not say."""
    kept_ms = page.get("ttlMs")
    return kept_ms / 1000 if isinstance(kept_ms, int | float) else 0.0


def _task(result: Mapping[str, Any]) -> Task:
    try:
        return read_task(result)
    except ValueError as error:
        raise malformed(str(error)) from None
