"""Calls that wait for an approval only so long: then the server denies them, while the disk fails, the power is cut,
clocks jump, agents are stopped, and clients answer at that very moment.

Whichever comes first, every call has one answer and one result. An acknowledged answer is the one that counts, a
refused one counts for nothing, nothing is denied before its time, and nothing waits for ever.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace

from kelpie.agent.maintenance.approval_expiry import RUN_TYPE, denial_of
from kelpie.core.ids import MessageId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.ports.disk import Disk
from kelpie.sim.scenarios.basic.crashes import cuts
from kelpie.sim.scenarios.checks.approval_records import ConversationAddress, Request, is_counted, waiting
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.server_scenario import scenario, together
from kelpie.sim.scenarios.turns.approvals import Approvals

WAITS_S = 20
SWEPT_WITHIN_S = 40.0  # after its time is over, when all is well
LOOKS = 4
AMID = "amid a cancel"
WAYS = ("whole", "whole", "part", "twice", "at once", "with words", "unheard", "cancel", AMID, AMID)
MOMENTS = ("soon", "soon", "in the end", "in the sweep", "in the sweep", "with the denial", "never")
LOOK_S = 0.1
_OURS = f'%"{RUN_TYPE}"%'
_CLOCKS = (Fault.clock_jump, Fault.clock_skew)


class Denials:
    """A watch over the disk: since when each request waits, and when the server begins to deny one."""

    def __init__(self, loop: SimLoop) -> None:
        self.began_s: dict[str, float] = {}
        self._loop = loop
        self._known: set[str] = set()
        self._waiting: set[str] = set()
        self._news = asyncio.Event()

    def __call__(self, disk: Disk) -> None:
        waiting = {request_id for (request_id,) in disk.query("SELECT message_id FROM approvals")}
        for request_id in sorted(waiting):
            self.began_s.setdefault(request_id, self._loop.time())
        denied = {run_id for (run_id,) in disk.query("SELECT id FROM runs WHERE metadata LIKE ?", _OURS)}
        if denied - self._known:
            # One commit may hold a denial and the answer that came right after it.
            waited = {denial_of(MessageId(request_id)) for request_id in waiting | self._waiting}
            if wrong := sorted(denied - self._known - waited):
                raise Broken("only what waits is denied", f"{wrong} deny what was answered before")
            self._known, news = denied, self._news
            self._news = asyncio.Event()
            news.set()
        self._waiting = waiting

    async def next(self) -> None:
        """Waits for the next denial, but not for ever."""
        try:
            async with asyncio.timeout(WAITS_S + SWEPT_WITHIN_S):
                await self._news.wait()
        except TimeoutError:
            return


class ExpiringApprovals(Approvals):
    """The clients of `Approvals`, slower; an operator that cuts the power and stops agents when something expires."""

    asks_within_s = 30.0

    async def act(self) -> None:
        self.denials = Denials(self.machine.loop)
        self.machine.disk.watch(self.denials)
        await super().act()

    def meddling(self) -> Iterable[Awaitable[None]]:
        return (*super().meddling(), self._operate(self.client("operator")))

    async def _operate(self, operator: ScenarioClient) -> None:
        for _ in range(4):
            await self.denials.next()
            deed = operator.picks((self._cut, self._stop, self._cancel_denial, None))
            if deed is not None:
                await deed(operator)

    async def _cut(self, operator: ScenarioClient) -> None:
        await operator.pause(0.3)
        await self.machine.restart()

    async def _stop(self, operator: ScenarioClient) -> None:
        agent_id = operator.picks(self.agents)
        await operator.insist("POST", f"/v1/agents/{agent_id}/stop")
        await operator.pause(WAITS_S)
        await operator.insist("POST", f"/v1/agents/{agent_id}/start")

    async def _cancel_denial(self, operator: ScenarioClient) -> None:
        """Cancels the denial, which is a run like any other, and perhaps not the wait."""
        latest = "SELECT agent_id, id FROM runs WHERE metadata LIKE ? ORDER BY rowid DESC LIMIT 1"
        for agent_id, run_id in self.machine.disk.query(latest, _OURS):
            await operator.ask("POST", f"/v1/agents/{agent_id}/messages/cancel", {"run_ids": [run_id]})

    async def decide(self, client: ScenarioClient, lane: ConversationAddress) -> None:
        for _ in range(LOOKS):
            await client.pause(10.0)
            request = waiting(self.machine.disk, lane)
            if request is None or not request.calls:
                continue
            moment = client.picks(MOMENTS)
            if moment != "never":
                await self._wait(client, request, moment)
                await self._do(client, lane, request)

    async def _wait(self, client: ScenarioClient, request: Request, moment: str) -> None:
        if moment == "soon":
            await client.pause(3.0)
        elif moment == "with the denial":
            await self.denials.next()
        else:
            now_s = self.machine.loop.time()  # a crash right after the commit hides the beginning from the watch
            over_s = self.denials.began_s.get(request.id, now_s) + WAITS_S
            if moment == "in the sweep":
                await asyncio.sleep(max(0.0, over_s - now_s))
                await self._sweep()
            else:
                await asyncio.sleep(max(0.0, over_s - now_s - 0.5))
                await client.pause()

    async def _sweep(self) -> None:
        """Waits until the server has read what is over, and does not know yet what it read; but not for ever."""
        before = self.machine.faults.fired(Fault.storage_latency, "read.expired")
        for _ in range(round(SWEPT_WITHIN_S / LOOK_S)):
            if self.machine.faults.fired(Fault.storage_latency, "read.expired") > before:
                return
            await asyncio.sleep(LOOK_S)

    async def _do(self, client: ScenarioClient, lane: ConversationAddress, request: Request) -> None:
        way = client.picks(WAYS)
        if way == "cancel":
            await self._cancel(client, lane)
        elif way == AMID:
            await self._answer_amid_a_cancel(client, lane, request)
        else:
            await self.answer(client, lane, request, way)

    async def _answer_amid_a_cancel(self, client: ScenarioClient, lane: ConversationAddress, request: Request) -> None:
        """Answers what a cancel has just withdrawn, perhaps before the agent in memory hears of that."""

        async def answer() -> None:
            await client.pause(0.3)
            await self.answer(client, lane, request, "whole")

        await together((self._cancel(client, lane), answer()))

    # --- what must be so -----------------------------------------------------------------------------------------

    async def settle(self) -> None:
        left = self.machine.disk.query("SELECT agent_id, message_id FROM approvals ORDER BY message_id")
        if left and not any(self.machine.faults.fired(fault) for fault in _CLOCKS):
            raise Broken("nothing waits for ever", f"{left} wait after {self.machine.loop.time():.0f} s")
        await super().settle()

    def check(self) -> None:
        super().check()
        others = [word.answer for word in self.words if not word.refused]  # perhaps the same, and taken
        refused = [word for word in self.words if word.refused and word.answer not in others]
        if counted := [word.answer for word in refused if is_counted(self.machine.disk, word)]:
            raise Broken("an answer that was refused counts for nothing", f"{counted}")
        self._denied_in_time()

    def _denied_in_time(self) -> None:
        """By the server's own clock, whatever that shows."""
        requests = dict(
            self.machine.disk.query("SELECT id, created_at FROM messages WHERE tool_calls LIKE '%\"awaits\"%'")
        )
        denials = dict(self.machine.disk.query("SELECT id, created_at FROM runs WHERE metadata LIKE ?", _OURS))
        for request_id, asked_at in requests.items():
            denied_at = denials.get(denial_of(MessageId(request_id)))
            if denied_at is not None and denied_at - asked_at < WAITS_S * MICROS_PER_SECOND:
                raise Broken("nothing is denied before its time", f"{request_id}: {asked_at} to {denied_at}")


EXPIRING = scenario(
    "waits-that-expire",
    ExpiringApprovals,
    faults=(
        Aim(Fault.storage_write_fail, "journal.open", rate=0.05),
        Aim(Fault.storage_write_fail, "journal.answers", rate=0.1),
        Aim(Fault.storage_write_fail, "journal.answers.told", rate=0.1),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
        Aim(Fault.storage_busy, "database.commit", rate=0.03),
        Aim(Fault.storage_read_fail, "database.read", rate=0.02),
        Aim(Fault.storage_latency, "read.expired", rate=0.9),
        Aim(Fault.storage_latency, "write.cancel", rate=0.8),
        Aim(Fault.clock_jump, "clock.now", rate=0.001, times_max=2),
        Aim(Fault.vanishing_client, "client.request", rate=0.03),
    ),
    plots=(*cuts("answers", 1, 2), *cuts("result", 1), *cuts("ask", 2), *cuts("open", 4)),
    swarm=(
        Fault.storage_latency,
        Fault.cpu_starvation,
        Fault.llm_malformed,
        Fault.clock_skew,
        Fault.crash_during_transaction,
    ),
    settings=replace(SETTINGS, approval_s=WAITS_S),
    quiet_s=120.0,
)
