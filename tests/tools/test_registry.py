"""The door to tools: registering by name, built-in tools, and agents that hear of every change."""

import json
import re
from io import StringIO
from typing import Any

import pytest

from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, ToolId
from kelpie.core.paging import Page
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.tools import BUILTIN_NAMES, NewTool, ToolQuery, ToolType
from kelpie.llm.routing.models import Models
from kelpie.memory.embeddings import Embeddings
from kelpie.observe import logs
from kelpie.storage.agents import agents
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.builtin.schemas import Schema
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.tools.registry import writes as tool_writes
from kelpie.tools.registry.registry import Tools, transactional
from kelpie.world.world import World
from tests.tools.workshop import ANN, BEN, NOBODY

SQUARE = '''def square(x: int) -> int:
    """Square it.

    Args:
        x (int): the number
    """
    return x * x
'''


class Heard(list[AgentId]):
    def __call__(self, affected: Any) -> None:
        self.extend(affected)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def tools(world: World, heard: Heard) -> Tools:
    return Tools(world, Embeddings(Models(world, Settings()), Settings()), heard)


async def version(world: World, agent_id: AgentId) -> int | None:
    return await world.database.read(lambda tx: (agents.versions(tx, agent_id) or (0, {}))[0])


async def test_create_and_read_back(tools: Tools) -> None:
    new = NewTool(SQUARE, tags=("math",), pip_requirements=({"name": "numpy"},), return_char_limit=10)
    tool = await tools.create(new)
    assert tool == await tools.get(tool.id) == await tools.by_name("square")
    assert (tool.name, tool.description, tool.tool_type) == ("square", "Square it.", ToolType.custom)
    assert (tool.tags, tool.return_char_limit, tool.pip_requirements) == (("math",), 10, ({"name": "numpy"},))
    assert tool.json_schema["parameters"]["required"] == ["x"]
    assert tool.args_json_schema == {} and re.fullmatch("[0-9a-f]{12}", (tool.metadata or {})["tool_hash"])


async def test_registering_again_updates(tools: Tools, heard: Heard, world: World) -> None:
    first = await tools.create(NewTool(SQUARE))
    await tools.attach(ANN, first.id)
    heard.clear()
    before = await version(world, ANN)
    second = await tools.upsert(NewTool(SQUARE, description="other", tags=("t",)))
    assert (second.id, second.description, second.tags) == (first.id, "other", ("t",))
    assert heard == [ANN] and await version(world, ANN) != before
    assert await tools.count(ToolQuery()) == 1


async def test_the_schema_gives_the_name(tools: Tools) -> None:
    schema = {"name": "other", "description": "d", "parameters": {"type": "object", "properties": {}}}
    assert (await tools.create(NewTool(SQUARE, schema))).json_schema == schema
    typescript = NewTool("export function t() {}", {"name": "ts"}, source_type="typescript")
    made = await tools.create(typescript)
    assert (made.name, made.source_type) == ("ts", "typescript")
    assert made.json_schema["parameters"] == {"type": "object", "properties": {}, "required": []}
    arguments = {"type": "object", "properties": {"x": {"type": "integer", "description": "given"}}}
    assert (await tools.create(NewTool(SQUARE, args_json_schema=arguments))).json_schema["parameters"] == arguments


@pytest.mark.parametrize(
    ("new", "error", "problem"),
    [
        (NewTool(""), InvalidInput, "source_code"),
        (NewTool(None), InvalidInput, "source_code"),
        (NewTool("x = 1"), InvalidInput, "contains no top-level function"),
        (NewTool("export ...", source_type="typescript"), InvalidInput, "json_schema"),
        (NewTool("x" * 300_000, {"name": "x"}, source_type="javascript"), InvalidInput, "source_code.*the limit is"),
        (NewTool("a\0b", {"name": "x"}, source_type="typescript"), InvalidInput, "source_code.*NUL"),
        (NewTool(SQUARE, {"name": "two words"}), InvalidInput, "json_schema.name"),
        (NewTool(SQUARE, {"description": "no name"}), InvalidInput, "json_schema.name"),
        (NewTool(SQUARE, {"name": "x", "parameters": []}), InvalidInput, "json_schema.parameters"),
        (NewTool(SQUARE, {"name": "x", "description": ["a"]}), InvalidInput, "json_schema.description"),
        (NewTool(SQUARE.replace("square", "größe")), InvalidInput, "größe"),
        (NewTool(SQUARE, return_char_limit=0), InvalidInput, "return_char_limit"),
        (NewTool(SQUARE.replace("square", "send_message")), Conflict, "'send_message'"),
        (NewTool(SQUARE, {"name": "web_search"}), Conflict, "'web_search'"),
    ],
)
async def test_what_cannot_be_a_tool_is_refused(tools: Tools, new: NewTool, error: Any, problem: str) -> None:
    with pytest.raises(error, match=problem):
        await tools.create(new)
    assert await tools.page(ToolQuery()) == []


async def test_update(tools: Tools, heard: Heard, world: World) -> None:
    tool = await tools.create(NewTool(SQUARE))
    await tools.attach(ANN, tool.id)
    heard.clear()
    after = await tools.update(tool.id, {"description": "new", "tags": ("n",), "default_requires_approval": True})
    assert after == await tools.get(tool.id)
    assert (after.description, after.tags, after.default_requires_approval) == ("new", ("n",), True)
    assert after.json_schema == tool.json_schema and heard == [ANN]
    heard.clear()
    before = await version(world, ANN)
    assert await tools.update(tool.id, {"description": "new"}) == after
    assert heard == [ANN], "the answer to the first may have been lost before anybody was told"
    assert await version(world, ANN) == before, "what is told is only to look; nothing has changed"


async def test_new_source_brings_a_new_schema(tools: Tools) -> None:
    tool = await tools.create(NewTool(SQUARE))
    after = await tools.update(tool.id, {"source_code": SQUARE.replace("the number", "any number")})
    assert after.json_schema["parameters"]["properties"]["x"]["description"] == "any number"
    assert (after.metadata or {})["tool_hash"] != (tool.metadata or {})["tool_hash"]
    renamed = SQUARE.replace("square", "cube")
    for source, problem in ((renamed, "defines 'cube'"), ("x = 1", "contains no top-level function")):
        with pytest.raises(InvalidInput, match=problem):
            await tools.update(tool.id, {"source_code": source})
    assert await tools.get(tool.id) == after
    moved = await tools.update(tool.id, {"source_code": renamed, "json_schema": {"name": "cube"}})
    assert (moved.id, moved.name) == (tool.id, "cube")


async def test_update_keeps_names_apart(tools: Tools) -> None:
    tool = await tools.create(NewTool(SQUARE))
    await tools.create(NewTool(SQUARE, {"name": "cube"}))
    for name in ("cube", "memory"):
        with pytest.raises(Conflict, match=f"'{name}'"):
            await tools.update(tool.id, {"json_schema": {"name": name}})
    with pytest.raises(NotFound):
        await tools.update(ToolId("tool-00000000-0000-4000-8000-000000000009"), {"description": "x"})


async def test_attach_detach_delete(tools: Tools, heard: Heard, world: World) -> None:
    one, two = [await tools.create(NewTool(SQUARE, {"name": name})) for name in ("one", "two")]
    before = await version(world, ANN)
    for tool in (one, two, one):
        await tools.attach(ANN, tool.id)
    assert await version(world, ANN) == (before or 0) + 2, "every real change makes the agent reload"
    assert [t.name for t in await tools.of_agent(ANN, Page(limit=1))] == ["two"]
    await tools.detach(ANN, two.id)
    await tools.detach(ANN, two.id)
    assert [t.name for t in await tools.of_agent(ANN, Page())] == ["one"]
    await tools.attach(BEN, one.id)
    heard.clear()
    await tools.delete(one.id)
    assert heard == [ANN, BEN]
    assert await tools.of_agent(ANN, Page()) == []
    with pytest.raises(NotFound):
        await tools.delete(one.id)


async def test_unknown_agents_are_not_found(tools: Tools) -> None:
    tool = await tools.create(NewTool(SQUARE))
    with pytest.raises(NotFound, match="Agent"):
        await tools.attach(NOBODY, tool.id)
    with pytest.raises(NotFound, match="Agent"):
        await tools.detach(NOBODY, tool.id)
    with pytest.raises(NotFound, match="Agent"):
        await tools.of_agent(NOBODY, Page())


# --- built-in tools -------------------------------------------------------------------------------------------------


async def test_builtins_are_there_once_and_stay_as_people_set_them(tools: Tools, heard: Heard) -> None:
    made = await tools.ensure_builtins()
    assert {t.name for t in made} == set(BUILTINS)
    send = next(t for t in made if t.name == "send_message")
    assert await tools.get(send.id) == send
    assert send.id == f"tool-{stable_uuid(DEFAULT_ORGANIZATION, 'send_message')}" == ToolId.parse(send.id)
    await tools.attach(ANN, send.id)
    await tools.update(send.id, {"return_char_limit": 9, "tags": ("mine",)})
    heard.clear()
    again = await tools.ensure_builtins()
    assert [t.id for t in again] == [t.id for t in made] and heard == []
    kept = await tools.get(send.id)
    assert (kept.return_char_limit, kept.tags) == (9, ("mine",))


async def test_a_deleted_builtin_comes_back_and_an_old_one_is_renewed(
    tools: Tools, world: World, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {t.name: t for t in await tools.ensure_builtins()}
    await tools.attach(ANN, made["memory"].id)
    await tools.delete(made["send_message"].id)
    monkeypatch.setitem(BUILTINS["memory"].schema, "description", "better words")
    heard.clear()
    await tools.ensure_builtins()
    assert await tools.by_name("send_message") is not None
    assert (await tools.get(made["memory"].id)).json_schema["description"] == "better words"
    assert heard == [ANN]


def test_the_names_that_others_ask_by_are_those_of_the_builtins() -> None:
    assert tuple(sorted(BUILTINS)) == BUILTIN_NAMES


async def test_a_custom_tool_keeps_the_name_that_a_later_version_wants(
    tools: Tools, world: World, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, ours = "rethink_memory", BUILTINS["rethink_memory"]
    with monkeypatch.context() as before:  # a Kelpie that has no such tool yet
        before.delitem(BUILTINS, name)
        before.setattr(tool_writes, "RESERVED", tool_writes.RESERVED - {name})
        await tools.ensure_builtins()
        theirs = await tools.create(NewTool(SQUARE.replace("square", name)))
        await tools.attach(ANN, theirs.id)
    heard.clear()
    logged = StringIO()
    logs.configure("warning", logged)
    given = {tool.name: tool for tool in await tools.ensure_builtins()}
    logs.configure("warning")
    assert given[name] == await tools.by_name(name) == theirs and heard == [], "it is just as it was"
    [line] = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert (line["code"], line["tool"]) == ("builtin_tool_shadowed", name)
    longer = SQUARE.replace("square", name).replace("Square it.", "Square it well.")
    again = await tools.upsert(NewTool(longer))
    assert (again.id, again.description) == (theirs.id, "Square it well."), "its author still updates it by name"
    await tools.delete(theirs.id)
    with pytest.raises(Conflict, match="built-in"):
        await tools.create(NewTool(longer))
    await tools.ensure_builtins()
    after = await tools.by_name(name)
    assert after is not None and (after.tool_type, after.json_schema) == (ours.tool_type, ours.schema)


async def test_the_code_of_a_builtin_is_not_the_callers(tools: Tools) -> None:
    made = {t.name: t for t in await tools.ensure_builtins()}
    for changes in ({"source_code": SQUARE}, {"json_schema": {"name": "mine"}}):
        with pytest.raises(Conflict, match="built-in"):
            await tools.update(made["memory"].id, changes)


def test_transactional_finds_builtins_only() -> None:
    for name, builtin in BUILTINS.items():
        assert transactional(name) is builtin.run
    assert transactional("square") is None


# Facts of the wire that clients and stored agents rely on: parameter names, their types, and which are required (*).
SIGNATURES = {
    "send_message": ("letta_core", False, "message*:string"),
    "conversation_search": (
        "letta_core",
        True,
        "query:string roles:array limit:integer start_date:string end_date:string",
    ),
    "conversation_search_date": ("letta_core", True, "start_date*:string end_date:string page:integer"),  # ours
    "fact_search": ("letta_core", True, "query*:string at:string limit:integer"),  # ours; Letta has none
    "pause_heartbeats": ("letta_core", False, "minutes:integer"),  # ours; Letta has none
    "archival_memory_insert": ("letta_core", False, "content*:string tags:array"),
    "archival_memory_search": (
        "letta_core",
        True,
        "query*:string tags:array tag_match_mode:string top_k:integer page:integer start_datetime:string "
        "end_datetime:string",
    ),
    "core_memory_append": ("letta_memory_core", False, "label*:string content*:string"),
    "core_memory_replace": ("letta_memory_core", False, "label*:string old_content*:string new_content*:string"),
    "memory": (
        "letta_memory_core",
        False,
        "command*:string path:string file_text:string description:string old_string:string new_string:string "
        "insert_line:integer insert_text:string old_path:string new_path:string",
    ),
    "memory_apply_patch": ("letta_memory_core", False, "label*:string patch*:string"),
    "memory_replace": ("letta_sleeptime_core", False, "label*:string old_string*:string new_string*:string"),
    "memory_insert": ("letta_sleeptime_core", False, "label*:string new_string*:string insert_line:integer"),
    "memory_rethink": ("letta_sleeptime_core", False, "label*:string new_memory*:string"),
    "rethink_memory": ("letta_sleeptime_core", False, "new_memory*:string target_block_label*:string"),
    "memory_finish_edits": ("letta_sleeptime_core", False, ""),
    "rethink_user_memory": ("letta_voice_sleeptime_core", False, "new_memory*:string"),
    "finish_rethinking_memory": ("letta_voice_sleeptime_core", False, ""),
    "store_memories": ("letta_voice_sleeptime_core", False, "chunks*:array"),
    "search_memory": (
        "letta_voice_sleeptime_core",
        False,
        "convo_keyword_queries:array start_minutes_ago:integer end_minutes_ago:integer",
    ),
    "send_message_to_agent_and_wait_for_reply": (
        "letta_multi_agent_core",
        False,
        "message*:string other_agent_id*:string",
    ),
    "send_message_to_agents_matching_tags": (
        "letta_multi_agent_core",
        False,
        "message*:string match_all*:array match_some*:array",
    ),
    "send_message_to_agent_async": ("letta_multi_agent_core", False, "message*:string other_agent_id*:string"),
    # The language may be left out; Letta wants one.
    "run_code": ("letta_builtin", True, "code*:string language:string"),
    "run_code_with_tools": ("letta_builtin", False, "code*:string"),
    "shell": ("letta_builtin", False, "command*:string"),  # ours; Letta has none
    "filesystem": (  # ours; Letta has none
        "letta_builtin",
        False,
        "operation*:string path:string content:string start_line:integer lines:integer",
    ),
    "web_search": (
        "letta_builtin",
        True,
        "query*:string num_results:integer category:string include_text:boolean include_domains:array "
        "exclude_domains:array start_published_date:string end_published_date:string user_location:string "
        "search_depth:string",
    ),
    "fetch_webpage": ("letta_builtin", True, "url*:string"),
    "open_files": ("letta_files_core", False, "file_requests*:array close_all_others:boolean"),
    "grep_files": (
        "letta_files_core",
        True,
        "pattern*:string include:string context_lines:integer offset:integer",
    ),
    "semantic_search_files": ("letta_files_core", True, "query*:string limit:integer"),
    "working_memory_set": (
        "letta_core",
        False,
        "key*:string value*:any ttl_seconds:number if_version:integer",
    ),
    "working_memory_get": ("letta_core", False, "key*:string"),
    "working_memory_list": (
        "letta_core",
        False,
        "prefix:string updated_from:string updated_to:string limit:integer after:string",
    ),
    "working_memory_update": (
        "letta_core",
        False,
        "key*:string increment:number append:any merge:object ttl_seconds:number if_version:integer",
    ),
    "working_memory_delete": ("letta_core", False, "key*:string"),
}


def signature(schema: Schema) -> str:
    parameters = schema["parameters"]
    required = parameters["required"]
    kinds = {name: schema.get("type", "any") for name, schema in parameters["properties"].items()}
    return " ".join(f"{name}{'*' if name in required else ''}:{kind}" for name, kind in kinds.items())


@pytest.mark.parametrize("name", sorted(SIGNATURES))
async def test_builtins_are_what_clients_know(tools: Tools, name: str) -> None:
    tool = next(t for t in await tools.ensure_builtins() if t.name == name)
    kind, parallel, parameters = SIGNATURES[name]
    assert (tool.tool_type.value, tool.enable_parallel_execution) == (kind, parallel)
    assert tool.tags == (kind,) and tool.source_type == "python" and tool.source_code is None
    assert signature(dict(tool.json_schema)) == parameters
    assert tool.description == tool.json_schema["description"]
    assert all(p["description"] for p in tool.json_schema["parameters"]["properties"].values())


def test_no_builtin_is_left_out_of_the_facts() -> None:
    assert set(SIGNATURES) == set(BUILTINS)
