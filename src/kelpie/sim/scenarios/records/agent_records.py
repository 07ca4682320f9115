"""Agents, blocks, tools, identities, groups and conversations created, changed, linked, unlinked and deleted by several
clients at once, while the disk misbehaves.

Every client keeps a record of the possible states of each thing by the server's answers. An acknowledged change is
made, and its answer shows it; a refused one left the thing as it was; only where the server says that it does not know
may it be either. All clients also attach their own things to one agent that they share, and no change of one undoes
another's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.sim.checks.references import dangling
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.scenarios.checks.page_checks import pages_are_the_list
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.records.tool_records import RequestedThing
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

PEOPLE = 3
ROUNDS = 2
LISTS = ("/v1/agents/", "/v1/blocks/", "/v1/tools/", "/v1/identities/", "/v1/groups/", "/v1/runs/", "/v1/steps/")
TABLES = {
    "agent": "SELECT count(*) FROM agents WHERE name = ?",
    "block": "SELECT count(*) FROM blocks WHERE label = ?",
    "tool": "SELECT count(*) FROM tools WHERE name = ?",
    "identity": "SELECT count(*) FROM identities WHERE identifier_key = ?",
    "group": "SELECT count(*) FROM groups WHERE description = ?",
    "conversation": "SELECT count(*) FROM conversations WHERE summary = ? AND deleted_at IS NULL",
}
LINKS = {
    "blocks": "SELECT count(*) FROM agent_blocks WHERE agent_id = ? AND block_id = ?",
    "tools": "SELECT count(*) FROM agent_tools WHERE agent_id = ? AND tool_id = ?",
    "identities": "SELECT count(*) FROM agent_identities WHERE agent_id = ? AND identity_id = ?",
    "group": "SELECT count(*) FROM group_blocks WHERE group_id = ? AND block_id = ?",
}
_SHARED_AND_NOT_CARRIED = """
    SELECT group_blocks.group_id, group_blocks.block_id FROM group_blocks
    JOIN group_agents ON group_agents.group_id = group_blocks.group_id
    WHERE NOT EXISTS (SELECT 1 FROM agent_blocks
        WHERE agent_blocks.agent_id = group_agents.agent_id AND agent_blocks.block_id = group_blocks.block_id)"""


@dataclass(slots=True)
class PossibleStates:
    """The possible states of a thing, by all answers that its only writer got."""

    can_be: set[Any]

    def record_answer(self, fate: Fate, value: Any) -> None:
        if fate is Fate.done:
            self.can_be = {value}
        elif fate is Fate.unknown:
            self.can_be = {*self.can_be, value}


@dataclass(slots=True)
class ClientBook:
    """The record of one client."""

    things: list[tuple[str, RequestedThing]] = field(default_factory=list[tuple[str, RequestedThing]])
    links: dict[tuple[str, str, str], PossibleStates] = field(
        default_factory=dict[tuple[str, str, str], PossibleStates]
    )
    values: dict[str, PossibleStates] = field(default_factory=dict[str, PossibleStates])  # block id -> its value


class AgentRecords(ServerScenario):
    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.books: list[ClientBook] = []

    async def act(self) -> None:
        await self.make_agents(1)
        await together(self._live(client, number) for number, client in enumerate(self.clients(PEOPLE)))

    async def _live(self, client: ScenarioClient, number: int) -> None:
        book = ClientBook()
        self.books.append(book)
        for turn in range(ROUNDS):
            await client.pause()
            await self._round(client, book, f"thing_{number}_{turn}")

    async def _round(self, client: ScenarioClient, book: ClientBook, name: str) -> None:
        source = f'def {name}(x: int) -> int:\n    """Do.\n\n    Args:\n        x: the x\n    """\n    return x\n'
        memory = {"memory_blocks": [{"label": "human", "value": name}]}
        agent = await self._make(client, book, "agent", "/v1/agents/", name, {"name": name, **memory})
        block = await self._make(client, book, "block", "/v1/blocks/", name, {"label": name, "value": "0"})
        tool = await self._make(client, book, "tool", "/v1/tools/", name, {"source_code": source})
        body: Mapping[str, Any] = {"identifier_key": name, "name": name, "identity_type": "user"}
        identity = await self._make(client, book, "identity", "/v1/identities/", name, body)
        if block.id:
            book.values[block.id] = PossibleStates({"0"})
            await self._change_value(client, book, block.id)
        for of in (agent.id, self.agents[0]):
            await self._link(client, book, "core-memory/blocks", "blocks", of, block.id)
            await self._link(client, book, "tools", "tools", of, tool.id)
            await self._link(client, book, "identities", "identities", of, identity.id)
        if agent.id:
            await self._gather(client, book, agent.id, name)
            await self._talk(client, book, agent.id, name)
        for kind, thing, path in (
            ("block", block, "/v1/blocks"), ("tool", tool, "/v1/tools"),
            ("identity", identity, "/v1/identities"), ("agent", agent, "/v1/agents"),
        ):  # fmt: skip
            if client.tosses(0.4):
                await self._remove(client, book, kind, thing, path)

    async def _make(
        self, client: ScenarioClient, book: ClientBook, kind: str, path: str, name: str, body: Any
    ) -> RequestedThing:
        response = await client.ask("POST", path, body)
        thing = RequestedThing(name, fate_of(response))
        book.things.append((kind, thing))
        if response is not None and thing.made is Fate.done:
            thing.id = response.json()["id"]
            there = await client.ask("GET", f"{path.partition('?')[0]}{thing.id}")
            if there is not None and there.status < 500 and there.status != 200:
                raise Broken("what is acknowledged can be read", f"{kind} {thing}: {there.status}")
        return thing

    async def _change_value(self, client: ScenarioClient, book: ClientBook, block_id: str) -> None:
        for value in ("1", "2"):
            response = await client.ask("PATCH", f"/v1/blocks/{block_id}", {"value": value})
            book.values[block_id].record_answer(fate_of(response), value)
            if response is not None and response.status == 200 and response.json()["value"] != value:
                raise Broken("an answer shows what was written", f"{block_id} {value}: {response.json()}")
            seen = await client.ask("GET", f"/v1/blocks/{block_id}")
            if seen is not None and seen.status == 200 and seen.json()["value"] not in book.values[block_id].can_be:
                raise Broken("a value is as its client was told", f"{seen.json()['value']}: {book.values[block_id]}")

    async def _link(
        self, client: ScenarioClient, book: ClientBook, way: str, kind: str, agent_id: str, other: str
    ) -> None:
        """Attaches it to the agent and, sometimes, detaches it again."""
        if not agent_id or not other:
            return
        entry = book.links[kind, agent_id, other] = PossibleStates({0})
        for verb, value in (("attach", 1), ("detach", 0)):
            response = await client.ask("PATCH", f"/v1/agents/{agent_id}/{way}/{verb}/{other}")
            entry.record_answer(fate_of(response), value)
            self._shows(response, kind, other, value)
            if client.tosses(0.5):
                return

    def _shows(self, response: Response | None, kind: str, other: str, value: int) -> None:
        if response is None or response.status != 200 or response.json() is None:
            return
        shown = [one["id"] for one in response.json()[kind]]
        if shown.count(other) != value:
            raise Broken("an answer shows what was written", f"{kind} {other} {value}: {shown}")

    async def _gather(self, client: ScenarioClient, book: ClientBook, agent_id: str, name: str) -> None:
        """A group with a block of its own."""
        label = f"{name}_shared"
        body = {"agent_ids": [agent_id], "description": name}
        group = await self._make(client, book, "group", "/v1/groups/", name, body)
        block = await self._make(client, book, "block", "/v1/blocks/", label, {"label": label, "value": ""})
        if not group.id or not block.id:
            return
        entry = book.links["group", group.id, block.id] = PossibleStates({0})
        for verb, value in (("attach", 1), ("detach", 0)):
            path = f"/v1/groups/{group.id}/blocks/{verb}/{block.id}"
            entry.record_answer(fate_of(await client.ask("PATCH", path)), value)
            if client.tosses(0.5):
                break
        if client.tosses(0.4):
            await self._remove(client, book, "group", group, "/v1/groups")

    async def _talk(self, client: ScenarioClient, book: ClientBook, agent_id: str, name: str) -> None:
        """A conversation with a block of its own, and another that is forked from it."""
        path = f"/v1/conversations/?agent_id={agent_id}"
        body = {"summary": name, "isolated_block_labels": ["human"]}
        made = await self._make(client, book, "conversation", path, name, body)
        if made.id:
            await client.ask("POST", f"/v1/conversations/{made.id}/fork")
            if client.tosses(0.5):
                await self._remove(client, book, "conversation", made, "/v1/conversations")

    async def _remove(
        self, client: ScenarioClient, book: ClientBook, kind: str, thing: RequestedThing, path: str
    ) -> None:
        if not thing.id:
            return
        thing.removed = fate_of(await client.ask("DELETE", f"{path}/{thing.id}"))
        if thing.removed is not Fate.refused and kind == "agent":
            for other, one in book.things:
                if other == "conversation" and one.name == thing.name and one.removed is not Fate.done:
                    one.removed = thing.removed  # it goes with its agent
        response = await client.ask("GET", f"{path}/{thing.id}")
        wrong = {Fate.done: (200,), Fate.refused: (404,), Fate.unknown: ()}[thing.removed]
        if response is not None and response.status in wrong:
            raise Broken("what was removed is gone, and what was not is there", f"{kind} {thing}: {response.status}")

    async def settle(self) -> None:
        await super().settle()
        reader, shared = self.client("reader"), f"/v1/agents/{self.agents[0]}"
        for path in (*LISTS, f"{shared}/core-memory/blocks", f"{shared}/tools"):
            await pages_are_the_list(reader, path)

    def check(self) -> None:
        super().check()
        query = self.machine.disk.query
        if found := dangling(query):
            raise Broken("nothing refers to what is gone", f"{found}")
        if halves := query(_SHARED_AND_NOT_CARRIED):
            raise Broken("a group's block hangs on all of its agents", f"{halves}")
        for book in self.books:
            for kind, thing in book.things:
                self._matches_answers(kind, thing)
            self._links_match_answers(book)

    def _matches_answers(self, kind: str, thing: RequestedThing) -> None:
        (count,) = self.machine.disk.query(TABLES[kind], thing.name)[0]
        if count not in thing.counts:
            raise Broken("a record is as its client was told", f"{count} of {kind} {thing}")

    def _links_match_answers(self, book: ClientBook) -> None:
        """A removed thing has no links; another check covers the removal itself."""
        gone = {thing.id for _, thing in book.things if thing.removed not in (None, Fate.refused)}
        for (kind, one, other), entry in book.links.items():
            (count,) = self.machine.disk.query(LINKS[kind], one, other)[0]
            if count not in (entry.can_be | {0} if gone & {one, other} else entry.can_be):
                raise Broken("a link is as its client was told", f"{kind} {one} {other}: {count}, told {entry}")
        for block_id, entry in book.values.items():
            for (value,) in self.machine.disk.query("SELECT value FROM blocks WHERE id = ?", block_id):
                if value not in entry.can_be:
                    raise Broken("a value is as its client was told", f"{block_id} is {value}, told {entry}")


HOUSEHOLDS = scenario(
    "crud-under-storage-faults",
    AgentRecords,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.05),
        Aim(Fault.storage_write_fail, "database.statement", rate=0.005),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.05),
        Aim(Fault.storage_busy, "database.begin", rate=0.05),
        Aim(Fault.storage_busy, "database.commit", rate=0.05),
        Aim(Fault.storage_read_fail, "database.read", rate=0.1),
        Aim(Fault.storage_latency, "database.write", rate=0.05),
    ),
    swarm=(Fault.disk_full, Fault.crash_after_write, Fault.network_delay, Fault.cpu_starvation),
)
