"""Models of agents as records, and of checkpoints of one agent's memory."""

import json
from copy import deepcopy
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.memory_model import BlockModel, PassageModel, WorkingMemoryModel
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient

NAMES = ("ann", "anna", "bob")
TAGS = ("home", "work")  # as they are sorted
OTHERS = "keeper"  # the name of the agents that other models use
REQUESTS_MAX = 3  # more in a minute
MINUTE_S = 60.0


class AgentModel(ModelledResource):
    """Agents: the state of each name is the fields of the only agent of that name."""

    def __init__(self, machine: Machine, client: ScenarioClient, operator: ScenarioClient, quotas: str) -> None:
        super().__init__(machine, client)
        self.operator, self.quotas = operator, quotas  # who may set the quotas of the organization, and where
        self.ids: dict[str, str] = {}
        self._made = 0

    async def act(self) -> None:
        name = self.client.picks(NAMES)
        self._made += 1
        if self._made == 1 and self.client.name != "owner":  # with which the operator shares an organization
            await self._is_throttled()
        fields = {"description": f"number {self._made}", "tags": [tag for tag in TAGS if self.client.tosses(0.5)]}
        if name not in self.state:
            await self._create(name, fields)
            return
        await self.read()
        path = f"/v1/agents/{self.ids[name]}"
        if self.client.tosses(0.6):
            await self.change("PATCH", path, fields, {**self.state, name: fields})
            return
        after = {each: one for each, one in self.state.items() if each != name}
        await self.change("DELETE", path, None, after)
        if name not in self.state:
            for part in ("", "/messages", "/core-memory/blocks", "/tools", "/limits"):
                if await self.maybe(path + part):
                    raise Broken("a deleted agent is gone at once", path + part)

    async def _create(self, name: str, fields: dict[str, Any]) -> None:
        """Sometimes with a quota that is just used up, and with one that permits one more."""
        path, body, after = "/v1/agents/", {"name": name, **fields}, {**self.state, name: fields}
        if self.client.tosses(0.6):
            await self.change("POST", path, body, after)
            return
        kind = self.client.picks(("agents", "messages"))
        used = (await self.operator.insist("GET", self.quotas.replace("quotas", "usage")))["usage"][kind]
        await self.operator.insist("PUT", self.quotas, {kind: used})
        await self.change("POST", path, body, refused=507)
        await self.operator.insist("PUT", self.quotas, {kind: used + (1 if kind == "agents" else 100)})
        await self.change("POST", path, body, after)
        await self.operator.insist("PUT", self.quotas, {"agents": 0})

    async def _is_throttled(self) -> None:
        """The requests of one minute are counted: so many are answered, and no more."""
        began_s = self.machine.loop.time()
        usage = (await self.operator.insist("GET", self.quotas.replace("quotas", "usage")))["usage"]
        limit = usage["requests_this_minute"] + REQUESTS_MAX
        await self.operator.insist("PUT", self.quotas, {"requests_per_minute": limit})
        answers = [await self.client.ask("GET", "/v1/agents/count") for _ in range(2 * REQUESTS_MAX)]
        whole = began_s // MINUTE_S == self.machine.loop.time() // MINUTE_S
        served = sum(each is not None and each.status != 429 for each in answers)
        if whole and not self.machine.faults.firings and served != REQUESTS_MAX:
            raise Broken("a quota of requests is held", f"{served} more were answered in a minute, of {usage} {limit}")
        await self.operator.insist("PUT", self.quotas, {"agents": 0})

    async def read(self) -> Any:
        listed = [one for one in await self.pages("/v1/agents/", "") if one["name"] != OTHERS]
        self.ids = {one["name"]: one["id"] for one in listed}
        if len(self.ids) != len(listed):
            raise Broken("the API shows what was done", f"{len(listed)} agents of {sorted(self.ids)}")
        return {one["name"]: {"description": one["description"], "tags": sorted(one["tags"])} for one in listed}

    async def check(self) -> None:
        await super().check()
        every = await self.client.insist("GET", "/v1/agents/?limit=100")
        if await self.client.insist("GET", "/v1/agents/count") != len(every):
            raise Broken("a count is the length of the list", f"agents: {len(every)}")
        for name in NAMES:
            await self._finds(f"name={name}", {each for each in self.state if each == name})
        await self._finds("query_text=ann", {name for name in self.state if "ann" in name})
        tags = {name: one["tags"] for name, one in self.state.items()}
        await self._finds("tags=home&tags=work&match_all_tags=true", {n for n in tags if len(tags[n]) == len(TAGS)})
        await self._finds("tags=home&tags=work", {name for name in tags if tags[name]})
        wanted = sorted({tag for found in tags.values() for tag in found})
        if (seen := await self.client.insist("GET", "/v1/tags/")) != wanted:
            raise Broken("the tags are those of the agents", f"{seen} and not {wanted}")

    async def _finds(self, query: str, wanted: set[str]) -> None:
        seen = [one["name"] for one in await self.client.insist("GET", f"/v1/agents/?limit=100&{query}")]
        if sorted(seen) != sorted(wanted):
            raise Broken("a filter finds what fits it", f"{query}: {seen} and not {wanted}")


class CheckpointModel(ModelledResource):
    """A checkpoint of the memory that three other models describe: it goes back to what it was, and nothing else."""

    def __init__(
        self,
        machine: Machine,
        client: ScenarioClient,
        agent_id: str,
        parts: tuple[BlockModel, WorkingMemoryModel, PassageModel],
    ) -> None:
        super().__init__(machine, client)
        self.path = f"/v1/agents/{agent_id}/memory"
        self.parts = parts
        self.saved: tuple[Any, dict[str, Any], Any, Any] | None = None

    async def act(self) -> None:
        """Saves the memory, loses some of it, and brings it back."""
        blocks, entries, passages = self.parts
        await blocks.have_attached()
        document = await self.client.insist("GET", f"{self.path}/checkpoint")
        attached = {label: one for label, one in deepcopy(blocks.state).items() if one["attached"]}
        self.saved = (document, attached, deepcopy(entries.current(entries.state)), deepcopy(passages.state))
        for _ in range(self.client.picks((1, 3))):
            await self.client.picks(
                (blocks.change_attached, blocks.lose_attached, entries.act, passages.act, self._say)
            )()
        if self.client.tosses(0.4):
            await self._is_refused()
        await self._restore()

    async def _say(self) -> None:
        """A message that the checkpoint does not have, in one of the agent's conversations."""
        agent_id = self.path.split("/")[3]
        lane = self.client.picks(["default", *await self.lanes()])
        body = {"agent_id": agent_id, "input": "hello", "streaming": False}
        await self.client.insist("POST", f"/v1/conversations/{lane}/messages", body)

    async def lanes(self) -> list[str]:
        """The conversations of the agent, of which it has at least one."""
        path = f"/v1/conversations/?agent_id={self.path.split('/')[3]}"
        return [one["id"] for one in await self.client.insist("GET", path)]

    async def _is_refused(self) -> None:
        """A document that somebody has changed, and one of another agent, change nothing."""
        assert self.saved is not None
        document = deepcopy(self.saved[0])
        others = [one["id"] for one in await self.client.insist("GET", "/v1/agents/") if one["id"] not in self.path]
        if self.client.tosses(0.5) or not others:
            document["memory"]["working_memory"] = [{"key": "forged"}]
        else:
            document = await self.client.insist("GET", f"/v1/agents/{others[0]}/memory/checkpoint")
        await self.change("POST", f"{self.path}/restore", document, refused=400)
        for part in self.parts:
            await part.check()

    async def _restore(self) -> None:
        assert self.saved is not None
        document, attached, entries, passages = self.saved
        made = await self.change("POST", f"{self.path}/restore", document, {})
        blocks, working, archive = self.parts
        archive.archive_id = ""  # one that was made after the checkpoint is gone
        if made is None:  # it was made or not; the one or the other for all of them
            if await archive.read() not in (archive.state, passages):
                raise Broken("a restore is complete or has no effect", f"{self.path}: {await archive.read()}")
            archive.state, working.state = await archive.read(), working.current(await working.read())
        else:
            working.state, archive.state = working.current(entries), passages
            await working.check()
            await archive.check()
        await blocks.know_restored(attached)
        before, blocks.state = blocks.state, await blocks.read()
        if made is not None:
            self._blocks_are_back(before, blocks.state, attached)
            again = await self.client.insist("GET", f"{self.path}/checkpoint")
            if _messages(again) != _messages(document):
                raise Broken("a restore brings everything back", f"{_messages(again)} and not {_messages(document)}")

    def _blocks_are_back(self, before: dict[str, Any], after: dict[str, Any], saved: dict[str, Any]) -> None:
        for label, block in after.items():
            known = saved.get(label)
            if block["attached"] != (known is not None):
                raise Broken("a restore attaches what was attached", f"{label}: {block}")
            wanted = block if known is None else known
            if known is not None and (block["values"][-1], block["description"]) != (
                wanted["values"][-1],
                wanted["description"],
            ):
                raise Broken("a restore brings everything back", f"{label}: {block} and not {known}")
            if known is None and {**block, "attached": None} != {**before[label], "attached": None}:
                raise Broken("a restore changes nothing else", f"{label}: {block} and not {before[label]}")
        if missing := [label for label in saved if label not in after]:
            raise Broken("a restore brings everything back", f"{missing} are not there")

    async def read(self) -> Any:
        return {}


def _messages(document: Any) -> str:
    return json.dumps([document["memory"][name] for name in ("messages", "contexts", "conversations")], sort_keys=True)
