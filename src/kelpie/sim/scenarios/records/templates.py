"""Templates that several clients change, save and roll back at once, while others make agents from them, the disk fails
and the power is cut.

Versions are numbered without a gap, each save has its own number, and a saved version never changes. The agents of a
deployment are all there or none of them, and each is of one version: its instructions and its blocks fit together. An
acknowledged save or deployment is there at the end, and a refused one has left nothing. Some agents get a block of
another deployment, which keeps the words of its own.
"""

import json
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

NAME = "shop"
SAVERS = 2
SAVES = 3
DEPLOYERS = 2
DEPLOYMENTS = 3
LOOKS = 12
GAPLESS = "versions have no gaps"
KEPT = "a saved version never changes"
WHOLE = "a deployment is whole or not at all"
ONE_VERSION = "an agent is of one version"
PRESERVED = "a preserved block keeps its value"
MIGRATING = 1  # the save after which the agents are migrated
_AGENTS = (
    "SELECT a.deployment_id, count(*) FROM agents a JOIN agent_variables v ON v.agent_id = a.id "
    "WHERE a.organization_id <> '' AND v.memory_variables LIKE ? GROUP BY 1"
)
_FILLED = """
    SELECT DISTINCT b.id, b.value, v.memory_variables FROM blocks b JOIN agents a ON a.deployment_id = b.deployment_id
    JOIN agent_variables v ON v.agent_id = a.id WHERE a.organization_id <> ''
"""
_VERSIONS = "SELECT number FROM template_versions WHERE number > 0 ORDER BY number"


def document(mark: str) -> dict[str, Any]:
    """A template of two agents with a block of their own and one that they share; `mark` is in all its texts.

    The shared one is preserved when agents are migrated. Of the version that they are migrated to the first agent does
    not have it.
    """
    text = f"{mark} for {{{{buyer}}}}"
    shared = [[] if mark.endswith(f"-{MIGRATING}") else ["block-0"], ["block-0"]]
    agents = [
        {
            "id": f"agent-{number}",
            "name": f"second of {mark}",
            "system": text,
            "block_ids": [*shared[number], f"block-{number + 1}"],
        }
        for number in range(2)
    ]
    blocks = [("shared", 0), ("human", 1), ("human", 2)]
    return {
        "agents": agents,
        "blocks": [
            {"id": f"block-{number}", "label": label, "value": text, "preserve_on_migration": label == "shared"}
            for label, number in blocks
        ],
        "groups": [{"id": "group-0", "agent_ids": ["agent-0", "agent-1"], "description": "two"}],
    }


class Templates(ServerScenario):
    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.saves: dict[str, Fate] = {}  # by their message
        self.numbers: list[str] = []  # of acknowledged saves
        self.deployments: dict[str, Fate] = {}  # by their buyer
        self.seen: dict[str, str] = {}  # the document of every version that was read
        self.preserved: dict[str, str] = {}  # by deployment: the value of its shared block
        self.first: list[str] = []  # the first agent of each deployment that was acknowledged

    async def act(self) -> None:
        await self.make_agents(1)
        maker = self.client("maker")
        for attempt in range(10):
            body = {"type": "agent_file", "agent_file": document(f"first-{attempt}"), "name": NAME}
            answer = await maker.ask("POST", "/v1/templates", body)
            if answer is not None and answer.status in (200, 409):
                break
            await maker.pause()
        else:
            return
        savers = (self._save(self.client(f"saver-{number}"), number) for number in range(SAVERS))
        buyers = (self._deploy(self.client(f"buyer-{number}"), number) for number in range(DEPLOYERS))
        await together((*savers, *buyers, self._roll_back(self.client("roller")), self._look(self.client("looker"))))

    async def _save(self, client: ScenarioClient, number: int) -> None:
        for turn in range(SAVES):
            await client.pause()
            mark = f"saved-{number}-{turn}"
            await client.ask("PATCH", f"/v1/templates/{NAME}", {"agent_file_json": document(mark)})
            body = {
                "message": mark,
                "migrate_agents": turn == MIGRATING,
                "block_reconciliation_strategy": client.picks(("reconcile-all", "preserve-deleted")),
            }
            answer = await client.ask("POST", f"/v1/templates/{NAME}/save", body)
            self.saves[mark] = fate_of(answer)
            if answer is not None and answer.status == 200:
                self.numbers.append(answer.json()["latest_version"])
            elif turn == MIGRATING:
                self.saves[mark] = Fate.unknown  # the version was saved, and the migration failed after it

    async def _roll_back(self, client: ScenarioClient) -> None:
        for version in ("1", "latest", "1"):
            await client.pause()
            await client.ask("POST", f"/v1/templates/{NAME}/rollback", {"version": version})

    async def _deploy(self, client: ScenarioClient, number: int) -> None:
        for turn, version in zip(range(DEPLOYMENTS), ("latest", "current", "1"), strict=True):
            await client.pause()
            buyer = f"buyer-{number}-{turn}"
            body = {"agent_name": buyer, "memory_variables": {"buyer": buyer}}
            answer = await client.ask("POST", f"/v1/templates/{NAME}:{version}/agents", body)
            self.deployments[buyer] = fate_of(answer)
            if answer is not None and answer.status == 200:
                await self._is_there(client, answer.json(), buyer)
                self.first.append(answer.json()["agent_ids"][0])
                if len(self.first) > 1 and client.tosses(0.7):
                    await self._mix(client)

    async def _mix(self, client: ScenarioClient) -> None:
        """The first agent of the newest deployment gets the block of an older one in place of its own."""
        held: list[str] = []
        newest, older = self.first[-1], client.picks(self.first[:-1])
        for agent_id in (newest, older):
            answer = await client.ask("GET", f"/v1/agents/{agent_id}/core-memory/blocks/human")
            if answer is None or answer.status != 200:
                return
            held.append(answer.json()["id"])
        path = f"/v1/agents/{newest}/core-memory/blocks"
        answer = await client.ask("PATCH", f"{path}/detach/{held[0]}")
        if answer is not None and answer.status == 200:
            await client.ask("PATCH", f"{path}/attach/{held[1]}")

    async def _is_there(self, client: ScenarioClient, deployed: dict[str, Any], buyer: str) -> None:
        path = f"/v1/_internal_templates/deployment/{deployed['deployment_id']}"
        answer = await client.ask("GET", path)
        if answer is not None and answer.status == 200:
            kinds = sorted(one["type"] for one in answer.json()["entities"])
            if kinds != ["agent", "agent", "block", "block", "block", "group"]:
                raise Broken(WHOLE, f"{buyer}: {kinds}")

    async def _look(self, client: ScenarioClient) -> None:
        for _ in range(LOOKS):
            await client.pause(1.0)
            answer = await client.ask("GET", f"/v1/templates/{NAME}")
            if answer is not None and answer.status == 200:
                found = answer.json()
                saved = [int(one["version"]) for one in found["versions"] if one["version"] != "current"]
                if saved != list(range(len(saved), 0, -1)) or found["latest_version"] != str(len(saved)):
                    raise Broken(GAPLESS, f"{saved} with {found['latest_version']} as the latest")
                for version in sorted({1, saved[len(saved) // 2]}):
                    await self._read(client, str(version))
            answer = await client.ask("GET", "/v1/agents/?limit=100&include=agent.blocks")
            for agent in answer.json() if answer is not None and answer.status == 200 else ():
                _of_one_version(agent)
                self._is_preserved(agent)

    def _is_preserved(self, agent: dict[str, Any]) -> None:
        for block in agent["blocks"] if agent["base_template_id"] is not None else ():
            if block["label"] == "shared":
                value, deployment = block["value"], str(agent["deployment_id"])
                if self.preserved.setdefault(deployment, value) != value:
                    raise Broken(PRESERVED, f"{deployment} had '{self.preserved[deployment]}' and has '{value}'")

    async def _read(self, client: ScenarioClient, version: str) -> None:
        answer = await client.ask("GET", f"/v1/templates/{NAME}:{version}/snapshot")
        if answer is None or answer.status != 200:
            return
        text = answer.json()["agents"][0]["system"]
        if self.seen.setdefault(version, text) != text:
            raise Broken(KEPT, f"version {version} was '{self.seen[version]}' and is '{text}'")

    def check(self) -> None:
        super().check()
        disk = self.machine.disk
        numbers = [row[0] for row in disk.query(_VERSIONS)]
        latest = [row[0] for row in disk.query("SELECT latest FROM templates")]
        if numbers != list(range(1, len(numbers) + 1)) or latest != numbers[-1:]:
            raise Broken(GAPLESS, f"{numbers} with {latest} as the latest")
        if len(set(self.numbers)) != len(self.numbers):
            raise Broken(GAPLESS, f"two saves got the same number: {self.numbers}")
        for mark, fate in self.saves.items():
            count = disk.query("SELECT count(*) FROM template_versions WHERE message = ?", mark)[0][0]
            if not (fate is Fate.done) <= count <= (fate is not Fate.refused):
                raise Broken("a save is stored once", f"{mark} is {fate} and stored {count} times")
        for buyer, fate in self.deployments.items():
            self._is_whole(buyer, fate)
        for block_id, value, variables in disk.query(_FILLED):
            if not value.endswith(f" for {json.loads(variables)['buyer']}"):
                raise Broken("a block has the words of its own deployment", f"{block_id}: '{value}' and {variables}")

    def _is_whole(self, buyer: str, fate: Fate) -> None:
        disk = self.machine.disk
        found = disk.query(_AGENTS, f'%"{buyer}"%')
        if not (fate is Fate.done) <= len(found) <= (fate is not Fate.refused) or any(n != 2 for _, n in found):
            raise Broken(WHOLE, f"{buyer} is {fate}, with {found} agents")
        for deployment, _ in found:
            blocks = disk.query("SELECT count(*) FROM blocks WHERE deployment_id = ?", deployment)[0][0]
            groups = disk.query("SELECT count(*) FROM groups WHERE deployment_id = ?", deployment)[0][0]
            if (blocks, groups) != (3, 1):
                raise Broken(WHOLE, f"{buyer}: {blocks} blocks and {groups} groups")
        if not found and (left := disk.query("SELECT count(*) FROM blocks WHERE value LIKE ?", f"% for {buyer}")[0][0]):
            raise Broken(WHOLE, f"{buyer}: {left} blocks of a deployment that is not there")


def _of_one_version(agent: dict[str, Any]) -> None:
    if agent["base_template_id"] is not None:
        mine = [block for block in agent["blocks"] if block["deployment_id"] == agent["deployment_id"]]
        own = [block["value"] for block in mine if block["label"] == "human"]
        if own not in ([], [agent["system"]]):  # it may have a block of another deployment
            raise Broken(ONE_VERSION, f"{agent['name']} has the instructions '{agent['system']}' and the block {own}")


TEMPLATES = scenario(
    "templates",
    Templates,
    faults=(
        Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
        Aim(Fault.storage_read_fail, "database.read", rate=0.01),
        Aim(Fault.crash_before_write, "database.begin", rate=0.01, times_max=1),
        Aim(Fault.crash_during_transaction, "database.statement", rate=0.004, times_max=2),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=2),
    ),
    swarm=(Fault.disk_full, Fault.storage_busy, Fault.storage_latency, Fault.cpu_starvation),
)
