"""Agents that are deleted, and histories that are emptied, in the middle of turns: deleted data is gone as a whole,
interrupted turns have ended, and every remaining agent takes the next message.
"""

from dataclasses import dataclass

from kelpie.sim.checks.client_history import ClientMessage, Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.basic.all_faults import SCRIPTS
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.edits import NEVER, Edits
from kelpie.sim.scenarios.fixtures.prompts import prompts
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

TURNS = 3
EMPTIED = 4


@dataclass(frozen=True, slots=True)
class HistoryReset:
    agent_id: str
    called_s: float
    acknowledged_s: float


class Deletions(ServerScenario):
    """The first two agents are deleted while they get messages, the history of the other two is emptied often."""

    async def act(self) -> None:
        self.edits = Edits(self.machine.loop)
        self.resets: list[HistoryReset] = []
        self.deleted_s: dict[str, float] = {}
        await self.register_outside()
        await self.make_agents(4, types=self.all_types, tools=["outside"])
        talking = (self._talk(client, number) for number, client in enumerate(self.clients(4)))
        deleting = (self._delete(self.client(f"remover-{number}"), self.agents[number]) for number in (0, 1))
        emptying = (self._empty(self.client(f"emptier-{number}"), self.agents[number]) for number in (2, 3))
        await together((*talking, *deleting, *emptying))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(TURNS):
            await client.pause()
            lines = SCRIPTS[(number + turn + 1) % len(SCRIPTS)]
            await client.say(self.agents[number], *lines, stream=client.tosses(0.4), tokens=client.tosses(0.5))

    async def _delete(self, client: ScenarioClient, agent_id: str) -> None:
        await client.pause(4.0)
        self.machine.history.removed.add(agent_id)
        edit = self.edits.call(agent_id, None)
        await self.edits.make(client, edit, "DELETE", f"/v1/agents/{agent_id}", gone=404)
        self.deleted_s[agent_id] = edit.acknowledged_s
        await client.say(agent_id)

    async def _empty(self, client: ScenarioClient, agent_id: str) -> None:
        for _ in range(EMPTIED):
            await client.pause(2.0)
            edit = self.edits.call(agent_id, None)
            body = {"add_default_initial_messages": client.tosses(0.5)}
            await self.edits.make(client, edit, "PATCH", f"/v1/agents/{agent_id}/reset-messages", body)
            self.resets.append(HistoryReset(agent_id, edit.called_s, edit.acknowledged_s))
            if client.tosses(0.5):
                await client.say(agent_id)

    async def settle(self) -> None:
        for agent_id in self.deleted_s:
            self.agents.remove(agent_id)
            self._is_gone(agent_id)
        for said in self.machine.history.said:
            self._is_forgotten(said)
        for reset in self.resets:
            self.emptied_s[reset.agent_id] = reset.acknowledged_s
        await super().settle()

    def check(self) -> None:
        super().check()
        over_s = {said.token: said.returned_s or NEVER for said in self.machine.history.said}
        for prompt in prompts(self.machine.llm.seen, self.heard):
            for reset in self.resets:
                if reset.agent_id == prompt.agent_id and reset.acknowledged_s <= prompt.began_s:
                    old = [token for token in prompt.said if over_s[token] <= reset.called_s]
                    if old:
                        raise Broken("an emptied history is out of sight", f"{old} are in a prompt after {reset}")

    def _is_gone(self, agent_id: str) -> None:
        """Nothing of a deleted agent is left in any table, and a client that writes to it gets a 404."""
        query = self.machine.disk.query
        for (table,) in query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
            columns = [row[1] for row in query(f"PRAGMA table_info({table})")]
            for column in ("agent_id", "owner_id", "scope"):
                if column in columns and query(f"SELECT 1 FROM {table} WHERE {column} = ?", agent_id):
                    raise Broken("a deleted agent is gone as a whole", f"{agent_id} is still in {table}")
        since_s = self.deleted_s[agent_id]
        for heard in (each for each in self.heard if each.said.agent_id == agent_id and each.said.called_s >= since_s):
            # The existence of the agent is checked first: where that read fails, the storage error is the answer.
            # A stream whose agent is looked for longer than a moment begins with a ping, and tells the same in its end.
            told_late = heard.streamed and ("Agent not found" in heard.trouble or "storage_error" in heard.trouble)
            if heard.status not in (404, 503, None) and not told_late:
                raise Broken("a deleted agent is gone as a whole", f"{heard.said.token} got {heard.status}")

    def _is_forgotten(self, said: ClientMessage) -> None:
        """A turn that was over before the history was emptied is no longer stored; any other may be or not."""
        resets = [reset for reset in self.resets if reset.agent_id == said.agent_id]
        kept = self.machine.disk.query(
            "SELECT 1 FROM messages WHERE role = 'user' AND content LIKE ?", f"%{said.token}%"
        )
        if kept and any((said.returned_s or NEVER) <= reset.called_s for reset in resets):
            raise Broken("an emptied history is empty", f"{said.token} is still there")
        if said.agent_id in self.deleted_s or any(said.called_s <= reset.acknowledged_s for reset in resets):
            said.fate = Fate.unknown


REMOVALS = scenario(
    "delete-and-reset",
    Deletions,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
        Aim(Fault.storage_latency, "read.changes", rate=0.8),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.1),
        Aim(Fault.storage_busy, "database.begin", rate=0.05),
    ),
    swarm=(Fault.crash_after_write, Fault.storage_read_fail, Fault.llm_rate_limit, Fault.cpu_starvation),
)
