"""A disk that changes stored data: bits flip in vectors, the text index, passages, messages, results and blocks,
beneath the database and unnoticed by it.

Damaged data is never shown as true, neither to clients nor to a model; it is left out or marked as damaged; and every
agent still works.
"""

import json
from collections.abc import Iterable
from typing import Any

from kelpie.search.text.segment_queue import LOOSE_MAX
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.bit_flips import CELLS, BitFlips
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.memory.archives import TOOLS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario

MESSAGES = 3
STORE = 'call archival_memory_insert {"content": "{token} likes sea urchins"}'
FIND = 'call archival_memory_search {"query": "likes sea urchins", "top_k": 50}'
RECALL = 'call conversation_search {"query": "urchins"}'
SHELVED = frozenset(f"urchin {number} likes company" for number in range(LOOSE_MAX + 1))
LOST = "damaged on the disk"
GONE = "The result of this call was lost"


class Corruption(ServerScenario):
    """One client, two agents; between the messages the disk decays, and the power is cut so that nothing is cached."""

    alone = False

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.flips = BitFlips(machine)

    async def act(self) -> None:
        await self.make_agents(2, types=("letta_v1_agent",), tools=TOOLS)
        client = self.client("person")
        await self._fill_archive(client)
        for turn in range(MESSAGES):
            for agent_id in self.agents:
                await client.say(agent_id, STORE, stream=client.tosses(0.5))
            self.flips.flip(CELLS)
            await self.machine.restart()
            await self._reads_are_true(client, turn)

    async def _fill_archive(self, client: ScenarioClient) -> None:
        """An archive that is large enough for its text index to have segments."""
        made = await client.ask("POST", "/v1/archives/", {"name": "shelf"})
        if made is not None and made.status == 200:
            path = f"/v1/archives/{made.json()['id']}/passages/batch"
            await client.ask("POST", path, {"passages": [{"text": text} for text in sorted(SHELVED)]})

    async def _reads_are_true(self, client: ScenarioClient, turn: int) -> None:
        """Every client reads everything; each value is true, or marked as damaged."""
        for agent_id in self.agents:
            heard = await client.say(agent_id, FIND, RECALL)
            for tool in ("archival_memory_search", "conversation_search"):
                for result in heard.results(tool):
                    shown = [each["content"] for each in json.loads(result)["results"]]
                    self._all_true(shown)
                    if tool == "archival_memory_search":
                        _none_damaged(shown)
            listed = await client.ask("GET", f"/v1/agents/{agent_id}/messages?limit=1000&order=asc")
            if listed is None or listed.status != 200:
                raise Broken("a damaged row hides no other", f"{listed}")
            await self._block_reads_are_true(client, agent_id)
            stored = await client.ask("GET", f"/v1/agents/{agent_id}/archival-memory?limit=100")
            self._all_true(each["text"] for each in (stored.json() if stored is not None else ()))
        for mode in ("hybrid", "vector", "fts"):
            body = {"query": "likes sea urchins", "limit": 100, "search_mode": mode}
            response = await client.ask("POST", "/v1/passages/search", body)
            if response is None or response.status != 200:
                raise Broken("a damaged row hides no other", f"{mode}: {response}")
            self._all_true(each["passage"]["text"] for each in response.json())
            _none_damaged(each["passage"]["text"] for each in response.json())

    async def _block_reads_are_true(self, client: ScenarioClient, agent_id: str) -> None:
        """In a list and in the prompt it is true or marked as damaged; alone it is refused; so is a version."""
        secret = self.secrets[agent_id]
        listed = await client.ask("GET", f"/v1/agents/{agent_id}/core-memory/blocks")
        if listed is None or listed.status != 200:
            raise Broken("a damaged row hides no other", f"{listed}")
        (block,) = listed.json()
        alone = await client.ask("GET", f"/v1/blocks/{block['id']}")
        version = await client.ask("GET", f"/v1/blocks/{block['id']}/history/1")
        told = [each.json()["value"] for each in (alone, version) if each is not None and each.status == 200]
        if any(value != secret for value in told) or (block["value"] != secret and LOST not in block["value"]):
            raise Broken("what is damaged is never told as truth", f"{block['value']} {told}")
        if LOST in block["value"] and client.tosses(0.5):
            await self._mend(client, agent_id, block["id"])
        for request in self.machine.llm.seen:
            shown = str(request.body["messages"][0])
            if request.body.get("user") == agent_id and secret not in shown and LOST not in shown:
                raise Broken("what is damaged is never told as truth", shown)

    async def _mend(self, client: ScenarioClient, agent_id: str, block_id: str) -> None:
        """A block that is damaged can be given a new value, and is whole from then on."""
        secret = self.secrets[agent_id]
        made = await client.ask("PATCH", f"/v1/blocks/{block_id}", {"value": secret})
        found = await client.ask("GET", f"/v1/blocks/{block_id}")
        if made is not None and made.status == 200 and found is not None and found.json().get("value") != secret:
            raise Broken("a damaged block is mended by a new value", f"{block_id}: {found.status} {found.body!r}")

    def _all_true(self, texts: Any) -> None:
        said = {each.token for each in self.machine.history.said}
        for text in texts:
            stored = text.split(" ")[0] in said and text.endswith(" likes sea urchins")
            script = text.split("\n")[0] in said or text.startswith("echo ")
            if text in SHELVED or text.startswith("{"):
                continue
            if not stored and not script and LOST not in text and "secret" not in text:
                raise Broken("what is damaged is never told as truth", text)

    async def settle(self) -> None:
        visitor = self.client("visitor")
        for agent_id in self.agents:
            heard = await visitor.say(agent_id)
            if not heard.acknowledged:
                raise Broken("no agent is bricked", f"{agent_id} was told {heard.status} {heard.trouble}")
        self.flips.put_back()  # the rest is about what was written, not about the disk
        # With the results themselves back, nothing needs to stand for them.
        self.machine.disk.query("DELETE FROM messages WHERE role = 'tool' AND tool_returns LIKE ?", f"%{GONE}%")
        self.machine.disk.query("DELETE FROM context WHERE message_id NOT IN (SELECT id FROM messages)")
        await self.machine.restart()
        await super().settle()


def _none_damaged(texts: Iterable[str]) -> None:
    """A search leaves damaged passages out."""
    if found := [text for text in texts if LOST in text]:
        raise Broken("a search leaves out what is damaged", f"{found}")


CORRUPTION = scenario(
    "storage-corruption",
    Corruption,
    faults=tuple(Aim(Fault.storage_corruption, place, rate=0.6) for place in CELLS),
    swarm=(Fault.network_delay, Fault.storage_busy),
)
