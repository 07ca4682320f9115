"""Tasks of MCP servers as they are followed: what the agent is told, how often, and what happened meanwhile stays."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kelpie.agent.maintenance import mcp_tasks
from kelpie.agent.maintenance.mcp_tasks import McpTaskFollower
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.mcp_tasks import McpTask
from kelpie.core.conversations.messages import Message, Role
from kelpie.core.errors import McpError, McpFault
from kelpie.core.ids import DEFAULT_ORGANIZATION, McpServerId, McpTaskId, MessageId
from kelpie.mcp.protocol.tasks import Task, TaskStatus
from kelpie.storage.agents import agents
from kelpie.storage.conversations import approvals, messages
from kelpie.storage.tools import mcp_tasks as rows
from kelpie.tools.mcp import tasks
from kelpie.world.world import World
from tests.tools.workshop import ANN, NOW, open_world

ID = McpTaskId("mcptask-00000000-0000-4000-8000-000000000001")
LATER = 10**13  # microseconds: any pause between two questions is over then
WORKING = Task("1", TaskStatus.working)
DONE = Task("1", TaskStatus.completed, result={"content": [{"type": "text", "text": "it is done"}]})
FAILS = McpError(McpFault.unreachable, "nobody is there")


def asks(message: str) -> Task:
    params = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}
    return Task(
        "1", TaskStatus.input_required, input_requests={"who": {"method": "elicitation/create", "params": params}}
    )


@dataclass
class Followed:
    """A follower, and what the server of its only task says next."""

    world: World
    says: list[Task | McpError] = field(default_factory=list[Task | McpError])
    meanwhile: Callable[[McpTask], McpTask] | None = None  # what somebody makes of the task while its server is asked
    told: list[str] = field(default_factory=list[str])  # the runs that tell the agent

    def __post_init__(self) -> None:
        queue: Any = SimpleNamespace(submit=lambda run: self.told.append(run.run_id))
        nothing: Any = None
        self._follower = McpTaskFollower(self.world, nothing, queue)

    async def answer(self, *_: Any) -> Task:
        if (change := self.meanwhile) is not None:
            await self.world.database.transact(lambda tx: rows.replace(tx, change(found(tx))))
        said = self.says.pop(0)
        if isinstance(said, McpError):
            raise said
        return said

    async def hears(self, *says: Task | McpError) -> McpTask:
        """The task after its server was asked so often, each time after the pause before it."""
        clock: Any = self.world.clock
        for said in says:
            clock._now += LATER
            self.says.append(said)
            await self._follower._look()
        return await self.world.database.read(found)


def found(tx: Any) -> McpTask:
    task = rows.locked(tx, ID)
    assert task is not None
    return task


@pytest.fixture
async def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Followed]:
    async with open_world(tmp_path) as world:
        task = McpTask(
            ID, DEFAULT_ORGANIZATION, McpServerId("mcp_server-1"), ANN, None, "dig", "1", "working", NOW, NOW,
            NOW + 1000 * LATER, NOW, 1000,
        )  # fmt: skip
        await world.database.transact(lambda tx: rows.insert(tx, task))
        made = Followed(world)
        monkeypatch.setattr(tasks, "look", made.answer)
        yield made


async def test_each_question_and_the_result_are_told_once(followed: Followed) -> None:
    task = await followed.hears(asks("Your name?"), asks("Your name?"))
    assert (len(followed.told), task.status, task.run_id) == (1, "input_required", None)
    task = await followed.hears(WORKING)
    assert (task.status, dict(task.questions)) == ("working", {})
    await followed.hears(asks("Your age?"))
    assert len(followed.told) == 2
    task = await followed.hears(DONE, DONE)
    assert len(followed.told) == 3 and len(set(followed.told)) == 3
    assert (task.status, task.run_id, task.poll_at, dict(task.questions)) == ("completed", followed.told[-1], None, {})


async def test_a_task_is_given_up_after_failures_in_a_row(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tasks, "FAILURES_MAX", 3)
    task = await followed.hears(FAILS, FAILS, WORKING, FAILS, FAILS)
    assert (task.status, task.failures, task.status_message, followed.told) == ("working", 2, "nobody is there", [])
    task = await followed.hears(FAILS)
    assert (task.status, task.poll_at, len(followed.told)) == ("failed", None, 1)


async def test_what_a_person_did_while_the_server_was_asked_stays(followed: Followed) -> None:
    await followed.hears(asks("Your name?"))
    answered = {"status": "working", "questions": {}}
    followed.meanwhile = lambda task: replace(task, updated_at=task.updated_at + 1, **answered)
    task = await followed.hears(asks("Your name?"))
    assert (task.status, dict(task.questions), len(followed.told)) == ("working", {}, 1)
    followed.meanwhile = lambda task: replace(task, status="cancelled", poll_at=None)
    task = await followed.hears(DONE)
    assert (task.status, task.run_id, len(followed.told)) == ("cancelled", None, 1)


async def test_an_agent_that_is_stopped_is_told_later(followed: Followed) -> None:
    database = followed.world.database
    await database.transact(lambda tx: agents.update_agent(tx, ANN, {"stopped": True}, NOW))
    task = await followed.hears(DONE)
    assert (task.status, task.poll_at is not None, followed.told) == ("working", True, [])
    await database.transact(lambda tx: agents.update_agent(tx, ANN, {"stopped": False}, NOW))
    task = await followed.hears(DONE)
    assert (task.status, len(followed.told)) == ("completed", 1)


async def test_a_task_that_takes_longer_than_it_is_kept_has_failed(followed: Followed) -> None:
    task = await followed.hears(*[WORKING] * 2)
    clock: Any = followed.world.clock
    clock._now = task.expires_at
    task = await followed.hears(WORKING)
    assert (task.status, task.poll_at, len(followed.told)) == ("failed", None, 1)


@pytest.mark.parametrize("lane", [None, "conv-1"])
async def test_an_agent_that_waits_for_an_approval_is_told_after_it(followed: Followed, lane: str | None) -> None:
    database = followed.world.database
    asked = Message(MessageId("message-1"), ANN, Role.approval, NOW, ())
    here, there = (PendingCalls(ANN, each, asked.id, (), NOW) for each in (lane or "", "" if lane else "conv-1"))

    def waits(tx: Any) -> None:
        messages.append(tx, [asked])
        approvals.move(tx, None, here)
        tx.exec_driver_sql("UPDATE mcp_tasks SET conversation_id = ?", (lane,))

    await database.transact(waits)
    task = await followed.hears(DONE)
    assert (task.status, task.poll_at is not None, followed.told) == ("working", True, [])

    def moved(tx: Any) -> None:  # another conversation waits now, which is not the one of the task
        approvals.move(tx, here, None)
        approvals.move(tx, None, there)

    await database.transact(moved)
    task = await followed.hears(DONE)
    assert (task.status, len(followed.told)) == ("completed", 1)


async def test_the_pause_after_failures_grows_and_begins_anew_after_an_answer(followed: Followed) -> None:
    async def pauses(*says: Task | McpError) -> list[int]:
        found = [await followed.hears(each) for each in says]
        return [round(((task.poll_at or 0) - task.updated_at) / 1_000_000) for task in found]

    assert await pauses(FAILS, FAILS, FAILS) == [2, 4, 8]
    assert await pauses(asks("Your name?"), FAILS, FAILS, WORKING, FAILS) == [60, 2, 4, 1, 2]
