"""MCP servers ask a person in the middle of calls, while the power fails around every commit and answers are lost.

The questions of a call are asked once, and wait until somebody answers. An answer that was taken leads to one more call
with it, and to no other; one that was denied leads to none.
"""

import asyncio
from collections import Counter
from typing import Any

from kelpie.core.conversations.runs import StopReason
from kelpie.mcp.protocol.versions import V2025_06, V2025_11, V2026_07
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.checks.approval_records import ConversationAddress, Request, waiting
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.mcp.remote_server import RemoteServer
from kelpie.sim.scenarios.mcp.server_setup import LIMITS, McpScenario
from kelpie.sim.scenarios.server_scenario import scenario, together

NAMES = ("forms", "talks", "cell")
TURNS = 2
LOOKS = 8
BEFORE, AFTER = Fault.crash_before_write, Fault.crash_after_write
CUTS = tuple(
    (Aim(fault, f"journal.{kind}", nth=nth),)
    for kind in ("result", "answers")
    for nth in (1, 2)
    for fault in (BEFORE, AFTER)
)
_MAY_BE_TOLD = (200, 400, 409, 429, 503)


class RemoteQuestions(McpScenario):
    """Three agents, each with one client that sends and two that answer."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.over_http("forms", V2026_07, kinds=("do", "ask"))
        self.over_http("talks", V2025_11, kinds=("do", "ask"))
        self.as_programs(("cell", V2025_06), kinds=("do", "ask"))
        self.answers = 0

    async def act(self) -> None:
        for name in NAMES:
            await self.register(name)
            if not await self.tool_ids(name):
                await self.refresh(name)
        tools = [f"{name}_{kind}" for name in NAMES for kind in ("do", "ask")]
        await self.make_agents(len(NAMES), types=("letta_v1_agent",), tools=tools)
        clients = self.clients(3 * len(NAMES))
        talks = (self._talk(clients[number], number) for number in range(len(NAMES)))
        looks = (self._answer(clients[3 + number], self.agents[number % 3]) for number in range(6))
        await together([*talks, *looks])

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(TURNS):
            await client.pause(3.0)
            name = NAMES[(number + turn) % len(NAMES)]
            lines = (self.calling(name, "ask"), "remember {token} asked")
            heard = await client.say(self.agents[number], *lines, stream=client.tosses(0.5))
            if heard.status == 409:  # the questions of the last turn are still open
                await client.pause(5.0)

    async def _answer(self, client: ScenarioClient, agent_id: str) -> None:
        for _ in range(LOOKS):
            await client.pause(3.0)
            request = waiting(self.machine.disk, ConversationAddress(agent_id))
            if request is not None and request.calls:
                await self._send(client, agent_id, request, approve=client.tosses(0.8), stream=client.tosses(0.5))

    async def _send(
        self, client: ScenarioClient, agent_id: str, request: Request, *, approve: bool, stream: bool = False
    ) -> None:
        self.answers += 1
        given: dict[str, Any] = {"arguments": {"name": f"{client.name}-{self.answers}"}} if approve else {}
        rulings = [
            {"type": "approval", "tool_call_id": call["id"], "approve": approve, **given} for call in request.calls
        ]
        body = {"messages": [{"type": "approval", "approvals": rulings}]}
        path = f"/v1/agents/{agent_id}/messages" + ("/stream" if stream else "")
        told = await client.ask("POST", path, body)
        if told is not None and told.status not in _MAY_BE_TOLD and b"error" not in told.body:
            raise Broken("a sound answer is accepted", f"{path}: {told.status} {told.body!r}")

    # --- what must be so -------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        guest = self.client("closer")
        for agent_id in self.agents:
            while (request := waiting(self.machine.disk, ConversationAddress(agent_id))) is not None:
                await self._send(guest, agent_id, request, approve=False)
                await asyncio.sleep(1)
        for said in self.machine.history.said:
            if said.stop_reason == StopReason.requires_approval:
                said.answers = []  # the question of a server is no answer to the message
        await super().settle()

    def repeats_max(self, server: RemoteServer, most: int) -> int:
        """Without faults of the network nothing is sent again; in the older generations a call is made again with its
        answers, which the server cannot see in the call."""
        return 1 if server.stateless else 2

    def check(self) -> None:
        super().check()
        for server in self.servers.values():
            if doubled := {mark: count for mark, count in server.effects.items() if count > 1}:
                raise Broken("an answer leads to one call", f"{server.name}: {doubled}")
            given = Counter(call.mark for call in server.calls if call.given is not None)
            if doubled := {mark: count for mark, count in given.items() if count > 1}:
                raise Broken("an answer leads to one call", f"{server.name} got {doubled} with answers")
        self._told_as_done_was_done()
        self._questions_are_asked_once()

    def _told_as_done_was_done(self) -> None:
        for each in self.results():
            server = self.servers[each.tool.partition("_")[0]]
            done = each.ok and each.text.startswith("done ") and each.tool.endswith("_ask")
            if done and not (each.text.startswith(f"done {each.mark} for ") and server.effects[each.mark] == 1):
                raise Broken("a result is that of its call", f"{each}")

    def _questions_are_asked_once(self) -> None:
        asked = Counter(each.mark for each in self.results() if "a person must answer first" in each.text)
        if doubled := {mark: count for mark, count in asked.items() if count > 1}:
            raise Broken("nothing asks twice", f"{doubled}")


QUESTIONS = scenario(
    "mcp-questions-and-crashes",
    RemoteQuestions,
    faults=(
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
        Aim(Fault.vanishing_client, "client.request", rate=0.03),
    ),
    plots=(
        *CUTS,
        (Aim(BEFORE, "journal.answers", rate=0.2, times_max=1), Aim(AFTER, "journal.result", rate=0.2, times_max=1)),
        (Aim(Fault.crash_after_write, "database.acknowledge", rate=0.03, times_max=2),),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation),
    settings=LIMITS,
)
