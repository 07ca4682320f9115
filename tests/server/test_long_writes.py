"""Long changes of memory: in pieces that let other writes in between, and all or nothing for everyone who looks."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from kelpie.agent.maintenance import memory_changes
from kelpie.app import Kelpie
from kelpie.core.errors import CommitUnknown, StorageBusy, StorageError
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId
from kelpie.core.permissions.organization_limits import OrganizationUsage
from kelpie.storage.accounts import usage
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.ownership_fence import Node
from kelpie.storage.checkpoints import changes
from kelpie.world.database import T, Tx
from tests.server.rig import Puppet, client_of, make_agent
from tests.server.test_checkpoints_api import checkpoint, full_agent, memory_of, restore, wreck


class WatchedDatabase:
    """The database, with every write noticed before and after it; `fail_at` makes one of them fail.

    `unanswered` is a write whose answer is lost, once; after it one more write is stored, and then none.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.writes = 0
        self.fail_at: int | None = None
        self.unanswered: Callable[..., Any] | None = None
        self.left: int | None = None  # writes that are still stored
        self.between: Callable[[], Any] | None = None

    async def transact(self, fn: Callable[[Tx], T]) -> T:
        self.writes += 1
        if self.writes == self.fail_at or self.left == 0:
            raise StorageError("The database failed: disk I/O error")
        if self.left is not None:
            self.left -= 1
        if self.between is not None:
            await self.between()
        result = await self.inner.transact(fn)
        if isinstance(fn, partial) and fn.func is self.unanswered:
            self.unanswered, self.left = None, 1
            raise CommitUnknown("The answer to the commit was lost: disk I/O error")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def watched(kelpie: Kelpie) -> WatchedDatabase:
    """What the long changes of the server use; every change counts as a long one."""
    runtime_changes = kelpie.runtime.memory_changes
    kelpie.runtime.piece_size.rows = 0
    runtime_changes.when_unfinished(lambda: None)  # a test says when they are completed
    found = WatchedDatabase(runtime_changes._database)  # pyright: ignore[reportPrivateUsage]
    runtime_changes._database = found  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    return found


async def is_counted(kelpie: Kelpie) -> None:
    found = await kelpie.world.database.read(lambda tx: usage.deviation(tx, DEFAULT_ORGANIZATION))
    assert found == OrganizationUsage()


async def leftovers(kelpie: Kelpie) -> int:
    count = text("SELECT (SELECT count(*) FROM memory_changes) + (SELECT count(*) FROM memory_change_parts)")
    return await kelpie.world.database.read(lambda tx: tx.execute(count).scalar_one())


async def test_a_long_restore_is_a_restore(
    client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie, watched: WatchedDatabase
) -> None:
    agent = await full_agent(client, puppet)
    before = await checkpoint(client, agent)
    await wreck(client, agent)
    told = await restore(client, agent, before)
    assert watched.writes > 10
    assert (told["blocks"], told["messages"]) == (2, len(before["memory"]["messages"]))
    assert memory_of(await checkpoint(client, agent)) == memory_of(before)
    assert await leftovers(kelpie) == 0
    answer = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "still there?"})
    assert answer.status_code == 200, answer.text
    await is_counted(kelpie)


async def test_who_looks_meanwhile_waits_and_sees_the_whole(
    client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie, watched: WatchedDatabase
) -> None:
    agent = await full_agent(client, puppet)
    before = await checkpoint(client, agent)
    await wreck(client, agent)
    wrecked = memory_of(await checkpoint(client, agent))
    looks: list[asyncio.Task[Any]] = []
    other = client_of(kelpie)

    async def between() -> None:
        looks.append(asyncio.create_task(checkpoint(other, agent)))
        await asyncio.sleep(0)

    watched.between = between
    await restore(client, agent, before)
    watched.between = None
    seen = [memory_of(each) for each in await asyncio.gather(*looks)]
    whole = memory_of(before)
    assert all(each in (wrecked, whole) for each in seen)
    assert len(seen) == watched.writes
    assert whole in seen
    await other.aclose()


@pytest.mark.parametrize("fail_at", [2, 5, 9])
async def test_a_restore_that_is_cut_off_is_completed_or_never_began(
    client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie, watched: WatchedDatabase, fail_at: int
) -> None:
    agent = await full_agent(client, puppet)
    before = await checkpoint(client, agent)
    await wreck(client, agent)
    wrecked = memory_of(await checkpoint(client, agent))
    watched.fail_at = fail_at
    answer = await client.post(f"/v1/agents/{agent['id']}/memory/restore", json=before)
    assert answer.status_code == 503
    begun = await kelpie.world.database.read(lambda tx: [each.decided for each in changes.every(tx)]) == [True]
    await kelpie.runtime.memory_changes.complete_all()  # what maintenance does in its next round, and after a start
    assert memory_of(await checkpoint(client, agent)) == (memory_of(before) if begun else wrecked)
    assert begun == (fail_at > 3)
    assert await leftovers(kelpie) == 0
    await is_counted(kelpie)


async def test_a_restore_that_is_done_is_not_begun_again_when_the_answer_to_its_last_commit_was_lost(
    client: httpx.AsyncClient,
    puppet: Puppet,
    kelpie: Kelpie,
    watched: WatchedDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = await full_agent(client, puppet)
    before = await checkpoint(client, agent)
    await wreck(client, agent)
    watched.fail_at = watched.writes + 8
    answer = await client.post(f"/v1/agents/{agent['id']}/memory/restore", json=before)
    assert answer.status_code == 503, "it was cut off on the way"
    monkeypatch.setattr(memory_changes, "RETRIES_S", (0.0,))
    watched.unanswered = changes.settle
    await kelpie.runtime.memory_changes.complete_all()
    watched.left = None
    await kelpie.runtime.memory_changes.complete_all()
    assert memory_of(await checkpoint(client, agent)) == memory_of(before)
    assert await leftovers(kelpie) == 0


async def test_while_a_change_is_half_done_the_agent_does_not_work(
    client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie, watched: WatchedDatabase
) -> None:
    agent = await full_agent(client, puppet)
    before = await checkpoint(client, agent)
    watched.fail_at = 6
    assert (await client.post(f"/v1/agents/{agent['id']}/memory/restore", json=before)).status_code == 503
    node = Node("local", 1)
    with pytest.raises(StorageBusy, match="being replaced"):
        await kelpie.world.database.transact(lambda tx: ownership_fence.claim(tx, AgentId(agent["id"]), node))
    send = asyncio.create_task(client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "now?"}))
    await kelpie.runtime.memory_changes.complete_all()
    assert (await send).status_code == 200
    assert len((await checkpoint(client, agent))["memory"]["messages"]) == len(before["memory"]["messages"]) + 2


async def test_a_long_history_is_reset_in_pieces(
    client: httpx.AsyncClient, kelpie: Kelpie, watched: WatchedDatabase
) -> None:
    agent = await make_agent(client)
    path = f"/v1/agents/{agent['id']}"
    for number in range(3):
        await client.post(f"{path}/messages", json={"input": f"message {number}"})
    answer = await client.patch(f"{path}/reset-messages", json={"add_default_initial_messages": False})
    assert answer.status_code == 200, answer.text
    assert watched.writes > 3
    kept = (await client.get(f"{path}/messages")).json()
    assert [each["message_type"] for each in kept] == ["system_message"]
    assert answer.json()["message_ids"] == [kept[0]["id"]]
    assert (await client.post(f"{path}/messages", json={"input": "anew"})).status_code == 200
    assert await leftovers(kelpie) == 0
    await is_counted(kelpie)


async def test_an_agent_that_works_keeps_its_memory(
    client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie, watched: WatchedDatabase
) -> None:
    agent = await make_agent(client)
    path, hold = f"/v1/agents/{agent['id']}", asyncio.Event()
    before = await checkpoint(client, agent)
    puppet.script.append(hold)
    turn = asyncio.create_task(client.post(f"{path}/messages", json={"input": "long"}))
    await asyncio.wait_for(puppet.waiting.wait(), 10)
    assert (await client.post(f"{path}/memory/restore", json=before)).status_code == 409
    assert (await client.patch(f"{path}/reset-messages", json={})).status_code == 409
    hold.set()
    assert (await turn).status_code == 200
    assert await leftovers(kelpie) == 0
    assert AgentId(agent["id"]) in str((await client.get("/v1/agents/")).json())
