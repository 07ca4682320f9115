"""Agent files imported by several clients at once, some of them the same file, while the disk fails and the power is
cut at every stage.

An import is whole or not at all: whoever looks sees both agents of a file or neither, each with all of its messages,
blocks and tools. An acknowledged import is there at the end, with the history that the file has; a refused one has left
no agent, no block, no group and no row of a message.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.checks.index_checks import index_is_whole
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.memory.long_changes import PIECE_ROWS, boot_in_small_pieces
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

PEOPLE = 3
FILES = 2
LOOKS = 15
WHOLE = "an import is whole or not at all"
TOOLS = ["file_tool", "grep_files", "open_files", "semantic_search_files"]  # the folder brings the last three
SAID = 3 * PIECE_ROWS + 1  # messages of each agent after its instructions
SHOWN = (SAID + 1, 1)  # how many of them, with the instructions, the model of each agent is shown
SOURCE = 'def file_tool(x: int) -> int:\n    """Do.\n\n    Args:\n        x: the x\n    """\n    return x\n'
_TOLD = "SELECT id, name FROM agents WHERE name LIKE ? AND organization_id <> ''"
_ROWS = "SELECT count(*) FROM messages WHERE agent_id = ?"
_SEEN = "SELECT count(*) FROM context JOIN messages ON messages.id = context.message_id WHERE context.agent_id = ?"
_FILES = (
    "SELECT files.status, files.error FROM files JOIN agent_folders ON agent_folders.folder_id = files.folder_id "
    "WHERE agent_folders.agent_id = ?"
)


def agent_file(name: str) -> dict[str, Any]:
    """A file with two agents that share a block, a tool and a group."""
    return {
        "agents": [_agent(name, number) for number in range(2)],
        "blocks": [
            {"id": "block-0", "label": "shared", "value": name},
            {"id": "block-1", "label": "human", "value": "first"},
            {"id": "block-2", "label": "human", "value": "second"},
        ],
        "tools": [{"id": "tool-0", "name": "file_tool", "tool_type": "custom", "source_code": SOURCE}],
        "groups": [{"id": "group-0", "agent_ids": ["agent-0", "agent-1"], "description": f"group of {name}"}],
        "sources": [{"id": "source-0", "name": "folder"}],
        "files": [{"id": "file-0", "source_id": "source-0", "file_name": "folder/file.txt", "content": "text"}],
        "skills": [{"name": "skill", "files": {"SKILL.md": "text"}}],
    }


def _agent(name: str, number: int) -> dict[str, Any]:
    messages = [{"id": f"message-{number}-{each}", "role": "user", "content": f"{name} {each}"} for each in range(SAID)]
    first = {"id": f"message-{number}-system", "role": "system", "content": "old"}
    return {
        "id": f"agent-{number}",
        "name": f"{name}-{number}",
        "block_ids": ["block-0", f"block-{number + 1}"],
        "tool_ids": ["tool-0"],
        "source_ids": ["source-0"],
        "messages": [first, *messages],
        "in_context_message_ids": [first["id"], *(each["id"] for each in messages)][: SHOWN[number]],
    }


class AgentFiles(ServerScenario):
    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.fates: dict[str, list[Fate]] = {}  # of the imports, by the name in the file
        self.imported: list[str] = []

    async def act(self) -> None:
        await self.make_agents(1)
        people = (self._import(client, number) for number, client in enumerate(self.clients(PEOPLE)))
        await together((self._look(self.client("looker")), *people))

    async def _import(self, client: ScenarioClient, number: int) -> None:
        for turn in range(FILES):
            await client.pause(12.0)  # so that the cleanup comes in the middle of some
            # the last two people import the same file at once
            name = f"file-{min(number, PEOPLE - 2)}-{turn}"
            path = "/v1/agents/import?append_copy_suffix=false"
            answer = await client.ask("POST", path, agent_file(name))
            self.fates.setdefault(name, []).append(fate_of(answer))
            if answer is not None and 400 <= answer.status < 500:
                raise Broken("a sound request is accepted", f"an import got {answer.status} {answer.body!r}")
            if answer is not None and answer.status == 200:
                made: list[str] = answer.json()["agent_ids"]
                self.imported += made
                if client.tosses(0.3):
                    self.machine.crash()  # before its files are read
                await self._is_there(client, made)

    async def _is_there(self, client: ScenarioClient, made: list[str]) -> None:
        """Exports what was imported: the file says the same."""
        for agent_id in made:
            answer = await client.ask("GET", f"/v1/agents/{agent_id}/export")
            if answer is None or answer.status != 200:
                continue
            document = answer.json()
            agent = document["agents"][0]
            texts = [message["content"][0]["text"] for message in agent["messages"][1:]]
            name = agent["name"].rpartition("-")[0]
            if texts != [f"{name} {each}" for each in range(SAID)] or not document["files"]:
                raise Broken(WHOLE, f"{agent_id} was exported with {texts} and {len(document['files'])} files")

    async def _look(self, client: ScenarioClient) -> None:
        for _ in range(LOOKS):
            await client.pause(3.0)
            answer = await client.ask("GET", "/v1/agents/?limit=100&include=agent.blocks&include=agent.tools")
            if answer is None or answer.status != 200:
                continue
            found = [agent for agent in answer.json() if agent["name"].startswith("file-")]
            _both_or_none([agent["name"] for agent in found])
            for agent in found:
                _is_whole(agent)

    def check(self) -> None:
        super().check()
        index_is_whole(self.machine.disk)
        disk = self.machine.disk
        for name, fates in self.fates.items():
            there = disk.query(_TOLD, f"{name}-%")
            least, most = fates.count(Fate.done), len(fates) - fates.count(Fate.refused)
            if not least <= len(there) / 2 <= most or len(there) % 2:
                raise Broken(WHOLE, f"{name}: {len(there)} agents after {fates}")
            for agent_id, called in there:
                self._has_its_files(agent_id)
                rows = [disk.query(statement, agent_id)[0][0] for statement in (_ROWS, _SEEN)]
                if rows != [SAID + 1, _shown(called)]:
                    raise Broken(WHOLE, f"{agent_id} of {name} has {rows} messages and places in its context")
            groups = disk.query("SELECT count(*) FROM groups WHERE description = ?", f"group of {name}")[0][0]
            blocks = disk.query("SELECT count(*) FROM blocks WHERE value = ?", name)[0][0]
            if not groups == blocks == len(there) // 2:
                raise Broken(WHOLE, f"{name}: {len(there)} agents, {groups} groups, {blocks} shared blocks")
        wanted = "SELECT name, status, error FROM files WHERE status <> 'completed' AND organization_id <> ''"
        if unread := [each for each in disk.query(wanted) if "interrupted" not in (each[2] or "")]:
            raise Broken("the files of an import are read in the end", f"{unread}")
        if foreign := disk.query(
            "SELECT count(*) FROM messages WHERE agent_id NOT IN (SELECT id FROM agents WHERE organization_id <> '')"
        )[0][0]:
            raise Broken("a failed import leaves nothing behind", f"{foreign} messages belong to no agent")

    def _has_its_files(self, agent_id: str) -> None:
        """The texts of its files are kept from the import until they are read, whatever comes in between."""
        for status, error in self.machine.disk.query(_FILES, agent_id):
            if "its upload was lost" in (error or ""):
                raise Broken("the files of an import are kept", f"a file of {agent_id} is {status}: {error}")


def _both_or_none(names: list[str]) -> None:
    for name in {each.rpartition("-")[0] for each in names}:
        if names.count(f"{name}-0") != names.count(f"{name}-1"):
            raise Broken(WHOLE, f"a list of agents has only a part of {name}: {sorted(names)}")


def _shown(name: str) -> int:
    return SHOWN[int(name.rpartition("-")[2])]


def _is_whole(agent: Mapping[str, Any]) -> None:
    labels = sorted(block["label"] for block in agent["blocks"])
    tools = [tool["name"] for tool in agent["tools"]]
    if len(agent["message_ids"]) != _shown(agent["name"]) or labels != ["human", "shared"] or tools != TOOLS:
        raise Broken(WHOLE, f"{agent['name']}: {len(agent['message_ids'])} messages, {labels}, {tools}")


AGENT_FILES = replace(
    scenario(
        "agent-files",
        AgentFiles,
        faults=(
            Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
            Aim(Fault.storage_read_fail, "database.read", rate=0.01),
            Aim(Fault.storage_latency, "database.write", rate=0.2),
            Aim(Fault.crash_before_write, "database.begin", rate=0.01, times_max=1),
            Aim(Fault.crash_during_transaction, "database.statement", rate=0.003, times_max=2),
            Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=2),
        ),
        swarm=(Fault.disk_full, Fault.storage_busy, Fault.storage_latency, Fault.cpu_starvation),
    ),
    boot=boot_in_small_pieces,
)
