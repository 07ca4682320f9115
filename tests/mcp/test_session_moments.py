"""Moments of a session: calls that are given up, questions and progress that come at any time, and old lists."""

import asyncio
from typing import Any

import pytest

from kelpie.core.errors import McpError, McpFault
from kelpie.mcp.client.answers import CallResult, InputNeeded
from kelpie.mcp.client.session import TOOLS_S_MIN, Session
from kelpie.mcp.protocol.messages import Notification, Request, Result
from kelpie.mcp.protocol.versions import V2025_11, V2026_07
from kelpie.mcp.transports.port import StreamBroken
from tests.mcp.scripted_transport import TEXT, ScriptedTransport, in_virtual_time, now_s, out_of_reach

ASKED = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def opened(transport: ScriptedTransport) -> Session:
    session = Session(transport, lambda: None)
    await session.open(30.0)
    return session


@pytest.mark.parametrize(
    ("version", "closing_cancels", "told"),
    [(V2025_11, False, 1), (V2025_11, True, 1), (V2026_07, False, 1), (V2026_07, True, 0)],
)
def test_a_server_is_told_once_of_a_call_that_is_given_up(version: str, closing_cancels: bool, told: int) -> None:
    async def main() -> None:
        transport = ScriptedTransport(version)
        transport.closing_cancels = closing_cancels
        session = await opened(transport)
        transport.held["tools/call"] = asyncio.Event()
        calling = asyncio.create_task(session.call("get", {}))
        await settled()
        calling.cancel()
        await settled()
        number = next(each.id for each in transport.seen if isinstance(each, Request) and each.method == "tools/call")
        assert transport.asked("notifications/cancelled") == [{"requestId": number}] * told

    in_virtual_time(main)


def test_a_greeting_cannot_be_taken_back() -> None:
    async def main() -> None:
        transport = ScriptedTransport()
        transport.held["initialize"] = asyncio.Event()
        opening = asyncio.create_task(opened(transport))
        await settled()
        opening.cancel()
        await settled()
        assert transport.asked("initialize") and not transport.asked("notifications/cancelled")

    in_virtual_time(main)


def test_a_server_that_takes_no_goodbye_keeps_nobody_waiting() -> None:
    async def main() -> None:
        class Deaf(ScriptedTransport):
            ended = 0

            async def tell(self, message: Any) -> None:
                if isinstance(message, Notification) and message.method == "notifications/cancelled":
                    try:
                        await asyncio.Event().wait()
                    finally:
                        self.ended += 1

        transport = Deaf()
        session = await opened(transport)
        transport.held["tools/call"] = asyncio.Event()
        for _ in range(2):
            calling = asyncio.create_task(session.call("get", {}))
            await settled()
            calling.cancel()
            await settled()
        await asyncio.sleep(2.0)
        assert transport.ended == 2, "it is waited for a while"
        calling = asyncio.create_task(session.call("get", {}))
        await settled()
        calling.cancel()
        await settled()
        await session.close()
        await settled()
        assert transport.ended == 3 and now_s() == 2.0, "and not longer than the session"

    in_virtual_time(main)


def test_progress_is_that_of_its_call_as_long_as_it_runs() -> None:
    async def main() -> None:
        transport, heard = ScriptedTransport(), list[tuple[str, float, float | None, str | None]]()
        session = await opened(transport)
        transport.held["tools/call"] = asyncio.Event()

        def hears(name: str) -> Any:
            return lambda done, total, said: heard.append((name, done, total, said))

        calls = [asyncio.create_task(session.call("get", {}, progress=hears(name))) for name in ("one", "two")]
        await settled()
        tokens = [params["_meta"]["progressToken"] for params in transport.asked("tools/call")]

        def says(token: Any, **params: Any) -> None:
            transport.says(Notification("notifications/progress", {"progressToken": token, **params}))

        says(tokens[1], progress=1, total=2, message="half")
        says(tokens[0], progress=0.5, total="many", message=["no text"])
        says(tokens[0], progress="much")
        says([tokens[0]], progress=3)
        says("unknown", progress=3)
        assert heard == [("two", 1.0, 2.0, "half"), ("one", 0.5, None, None)]
        calls[0].cancel()
        await settled()
        says(tokens[0], progress=4)
        transport.held["tools/call"].set()
        await calls[1]
        says(tokens[1], progress=5)
        assert len(heard) == 2

    in_virtual_time(main)


def test_a_question_is_for_its_call_and_for_nobody_when_it_may_be_for_several() -> None:
    async def main() -> None:
        transport = ScriptedTransport()
        session = await opened(transport)
        transport.held["tools/call"] = asyncio.Event()
        calls = [asyncio.create_task(session.call("get", {})) for _ in range(2)]
        await settled()
        numbers = [each.id for each in transport.seen if isinstance(each, Request) and each.method == "tools/call"]
        transport.says(Request("q-1", "elicitation/create", ASKED))
        transport.says(Request("q-2", "elicitation/create", ASKED), numbers[1])
        transport.says(Request("q-3", "sampling/createMessage"), numbers[1])
        await settled()
        replies = [each for each in transport.seen if isinstance(each, Result)]
        assert [(each.id, each.result["action"]) for each in replies] == [("q-1", "cancel"), ("q-2", "cancel")]
        transport.held["tools/call"].set()
        first, second = await asyncio.gather(*calls)
        assert isinstance(first, CallResult)
        assert isinstance(second, InputNeeded) and list(second.questions) == ["question-1"]

    in_virtual_time(main)


def test_a_call_that_fails_for_want_of_an_answer_asks_for_it() -> None:
    async def main() -> None:
        transport = ScriptedTransport(tools_call=McpError(McpFault.refused, "cancelled by the user", code=-1))
        session = await opened(transport)
        transport.held["tools/call"] = asyncio.Event()
        calling = asyncio.create_task(session.call("get", {}))
        await settled()
        transport.says(Request("q-1", "elicitation/create", ASKED))  # on a stream of its own
        transport.held["tools/call"].set()
        needed = await calling
        assert isinstance(needed, InputNeeded) and [each.message for each in needed.questions.values()] == [
            "Your name?"
        ]

    in_virtual_time(main)


@pytest.mark.parametrize(("version", "asked"), [(V2026_07, 3), (V2025_11, 1)])
def test_only_a_stateless_request_is_sent_again_when_its_answer_breaks(version: str, asked: int) -> None:
    async def main() -> None:
        transport = ScriptedTransport(version, tools_call=StreamBroken("it broke off"))
        session = await opened(transport)
        with pytest.raises(StreamBroken):
            await session.call("get", {})
        numbers = {each.id for each in transport.seen if isinstance(each, Request) and each.method == "tools/call"}
        assert len(transport.asked("tools/call")) == len(numbers) == asked
        assert now_s() == (0.75 if asked == 3 else 0.0)

    in_virtual_time(main)


def test_a_server_that_got_a_request_is_never_called_out_of_reach() -> None:
    async def main() -> None:
        broken = StreamBroken("it broke off")
        transport = ScriptedTransport(V2026_07, tools_call=[broken, out_of_reach(), out_of_reach()])
        session = await opened(transport)
        with pytest.raises(StreamBroken):
            await session.call("get", {})
        transport.answer(tools_call=[broken, out_of_reach(), TEXT])
        assert isinstance(await session.call("get", {}), CallResult)
        transport.answer(tools_call=[broken, McpError(McpFault.timed_out, "silence"), TEXT])
        with pytest.raises(McpError, match="silence"):
            await session.call("get", {})
        transport.answer(tools_call=[out_of_reach(), TEXT])
        with pytest.raises(McpError, match="nobody is there"):
            await session.call("get", {})

    in_virtual_time(main)


def test_a_list_of_tools_is_as_old_as_its_page_that_ends_first() -> None:
    async def main() -> None:
        pages: list[Any] = [
            {"tools": [], "nextCursor": "2", "ttlMs": 90_000},
            {"tools": [], "nextCursor": "3", "ttlMs": 80_000},
            {"tools": [], "ttlMs": 500_000},
        ]
        session = await opened(ScriptedTransport(V2026_07, tools_list=pages))
        assert session.tools_are_old, "nobody has them"
        await session.tools()
        await asyncio.sleep(79.0)
        assert not session.tools_are_old
        await asyncio.sleep(1.0)
        assert session.tools_are_old
        session.expect_tools()
        assert not session.tools_are_old, "somebody reads them"

    in_virtual_time(main)


@pytest.mark.parametrize("version", [V2026_07, V2025_11])
def test_who_tells_of_changes_is_believed(version: str) -> None:
    async def main() -> None:
        transport = ScriptedTransport(version, tools_list={"tools": [], "ttlMs": 1000})
        transport.changes = True
        session = await opened(transport)
        await session.tools()
        await asyncio.sleep(2 * TOOLS_S_MIN)
        assert not session.tools_are_old

    in_virtual_time(main)


def test_tools_that_could_not_be_read_are_not_there() -> None:
    async def main() -> None:
        transport = ScriptedTransport(V2026_07, tools_list={"tools": []})
        session = await opened(transport)
        await session.tools()
        await asyncio.sleep(TOOLS_S_MIN - 1)
        assert not session.tools_are_old
        transport.held["tools/list"] = asyncio.Event()
        reading = asyncio.create_task(session.tools())
        await asyncio.sleep(5)
        assert not session.tools_are_old, "the new list decides, not the old one"
        reading.cancel()
        await settled()
        assert session.tools_are_old

    in_virtual_time(main)
