"""A model of calls that wait for an approval: answered at once, in part, twice, wrongly and not at all."""

import json
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource, micros
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.external_service import ExternalService

APPROVAL_S = 120
SOON_S = 10  # the time of a request, power cuts included
SWEEP_S = 40  # within which a wait that is over is ended: two rounds of the maintenance


class ApprovalModel(ModelledResource):
    """The state: the calls that wait, by their marks, each with the answer that it has, and the effects so far."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str, outside: ExternalService) -> None:
        super().__init__(machine, client)
        self.path = f"/v1/agents/{agent_id}"
        self.outside = outside
        self.ids: dict[str, str] = {}  # of calls, by their marks
        self.due = 0
        self.state = {"waiting": {}, "effects": []}
        self._made = 0

    async def act(self) -> None:
        await self._end_overdue()
        if not self.state["waiting"]:
            await self._ask()
        else:
            acts = (self._answer, self._answer_one, self._answer_one, self._answer_wrongly, self._speak, self._cancel)
            await self.client.picks((*acts, self._expire))()

    async def _ask(self) -> None:
        self._made += 1
        marks = [f"{self.client.name}-guarded-{self._made}-{at}" for at in range(2)]
        lines = " & ".join(f'call outside {{"mark": "{mark}"}}' for mark in marks)
        after = {**self.state, "waiting": dict.fromkeys(marks, True)}
        await self.change("POST", f"{self.path}/messages", {"input": f"word{self._made}\n{lines}"}, after)
        await self.settled()

    async def settled(self) -> None:
        """After a fault the turn may go on by itself; what is read then is what is so."""
        for _ in range(100):
            if not await self.client.insist("GET", f"/v1/runs/?agent_id={self.path.split('/')[-1]}&active=true"):
                break
            await self.client.pause(3.0)
        if self.machine.faults.firings:
            self.state = await self.read()
        else:
            await super().check()

    async def _send(
        self, answers: list[dict[str, Any]], after: Any, *, partial: bool, refused: int | None = None
    ) -> None:
        body = {"messages": [{"type": "approval", "approvals": answers, "partial": partial}]}
        await self.change("POST", f"{self.path}/messages", body, after, refused=refused)
        await self.settled()

    async def _find_out(self, after: Any) -> None:
        """A turn that was cut off after it took the answers has run some of the approved calls, and only these."""
        seen = await self.read()
        may_end = set(after["effects"]) if after is not None and not after["waiting"] else set[str]()
        if not seen["waiting"] and set(self.state["effects"]) <= set(seen["effects"]) <= may_end:
            self.state = seen
            return
        await super()._find_out(after)

    def _answered(self, mark: str, approve: bool) -> dict[str, Any]:
        return {"type": "approval", "tool_call_id": self.ids[mark], "approve": approve}

    async def _answer(self) -> None:
        """All that wait, or all but one, which is refused."""
        left = [mark for mark, open_ in self.state["waiting"].items() if open_ is True]
        words = {mark: self.client.tosses(0.6) for mark in left}
        if len(left) == 2 and self.client.tosses(0.3):
            await self._send([self._answered(left[0], True)], None, partial=False, refused=400)
            return
        after = self._ended(words)
        await self._send([self._answered(mark, word) for mark, word in words.items()], after, partial=False)

    def _ended(self, words: dict[str, bool]) -> dict[str, Any]:
        """The state after these answers to the calls that have none; a call without any is denied."""
        ran = [mark for mark, word in self.state["waiting"].items() if words.get(mark, word == "yes")]
        return {"waiting": {}, "effects": sorted([*self.state["effects"], *ran])}

    async def _answer_one(self) -> None:
        """One of two for now, once or twice; nothing runs yet."""
        if any(word is not True for word in self.state["waiting"].values()):
            return
        mark, word = self.client.picks(list(self.state["waiting"])), self.client.tosses(0.5)
        after = {**self.state, "waiting": {**self.state["waiting"], mark: "yes" if word else "no"}}
        await self._send([self._answered(mark, word)], after, partial=True)
        if self.client.tosses(0.5) and self.state == after:
            said = await self.client.insist("GET", f"{self.path}/messages?limit=1000")
            await self._send([self._answered(mark, word)], after, partial=True)
            again = await self.client.insist("GET", f"{self.path}/messages?limit=1000")
            if again != said and not self.machine.faults.firings:
                raise Broken("an answer that comes again adds nothing", f"{again[len(said) :]}")
        if self.client.tosses(0.5) and self.state == after:
            await self._send([self._answered(mark, not word)], None, partial=True, refused=400)

    async def _answer_wrongly(self) -> None:
        """For a call that does not wait, one call twice, or against an answer that is given."""
        mark = self.client.picks(list(self.state["waiting"]))
        known = self.state["waiting"][mark]
        ways = [[{"type": "approval", "tool_call_id": "call_nobody", "approve": True}]]
        ways.append([self._answered(mark, True), self._answered(mark, False)])
        if known is not True:
            ways.append([self._answered(mark, known != "yes")])
        await self._send(self.client.picks(ways), None, partial=True, refused=400)

    async def _speak(self) -> None:
        await self.change("POST", f"{self.path}/messages", {"input": "hello"}, None, refused=409)
        await self.settled()

    async def _cancel(self) -> None:
        """What waits is denied, also where some of it was approved."""
        await self.change("POST", f"{self.path}/messages/cancel", {}, {**self.state, "waiting": {}})
        await self.settled()

    async def _expire(self) -> None:
        """A call waits until its time is over, and is denied soon after; one that was approved before runs then."""
        await self.sleep_until(self.due - 1)
        await self.settled()
        await self.sleep_until(self.due)
        await self._end_overdue()

    async def _end_overdue(self) -> None:
        if self.state["waiting"] and self.now + SOON_S * MICROS_PER_SECOND >= self.due:
            await self.sleep_until(max(self.now, self.due) + SWEEP_S * MICROS_PER_SECOND)
            self.state = self._ended({})
            await self.settled()

    async def check(self) -> None:
        if not self.state["waiting"] or self.now < self.due:
            await super().check()

    async def read(self) -> Any:
        listed = await self.client.insist("GET", f"{self.path}/approvals")
        everywhere = await self.client.insist("GET", "/v1/kelpie/approvals")
        if listed and not everywhere and self.now >= self.due:  # its time was over, and it was denied in between
            listed = await self.client.insist("GET", f"{self.path}/approvals")
        if listed != everywhere or len(listed) > 1:
            raise Broken("what waits is listed", f"{listed} and {everywhere}")
        said = await self.client.insist("GET", f"{self.path}/messages?limit=1000")
        spoken = [one for message in said for one in message.get("approvals") or ()]
        answers = {one["tool_call_id"]: "yes" if one["approve"] else "no" for one in spoken}
        waiting: dict[str, Any] = {}
        for request in listed:
            self.due = (micros(request["requested_at"]) or 0) + APPROVAL_S * MICROS_PER_SECOND
            for call in request["tool_calls"]:
                mark, call_id = json.loads(call["arguments"])["mark"], call["tool_call_id"]
                self.ids[mark] = call_id
                waiting[mark] = True if call["waits_for"] == "approval" else answers[call_id]
        mine = f"{self.client.name}-guarded-"
        effects = [mark for mark, count in self.outside.effects.items() for _ in range(count) if mark.startswith(mine)]
        return {"waiting": waiting, "effects": sorted(effects)}
