"""Calls of one reply whose tools may run side by side do; all others wait for the one before them."""

import asyncio

import pytest

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.runs import StopReason
from kelpie.core.tools.tools import NewTool
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says

SOURCE = '''
def {name}(x: str) -> str:
    """Does something outside.

    Args:
        x (str): anything
    """
    return x
'''


class Workshop(Rig):
    """Its tools run outside: `together` waits until so many calls have begun."""

    def __init__(self, path, together: int) -> None:
        super().__init__(path, external=self._run)
        self.together = together
        self.began: list[str] = []
        self.ended: list[str] = []
        self.all_there = asyncio.Event()

    async def _run(self, tool, context, arguments):
        self.began.append(arguments["x"])
        if len(self.began) >= self.together:
            self.all_there.set()
        if tool.name.startswith("beside"):
            async with asyncio.timeout(10):
                await self.all_there.wait()
        self.ended.append(arguments["x"])
        return Outcome(f"did {arguments['x']}")

    async def make(self) -> str:
        made = {}
        for name in ("beside", "beside_too", "alone"):
            new = NewTool(source_code=SOURCE.format(name=name), enable_parallel_execution=name != "alone")
            made[name] = (await self.kelpie.api().tools.create(new)).id
        return (await self.kelpie.api().agents.create(NewAgent(tool_ids=tuple(made.values())))).agent.id


@pytest.fixture
async def workshop(tmp_path):
    made = await Workshop(tmp_path / "kelpie.db", together=2).start()
    yield made
    await made.stop()


async def test_two_run_at_once_and_their_results_are_one_row_in_the_order_of_the_calls(workshop):
    agent_id = await workshop.make()
    workshop.model.script = [says("", ("beside", {"x": "a"}), ("beside_too", {"x": "b"})), says("done")]
    events = await workshop.say(agent_id, "go")
    assert ended(events).stop_reason is StopReason.end_turn
    [results] = [row.tool_returns for row in rows(events) if row.role is Role.tool]
    assert [(r.call_id, r.text, r.ok) for r in results] == [("call_0", "did a", True), ("call_1", "did b", True)]


async def test_one_that_must_run_alone_parts_the_others(workshop):
    workshop.together = 0
    workshop.all_there.set()
    agent_id = await workshop.make()
    calls = [("beside", {"x": "a"}), ("alone", {"x": "b"}), ("beside", {"x": "c"}), ("beside_too", {"x": "d"})]
    workshop.model.script = [says("", *calls), says("done")]
    events = await workshop.say(agent_id, "go")
    found = [[r.text for r in row.tool_returns] for row in rows(events) if row.role is Role.tool]
    assert found == [["did a"], ["did b"], ["did c", "did d"]]
    assert workshop.began == workshop.ended == ["a", "b", "c", "d"]


async def test_cancelled_together_each_has_its_result(workshop):
    workshop.together = 99  # which never come
    agent_id = await workshop.make()
    workshop.model.script = [says("", ("beside", {"x": "a"}), ("beside_too", {"x": "b"})), says("never said")]
    turn = await workshop.kelpie.api().sending.send(agent_id, SendRequest((NewMessage(Role.user, (Text("go"),)),)))
    async with asyncio.timeout(10):
        while len(workshop.began) < 2:  # noqa: ASYNC110 - the tools tell nobody
            await asyncio.sleep(0.005)
    doors = workshop.kelpie.api()
    assert await doors.cancellations.of_agent(agent_id, [turn.run_id]) == {turn.run_id: "cancelled"}
    events = [event async for event in turn.events()]
    assert ended(events).stop_reason is StopReason.cancelled and workshop.ended == []
    results = [r for row in rows(events) if row.role is Role.tool for r in row.tool_returns]
    assert [(r.call_id, r.ok) for r in results] == [("call_0", False), ("call_1", False)]
    assert len(workshop.model.requests) == 1
