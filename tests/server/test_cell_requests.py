"""What a cell has asked for ends with its call: writes are waited for, everything else is ended."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from kelpie.server.edge.cell_listener import CELL, CellApi

DEADLINE_S = 60.0
AGENT = "/v1/agents/agent-00000000-0000-4000-8000-000000000001"


class Application:
    """Takes its time over every request; what came of each is in `fates`."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.fates: dict[str, str] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        assert scope[CELL] == "the passport"
        self.begun.set()
        try:
            await self.goes_on.wait()
            self.fates[scope["path"]] = "done"
        except asyncio.CancelledError:
            self.fates[scope["path"]] = "ended"
            raise


async def _nothing(*_: Any) -> Any:
    return {}


async def _asked(api: CellApi, app: Application, method: str, path: str) -> asyncio.Task[None]:
    app.begun.clear()
    task = asyncio.create_task(api({"type": "http", "method": method, "path": path}, _nothing, _nothing))
    await app.begun.wait()
    return task


async def test_a_write_is_waited_for_and_the_rest_is_ended() -> None:
    app = Application()
    api = CellApi(app, "the passport")
    writes = [("PATCH", f"{AGENT}/core-memory/blocks/human"), ("POST", f"{AGENT}/messages/async")]
    others = [
        ("POST", f"{AGENT}/messages"),
        ("POST", f"{AGENT}/messages/stream"),
        ("POST", f"{AGENT}/tools/outside/run"),
        ("GET", f"{AGENT}/messages"),
        ("POST", f"{AGENT}/archival-memory/search"),
    ]
    async with asyncio.timeout(DEADLINE_S):
        asked = [await _asked(api, app, *each) for each in (*writes, *others)]
        ending = asyncio.create_task(api.end())
        await asyncio.wait(asked[len(writes) :])
        assert not ending.done()
        app.goes_on.set()
        await ending
        await asyncio.gather(*asked)
    assert {app.fates[path] for _, path in writes} == {"done"}
    assert {app.fates[path] for _, path in others} == {"ended"}


async def test_what_comes_after_the_end_is_not_heard() -> None:
    app = Application()
    api = CellApi(app, "the passport")
    app.goes_on.set()
    await api.end()
    await api({"type": "http", "method": "PATCH", "path": f"{AGENT}/core-memory/blocks/human"}, _nothing, _nothing)
    assert app.fates == {}
