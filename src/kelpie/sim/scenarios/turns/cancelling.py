"""Runs that are cancelled at any moment: while they wait, think, act, commit, or have just ended; while the disk fails
and the power is cut. Once a cancel was answered the run does nothing more, and the agent takes the next message.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from kelpie.core.conversations.runs import UNFINISHED
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.checks.memory_checks import is_under_way
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

TURNS = 4
CANCELS = 6
LOOKS_S = 0.1  # within this time a turn that begins finds its run ended, and stops
LINES = (
    (),
    ("remember {token} likes tea", "remember {token} likes milk"),
    ('call outside {"mark": "{token}"}', "remember {token} was outside"),
    ('call outside {"mark": "{token}-a"} & call outside {"mark": "{token}-b"}',),
)


@dataclass(frozen=True, slots=True)
class CancelledRun:
    """A run whose cancel was answered, and its rows at that moment."""

    run_id: str
    at_s: float
    status: str
    rows: int
    steps: int


class CancelledRuns(ServerScenario):
    """Clients that talk, some of them in the background, and clients that cancel."""

    leaves = 0.3  # share of the turns before which a message is sent in the background

    async def act(self) -> None:
        self.ended: list[CancelledRun] = []
        await self.register_outside()
        await self.make_agents(3, tools=["outside"])
        talking = (self._talk(client, number) for number, client in enumerate(self.clients(3)))
        cancelling = (self._cancel(self.client(f"canceller-{i}"), agent) for i, agent in enumerate(self.agents))
        await together((*talking, *cancelling))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(TURNS):
            await client.pause(0.5)
            agent_id, lines = self.agents[(number + turn) % 3], LINES[(number + turn) % len(LINES)]
            if client.tosses(self.leaves):
                await self._leave(client, agent_id)
            await client.say(agent_id, *lines, stream=client.tosses(0.5), tokens=client.tosses(0.5))

    async def _leave(self, client: ScenarioClient, agent_id: str) -> None:
        """Sends a message in the background and does not wait for it."""
        await client.ask("POST", f"/v1/agents/{agent_id}/messages/async", {"input": "remember somebody came by"})

    async def _cancel(self, client: ScenarioClient, agent_id: str) -> None:
        for _ in range(CANCELS):
            await client.pause(1.0)
            path, body = await self._target(client, agent_id)
            answer = await client.ask("POST", path, body)
            if answer is None or answer.status in (409, 503):
                continue  # outcome unknown, nothing to cancel, or the disk failed
            if answer.status != 200:
                raise Broken("a cancel is answered", f"{path}: {answer.status} {answer.body!r}")
            told: dict[str, str] = answer.json()
            ended = [run_id for run_id, word in told.items() if word == "cancelled"]
            self.ended += [self._snapshot(run_id) for run_id in ended]
            await asyncio.sleep(LOOKS_S)
            if lasting := [run_id for run_id in ended if is_under_way(self.machine, agent_id, run_id)]:
                raise Broken("a cancelled run has ended", f"{lasting} were told as cancelled, and their turns go on")

    async def _target(self, client: ScenarioClient, agent_id: str) -> tuple[str, Any]:
        if client.tosses(0.3):
            return f"/v1/conversations/default/cancel?agent_id={agent_id}", None
        if client.tosses(0.5):
            listed = await client.ask("GET", f"/v1/runs/?agent_id={agent_id}&active=true")
            if listed is not None and listed.status == 200 and (runs := listed.json()):
                return f"/v1/agents/{agent_id}/messages/cancel", {"run_ids": [run["id"] for run in runs]}
        return f"/v1/agents/{agent_id}/messages/cancel", {}

    def _snapshot(self, run_id: str) -> CancelledRun:
        found = self.machine.disk.query("SELECT status, step_count FROM runs WHERE id = ?", run_id)
        if not found or found[0][0] in [status.value for status in UNFINISHED]:
            raise Broken("a cancelled run has ended", f"{run_id} was told as cancelled and is {found}")
        return CancelledRun(run_id, self.machine.loop.time(), found[0][0], self._rows(run_id), found[0][1])

    def _rows(self, run_id: str) -> int:
        return self.machine.disk.query("SELECT count(*) FROM messages WHERE run_id = ?", run_id)[0][0]

    def check(self) -> None:
        super().check()
        for ended in self.ended:
            [(status, steps, given)] = self.machine.disk.query(
                "SELECT status, step_count, input FROM runs WHERE id = ?", ended.run_id
            )
            now = (status, self._rows(ended.run_id), steps)
            if now != (ended.status, ended.rows, ended.steps):
                raise Broken("cancelled means no later effect", f"{ended} is {now} at the end")
            self._was_not_asked_again(ended, json.loads(given)["messages"])

    def _was_not_asked_again(self, ended: CancelledRun, said: list[dict[str, Any]]) -> None:
        token = str(said[0]["content"][0].get("text", "")).split("\n")[0] if said else ""
        if ended.status != "cancelled" or not token.startswith("tok-"):
            return
        for request in self.machine.llm.seen:
            last = [str(m["content"]) for m in request.body["messages"] if m["role"] == "user"][-1:]
            if request.at_s > ended.at_s and last and token in last[0]:
                raise Broken("cancelled means no later effect", f"the model was asked for {token} after {ended}")


CANCELLING = scenario(
    "cancel-races-everything",
    CancelledRuns,
    faults=(
        Aim(Fault.llm_timeout, "llm.reply", rate=0.05),
        Aim(Fault.storage_write_fail, "journal.close", rate=0.1),
        Aim(Fault.storage_write_fail, "journal.close.told", rate=0.1),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
        Aim(Fault.storage_busy, "database.commit", rate=0.03),
        Aim(Fault.storage_latency, "database.write", rate=0.2),
        Aim(Fault.crash_before_write, "journal.close", rate=0.12, times_max=1),
        Aim(Fault.crash_after_write, "journal.close", rate=0.12, times_max=1),
        Aim(Fault.crash_after_write, "outside.effect", rate=0.2, times_max=1),
    ),
    swarm=(Fault.storage_read_fail, Fault.llm_rate_limit, Fault.cpu_starvation, Fault.crash_before_write),
)


class ResumedRuns(CancelledRuns):
    """Most messages are sent in the background, and so survive a power cut."""

    leaves = 0.9


RESUMING = scenario(
    "cancels-while-turns-resume",
    ResumedRuns,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.3),
        Aim(Fault.storage_latency, "read.agent", rate=0.6),
        Aim(Fault.storage_latency, "write.cancel", rate=0.5),
        Aim(Fault.crash_before_write, "journal.step", rate=0.1, times_max=2),
        Aim(Fault.crash_after_write, "journal.step", rate=0.1, times_max=2),
        Aim(Fault.crash_after_write, "journal.reply", rate=0.1, times_max=1),
    ),
    swarm=(Fault.storage_latency, Fault.storage_read_fail, Fault.cpu_starvation),
)
