"""Connections to MCP servers: made on first use, shared, made again, closed when idle, left alone when they fail."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kelpie.core.errors import InvalidInput, McpError, McpFault
from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId
from kelpie.core.tools.mcp_servers import GrantedDirectory, McpOptions
from kelpie.core.tools.package_requirements import Index
from kelpie.mcp.client import session as session_module
from kelpie.mcp.client.answers import CallAnswer, CallResult, InputNeeded
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections import connection as connection_module
from kelpie.mcp.connections.breaker import Breaker, BreakerReport, BreakerState
from kelpie.mcp.connections.connection import Connection
from kelpie.mcp.connections.packaged_commands import packaged
from kelpie.mcp.connections.stdio_launcher import granted
from tests.mcp.connecting import http_config, pool_of, server_of
from tests.mcp.http_server import HttpServer
from tests.mcp.plain_sandbox import PlainSandbox, program

DEADLINE_S = 60.0
ONE, OTHER = DEFAULT_ORGANIZATION, OrganizationId("org-00000000-0000-4000-8000-000000000001")


async def call(connection: Connection, tool: str, **arguments: int) -> str:
    async def work(session: Session) -> CallAnswer:
        return await session.call(tool, arguments)

    answer = await connection.use(work)
    assert isinstance(answer, CallResult)
    return answer.content[0]["text"]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.01)


async def test_a_server_that_is_never_used_is_never_started() -> None:
    sandbox = PlainSandbox()
    async with pool_of(sandbox) as pool:
        connections = [await pool.get(server_of(program(), number=number)) for number in range(100)]
        assert sandbox.started == [] and not any(each.connected for each in connections)
        assert await call(connections[7], "add", a=1, b=2) == "3"
        assert len(sandbox.started) == 1


async def test_calls_at_once_share_one_connection() -> None:
    sandbox = PlainSandbox()
    async with pool_of(sandbox) as pool:
        connection = await pool.get(server_of(program()))
        sums = await asyncio.gather(*(call(connection, "add", a=number, b=1) for number in range(20)))
        assert sums == [str(number + 1) for number in range(20)]
        assert len(sandbox.started) == 1


async def test_a_crashed_program_is_started_again_for_the_next_call() -> None:
    sandbox = PlainSandbox()
    async with pool_of(sandbox) as pool:
        connection = await pool.get(server_of(program()))
        with pytest.raises(McpError, match=r"MCP server 'test': its program has ended: out of luck"):
            await call(connection, "crash")
        assert await call(connection, "add", a=2, b=2) == "4"
        assert (len(sandbox.started), sandbox.running) == (2, 1)
    assert sandbox.running == 0, "nothing outlives the pool"


async def test_an_idle_program_is_ended() -> None:
    sandbox = PlainSandbox()
    async with pool_of(sandbox, idle_s=0.05) as pool:
        connection = await pool.get(server_of(program()))
        assert await call(connection, "add", a=1, b=1) == "2"
        await until(lambda: sandbox.running == 0)
        assert await call(connection, "add", a=1, b=1) == "2"


async def test_the_program_unused_for_longest_makes_room() -> None:
    sandbox = PlainSandbox()
    async with pool_of(sandbox, processes_max=2) as pool:
        for number in (1, 2, 3):
            connection = await pool.get(server_of(program(), number=number))
            assert await call(connection, "add", a=1, b=1) == "2"
        await until(lambda: sandbox.running == 2)
        assert not pool.report(server_of(program(), number=1)).connected


async def test_an_organization_has_its_share_of_the_programs_and_takes_none_of_anothers() -> None:
    async with pool_of(PlainSandbox(), organizations=2, processes_max=4) as pool:
        servers = {number: server_of(program(), number=number, organization=ONE) for number in range(1, 7)}
        servers[9] = server_of(program(), number=9, organization=OTHER)
        for number in (9, *range(1, 7)):  # of the three that the other one leaves, two: the last place stays free
            assert await call(await pool.get(servers[number]), "add", a=1, b=1) == "2"
        running = {number for number, server in servers.items() if pool.report(server).connected}
        assert running == {9, 5, 6}


async def test_programs_in_use_leave_room_for_another_organization() -> None:
    never = asyncio.Event()
    async with pool_of(PlainSandbox(), organizations=2, processes_max=4) as pool, asyncio.TaskGroup() as tasks:
        busy: list[asyncio.Task[object]] = []
        for number in range(1, 4):
            connection = await pool.get(server_of(program(), number=number, organization=ONE))
            busy.append(tasks.create_task(connection.use(lambda _: never.wait())))
            await until(lambda found=connection: found.connected)
        with pytest.raises(McpError, match=r"others may use the places that are left; try again later"):
            await pool.get(server_of(program(), number=4, organization=ONE))
        other = await pool.get(server_of(program(), number=9, organization=OTHER))
        assert await call(other, "add", a=1, b=1) == "2"
        for task in busy:
            task.cancel()


async def test_an_organization_that_opened_every_program_while_it_was_alone_leaves_room_for_the_next_one() -> None:
    never = asyncio.Event()
    async with pool_of(PlainSandbox(), organizations=1, processes_max=4) as pool, asyncio.TaskGroup() as tasks:
        servers = [server_of(program(), number=number, organization=ONE) for number in range(1, 5)]
        for server in servers:
            assert await call(await pool.get(server), "add", a=1, b=1) == "2"
        pool._share.organizations = 2
        busy: list[asyncio.Task[object]] = []
        for server in servers[:3]:
            connection = await pool.get(server)
            busy.append(tasks.create_task(connection.use(lambda _: never.wait())))
            await until(lambda found=connection: found.in_use)
        with pytest.raises(McpError, match=r"others may use the places that are left; try again later"):
            await pool.get(servers[3])
        assert await call(await pool.get(servers[0]), "add", a=1, b=1) == "2", "what is in use may be used more"
        other = await pool.get(server_of(program(), number=9, organization=OTHER))
        assert await call(other, "add", a=1, b=1) == "2"
        for task in busy:
            task.cancel()


async def test_connections_over_http_have_a_limit_too() -> None:
    async with HttpServer().serving() as server, pool_of(connections_max=2) as pool:
        records = [server_of(http_config(f"{server.url}/mcp"), number=number) for number in range(5)]
        for record in records:
            assert await call(await pool.get(record), "add") == "add"
        assert [pool.report(record).connected for record in records] == [False, False, False, True, True]


async def test_a_changed_configuration_gets_a_new_connection() -> None:
    async with HttpServer().serving() as one, HttpServer().serving() as other, pool_of() as pool:
        await call(await pool.get(server_of(http_config(f"{one.url}/mcp"))), "add")
        await call(await pool.get(server_of(http_config(f"{other.url}/mcp"))), "add")
        assert len(one.calls("tools/call")) == len(other.calls("tools/call")) == 1


async def test_a_server_that_forgot_the_session_is_greeted_again() -> None:
    async with HttpServer("2025-11-25").serving() as server, pool_of() as pool:
        connection = await pool.get(server_of(http_config(f"{server.url}/mcp")))
        await call(connection, "add")
        server.sessions.clear()  # as after a restart
        assert await call(connection, "add") == "add"
        assert len(server.calls("initialize")) == 2


async def test_the_first_call_waits_for_the_stream_on_which_its_questions_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "LISTEN_S_MAX", DEADLINE_S)
    server = HttpServer()
    server.stream_opens = asyncio.Event()
    async with server.serving(), pool_of() as pool:
        connection = await pool.get(server_of(http_config(f"{server.url}/mcp")))
        calling = asyncio.create_task(connection.use(lambda session: session.call("ask", {})))
        async with asyncio.timeout(DEADLINE_S):
            await server.stream_asked.wait()
            assert not server.calls("tools/call")
            server.stream_opens.set()
            asked = await calling
        assert isinstance(asked, InputNeeded)
        assert [question.message for question in asked.questions.values()] == ["Your name?"]


@pytest.mark.parametrize(("kept_ms", "reads"), [(0, 2), (3_600_000, 1)])
async def test_tools_are_read_again_when_their_server_no_longer_stands_by_them(
    monkeypatch: pytest.MonkeyPatch, kept_ms: int, reads: int
) -> None:
    monkeypatch.setattr(session_module, "TOOLS_S_MIN", 0.0)
    server, changed = HttpServer("2026-07-28"), list[str]()
    server.kept_ms = kept_ms
    async with server.serving(), pool_of() as pool:
        pool.tools_changed = lambda server: changed.append(server.id)
        connection = await pool.get(server_of(http_config(f"{server.url}/mcp")))
        await call(connection, "add")
        assert len(changed) == 1, "nobody had read them"
        await connection.use(lambda session: session.tools())
        await call(connection, "add")
        assert len(changed) == reads


async def test_tools_that_a_new_connection_failed_to_read_are_read_later() -> None:
    server, changed = HttpServer(), list[str]()
    server.names *= 100
    async with server.serving(), pool_of() as pool:
        pool.tools_changed = lambda server: changed.append(server.id)
        connection = await pool.get(server_of(http_config(f"{server.url}/mcp")))
        with pytest.raises(McpError, match="more than 1000 tools"):
            await connection.use(Session.tools)
        assert len(changed) == 1, "nobody has them"
        with pytest.raises(McpError, match="more than 1000 tools"):
            await connection.use(Session.tools, upkeep=True)
        await call(connection, "add")
        assert len(changed) == 1, "the upkeep reads them again by itself"


async def test_tools_are_read_after_a_call_that_failed_in_a_new_connection() -> None:
    changed: list[str] = []
    async with HttpServer().serving() as server, pool_of() as pool:
        pool.tools_changed = lambda server: changed.append(server.id)
        connection = await pool.get(server_of(http_config(f"{server.url}/mcp")))
        with pytest.raises(McpError, match="500"):
            await call(connection, "status500")
        assert len(changed) == 1


async def test_a_server_whose_stream_never_opens_is_called_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "LISTEN_S_MAX", 0.05)
    server = HttpServer()
    server.stream_opens = asyncio.Event()
    async with server.serving(), pool_of() as pool:
        connection = await pool.get(server_of(http_config(f"{server.url}/mcp")))
        assert await call(connection, "add") == "add"


async def test_a_server_that_keeps_failing_is_left_alone_and_tried_again() -> None:
    async with HttpServer().serving() as server:
        port = int(server.url.rpartition(":")[2])
    async with pool_of(failures_max=3, retry_s=0.2) as pool:  # nothing listens there now
        record = server_of(http_config(f"{server.url}/mcp"))
        connection = await pool.get(record)
        for _ in range(3):
            with pytest.raises(McpError) as failed:
                await connection.use(Session.tools, tries=1)
            assert failed.value.kind is McpFault.unreachable
        assert pool.report(record).breaker.state is BreakerState.open
        with pytest.raises(McpError, match="failed 3 times in a row and is left alone") as left:
            await call(connection, "add")
        assert left.value.kind is McpFault.left_alone
        await until(lambda: pool.report(record).breaker.state is BreakerState.half_open)
        async with HttpServer().serving(port):
            assert await call(connection, "add") == "add"
        assert pool.report(record).breaker.state is BreakerState.closed


async def test_a_try_that_is_cancelled_or_breaks_leaves_room_for_another() -> None:
    """Whatever ends the one call that tries a server which is left alone, the next one may try it again."""
    begun = asyncio.Event()

    async def hangs(_: Session) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def breaks(_: Session) -> None:
        raise ZeroDivisionError

    async with HttpServer().serving() as server, pool_of(failures_max=1, retry_s=0.2) as pool:
        record = server_of(http_config(f"{server.url}/mcp"))
        connection = await pool.get(record)
        with pytest.raises(McpError, match="took longer"):
            await connection.use(hangs, within_s=0.0)
        assert pool.report(record).breaker.state is BreakerState.open
        await until(lambda: pool.report(record).breaker.state is BreakerState.half_open)
        begun.clear()
        trying = asyncio.create_task(connection.use(hangs))
        await begun.wait()
        with pytest.raises(McpError, match="is left alone"):
            await call(connection, "add")
        trying.cancel()
        await asyncio.wait((trying,))
        with pytest.raises(ZeroDivisionError):
            await connection.use(breaks)
        assert pool.report(record).breaker.state is BreakerState.half_open and not connection.in_use
        assert await call(connection, "add") == "add"
        assert pool.report(record).breaker.state is BreakerState.closed


async def test_an_answer_of_the_server_closes_its_breaker_and_a_failure_of_it_counts() -> None:
    """A refusal is an answer; an error of the server itself is none."""

    def fails(kind: McpFault, code: int | None) -> Callable[[Session], Awaitable[None]]:
        async def work(_: Session) -> None:
            raise McpError(kind, "no", code=code)

        return work

    async with HttpServer().serving() as server, pool_of(failures_max=2) as pool:
        record = server_of(http_config(f"{server.url}/mcp"))
        connection = await pool.get(record)
        told: list[tuple[McpFault, int | None, int]] = [
            (McpFault.refused, 500, 1),
            (McpFault.refused, 404, 0),
            (McpFault.timed_out, None, 1),
            (McpFault.unauthorized, 401, 0),
            (McpFault.closed, None, 1),
            (McpFault.too_large, None, 0),
        ]
        for kind, code, failures in told:
            with pytest.raises(McpError):
                await connection.use(fails(kind, code), tries=1)
            assert pool.report(record).breaker.failures == failures, (kind, code)
        assert pool.report(record).breaker.state is BreakerState.closed


def test_a_breaker_counts_failures_in_a_row_and_has_a_longest_pause() -> None:
    now = 0.0
    breaker = Breaker(2, 10.0, lambda: now)
    for _ in range(3):  # never two in a row
        assert breaker.admit() and not breaker.failed("a") and breaker.admit() and not breaker.succeeded()
    assert not breaker.failed("a") and breaker.failed("b")
    assert not breaker.failed("of a call that was under way"), "it does not make the pause longer"
    pauses = [breaker.report().retry_after_s]
    for _ in range(6):
        now += pauses[-1]
        assert breaker.admit()
        breaker.failed("c")
        pauses.append(breaker.report().retry_after_s)
    assert pauses == [10.0, 20.0, 40.0, 80.0, 100.0, 100.0, 100.0]
    now += 100.0
    assert breaker.admit() and breaker.succeeded()
    assert breaker.report() == BreakerReport(BreakerState.closed, 0, 0.0, None)
    assert not breaker.failed("d") and breaker.failed("e") and breaker.report().retry_after_s == 10.0


def test_a_breaker_opens_for_longer_with_each_failed_try() -> None:
    now = 0.0
    breaker = Breaker(2, 10.0, lambda: now)
    assert breaker.admit() and not breaker.failed("a") and breaker.admit() and breaker.failed("b")
    assert breaker.report().state is BreakerState.open and not breaker.admit()
    now = 10.0
    assert breaker.admit() and not breaker.admit(), "one try at a time"
    assert breaker.failed("c") and breaker.report().retry_after_s == 20.0
    now = 30.0
    assert breaker.admit()
    breaker.undecided()
    assert breaker.admit() and breaker.succeeded() and breaker.report().state is BreakerState.closed


def test_a_tool_error_says_nothing_about_the_server() -> None:
    breaker = Breaker(1, 10.0, lambda: 0.0)
    assert not breaker.succeeded() and breaker.admit()


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "args", "lines", "package", "program_name", "rest"),
    [
        ("npx", ["-y", "@a/server", "/data"], ("@a/server",), "@a/server", None, ("/data",)),
        ("/usr/bin/npx", ["--yes", "server@1.2.3"], ("server@1.2.3",), "server", None, ()),
        ("npx", ["-y", "server@latest", "-v"], ("server",), "server", None, ("-v",)),
        ("npx", ["-p", "@a/b@2", "run-it", "x"], ("@a/b@2",), "@a/b", "run-it", ("x",)),
        ("uvx", ["mcp-server-fetch"], ("mcp-server-fetch",), "mcp-server-fetch", "mcp-server-fetch", ()),
        ("uvx", ["tool@1.0", "-x"], ("tool==1.0",), "tool", "tool", ("-x",)),
        ("uvx", ["tool==1.0", "-x"], ("tool==1.0",), "tool", "tool", ("-x",)),
        ("uvx", ["tool[extra]>=1"], ("tool[extra]>=1",), "tool", "tool", ()),
        ("uvx", ["--from", "pkg[cli]>=2", "cmd"], ("pkg[cli]>=2",), "pkg", "cmd", ()),
        ("uv", ["tool", "run", "--python", "3.11", "tool"], ("tool",), "tool", "tool", ()),
    ],
)
def test_a_command_that_fetches_a_package_names_it(
    command: str, args: list[str], lines: tuple[str, ...], package: str, program_name: str | None, rest: tuple[str, ...]
) -> None:
    found = packaged(command, args)
    assert found is not None
    assert (found.wanted.lines, found.package, found.program, found.args) == (lines, package, program_name, rest)
    assert found.wanted.index is (Index.npm if "npx" in command else Index.pip)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("npx", []),
        ("npx", ["--registry", "http://evil.example"]),
        ("npx", ["https://evil.example/x.tgz"]),
        ("npx", ["-p"]),
        ("uvx", ["--index-url", "http://evil.example", "x"]),
        ("uvx", ["--from", "git+https://evil.example/x", "x"]),
        ("uvx", ["../../etc"]),
    ],
)
def test_a_command_that_would_fetch_from_elsewhere_is_refused(command: str, args: list[str]) -> None:
    with pytest.raises(InvalidInput):
        packaged(command, args)


def test_other_commands_are_programs() -> None:
    assert packaged("python3", ["server.py"]) is packaged("uv", ["run", "x"]) is None


@pytest.mark.parametrize("path", ["/etc", "/srv/../etc", "data", "/proc/1", "/srv/data2", "/usr/lib"])
def test_only_directories_that_the_operator_allows_are_granted(path: str) -> None:
    config = program(directories=(GrantedDirectory(path),))
    with pytest.raises(InvalidInput):
        granted(config, ("/srv/data",))


def test_a_granted_directory_keeps_its_owner() -> None:
    config = program(directories=(GrantedDirectory("/srv/data/a", writable=True),))
    (mount,) = granted(config, ("/srv/data",))
    assert (mount.source, mount.target, mount.writable, mount.ours) == ("/srv/data/a", "/srv/data/a", True, False)
    assert config.options == McpOptions(directories=(GrantedDirectory("/srv/data/a", writable=True),))
