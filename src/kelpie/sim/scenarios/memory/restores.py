"""Restores of a rich memory: facts that replaced others, a shared block, copies of a conversation, a call that waits
for an approval, and an archive with another name, while the disk fails and the power is cut.

A memory that was restored is the saved one in every part. Blocks and archives that another agent uses too are restored
only where the client asks for it, and the other agent then sees the change. Nothing of it is left behind.
"""

import asyncio
import copy
import json
from dataclasses import replace
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.pending_work import MEMORY_CHANGES, RUNS, VECTORS
from kelpie.sim.scenarios.memory.long_changes import LONG_CHANGES, boot_in_small_pieces
from kelpie.sim.scenarios.memory.working_memory import TRIES_MAX, WorkingMemoryUse, content
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import scenario, together

ROUNDS = 2
KEPT_S = 10**6  # an entry that does not end before the run
CITIES = ("Oslo", "Rome", "Lima", "Cairo")
_TOOL = "working_memory_update"
_ALONE = """
    SELECT id FROM blocks WHERE label = 'human'
    AND id NOT IN (SELECT block_id FROM agent_blocks) AND id NOT IN (SELECT block_id FROM conversation_blocks)"""


class Restores(WorkingMemoryUse):
    """One agent's memory is saved, changed and restored; another agent shares a block with it."""

    settled_by_answers = False  # facts are extracted after an answer

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.shared = self.conversation = ""
        self.shares_archive = False

    async def act(self) -> None:
        await self.make_agents(2, types=("letta_v1_agent",), tools=(_TOOL,))
        ward, other = self.agents
        maker = self.client("maker")
        await self._set_up(maker, ward, other)
        await together((self._rounds(self.client("keeper"), ward), self._use(self.client("user"), other)))

    async def _set_up(self, maker: ScenarioClient, ward: str, other: str) -> None:
        made = await maker.insist("POST", "/v1/blocks/", {"label": "shared", "value": "at first"})
        self.shared = made["id"]
        for agent_id in (ward, other):
            await maker.insist("PATCH", f"/v1/agents/{agent_id}/core-memory/blocks/attach/{self.shared}")
        body = {"summary": "with copies", "isolated_block_labels": ["human"]}
        self.conversation = (await maker.insist("POST", f"/v1/conversations/?agent_id={ward}", body))["id"]
        self.apart = {self.conversation}
        await maker.insist("PATCH", f"/v1/agents/{ward}", {"kelpie_facts": {"every_turns": 1}})
        await maker.insist("PATCH", f"/v1/agents/{ward}/tools/approval/{_TOOL}", {"requires_approval": True})
        await maker.insist("POST", f"/v1/agents/{ward}/archival-memory", {"text": "the first passage"})
        self.shares_archive = maker.tosses(0.5)
        if self.shares_archive:
            archive = (await maker.insist("GET", f"/v1/archives/?agent_id={ward}"))[0]["id"]
            await maker.insist("PATCH", f"/v1/agents/{other}/archives/attach/{archive}")

    async def _use(self, client: ScenarioClient, agent_id: str) -> None:
        """Keeps the other agent loaded: what a restore changes for it must be seen by it."""
        for _ in range(4 * ROUNDS):
            await client.pause(8.0)
            await client.say(agent_id, "remember {token}")

    async def _rounds(self, client: ScenarioClient, agent_id: str) -> None:
        for turn in range(ROUNDS):
            await self._change(client, agent_id, 2 * turn)
            waits = client.tosses(0.6)
            if waits:
                await self._send(client, agent_id, f'call {_TOOL} {{"key": "asked", "append": {turn}}}')
            saved = await self._settled(client, agent_id)
            await self._end_waits(client, agent_id)
            await self._change(client, agent_id, 2 * turn + 1)
            before = await self._settled(client, agent_id)
            await self._restore(client, agent_id, saved, before, overwrite=client.tosses(0.5))
            await self._end_waits(client, agent_id)

    async def _restore(
        self, client: ScenarioClient, agent_id: str, saved: Any, before: Any, *, overwrite: bool
    ) -> None:
        path = f"/v1/agents/{agent_id}/memory/restore?overwrite_shared={'true' if overwrite else 'false'}"
        fate = fate_of(await client.ask("POST", path, saved))
        after = await self._settled(client, agent_id)
        wanted = saved if overwrite else self._with_shared(saved, before)
        allowed = {Fate.done: [wanted], Fate.refused: [before], Fate.unknown: [wanted, before]}[fate]
        if content(after) not in map(content, allowed):
            told = _differences(json.loads(content(allowed[0])), json.loads(content(after)))
            raise Broken("a restore is whole or not at all", f"{agent_id}, {fate}: {told}")

    def _with_shared(self, document: Any, other: Any) -> Any:
        """The document with what two agents share as another document has it."""
        made = copy.deepcopy(document)
        blocks = {block["id"]: block for block in other["memory"]["blocks"]}
        made["memory"]["blocks"] = [
            blocks.get(self.shared, block) if block["id"] == self.shared else block
            for block in made["memory"]["blocks"]
        ]
        if self.shares_archive:
            made["memory"]["archive"] = other["memory"]["archive"]
        return made

    async def _change(self, client: ScenarioClient, agent_id: str, turn: int) -> None:
        """Changes every part of the memory. What fails is left as it is."""
        place = f"/v1/agents/{agent_id}"
        await self._learn(client, agent_id, turn)
        await client.ask("PATCH", f"/v1/blocks/{self.shared}", {"value": f"after {turn}"})
        await client.ask("PATCH", f"{place}/core-memory/blocks/human", {"description": f"own {turn}"})
        body = {"input": f"remember tok-{turn}-copy"}
        await client.ask("POST", f"/v1/conversations/{self.conversation}/messages", {**body, "streaming": False})
        await client.ask("POST", f"{place}/archival-memory", {"text": f"passage {turn}", "tags": ["t"]})
        for archive in (await client.insist("GET", f"/v1/archives/?agent_id={agent_id}"))[:1]:
            await client.ask("PATCH", f"/v1/archives/{archive['id']}", {"description": f"of {turn}"})
        await self._keep_entry(client, f"{place}/working-memory/kept{turn % 3}", turn)
        if turn % 2:  # a restore takes it away again, with its copy of the block
            body = {"summary": f"since {turn}", "isolated_block_labels": ["human"]}
            await client.ask("POST", f"/v1/conversations/?agent_id={agent_id}", body)

    def check(self) -> None:
        self.apart |= {row[0] for row in self.machine.disk.query("SELECT conversation_id FROM conversation_blocks")}
        super().check()
        if left := self.machine.disk.query(_ALONE):
            raise Broken("nothing is left of what a restore removed", f"blocks that nobody has: {left}")

    async def _learn(self, client: ScenarioClient, agent_id: str, turn: int) -> None:
        """Has the agent learn where the user lives: each place replaces the one before."""
        told = {"attribute": "lives_in", "value": CITIES[turn % len(CITIES)], "aliases": [f"user {turn}"]}
        self.said += 1
        body = {"input": f"learn {json.dumps(told)} note {self.said}"}
        await client.ask("POST", f"/v1/agents/{agent_id}/messages", body)

    async def _keep_entry(self, client: ScenarioClient, path: str, turn: int) -> None:
        """An entry keeps its end when its value changes."""
        if fate_of(await client.ask("PUT", path, {"value": [turn], "ttl_seconds": KEPT_S})) is not Fate.done:
            return
        answer = await client.ask("PATCH", path, {"append": turn})
        if answer is not None and answer.status == 200 and answer.json()["expires_at"] is None:
            raise Broken("an entry keeps its end", path)

    async def _end_waits(self, client: ScenarioClient, agent_id: str) -> None:
        """Denies the calls that wait, until none does."""
        for _ in range(TRIES_MAX):
            listed = await client.insist("GET", f"/v1/agents/{agent_id}/approvals")
            calls = [call["tool_call_id"] for each in listed for call in each["tool_calls"] if call["waits_for"]]
            if not calls:
                return
            denials = [{"type": "approval", "tool_call_id": call, "approve": False} for call in calls]
            body = {"messages": [{"type": "approval", "approvals": denials}], "streaming": False}
            await client.ask("POST", f"/v1/agents/{agent_id}/messages", body)
            await asyncio.sleep(1.0)
        raise Broken("what waits can be ended", f"{agent_id} waits after {TRIES_MAX} denials")

    async def _settled(self, client: ScenarioClient, agent_id: str) -> Any:
        """A checkpoint when the facts of everything said are learnt, so that nothing changes by itself."""
        unread = (
            "SELECT id FROM messages WHERE agent_id = ?1 AND role = 'user' AND seq > "
            "coalesce((SELECT through FROM fact_states WHERE agent_id = ?1), -1)"
        )
        for _ in range(TRIES_MAX):
            document = await self._checkpoint(client, agent_id)
            if not self.machine.disk.query(unread, agent_id):
                return document
            await asyncio.sleep(30.0)  # a model that failed is asked again after ten minutes at most
        raise Broken("what was said is learnt in the end", agent_id)


def _differences(wanted: Any, found: Any, path: str = "") -> str:
    """The places where two documents differ, with both values."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        names = sorted({*wanted, *found})
        return "".join(_differences(wanted.get(name), found.get(name), f"{path}.{name}") for name in names)
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return "".join(_differences(one, two, f"{path}[{number}]") for number, (one, two) in pairs)
    return "" if wanted == found else f" {path}: {wanted} and {found};"


RESTORES = replace(
    scenario(
        "restores-of-memory",
        Restores,
        faults=LONG_CHANGES.faults,
        swarm=LONG_CHANGES.swarm,
        quiet_s=900.0,
        pending=(RUNS, MEMORY_CHANGES, VECTORS),
    ),
    boot=boot_in_small_pieces,
)
