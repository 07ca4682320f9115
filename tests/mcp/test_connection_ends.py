"""How connections begin, end and are given up: whatever comes in whichever moment, nothing is left open or lost."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from kelpie.core.errors import McpError, McpFault
from kelpie.core.tools.mcp_servers import McpConfig, McpServerType
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections import connection as connection_module
from kelpie.mcp.connections.connection import LISTEN_AGAIN_S, Connection
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.protocol.messages import Failure, Notification, Result
from kelpie.mcp.protocol.versions import V2026_07
from kelpie.mcp.transports.port import SessionOver, Unauthorized
from kelpie.observe.redaction import HIDDEN
from kelpie.world.clock import SystemClock
from tests.mcp.connecting import server_of
from tests.mcp.scripted_transport import (
    TYPED_SECRET,
    Dialing,
    ScriptedTransport,
    called,
    connection_of,
    in_virtual_time,
    now_s,
    out_of_reach,
)

STDIO = McpConfig(McpServerType.stdio, command="serve")


async def settled() -> None:
    """Lets everything happen that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)


async def failed(connection: Connection, *, tries: int = 3) -> McpError:
    with pytest.raises(McpError) as caught:
        await connection.use(called, tries=tries)
    return caught.value


def under_way(connection: Connection) -> "asyncio.Future[Session]":
    found = connection._under_way
    assert found is not None
    return found


def test_who_gives_up_while_it_opens_leaves_nothing_open() -> None:
    async def main() -> None:
        for at in ("start", "server/discover", "initialize"):
            first, dialing = ScriptedTransport(), Dialing()
            first.held[at] = asyncio.Event()
            dialing.left = [first, ScriptedTransport()]
            connection = connection_of(dialing)
            calling = asyncio.create_task(connection.use(called))
            await settled()
            calling.cancel()
            await asyncio.wait((calling,))
            await settled()
            assert (first.closed, dialing.released, connection.connected) == (1, 1, False)
            await connection.use(called)
            assert connection.connected and dialing.released == 1
            await connection.close()

    in_virtual_time(main)


def test_who_gives_up_in_the_moment_it_is_open_leaves_nothing_open() -> None:
    async def main() -> None:
        first = ScriptedTransport()
        first.held["start"] = asyncio.Event()
        connection = connection_of(Dialing(first, ScriptedTransport()))
        calling = asyncio.create_task(connection.use(called))
        await settled()
        under_way(connection).add_done_callback(lambda _: calling.cancel())
        first.held["start"].set()
        await asyncio.wait((calling,))
        await settled()
        assert calling.cancelled() and first.closed == 1 and not connection.connected
        await connection.use(called)
        await connection.close()

    in_virtual_time(main)


@pytest.mark.parametrize("in_the_last_moment", [False, True])
def test_a_connection_that_is_closed_while_it_opens_stays_closed(*, in_the_last_moment: bool) -> None:
    async def main() -> None:
        first = ScriptedTransport()
        first.held["start"] = asyncio.Event()
        connection = connection_of(Dialing(first, ScriptedTransport()))
        calling = asyncio.create_task(connection.use(called))
        await settled()
        closing = asyncio.get_running_loop().create_future()
        if in_the_last_moment:
            under_way(connection).add_done_callback(
                lambda _: closing.set_result(asyncio.ensure_future(connection.close()))
            )
            first.held["start"].set()
        else:
            closing.set_result(asyncio.ensure_future(connection.close()))
        async with asyncio.timeout(2.0):
            await (await closing)
            with pytest.raises(McpError, match="the connection was closed"):
                await calling
        await settled()
        assert first.closed == 1 and not connection.connected
        assert (await failed(connection)).kind is McpFault.closed, "nothing is opened after that"

    in_virtual_time(main)


def test_a_connection_that_is_closed_in_the_moment_it_is_open_keeps_no_session() -> None:
    async def main() -> None:
        closing: list[asyncio.Task[None]] = []

        class Closes(ScriptedTransport):
            async def tell(self, message: Notification | Result | Failure) -> None:
                await super().tell(message)  # the last step of a greeting
                closing.append(asyncio.create_task(connection.close()))

        first = Closes()
        connection = connection_of(Dialing(first))
        assert (await failed(connection)).kind is McpFault.closed
        await asyncio.gather(*closing)
        await settled()
        assert first.closed == 1 and not connection.connected

    in_virtual_time(main)


def test_a_stream_of_a_session_that_is_over_is_no_longer_listened_to() -> None:
    async def main() -> None:
        first, second = ScriptedTransport(tools_call=SessionOver()), ScriptedTransport()
        connection = connection_of(Dialing(first, second))
        await connection.use(called)
        await settled()
        assert (first.closed, first.listening, second.listening) == (1, 0, 1)
        await connection.close()
        await settled()
        assert (second.closed, second.listening) == (1, 0)

    in_virtual_time(main)


def test_a_server_that_ends_every_session_is_not_greeted_for_ever() -> None:
    async def main() -> None:
        dialing = Dialing(*(ScriptedTransport(tools_call=SessionOver()) for _ in range(5)))
        error = await failed(connection_of(dialing))
        assert error.kind is McpFault.closed and len(dialing.left) == 3

    in_virtual_time(main)


def test_a_token_is_renewed_once_for_a_call() -> None:
    async def main() -> None:
        refuses = ScriptedTransport(tools_call=Unauthorized(401, "Bearer x"))
        dialing = Dialing(refuses)
        dialing.renews = True
        error = await failed(connection_of(dialing))
        assert error.kind is McpFault.unauthorized and dialing.renewals == ["Bearer x"]
        assert len(refuses.asked("tools/call")) == 2

    in_virtual_time(main)


def test_a_server_out_of_reach_is_tried_again_and_a_program_is_not() -> None:
    async def main() -> None:
        for config, left in ((None, 2), (STDIO, 4)):
            dialing = Dialing(*(ScriptedTransport(server_discover=out_of_reach()) for _ in range(5)))
            connection = connection_of(dialing, config)
            assert (await failed(connection)).kind is McpFault.unreachable
            assert len(dialing.left) == left
            assert dialing.released == 5 - left
        assert now_s() == 0.75, "the pauses"

    in_virtual_time(main)


def test_a_session_that_died_in_a_call_is_closed_and_another_one_opened() -> None:
    async def main() -> None:
        first, second = ScriptedTransport(), ScriptedTransport()
        connection = connection_of(Dialing(first, second))
        await connection.use(called)

        async def dies(_: Session) -> None:
            first.alive = False
            raise McpError(McpFault.closed, "its program has ended")

        with pytest.raises(McpError, match="has ended"):
            await connection.use(dies)
        await settled()
        assert (first.closed, first.listening) == (1, 0)
        await connection.use(called)
        assert len(second.asked("tools/call")) == 1

    in_virtual_time(main)


def test_a_server_that_died_of_the_question_is_asked_again_when_it_may_be_another() -> None:
    async def main() -> None:
        dies, older, gone = (McpError(McpFault.closed, "it has ended"), ScriptedTransport(), ScriptedTransport())
        gone.answer(initialize=McpError(McpFault.closed, "it has ended"))
        newer = ScriptedTransport(V2026_07)
        connection = connection_of(Dialing(ScriptedTransport(server_discover=dies), older, gone, newer))
        await connection.use(called)
        assert older.asked("server/discover") == [] and len(older.asked("initialize")) == 1
        older.alive = False
        assert (await failed(connection)).kind is McpFault.closed
        assert gone.asked("server/discover") == [], "it is known to be of the older generation"
        await connection.use(called)
        assert len(newer.asked("server/discover")) == 1 and connection.report().version == V2026_07

    in_virtual_time(main)


def test_a_lost_stream_is_opened_again_and_one_that_is_refused_is_not() -> None:
    async def main() -> None:
        for kind, asked in ((McpFault.closed, 4), (McpFault.refused, 1)):
            began, transport = list[float](), ScriptedTransport()
            start = now_s()

            async def breaks(ready: Callable[[], None], kind: McpFault = kind, began: list[float] = began) -> None:
                began.append(now_s())
                raise McpError(kind, "no stream")

            transport.listens = breaks
            connection = connection_of(Dialing(transport), limits=ConnectionLimits(idle_s=1e6))
            await connection.use(called)
            await asyncio.sleep(8 * LISTEN_AGAIN_S)
            pauses = [round(at - start, 6) for at in began]
            assert pauses == [0.0, LISTEN_AGAIN_S, 3 * LISTEN_AGAIN_S, 7 * LISTEN_AGAIN_S][:asked]
            await connection.close()

    in_virtual_time(main)


def test_a_stream_that_opens_again_may_have_missed_a_change_of_tools() -> None:
    async def main() -> None:
        changed, transport = list[float](), ScriptedTransport()
        transport.changes = True
        breaks = [True, False]

        async def opens(ready: Callable[[], None]) -> None:
            ready()
            if breaks.pop(0):
                raise McpError(McpFault.closed, "cut")
            await asyncio.Event().wait()

        transport.listens = opens
        connection = connection_of(Dialing(transport), changed=lambda: changed.append(now_s()))
        await connection.use(Session.tools)
        assert changed == [], "they were read after it"
        await asyncio.sleep(10)
        assert changed == [LISTEN_AGAIN_S]
        await connection.close()

    in_virtual_time(main)


def test_an_idle_session_is_closed_and_upkeep_does_not_keep_it_open() -> None:
    async def main() -> None:
        transport = ScriptedTransport()
        connection = connection_of(Dialing(transport), limits=ConnectionLimits(idle_s=100.0))
        await connection.use(called)
        await asyncio.sleep(60)
        await connection.use(Session.tools, upkeep=True)
        assert connection.used_at == 0
        await asyncio.sleep(39)
        assert connection.connected
        await asyncio.sleep(2)
        assert not connection.connected and transport.closed == 1

    in_virtual_time(main)


def test_every_use_keeps_a_session_open_for_its_time() -> None:
    async def main() -> None:
        connection = connection_of(Dialing(ScriptedTransport()), limits=ConnectionLimits(idle_s=100.0))
        for _ in range(3):
            await connection.use(called)
            await asyncio.sleep(60)
        assert connection.connected
        await asyncio.sleep(41)
        assert not connection.connected

    in_virtual_time(main)


def test_a_session_in_use_is_not_idle() -> None:
    async def main() -> None:
        transport = ScriptedTransport()
        connection = connection_of(Dialing(transport), limits=ConnectionLimits(idle_s=100.0))
        await connection.use(called)
        await asyncio.sleep(90)
        transport.held["tools/call"] = asyncio.Event()
        calling = asyncio.create_task(connection.use(called))
        other = asyncio.create_task(connection.use(called))
        await asyncio.sleep(50)
        other.cancel()
        await asyncio.sleep(120)
        assert connection.connected and connection.in_use, "one call goes on"
        transport.held["tools/call"].set()
        await calling
        assert connection.used_at == 260
        await asyncio.sleep(99)
        assert connection.connected
        await asyncio.sleep(2)
        assert not connection.connected

    in_virtual_time(main)


def test_no_secret_is_told_however_a_server_repeats_it() -> None:
    async def main() -> None:
        said = f"{TYPED_SECRET[:9]} is not {TYPED_SECRET}, and sixsix, but five5"
        config = McpConfig(
            McpServerType.streamable_http,
            server_url="http://x.sim/mcp",
            token=TYPED_SECRET[:9],
            custom_headers={"X-A": "sixsix", "X-B": "five5"},
        )
        dialing = Dialing(ScriptedTransport(tools_call=McpError(McpFault.refused, said)))
        connection = connection_of(dialing, config)
        error = await failed(connection)
        assert error.message == f"MCP server 'test': {HIDDEN} is not {HIDDEN}, and {HIDDEN}, but five5"

    in_virtual_time(main)


def test_so_many_calls_run_at_once_and_one_that_is_cancelled_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "CALLS_MAX", 2)

    async def main() -> None:
        transport = ScriptedTransport()
        transport.held["tools/call"] = asyncio.Event()
        connection = connection_of(Dialing(transport))
        calls = [asyncio.create_task(connection.use(called)) for _ in range(4)]
        await settled()
        assert len(transport.asked("tools/call")) == 2 and connection.report().calls == 4
        calls[0].cancel()
        calls[3].cancel()
        await settled()
        assert len(transport.asked("tools/call")) == 3 and connection.report().calls == 2
        transport.held["tools/call"].set()
        await asyncio.gather(*calls[1:3])
        assert not connection.in_use
        await connection.close()

    in_virtual_time(main)


def test_a_server_with_a_new_name_keeps_its_connection_and_is_called_by_that_name() -> None:
    async def main() -> None:
        transport, told = ScriptedTransport(), list[str]()
        transport.changes = True
        dialing = Dialing(transport)
        pool = ConnectionPool(dialing, ConnectionLimits(), SystemClock(), OrganizationShare())
        pool.tools_changed = lambda server: told.append(server.server_name)
        server = server_of(McpConfig(McpServerType.streamable_http, server_url="http://x.sim/mcp"), "old")
        await (await pool.get(server)).use(Session.tools)
        renamed = replace(server, server_name="new")
        transport.answer(tools_call=McpError(McpFault.refused, "no"))
        with pytest.raises(McpError, match="MCP server 'new': no"):
            await (await pool.get(renamed)).use(called)
        (await pool.get(renamed))._tools_changed()
        assert told == ["new"] and not dialing.left
        await pool.close()

    in_virtual_time(main)
