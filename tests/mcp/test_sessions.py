"""Sessions with MCP servers of both generations over each transport, and with servers that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kelpie.core.errors import McpError, McpFault
from kelpie.mcp.client.answers import CallResult, InputGiven, InputNeeded, read_question
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.connections.stdio_launcher import StdioLauncher
from kelpie.mcp.protocol.tasks import Task, TaskStatus
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.mcp.transports.legacy_sse import LegacySseTransport
from kelpie.mcp.transports.port import Transport, TransportLimits
from kelpie.mcp.transports.stdio import StdioTransport
from kelpie.mcp.transports.streamable_http import StreamableHttpTransport
from kelpie.world.http.port import NetworkHttp
from tests.mcp.connecting import server_of
from tests.mcp.http_server import HttpServer
from tests.mcp.plain_sandbox import PlainSandbox, program

DEADLINE_S = 60.0
BRIEF = TransportLimits(connect_s=5.0, read_s=0.3, answer_bytes=1_000_000)
CALM = TransportLimits(connect_s=30.0, read_s=30.0, answer_bytes=1_000_000)


async def _no_headers() -> Mapping[str, str]:
    return {}


def over_http(url: str, limits: TransportLimits = CALM, *, public: bool = False) -> Transport:
    return StreamableHttpTransport(url, HttpExchange(NetworkHttp(), limits, public=public), _no_headers)


def over_sse(url: str, limits: TransportLimits = CALM) -> Transport:
    return LegacySseTransport(url, HttpExchange(NetworkHttp(), limits, public=False), _no_headers)


def over_stdio(how: str = "ok", limits: TransportLimits = CALM) -> Transport:
    launch = StdioLauncher(PlainSandbox(), None).launch(server_of(program(how)))  # pyright: ignore[reportArgumentType]

    async def start():
        await launch.prepare()
        return await launch.start()

    return StdioTransport(start, limits)


async def opened(transport: Transport, connect_s: float = 30.0) -> Session:
    session = Session(transport, lambda: None)
    try:
        await session.open(connect_s)
    except BaseException:
        await session.close()
        raise
    return session


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HttpServer]:
    version = getattr(request, "param", "2026-07-28")
    async with HttpServer(version).serving() as running:
        yield running


def words(answer: object) -> str:
    assert isinstance(answer, CallResult), answer
    return answer.content[0]["text"]


@pytest.mark.parametrize("server", ["2026-07-28", "2025-11-25", "2025-06-18", "2024-11-05"], indirect=True)
async def test_a_server_of_each_version_is_met_in_its_own(server: HttpServer) -> None:
    session = await opened(over_http(f"{server.url}/mcp"))
    assert session.version == server.version
    assert "add" in [tool.name for tool in await session.tools()]
    assert words(await session.call("add", {"a": 1})) == "add"
    await session.close()
    _, message, headers = server.seen[-1]
    assert message["method"] == "tools/call"
    if session.stateless:
        assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "add")
        assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert not server.calls("initialize")
    else:
        assert headers["mcp-session-id"] == "session-1" and "mcp-method" not in headers
    assert headers["mcp-protocol-version"] == server.version


async def test_a_broken_stream_of_the_stateless_generation_is_asked_for_again_under_a_new_id(
    server: HttpServer,
) -> None:
    session = await opened(over_http(f"{server.url}/mcp"))
    assert words(await session.call("cut", {})) == "whole"
    first, second = server.calls("tools/call")
    assert first["id"] != second["id"]
    server.cuts = 100
    with pytest.raises(McpError, match="broke off") as failed:
        await session.call("cut", {})
    assert failed.value.kind is McpFault.closed and len(server.calls("tools/call")) == 5
    await session.close()


@pytest.mark.parametrize("server", ["2025-11-25"], indirect=True)
async def test_a_broken_stream_of_a_session_is_resumed_after_its_last_event(server: HttpServer) -> None:
    session = await opened(over_http(f"{server.url}/mcp"))
    assert words(await session.call("cut", {})) == "whole"
    assert len(server.calls("tools/call")) == 1, "the call was made once"
    await session.close()


@pytest.mark.parametrize("server", ["2025-11-25"], indirect=True)
async def test_a_server_may_end_the_stream_of_a_long_call_often(server: HttpServer) -> None:
    server.pauses = 10
    session = await opened(over_http(f"{server.url}/mcp"))
    assert words(await session.call("cut", {})) == "whole"
    assert server.pauses == 0 and len(server.calls("tools/call")) == 1
    await session.close()


async def test_input_is_asked_for_and_given_with_the_state(server: HttpServer) -> None:
    session = await opened(over_http(f"{server.url}/mcp"))
    asked = await session.call("ask", {})
    assert isinstance(asked, InputNeeded) and asked.state == "s"
    assert asked.questions["who"].message == "Your name?"
    given = InputGiven(asked.questions, {"who": {"name": "Ada"}}, asked.state)
    assert words(await session.call("ask", {}, given=given)) == "Hello Ada"
    sent = server.calls("tools/call")[-1]["params"]
    assert sent["requestState"] == "s"
    assert sent["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Ada"}}}
    await session.close()


async def test_a_task_is_followed_to_its_result(server: HttpServer) -> None:
    session = await opened(over_http(f"{server.url}/mcp"))
    task = await session.call("task", {})
    assert isinstance(task, Task) and task.status is TaskStatus.working and task.poll_ms == 250
    assert (await session.task(task.id)).status is TaskStatus.working
    done = await session.task(task.id)
    assert done.status is TaskStatus.completed and done.result is not None
    await session.cancel_task(task.id)
    assert server.cancelled
    await session.close()


@pytest.mark.parametrize(
    ("tool", "kind", "said"),
    [
        ("status500", McpFault.refused, "status 500: internal error"),
        ("hang", McpFault.timed_out, "within 0.3 s"),
        ("silent", McpFault.timed_out, "within 0.3 s"),
        ("garbage", McpFault.malformed, "it is not JSON"),
        ("big", McpFault.too_large, "larger than the limit"),
        ("elsewhere", McpFault.refused, "redirects to http://127.0.0.2:1/mcp"),
    ],
)
async def test_a_server_that_misbehaves_gives_a_clear_error(
    server: HttpServer, tool: str, kind: McpFault, said: str
) -> None:
    limits = BRIEF if kind is McpFault.timed_out else CALM
    session = await opened(over_http(f"{server.url}/mcp", limits))
    with pytest.raises(McpError) as failed:
        async with asyncio.timeout(DEADLINE_S):
            await session.call(tool, {})
    assert failed.value.kind is kind and said in failed.value.message
    assert words(await session.call("add", {})) == "add", "and the next call works"
    await session.close()


async def test_the_oldest_transport_has_one_stream_for_all_answers(server: HttpServer) -> None:
    session = await opened(over_sse(f"{server.url}/sse"))
    assert session.version == "2024-11-05"
    results = await asyncio.gather(*(session.call("add", {}) for _ in range(5)))
    assert [words(each) for each in results] == ["add"] * 5
    with pytest.raises(McpError, match="closed the stream"):
        await session.call("cut", {})
    assert not session.alive
    await session.close()


async def test_a_silent_stream_of_the_oldest_transport_ends_the_call(server: HttpServer) -> None:
    session = await opened(over_sse(f"{server.url}/sse", BRIEF))
    with pytest.raises(McpError, match=r"did not answer within 0\.3 s"):
        await session.call("hang", {})
    await session.close()


async def test_a_name_in_a_private_network_is_not_reached(server: HttpServer) -> None:
    port = server.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        with pytest.raises(McpError, match="not a public address") as refused:
            await opened(over_http(f"http://{host}:{port}/mcp", public=True))
        assert refused.value.kind is McpFault.unreachable
    assert server.seen == []


# --- standard input and output ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "version"), [("ok", "2025-11-25"), ("stateless", "2026-07-28")])
async def test_a_program_is_talked_to_in_lines(how: str, version: str) -> None:
    session = await opened(over_stdio(how))
    assert session.version == version
    assert words(await session.call("add", {"a": 2, "b": 3})) == "5"
    failed = await session.call("fail", {})
    assert isinstance(failed, CallResult) and failed.is_error
    told: list[tuple[float, float | None, str | None]] = []
    assert words(await session.call("steps", {}, progress=lambda *step: told.append(step))) == "done"
    assert told == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]
    await session.close()


async def test_a_question_in_the_middle_of_a_call_is_answered_in_the_next() -> None:
    session = await opened(over_stdio())
    asked = await session.call("ask", {})
    assert isinstance(asked, InputNeeded)
    ((key, question),) = asked.questions.items()
    assert question.message == "Your name?"
    given = InputGiven(asked.questions, {key: {"name": "Ada"}})
    assert words(await session.call("ask", {}, given=given)) == "Hello Ada"
    declined = InputGiven(asked.questions, {key: None})
    assert words(await session.call("ask", {}, given=declined)) == "No name: decline"
    await session.close()


@pytest.mark.parametrize(
    "params",
    [
        {"message": 5},
        {"message": "open", "mode": "url", "url": "javascript:alert(1)"},
        {"message": "open", "mode": "url"},
        {"message": "fill in", "requestedSchema": {"type": "object", "description": "x" * 30_000}},
    ],
)
def test_a_question_that_a_person_should_not_see_is_malformed(params: dict[str, Any]) -> None:
    with pytest.raises(McpError) as refused:
        read_question(params)
    assert refused.value.kind is McpFault.malformed


async def test_a_program_that_prints_text_first_is_understood() -> None:
    session = await opened(over_stdio("chatty"))
    assert words(await session.call("add", {"a": 1, "b": 1})) == "2"
    await session.close()


@pytest.mark.parametrize(
    ("tool", "kind", "said"),
    [
        ("crash", McpFault.closed, "its program has ended: out of luck"),
        ("hang", McpFault.timed_out, "did not answer within 0.3 s"),
        ("garbage", McpFault.malformed, "writes text instead of messages"),
        ("big", McpFault.too_large, "larger than the limit of"),
    ],
)
async def test_a_program_that_misbehaves_gives_a_clear_error(tool: str, kind: McpFault, said: str) -> None:
    limits = TransportLimits(read_s=0.3 if tool == "hang" else 30.0, answer_bytes=1_000_000)
    session = await opened(over_stdio("ok", limits))
    with pytest.raises(McpError) as failed:
        async with asyncio.timeout(DEADLINE_S):
            await session.call(tool, {})
    assert failed.value.kind is kind and said in failed.value.message
    await session.close()


async def test_a_program_that_does_not_start_says_why() -> None:
    with pytest.raises(McpError, match="cannot find my configuration"):
        await opened(over_stdio("crash"))
    for how in ("slow", "silent"):
        with pytest.raises(McpError, match=r"did not connect within 0\.5 s"):
            await opened(over_stdio(how), connect_s=0.5)


def test_limits_of_a_server_stand_before_the_operators() -> None:
    limits = ConnectionLimits().of(program(read_s=1.5).options)
    assert (limits.read_s, limits.connect_s) == (1.5, 30.0)
