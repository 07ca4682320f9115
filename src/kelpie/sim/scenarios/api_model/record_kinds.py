"""The kinds of records that `record_model` checks: identities, groups, folders, tools, MCP servers, providers and
projects. `trigger_kinds` has schedules and webhooks."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from kelpie.server.http.masks import MASK
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.api_model.record_model import Cast, Link, Record, RecordField, RecordKind, RecordModel

TEXTS = ("one text", "another text")
TAG_LISTS: tuple[list[str], ...] = ([], ["green"], ["green", "red"])
NAMES = ("garden", "park")  # of projects that nobody made: any text is allowed
FILE_TOOLS = {"grep_files", "open_files", "semantic_search_files"}


def _has(name: str, value: Any) -> Callable[[Record], bool]:
    return lambda one: one[name] == value


class IdentityKind(RecordKind):
    """Properties that are sent with a change are added to those that are there; an upsert replaces them."""

    path = "/v1/identities/"
    key = "identifier_key"
    counted = "/v1/identities/count"
    fields = MappingProxyType(
        {
            "name": RecordField(("Ann", "Joanna", "Bob"), always=True),
            "identity_type": RecordField(("user", "org", "other"), always=True),
            "properties": RecordField(
                (
                    [],
                    [{"key": "age", "value": 7, "type": "number"}],
                    [{"key": "home", "value": "sea", "type": "string"}, {"key": "age", "value": 8, "type": "number"}],
                ),
                default=[],
            ),
            "project_id": RecordField((None, *NAMES), changes=False),
        }
    )
    filters = (
        ("name=Ann", lambda one: "ann" in one["name"].lower()),
        *((f"identity_type={each}", _has("identity_type", each)) for each in ("user", "org", "other")),
        *((f"project_id={each}", _has("project_id", each)) for each in NAMES),
        ("identifier_key=record%200", _has("identifier_key", "record 0")),
    )
    links = (
        Link(
            "agents",
            "agents",
            "/v1/agents/{target}/identities/attach/{record}",
            "/v1/agents/{target}/identities/detach/{record}",
            "/v1/identities/{record}/agents",
            "/v1/agents/{target}",
            records=lambda agent: agent["identity_ids"],
        ),
        Link(
            "blocks",
            "blocks",
            "/v1/blocks/{target}/identities/attach/{record}",
            "/v1/blocks/{target}/identities/detach/{record}",
            "/v1/identities/{record}/blocks",
        ),
    )

    def clashes(self, record: Record, given: Record) -> bool:
        return record["project_id"] == given.get("project_id")

    def merged(self, record: Record, given: Record) -> Record:
        both = {each["key"]: each for each in (*record["properties"], *given.get("properties", ()))}
        return {**record, **given, "properties": list(both.values())}

    def acts(self, model: RecordModel) -> Sequence[Callable[[], Any]]:
        return (lambda: self._upsert(model), lambda: self._set_properties(model))

    async def _upsert(self, model: RecordModel) -> None:
        if (key := model.some()) is None:
            return
        picks, before = model.client.picks, model.state[key]
        given = {name: deepcopy(picks(self.fields[name].values)) for name in ("name", "identity_type", "properties")}
        after = {**before, **given}
        body = {"identifier_key": key, "project_id": before["project_id"], **given}
        for link, field in zip(self.links, ("agent_ids", "block_ids"), strict=True):
            if model.client.tosses(0.5):
                some = [each for each in sorted(self.cast.ids(link.targets)) if model.client.tosses(0.5)]
                after[link.name] = some
                body[field] = [self.cast.ids(link.targets)[each] for each in some]
        await model.change("PUT", self.path, body, {**model.state, key: after})

    async def _set_properties(self, model: RecordModel) -> None:
        if (key := model.some()) is not None:
            given = deepcopy(model.client.picks(self.fields["properties"].values))
            after = {**model.state, key: {**model.state[key], "properties": given}}
            await model.change("PUT", f"{model.item(key)}/properties", given, after)


class ProjectKind(RecordKind):
    """Agents are added to a project, or have it as their home."""

    path = "/v1/projects"
    fields = MappingProxyType(
        {
            "description": RecordField((None, *TEXTS)),
            "tags": RecordField(TAG_LISTS, default=[]),
            "owner": RecordField(("someone", "somebody"), always=True),
        }
    )
    filters = (
        ("name=record%201", _has("name", "record 1")),
        *((f"owner={each}", _has("owner", each)) for each in ("someone", "somebody")),
        *((f"tag={each}", lambda one, each=each: each in one["tags"]) for each in ("green", "red")),
    )
    links = (
        Link(
            "agents",
            "agents",
            "/v1/projects/{record}/agents",
            "/v1/projects/{record}/agents/{target}",
            "/v1/projects/{record}",
            ids=lambda project: [one["id"] for one in project["agents"]],
            attach_method="POST",
            detach_method="DELETE",
            body=lambda target: {"agent_id": target},
        ),
    )

    def acts(self, model: RecordModel) -> Sequence[Callable[[], Any]]:
        return (lambda: self._move(model), lambda: self._add_again(model))

    async def _move(self, model: RecordModel) -> None:
        """An agent without a home gets one, also a project that it was added to before."""
        key, agent = model.some(), model.client.picks(sorted(self.cast.agents))
        path = f"/v1/agents/{self.cast.agents[agent]}"
        if key is None or (await model.maybe(path))["project_id"] not in (None, model.ids[key]):
            return
        after = deepcopy(model.state)
        after[key]["agents"] = sorted({*after[key]["agents"], agent})
        answer = await model.change("PATCH", path, {"project_id": model.ids[key]}, after)
        if answer is not None and model.client.tosses(0.5):  # it is added as well, and taken out
            project, agent_id = model.item(key), self.cast.agents[agent]
            await model.change("POST", f"{project}/agents", {"agent_id": agent_id}, model.state)
            without = deepcopy(model.state)
            without[key]["agents"] = [each for each in without[key]["agents"] if each != agent]
            await model.change("DELETE", f"{project}/agents/{agent_id}", None, without)

    async def _add_again(self, model: RecordModel) -> None:
        """An agent that is in a project, perhaps because that is its home, is added to it: one removal takes it out."""
        key = model.some()
        if key is not None and (there := model.state[key]["agents"]):
            body = {"agent_id": self.cast.agents[model.client.picks(there)]}
            await model.change("POST", f"{model.item(key)}/agents", body, model.state)

    async def check(self, model: RecordModel) -> None:
        """The agents of a project are found by it, and no agent names one that is gone."""
        homes: dict[str, str] = {}
        for key, record in model.state.items():
            for path in (f"{model.item(key)}/agents?limit=100", f"/v1/agents/?limit=100&project_id={model.ids[key]}"):
                found = self.cast.names("agents", [one["id"] for one in await model.maybe(path)])
                if found != record["agents"]:
                    raise Broken("a filter finds what fits it", f"{path}: {found} and not {record['agents']}")
            shown = await model.maybe(model.item(key))
            homes |= {one["id"]: shown["id"] for one in shown["agents"] if one["home"]}
        for agent, agent_id in self.cast.agents.items():
            home = (await model.maybe(f"/v1/agents/{agent_id}"))["project_id"]
            if home is not None and home not in model.ids.values():
                raise Broken("no agent is in a deleted project", f"{agent} is in {home}")
            if home != homes.get(agent_id):
                raise Broken("a project knows whose home it is", f"{agent} is at home in {home}: {homes}")


class FolderKind(RecordKind):
    """Folders with files; an agent has the file tools for as long as it has a folder."""

    path = "/v1/folders/"
    counted = "/v1/folders/count"
    descends = False
    fields = MappingProxyType(
        {
            "description": RecordField(TEXTS),
            "instructions": RecordField(TEXTS),
            "metadata": RecordField(({"shelf": 1}, {"shelf": 2, "row": "a"})),
        }
    )
    filters = (("name=record%202", _has("name", "record 2")),)
    links = (
        Link(
            "agents",
            "agents",
            "/v1/agents/{target}/folders/attach/{record}",
            "/v1/agents/{target}/folders/detach/{record}",
            "/v1/folders/{record}/agents",
            "/v1/agents/{target}/folders",
            ids=list,
        ),
    )

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast)
        self.files: dict[str, dict[str, str]] = {}  # by the id of the folder: texts by name

    def acts(self, model: RecordModel) -> Sequence[Callable[[], Any]]:
        return (lambda: self._upload(model), lambda: self._upload(model), lambda: self._remove(model))

    async def _upload(self, model: RecordModel) -> None:
        if (key := model.some()) is None:
            return
        client, files = model.client, self.files.setdefault(model.ids[key], {})
        name, handling = client.picks(("tea.txt", "cake.txt")), client.picks(("skip", "replace", "error"))
        text = f"About {name}, {client.picks(TEXTS)} and {len(files)} more.\n"
        there = name in files
        path = f"{model.item(key)}/upload?duplicate_handling={handling}"
        response = await client.upload(path, name, text.encode())
        if response is not None and response.status == 200 and not (there and handling == "error"):
            if not there or handling == "replace":
                files[name] = text
        elif there and handling == "error" and response is not None and response.status in (400, 409):
            return
        elif model.machine.faults.firings:
            await self._take_over(model, key)
        else:
            raise Broken("a sound request is accepted", f"{path} {name} got {response and response.body!r}")

    async def _take_over(self, model: RecordModel, key: str) -> None:
        self.files[model.ids[key]] = {one["file_name"]: one["content"] for one in await self._processed(model, key)}

    async def _remove(self, model: RecordModel) -> None:
        key = model.some()
        if key is None or not (files := self.files.get(model.ids[key])):
            return
        name = model.client.picks(sorted(files))
        ids = {one["file_name"]: one["id"] for one in await self._processed(model, key)}
        response = await model.client.ask("DELETE", f"{model.item(key)}/{ids[name]}")
        if response is not None and response.status == 204:
            del files[name]
        elif model.machine.faults.firings:
            await self._take_over(model, key)
        else:
            raise Broken("a sound request is accepted", f"the deletion of {name} got {response and response.body!r}")

    async def _processed(self, model: RecordModel, key: str) -> list[Any]:
        """The files of a folder when none of them is being processed any more."""
        path = f"{model.item(key)}/files?include_content=true&limit=100"
        for _ in range(100):
            found = await model.maybe(path)
            if all(one["processing_status"] in ("completed", "error") for one in found):
                return found
            await model.client.pause(5.0)
        raise Broken("every file is processed", path)

    async def check(self, model: RecordModel) -> None:
        total, size = 0, 0
        for key in model.state:
            wanted = self.files.get(model.ids[key], {})
            found = await self._processed(model, key)
            seen = {one["file_name"]: one["content"] for one in found}
            if seen != wanted or len(found) != len(wanted):
                raise Broken("a folder has the files that were uploaded", f"{key} has {seen} and not {wanted}")
            if any(one["file_size"] != len(wanted[one["file_name"]]) for one in found):
                raise Broken("a folder has the files that were uploaded", f"{key} shows {found}")
            total, size = total + len(wanted), size + sum(len(text) for text in wanted.values())
        sums = await model.maybe("/v1/folders/metadata")
        if (sums["total_sources"], sums["total_files"], sums["total_size"]) != (len(model.state), total, size):
            raise Broken("the sizes of folders are those of their files", f"{sums} and not {total} files of {size}")
        for agent, agent_id in self.cast.agents.items():
            await self._agent_sees(model, agent, agent_id)

    async def _agent_sees(self, model: RecordModel, agent: str, agent_id: str) -> None:
        mine = [key for key, record in model.state.items() if agent in record["agents"]]
        tools = {one["name"] for one in await model.maybe(f"/v1/agents/{agent_id}/tools?limit=100")}
        if (tools >= FILE_TOOLS) != bool(mine) or (not mine and tools & FILE_TOOLS):
            raise Broken("an agent with a folder has the file tools", f"{agent} has {mine} and {sorted(tools)}")
        names = sorted(f"{key}/{name}" for key in mine for name in self.files.get(model.ids[key], ()))
        listed = (await model.maybe(f"/v1/agents/{agent_id}/files?limit=100"))["files"]
        if (seen := sorted(one["file_name"] for one in listed)) != names:
            raise Broken("an agent has the files of its folders", f"{agent} has {seen} and not {names}")


class ToolKind(RecordKind):
    """A tool that is created under a name that is taken is the other one, changed."""

    path = "/v1/tools/"
    query = "&tool_types=custom"
    taken = None
    gone = 400
    counted = "/v1/tools/count?tool_types=custom"
    fields = MappingProxyType(
        {
            "description": RecordField(TEXTS, always=True),
            "tags": RecordField((["green"], ["green", "red"]), default=[]),
            "return_char_limit": RecordField((100, 2000), default=50000),
            "default_requires_approval": RecordField((True, False)),
            "enable_parallel_execution": RecordField((True, False), default=False),
            "metadata_": RecordField(({"by": "hand"}, {"by": "foot"}), default={}, creates=False),
        }
    )
    filters = (
        ("name=tool_0", _has("name", "record 0")),
        ("names=tool_1&names=tool_2", lambda one: one["name"] in ("record 1", "record 2")),
        ("search=ool_3", _has("name", "record 3")),
        ("exclude_tool_types=custom&search=tool_", lambda one: False),
    )
    links = (
        Link(
            "agents",
            "agents",
            "/v1/agents/{target}/tools/attach/{record}",
            "/v1/agents/{target}/tools/detach/{record}",
            "",
            "/v1/agents/{target}/tools?limit=100",
            records=lambda tools: [one["id"] for one in tools if one["tool_type"] == "custom"],
        ),
    )

    def body(self, given: Record) -> Any:
        name = given["name"].replace("record ", "tool_")
        source = f'def {name}() -> str:\n    """Says its name."""\n    return "{name}"\n'
        return {**{field: value for field, value in given.items() if field != "name"}, "source_code": source}

    def shown(self, answer: Any) -> Record:
        given = _without(answer["metadata_"], "tool_hash")
        return super().shown(answer) | {"name": answer["name"].replace("tool_", "record "), "metadata_": given}

    def acts(self, model: RecordModel) -> Sequence[Callable[[], Any]]:
        return (lambda: self._upsert(model),)

    async def _upsert(self, model: RecordModel) -> None:
        """It keeps its id and its links; tags, metadata and the need for approval stay unless new ones are given."""
        if (key := model.some()) is None:
            return
        given = {"description": model.client.picks(TEXTS)}
        for name in ("tags", "return_char_limit"):
            if model.client.tosses(0.5):
                given[name] = deepcopy(model.client.picks(self.fields[name].values))
        before = model.state[key]
        plain = {name: field.default for name, field in self.fields.items()}
        kept = {name: before[name] for name in ("tags", "metadata_", "default_requires_approval")}
        after = {**before, **plain, **kept, **given}
        answer = await model.change("PUT", self.path, self.body({"name": key, **given}), {**model.state, key: after})
        if answer is not None and answer["id"] != model.ids[key]:
            raise Broken("an upsert keeps the id", f"{key} was {model.ids[key]} and is {answer['id']}")


class McpServerKind(RecordKind):
    """Servers that cannot be reached."""

    path = "/v1/mcp-servers/"
    key = "server_name"
    gone = 400
    paged = False
    fields = MappingProxyType(
        {
            "mcp_server_type": RecordField(("sse", "streamable_http"), always=True, changes=False),
            "server_url": RecordField(("http://mcp.example/one", "http://mcp.example/two"), always=True),
            "auth_header": RecordField(("X-One", "X-Two")),
            "auth_token": RecordField(("first-token", "second-token")),
            "custom_headers": RecordField(({"X-A": "1"}, {"X-A": "2", "X-B": "3"})),
        }
    )

    def body(self, given: Record) -> Any:
        return {"server_name": given["server_name"], "config": _without(given, "server_name")}

    def shown(self, answer: Any) -> Record:
        token = answer["auth_token"]
        if answer["auth_header"] == "Authorization" and token is not None:
            token = token.removeprefix("Bearer ")
        return super().shown(answer) | {"auth_token": token}

    def change(self, record: Record, given: Record) -> Any:
        config = {"mcp_server_type": record["mcp_server_type"], "server_url": None, **given}
        return {"config": config}

    def completed(self, record: Record) -> Record:
        header = record["auth_header"] or ("Authorization" if record["auth_token"] else None)
        return {**record, "auth_header": header}

    def merged(self, record: Record, given: Record) -> Record:
        return self.completed({**record, **given})


class ProviderKind(RecordKind):
    """A key is never shown, only that there is one. Without a new key the host stays."""

    path = "/v1/providers/"
    hidden = ("sk-first", "sk-second")
    fields = MappingProxyType(
        {
            "provider_type": RecordField(("openai", "anthropic"), always=True, changes=False),
            "api_key": RecordField(("sk-first", "sk-second"), always=True),
            "base_url": RecordField(("http://own.example/one", "http://own.example/two"), always=True),
            "region": RecordField(("north", "south")),
            "api_version": RecordField(("1", "2")),
        }
    )
    filters = (
        ("name=provider3", _has("name", "record 3")),
        *((f"provider_type={each}", _has("provider_type", each)) for each in ("openai", "anthropic")),
    )

    def body(self, given: Record) -> Any:
        return {**given, "name": given["name"].replace("record ", "provider")}

    def shown(self, answer: Any) -> Record:
        return super().shown(answer) | {
            "name": answer["name"].replace("provider", "record "),
            "api_key": answer["api_key_enc"] or answer["api_key"],
        }

    def completed(self, record: Record) -> Record:
        return {**record, "api_key": MASK}

    def merged(self, record: Record, given: Record) -> Record:
        return {**record, **given, "api_key": MASK}


class VariableKind(RecordKind):
    """Environment variables of tools. The configuration that has them is made when it is needed."""

    path = "/v1/sandbox-config/"
    key = "key"
    paged = False
    single = False
    fields = MappingProxyType(
        {
            "value": RecordField(("first-value", "second-value"), always=True),
            "description": RecordField(TEXTS),
        }
    )

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast)
        self.config = ""

    def collection(self, record: Record) -> str:
        return f"/v1/sandbox-config/{self.config}/environment-variable"

    def item(self, record: Record, record_id: str) -> str:
        return f"/v1/sandbox-config/environment-variable/{record_id}"

    def body(self, given: Record) -> Any:
        return {**given, "key": given["key"].replace(" ", "_")}

    def shown(self, answer: Any) -> Record:
        return super().shown(answer) | {"key": answer["key"].replace("_", " ")}

    async def listed(self, model: RecordModel) -> list[Any]:
        self.config = (await model.client.insist("POST", "/v1/sandbox-config/local/default"))["id"]
        return await model.maybe(self.collection({}))

    def acts(self, model: RecordModel) -> Sequence[Callable[[], Any]]:
        return (lambda: self._remove_all(model),)

    async def _remove_all(self, model: RecordModel) -> None:
        """The configuration takes its variables along."""
        if model.client.tosses(0.2):
            await model.change("DELETE", f"/v1/sandbox-config/{self.config}", None, {})
            await model.read()  # which makes another one


class GroupKind(RecordKind):
    """A block that a group shares is given to its agents, and taken when the group shares it no longer."""

    path = "/v1/groups/"
    key = "description"
    query = "&show_hidden_groups=true"
    taken = None
    counted = "/v1/groups/count"
    descends = False
    fields = MappingProxyType(
        {
            "agents": RecordField((["ann"], ["bea", "ann"], ["ann", "bea"], []), always=True),
            "blocks": RecordField((["rules"], ["plans", "rules"], []), default=[]),
            "manager": RecordField(
                (
                    {"manager_type": "round_robin", "max_turns": 3},
                    {"manager_type": "round_robin", "max_turns": 4},
                    {"manager_type": "dynamic", "manager_agent_id": "ann", "termination_token": "END", "max_turns": 2},
                ),
                always=True,
                changes=False,
            ),
            "project_id": RecordField(NAMES),
            "hidden": RecordField((True, False), changes=False),
        }
    )
    filters = (
        *((f"project_id={each}&show_hidden_groups=true", _has("project_id", each)) for each in NAMES),
        *(
            (
                f"manager_type={each}&show_hidden_groups=true",
                lambda one, each=each: one["manager"]["manager_type"] == each,
            )
            for each in ("round_robin", "dynamic")
        ),
        ("show_hidden_groups=false", lambda one: not one["hidden"]),
    )

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast)
        self.carried: set[tuple[str, str]] | None = set()  # agents and blocks; None if nobody knows

    def body(self, given: Record) -> Any:
        body = {name: value for name, value in given.items() if name not in ("agents", "blocks", "manager")}
        if "agents" in given:
            body["agent_ids"] = [self.cast.agents[each] for each in given["agents"]]
        if "blocks" in given:
            body["shared_block_ids"] = [self.cast.blocks[each] for each in given["blocks"]]
        if "manager" in given:
            leader = given["manager"].get("manager_agent_id")
            named = {} if leader is None else {"manager_agent_id": self.cast.agents[leader]}
            body["manager_config"] = {**given["manager"], **named}
        return body

    def change(self, record: Record, given: Record) -> Any:
        return self.body(given)

    def shown(self, answer: Any) -> Record:
        names = {one: name for name, one in (*self.cast.agents.items(), *self.cast.blocks.items())}
        manager = {
            name: answer[name]
            for name in ("manager_type", "max_turns", "manager_agent_id", "termination_token")
            if answer[name] is not None
        }
        if "manager_agent_id" in manager:
            manager["manager_agent_id"] = names.get(manager["manager_agent_id"], manager["manager_agent_id"])
        return {
            "description": answer["description"],
            "agents": [names.get(each, each) for each in answer["agent_ids"]],
            "blocks": [names.get(each, each) for each in answer["shared_block_ids"]],
            "manager": manager,
            "project_id": answer["project_id"],
            "hidden": answer["hidden"],
        }

    def told(self, key: str, before: Record | None, after: Record, answer: Any) -> None:
        if self.carried is None:
            return
        if before is not None:
            gone = set(before["blocks"]) - set(after["blocks"])
            self.carried -= {(agent, block) for agent in before["agents"] for block in gone}
        self.carried |= {(agent, block) for agent in after["agents"] for block in after["blocks"]}

    def doubts(self) -> None:
        self.carried = None

    def lost(self, state: dict[str, Record], agent: str) -> None:
        self.carried = None if self.carried is None else {pair for pair in self.carried if pair[0] != agent}
        for key in [key for key, record in state.items() if record["manager"].get("manager_agent_id") == agent]:
            del state[key]
        for record in state.values():
            record["agents"] = [each for each in record["agents"] if each != agent]

    async def check(self, model: RecordModel) -> None:
        carried: set[tuple[str, str]] = set()
        for agent, agent_id in self.cast.agents.items():
            groups = [one["description"] for one in await model.maybe(f"/v1/agents/{agent_id}/groups?order=asc")]
            wanted = [key for key, record in model.state.items() if agent in record["agents"]]
            if groups != wanted:
                raise Broken("a link is the same from both ends", f"{agent} is in {groups} and not in {wanted}")
            found = await model.maybe(f"/v1/agents/{agent_id}/core-memory/blocks?limit=100")
            carried |= {(agent, name) for name in self.cast.names("blocks", [one["id"] for one in found])}
        if self.carried is not None and carried != self.carried:
            told = f"{sorted(carried)} and not {sorted(self.carried)}"
            raise Broken("a shared block is given to the agents of its group", told)
        self.carried = carried


def _without(record: Record, *names: str) -> Record:
    return {name: value for name, value in record.items() if name not in names}
