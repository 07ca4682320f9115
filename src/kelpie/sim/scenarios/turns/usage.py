"""Agents with budgets whose contexts are compacted and whose turns are cancelled, while writes and the reading of what
they have spent are slow.

Nothing fails, so the sums must be exact: what the provider charged is what the steps and the live budget say. Only a
reply that a cancel cut off may be missing. The provider takes long histories only in pieces, and the summary of them
has all that they said.
"""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, replace

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.model_provider import ChargedReply
from kelpie.sim.ports.scripted_model import sums_up
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.checks.memory_checks import spending_is_current
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import MODEL, SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

LANES = 3
ROUNDS = 5
CANCELS = 4
WINDOW = 5_000
BUDGET = {"tokens": 10_000_000, "usd": 100.0}  # never used up
FILLER = "so it goes on and on " * 200  # about 1,000 tokens
ARRIVES_S = 0.05  # a packet takes less
SUMMARY_BYTES = 9_000  # of a request for a summary: most histories need two
IDLE_S = 1.0
STILL_S = 0.5  # after the last answer nothing runs any more


@dataclass(slots=True)
class CancelCall:
    """One request to cancel."""

    called_s: float
    returned_s: float = float("inf")


class ExactUsage(ServerScenario):
    """One agent with three conversations, which is unloaded between the rounds; a client cancels what is under way."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.cancels: list[CancelCall] = []
        self.rounds_s: list[float] = []  # when each began

    async def act(self) -> None:
        self.machine.llm.summary_bytes_max = SUMMARY_BYTES
        (agent_id,) = await self.make_agents(1, types=("letta_v1_agent",))
        owner = self.client("owner")
        await owner.insist("PATCH", f"/v1/agents/{agent_id}", {"kelpie_budget": BUDGET, "context_window_limit": WINDOW})
        path, body = f"/v1/conversations/?agent_id={agent_id}", {"isolated_block_labels": []}
        lanes = [None, *[(await owner.insist("POST", path, body))["id"] for _ in range(LANES - 1)]]
        people, canceller = self.clients(LANES), self.client("canceller")
        for number in range(ROUNDS):
            self.rounds_s.append(self.machine.loop.time())
            works = [self._talk(person, lane) for person, lane in zip(people, lanes, strict=True)]
            await together((*works, *([self._cancel(canceller, agent_id)] if number % 2 else ())))
            await asyncio.sleep(STILL_S)
            spending_is_current(self.machine)
            await asyncio.sleep(2 * IDLE_S)

    async def _talk(self, client: ScenarioClient, lane: str | None) -> None:
        await client.pause(1.0)
        lines = (FILLER, "remember {token} likes tea") if client.tosses(0.3) else (FILLER,)
        await client.say(self.agents[0], *lines, stream=client.tosses(0.5), conversation=lane)

    async def _cancel(self, client: ScenarioClient, agent_id: str) -> None:
        for _ in range(CANCELS):
            await client.pause(1.5)
            call = CancelCall(self.machine.loop.time())
            self.cancels.append(call)
            await client.ask("POST", f"/v1/agents/{agent_id}/messages/cancel", {})
            call.returned_s = self.machine.loop.time()

    def check(self) -> None:
        super().check()
        used = [json.loads(usage) for (usage,) in self.machine.disk.query("SELECT usage FROM steps")]
        recorded = Counter((usage["prompt_tokens"], usage["completion_tokens"]) for usage in used)
        pieces = Counter[str]()  # of summaries: a step may have several
        for reply in self.machine.llm.charged:
            cut_off = self._was_cut_off(reply)
            if not _is_summary(reply):
                recorded[reply.prompt_tokens, reply.completion_tokens] -= not cut_off
            elif not cut_off:
                pieces += Counter(prompt=reply.prompt_tokens, completion=reply.completion_tokens)
        if missing := [tokens for tokens, count in recorded.items() if count < 0]:
            raise Broken("what the provider charged is recorded", f"{missing} are not in as many steps")
        left = Counter[str]()
        for (prompt, completion), count in recorded.items():
            left += Counter(prompt=prompt * count, completion=completion * count)
        if not left >= pieces:
            raise Broken("what the provider charged is recorded", f"{pieces} for summaries, and {left} in steps")
        self._summaries_are_whole()

    def _was_cut_off(self, reply: ChargedReply) -> bool:
        said_s = max((each.called_s for each in self.machine.history.said if each.token in reply.asked), default=0.0)
        if _is_summary(reply):  # pieces may follow it: whatever is cancelled in its round may have cut them off
            return any(self._round(call.called_s) == self._round(reply.at_s) for call in self.cancels)
        return any(call.called_s <= reply.at_s + ARRIVES_S and call.returned_s >= said_s for call in self.cancels)

    def _round(self, at_s: float) -> int:
        return sum(begun_s <= at_s for begun_s in self.rounds_s)

    def _summaries_are_whole(self) -> None:
        """What was said in a conversation is in its context or in the summary there."""
        for lane, content in self.machine.disk.query(
            "SELECT x.conversation_id, m.content FROM context x JOIN messages m ON m.id = x.message_id "
            "WHERE m.role = 'summary'"
        ):
            left = self.machine.disk.query(
                "SELECT content FROM messages WHERE role = 'user' AND coalesce(conversation_id, '') = ? "
                "AND id NOT IN (SELECT message_id FROM context) ORDER BY seq",
                lane,
            )
            tokens = [json.loads(said)[0]["text"].split("\n")[0] for (said,) in left]
            if missing := [token for token in tokens if token not in content]:
                raise Broken("a summary has what left the context", f"{missing} of {tokens} are not in {content}")


def _is_summary(reply: ChargedReply) -> bool:
    return sums_up([{"role": "user", "content": reply.asked}])


USAGE = scenario(
    "usage-adds-up",
    ExactUsage,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.3),
        Aim(Fault.storage_latency, "read.spending", rate=0.5),
    ),
    swarm=(Fault.llm_rate_limit, Fault.cpu_starvation),
    settings=replace(SETTINGS, idle_s=IDLE_S, model_prices=(f"{MODEL}=1/1",)),
)
