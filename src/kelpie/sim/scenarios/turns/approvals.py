"""Calls that wait for an approval, while the power fails at every point around them, the disk fails, answers are lost
and clients disconnect.

Clients approve, deny, change, answer in part, twice, at once and against each other, write while something waits,
cancel and empty the history; they run tools of their own. No answer is lost, nothing runs without one or twice, nothing
but a client ends a wait, and in the end every agent takes a plain message.
"""

import json
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

from kelpie.core.conversations.runs import RunStatus, StopReason, status_for
from kelpie.sim.checks.client_history import Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.basic.crashes import AFTER, BEFORE, cuts
from kelpie.sim.scenarios.checks.approval_records import (
    ApprovalAnswer,
    ConversationAddress,
    Request,
    WaitTimes,
    check_answers,
    waiting,
)
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.edits import Edits
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

TYPES = ("letta_v1_agent", "memgpt_agent")
APPENDS = {
    "letta_v1_agent": 'call memory_insert {"label": "human", "new_string": "{token} saw it"}',
    "memgpt_agent": 'call core_memory_append {"label": "human", "content": "{token} saw it"}',
}
FETCH = {
    "name": "fetch",
    "description": "Fetches something.",
    "parameters": {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]},
}
LINES = (
    ('call outside {"mark": "{token}"}',),
    ('call outside {"mark": "{token}-a"} & call fetch {"mark": "{token}"} & {append}',),
    ('call fetch {"mark": "{token}"}', 'call outside {"mark": "{token}-a"} & call outside {"mark": "{token}-b"}'),
)
ROUNDS = 4
LOOKS = 9
WAYS = (
    *("whole", "part", "part", "twice", "otherwise", "elsewhere", "at once", "with words", "unheard"),
    *("only words", "cancel"),
)
REFUSALS = (400, 409, 429)
_MAY_BE_TOLD = (*REFUSALS, 503)
_STOPPED = re.compile(rb'"stop_reason":\s*"(\w+)"')


class Approvals(ServerScenario):
    """Two agents, one of them in two conversations; each conversation has one client that asks and two that decide."""

    asks_within_s = 2.0

    async def act(self) -> None:
        self.words: list[ApprovalAnswer] = []
        self.waits = WaitTimes(self.machine.loop.time)
        self.machine.disk.watch(self.waits)
        kind = TYPES[self.machine.loop.seed % len(TYPES)]
        self.append = APPENDS[kind]
        await self.register_outside()
        await self.make_agents(2, types=(kind,), tools=["outside"])
        maker = self.client("ruler")
        for agent_id in self.agents:
            path = f"/v1/agents/{agent_id}/tools/approval/outside"
            await maker.insist("PATCH", path, {"requires_approval": True})
        first, second = self.agents
        other = (await maker.insist("POST", f"/v1/conversations/?agent_id={first}", {}))["id"]
        self.lanes = [ConversationAddress(first), ConversationAddress(first, other), ConversationAddress(second)]
        clients = self.clients(9)
        asking = (self.ask(clients[number], lane, number) for number, lane in enumerate(self.lanes))
        deciding = (self.decide(clients[3 + number], self.lanes[number % 3]) for number in range(6))
        await together((*asking, *deciding, *self.meddling()))

    def meddling(self) -> Iterable[Awaitable[None]]:
        """The work of other clients meanwhile."""
        return (self._empty(self.client("emptier"), self.agents[1]),)

    async def ask(self, client: ScenarioClient, lane: ConversationAddress, number: int) -> None:
        for turn in range(ROUNDS):
            await client.pause(self.asks_within_s)
            await self._say(client, lane, LINES[(number + turn) % len(LINES)])

    async def _say(
        self,
        client: ScenarioClient,
        lane: ConversationAddress,
        lines: Sequence[str] = (),
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        said = [line.replace("{append}", self.append) for line in lines]
        stream = client.tosses(0.5)
        await client.say(
            lane.agent_id,
            *said,
            stream=stream,
            tokens=stream,
            conversation=lane.conversation,
            client_tools=[FETCH],
            answers=answers,
        )

    async def _empty(self, client: ScenarioClient, agent_id: str) -> None:
        if not client.tosses(0.5):
            return
        await client.pause(6.0)
        edits = Edits(self.machine.loop)
        edit = edits.call(agent_id, None)
        await edits.make(client, edit, "PATCH", f"/v1/agents/{agent_id}/reset-messages", {})
        self.emptied_s[agent_id] = edit.acknowledged_s

    # --- what is said to calls that wait -------------------------------------------------------------------------

    async def decide(self, client: ScenarioClient, lane: ConversationAddress) -> None:
        for _ in range(LOOKS):
            await client.pause(1.5)
            request = waiting(self.machine.disk, lane)
            if request is None or not request.calls:
                continue
            way = client.picks(WAYS)
            if way == "only words":
                await self._say(client, lane)
            elif way == "cancel" and client.tosses(0.5):
                await self._cancel_run(client, lane, request)
            elif way == "cancel":
                await self._cancel(client, lane)
            else:
                await self.answer(client, lane, request, way)

    async def answer(self, client: ScenarioClient, lane: ConversationAddress, request: Request, way: str) -> None:
        answers = [self._opinion(client, call) for call in request.calls]
        if way == "part":
            await self._send(client, lane, [client.picks(answers)], partial=True)
            if client.tosses(0.6):
                await self._cancel(client, lane)
        elif way == "at once":
            await together((self._send(client, lane, answers), self._send(client, lane, answers)))
        elif way == "with words":
            self._note(lane, answers)
            await self._say(client, lane, (), answers)
        elif way == "unheard":  # in the background
            self._note(lane, answers)
            body = {"messages": [{"type": "approval", "approvals": answers}]}
            await client.ask("POST", f"/v1/agents/{lane.agent_id}/messages/async", body)
        else:
            await self._send(client, lane, answers)
            if way == "twice":
                await self._send(client, lane, answers)
            elif way == "otherwise":
                await self._send(client, lane, [_changed(client, answer) for answer in answers])
            elif way == "elsewhere":
                await self._send_elsewhere(client, lane, answers)

    def _opinion(self, client: ScenarioClient, call: Mapping[str, Any]) -> dict[str, Any]:
        mark = json.loads(call["arguments"])["mark"]
        if call["awaits"] == "client" and client.tosses(0.8):
            told = f"{client.name} fetched {mark}"
            return {"type": "tool", "tool_call_id": call["id"], "tool_return": told, "status": "success"}
        ruling = {"type": "approval", "tool_call_id": call["id"], "mark": mark}
        if call["awaits"] == "client" or client.tosses(0.2):
            return {**ruling, "approve": False, "reason": f"{client.name} does not like it"}
        changed = {"arguments": {"mark": f"{mark}-{client.name}"}} if client.tosses(0.3) else {}
        return {**ruling, "approve": True, **changed}

    def _note(self, lane: ConversationAddress, answers: Sequence[Mapping[str, Any]]) -> list[ApprovalAnswer]:
        words = [ApprovalAnswer(lane.agent_id, answer) for answer in answers]
        self.words += words
        return words

    async def _send(
        self,
        client: ScenarioClient,
        lane: ConversationAddress,
        answers: Sequence[Mapping[str, Any]],
        *,
        partial: bool = False,
    ) -> None:
        words = self._note(lane, answers)
        body: dict[str, Any] = {
            "messages": [{"type": "approval", "approvals": answers, "partial": partial}],
            "client_tools": [FETCH],
        }
        path = lane.messages
        if lane.conversation is not None:
            body["streaming"] = client.tosses(0.5)
        elif client.tosses(0.5):
            path = f"{path}/stream"
        told = await client.ask("POST", path, body)
        if told is None or b"event: error" in told.body:
            return
        if told.status != 200:
            for word in words:
                word.refused = told.status in REFUSALS
            if told.status not in _MAY_BE_TOLD and b"error" not in told.body:
                raise Broken("a sound answer is accepted", f"{path}: {told.status} {told.body!r}")
            return
        reason = StopReason(_STOPPED.findall(told.body)[-1].decode())
        for word in words:
            word.acknowledged = status_for(reason) is RunStatus.completed

    async def _send_elsewhere(
        self, client: ScenarioClient, lane: ConversationAddress, answers: Sequence[Mapping[str, Any]]
    ) -> None:
        """Sends the same answers to the other conversations of the agent, where nothing waits for them."""
        body = {"messages": [{"type": "approval", "approvals": answers}], "streaming": False}
        for other in self.lanes:
            if other.agent_id == lane.agent_id and other != lane:
                told = await client.ask("POST", other.messages, body)
                if told is None or told.status != 200:
                    continue
                if StopReason(_STOPPED.findall(told.body)[-1].decode()) is not StopReason.cancelled:
                    raise Broken("answers count in their conversation", f"{other} took {answers}: {told.body!r}")

    async def _cancel(self, client: ScenarioClient, lane: ConversationAddress) -> int | None:
        called_s = self.machine.loop.time()
        told = await client.ask("POST", lane.cancel, {})
        self.waits.cancelled(lane, called_s, answered=told is not None)
        if told is not None and told.status not in (200, 409, 503):
            raise Broken("a cancel is answered", f"{lane.cancel}: {told.status} {told.body!r}")
        return told.status if told is not None else None

    async def _cancel_run(self, client: ScenarioClient, lane: ConversationAddress, request: Request) -> None:
        """Cancels the run that asked, which may be a later one of its turn, by its id: what it asked for is over."""
        [(run_id,)] = self.machine.disk.query("SELECT run_id FROM messages WHERE id = ?", request.id) or [("",)]
        if not run_id:  # emptied meanwhile
            return
        called_s, path = self.machine.loop.time(), f"/v1/agents/{lane.agent_id}/messages/cancel"
        told = await client.ask("POST", path, {"run_ids": [run_id]})
        self.waits.cancelled(lane, called_s, answered=told is not None)
        if told is None or told.status == 503:
            return
        if told.status != 200:
            raise Broken("a cancel is answered", f"{path}: {told.status} {told.body!r}")
        now = waiting(self.machine.disk, lane)
        if told.json() == {run_id: "cancelled"} and now is not None and now.id == request.id:
            raise Broken("a cancelled run waits no longer", f"{lane}: {run_id} was cancelled, and {request} waits")

    # --- what must be so -----------------------------------------------------------------------------------------

    async def settle(self) -> None:
        guest = self.client("guest")
        for said in self.machine.history.said:
            if said.called_s <= self.emptied_s.get(said.agent_id, -1.0):
                said.fate = Fate.unknown
        for number, lane in enumerate(self.lanes):
            while (request := waiting(self.machine.disk, lane)) is not None:
                await self._end(guest, lane, request, cancelling=(self.machine.loop.seed + number) % 2 == 0)
            if lane.conversation is None:
                await self._cancel_one_of_two(guest, lane)
            else:
                heard = await guest.say(lane.agent_id, conversation=lane.conversation)
                if not heard.acknowledged:
                    raise Broken("no conversation is bricked", f"{lane}: {heard.status} {heard.trouble}")
                await self._delete_waiting(guest, lane, lane.conversation)
        await super().settle()

    async def _end(
        self, guest: ScenarioClient, lane: ConversationAddress, request: Request, *, cancelling: bool
    ) -> None:
        """Ends the remaining waits, as an operator would: by the server's answers about them."""
        if lane.conversation is None:
            path = f"/v1/agents/{lane.agent_id}?include=agent.pending_approval"
            shown = (await guest.insist("GET", path))["pending_approval"]
            if shown is None or shown["id"] != request.id:
                raise Broken("what waits is shown", f"{lane} waits for {request.id} and shows {shown}")
        listed = await guest.insist("GET", f"/v1/agents/{lane.agent_id}/approvals")
        here = [each for each in listed if each["conversation_id"] == (lane.conversation or "default")]
        told = {call["tool_call_id"] for each in here for call in each["tool_calls"] if call["waits_for"]}
        if told != {call["id"] for call in request.calls}:
            raise Broken("what waits is listed", f"{lane} waits for {request} and lists {here}")
        origin = lane.conversation or "default"  # nobody can answer in a fork, so it begins before the calls
        await guest.insist("POST", f"/v1/conversations/{origin}/fork?agent_id={lane.agent_id}")
        if cancelling:
            status = await self._cancel(guest, lane)
        else:
            denials = [{"type": "approval", "tool_call_id": call["id"], "approve": False} for call in request.calls]
            before = len(self.words)
            await self._send(guest, lane, denials)
            status = 200 if all(word.acknowledged for word in self.words[before:]) else None
        now = waiting(self.machine.disk, lane)
        if status != 200 or (now is not None and now.id == request.id):
            raise Broken("what waits can be ended", f"{lane} was told {status} and waits for {now}")

    async def _delete_waiting(self, guest: ScenarioClient, lane: ConversationAddress, conversation: str) -> None:
        """Deletes a conversation while calls wait in it: they get results, and nothing waits any more."""
        await self._answer_a_part(guest, lane)
        await guest.insist("DELETE", f"/v1/conversations/{conversation}")
        if (left := waiting(self.machine.disk, lane)) is not None:
            raise Broken("nothing waits in a deleted conversation", f"{lane} waits for {left}")

    async def _cancel_one_of_two(self, guest: ScenarioClient, lane: ConversationAddress) -> None:
        """Cancels what waits in one conversation, answered in part; what was just asked for in another waits on."""
        asked: dict[ConversationAddress, Request | None] = {}
        for other in self.lanes:
            if other.agent_id == lane.agent_id and other != lane and waiting(self.machine.disk, other) is None:
                await self._say(guest, other, LINES[0])
                asked[other] = waiting(self.machine.disk, other)
        await self._answer_a_part(guest, lane)
        if await self._cancel(guest, lane) != 200 or waiting(self.machine.disk, lane) is not None:
            raise Broken("what waits can be ended", f"{lane} was answered in part, and waits")
        if (left := {other: waiting(self.machine.disk, other) for other in asked}) != asked:
            raise Broken("a cancel is of one conversation", f"{lane} was cancelled, and of {asked} is left {left}")

    async def _answer_a_part(self, guest: ScenarioClient, lane: ConversationAddress) -> None:
        """Asks for two calls and answers one of them, which keeps this answer whatever becomes of the other."""
        await self._say(guest, lane, LINES[1])
        if (request := waiting(self.machine.disk, lane)) is not None:
            wanted = "client" if self.machine.loop.seed % 2 else "approval"
            [call] = [call for call in request.calls if call["awaits"] == wanted]
            mark = json.loads(call["arguments"])["mark"]
            result = {"type": "tool", "tool_call_id": call["id"], "tool_return": f"saw {mark}", "status": "success"}
            denial = {"type": "approval", "tool_call_id": call["id"], "mark": mark, "approve": False, "reason": "no"}
            await self._send(guest, lane, [result if wanted == "client" else denial], partial=True)

    def check(self) -> None:
        super().check()
        self.waits.were_waiting(self.heard)
        check_answers(self.machine.disk, self.words, self.emptied_s, self.outside.effects)


def _changed(client: ScenarioClient, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same decision with other arguments."""
    if answer["type"] != "approval" or not answer["approve"]:
        return answer
    return {**answer, "arguments": {"mark": f"{answer['mark']}-{client.name}-otherwise"}}


WAITING = scenario(
    "calls-that-wait",
    Approvals,
    faults=(
        *(Aim(fault, "journal.step", rate=0.3, times_max=1) for fault in (BEFORE, AFTER)),
        *(Aim(fault, "journal.result", rate=0.15, times_max=1) for fault in (BEFORE, AFTER)),
        *(Aim(fault, "journal.recover", rate=0.3, times_max=1) for fault in (BEFORE, AFTER)),
        *(Aim(fault, "outside.effect", rate=0.1, times_max=1) for fault in (BEFORE, AFTER)),
        Aim(Fault.storage_write_fail, "journal.ask", rate=0.05),
        Aim(Fault.storage_write_fail, "journal.ask.told", rate=0.05),
        Aim(Fault.disk_full, "journal.ask", rate=0.05),
        Aim(Fault.disk_full, "journal.answers", rate=0.1),
        Aim(Fault.storage_write_fail, "journal.answers", rate=0.1),
        Aim(Fault.storage_write_fail, "journal.answers.told", rate=0.1),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
        Aim(Fault.storage_busy, "database.commit", rate=0.02),
        Aim(Fault.storage_read_fail, "database.read", rate=0.01),
        Aim(Fault.vanishing_client, "client.request", rate=0.03),
        Aim(Fault.vanishing_client, "client.stream", rate=0.01),
    ),
    plots=(*cuts("open", 2), *cuts("ask", 1, 2), *cuts("answers", 1, 2)),
    swarm=(Fault.storage_latency, Fault.cpu_starvation, Fault.llm_malformed, Fault.crash_before_write),
)
