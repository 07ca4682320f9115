"""Conversations opened, forked and deleted, groups created and deleted, and steps rated by several clients, while
agents talk and the disk misbehaves.

A conversation is as its client was told, and never half there: without its instructions, with a block of its own that
has no owner, with shares or a context after it is deleted. Stored payloads stay within their bound.
"""

from dataclasses import dataclass, replace
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 3
TRACES_KEPT = 3

_HALVES = {
    "a context of no conversation": """
        SELECT conversation_id FROM context WHERE conversation_id <> ''
        AND conversation_id NOT IN (SELECT id FROM conversations WHERE deleted_at IS NULL)""",
    "a conversation without instructions": """
        SELECT id FROM conversations WHERE deleted_at IS NULL AND id NOT IN (
            SELECT context.conversation_id FROM context JOIN messages ON messages.id = context.message_id
            WHERE messages.role = 'system' AND context.position = 0)""",
    "a block that nobody owns": """
        SELECT id FROM blocks WHERE label = 'human' AND id NOT IN (SELECT block_id FROM agent_blocks)
        AND id NOT IN (SELECT block_id FROM conversation_blocks)""",
    "a share of what is gone": """
        SELECT message_id FROM conversation_shares WHERE message_id NOT IN (SELECT id FROM messages)
        OR conversation_id NOT IN (SELECT id FROM conversations WHERE deleted_at IS NULL)""",
    "a shared block that a member does not carry": """
        SELECT group_blocks.block_id FROM group_blocks JOIN group_agents USING (group_id)
        LEFT JOIN agent_blocks ON agent_blocks.block_id = group_blocks.block_id
            AND agent_blocks.agent_id = group_agents.agent_id
        WHERE agent_blocks.block_id IS NULL""",
    "a tag of a step that was not judged": """
        SELECT step_id FROM step_tags WHERE step_id NOT IN (SELECT id FROM steps WHERE feedback = 'positive')""",
    "a trace of no step": "SELECT step_id FROM step_traces WHERE step_id NOT IN (SELECT id FROM steps)",
}


@dataclass(slots=True)
class RequestedConversation:
    """A conversation that a client asked for; its summary tells it from the others."""

    summary: str
    made: Fate
    id: str | None = None
    removed: Fate = Fate.refused


class ConversationRecords(ServerScenario):
    """Three clients; all of them share the first agent, and each talks to the second."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.threads: list[RequestedConversation] = []

    async def act(self) -> None:
        await self.make_agents(2)
        await together(self._work(client, number) for number, client in enumerate(self.clients(3)))

    async def _work(self, client: ScenarioClient, number: int) -> None:
        for turn in range(ROUNDS):
            agent_id = self.agents[(number + turn) % 2]
            await client.say(agent_id)
            thread = await self._open(client, agent_id, f"thread {number} {turn}")
            await client.ask("POST", f"/v1/conversations/default/fork?agent_id={agent_id}")
            await self._share(client, number, turn)
            await self._judge(client, agent_id)
            if thread.id is not None:
                await self._read(client, thread)
                await client.ask("POST", f"/v1/conversations/{thread.id}/fork")
                if client.tosses(0.5):
                    thread.removed = fate_of(await client.ask("DELETE", f"/v1/conversations/{thread.id}"))

    async def _open(self, client: ScenarioClient, agent_id: str, summary: str) -> RequestedConversation:
        body = {"summary": summary, "isolated_block_labels": ["human"]}
        response = await client.ask("POST", f"/v1/conversations/?agent_id={agent_id}", body)
        thread = RequestedConversation(summary, fate_of(response))
        if response is not None and thread.made is Fate.done:
            thread.id = response.json()["id"]
        self.threads.append(thread)
        return thread

    async def _read(self, client: ScenarioClient, thread: RequestedConversation) -> None:
        response = await client.ask("GET", f"/v1/conversations/{thread.id}")
        if response is None or response.status >= 500:
            return
        if response.status != 200 or response.json()["summary"] != thread.summary:
            raise Broken("a conversation that was opened can be read", f"{thread}: {response.status}")

    async def _share(self, client: ScenarioClient, number: int, turn: int) -> None:
        """A group of both agents with a block of its own; a refused part leaves nothing of it."""
        label = f"shared {number} {turn}"
        block = await client.ask("POST", "/v1/blocks/", {"label": label, "value": "v"})
        if block is None or block.status != 200:
            return
        body = {"agent_ids": self.agents, "description": label, "shared_block_ids": [block.json()["id"]]}
        group = await client.ask("POST", "/v1/groups/", body)
        if group is not None and group.status == 200 and client.tosses(0.5):
            await client.ask("PATCH", f"/v1/groups/{group.json()['id']}", {"agent_ids": self.agents[:1]})
            await client.ask("DELETE", f"/v1/groups/{group.json()['id']}")

    async def _judge(self, client: ScenarioClient, agent_id: str) -> None:
        steps = await client.ask("GET", f"/v1/steps/?agent_id={agent_id}&limit=1")
        if steps is not None and steps.status == 200 and steps.json():
            body = {"feedback": "positive", "tags": ["good"]}
            await client.ask("PATCH", f"/v1/steps/{steps.json()[0]['id']}/feedback", body)
            await self._inspect(client, steps.json()[0]["id"])

    async def _inspect(self, client: ScenarioClient, step_id: str) -> None:
        """The prompt of a step is there before it is stored and after, until newer ones have replaced it."""
        prompt = await client.ask("GET", f"/v1/kelpie/steps/{step_id}/prompt")
        if prompt is None or prompt.status >= 500:
            return
        if prompt.status != 200 or bool(prompt.json()["parts"]) == bool(prompt.json()["why_not"]):
            raise Broken("a prompt is shown whole or not at all", f"{step_id}: {prompt.status}")

    def check(self) -> None:
        super().check()
        disk = self.machine.disk
        for what, statement in _HALVES.items():
            if found := disk.query(statement):
                raise Broken("nothing is half there", f"{what}: {found}")
        kept = disk.query("SELECT count(*) FROM step_traces")[0][0]
        if kept > TRACES_KEPT:
            raise Broken("traces are bounded", f"{kept} are kept")
        for thread in self.threads:
            self._matches_answers(thread)

    def _matches_answers(self, thread: RequestedConversation) -> None:
        live = "SELECT count(*) FROM conversations WHERE summary = ? AND deleted_at IS NULL"
        count = self.machine.disk.query(live, thread.summary)[0][0]
        wanted = {Fate.done: (1,), Fate.refused: (0,), Fate.unknown: (0, 1)}[thread.made]
        if thread.removed is not Fate.refused:
            wanted = (0,) if thread.removed is Fate.done else (0, 1)
        if count not in wanted:
            raise Broken("a conversation is as its client was told", f"{count} of {thread}")


THREADS = scenario(
    "threads-under-storage-faults",
    ConversationRecords,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.05),
        Aim(Fault.storage_write_fail, "database.statement", rate=0.01),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.05),
        Aim(Fault.storage_busy, "database.commit", rate=0.05),
        Aim(Fault.storage_read_fail, "database.read", rate=0.05),
    ),
    swarm=(Fault.crash_after_write, Fault.network_delay, Fault.storage_latency, Fault.cpu_starvation),
    settings=replace(SETTINGS, trace_steps=TRACES_KEPT),
)
