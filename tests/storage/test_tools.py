"""Tools as rows: what is written is read back, names are unique, agents keep the order they were given."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, ToolId
from kelpie.core.paging import Page
from kelpie.core.tools.tools import Tool, ToolQuery, ToolType
from kelpie.storage.agents import agents
from kelpie.storage.tools import tools
from kelpie.storage.tools.attached_tools import AttachedTools
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))


def tool_id(number: int) -> ToolId:
    return ToolId(f"tool-00000000-0000-4000-8000-{number:012}")


def tool(number: int, name: str, kind: ToolType = ToolType.custom) -> Tool:
    return Tool(tool_id(number), name, kind, {"name": name}, number, number)


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        for agent_id in (ANN, BEN):
            model = ModelChoice("kelpie/demo", 8000)
            agents.create(connection, Agent(agent_id, "a", AgentType.letta_v1_agent, "", model, 1, 1))
        yield connection


def names(found: Sequence[Tool]) -> list[str]:
    return [t.name for t in found]


def test_a_tool_is_read_back_as_it_was_written(tx: Tx) -> None:
    full = Tool(
        id=tool_id(1),
        name="square",
        tool_type=ToolType.custom,
        json_schema={"name": "square", "parameters": {"type": "object", "properties": {}, "required": []}},
        created_at=5,
        updated_at=6,
        description="Squares.",
        source_type="python",
        source_code="def square(): ...",
        args_json_schema={"a": 1},
        tags=("x", "a"),
        return_char_limit=7,
        pip_requirements=({"name": "requests", "version": "2"},),
        npm_requirements=(),
        default_requires_approval=True,
        enable_parallel_execution=True,
        metadata={"m": 1},
        project_id="p",
        created_by_id="user-1",
        last_updated_by_id="user-2",
        version=4,
    )
    tools.insert(tx, full)
    assert tools.get(tx, full.id) == full
    assert tools.by_names(tx, DEFAULT_ORGANIZATION, ["square", "none"]) == {"square": full}
    assert tools.by_names(tx, DEFAULT_ORGANIZATION, []) == {}


def test_a_name_is_taken_once(tx: Tx) -> None:
    tools.insert(tx, tool(1, "square"))
    tools.insert(tx, tool(2, "cube"))
    with pytest.raises(Conflict, match="'square'"):
        tools.update(tx, tool_id(2), {"name": "square"}, 9, None)
    with pytest.raises(Conflict, match="'square'"):
        tools.insert(tx, tool(3, "square"))


def test_an_unknown_tool_is_not_found(tx: Tx) -> None:
    for call in (tools.get, tools.delete):
        with pytest.raises(NotFound, match="Tool"):
            call(tx, tool_id(9))


def test_update_raises_the_version_and_names_the_holders(tx: Tx) -> None:
    tools.insert(tx, tool(1, "square"))
    tools.attach(tx, ANN, tool_id(1))
    after, changed, affected = tools.update(tx, tool_id(1), {"tags": ("n",), "description": "d"}, 9, "user-1")
    assert changed and affected == (ANN,)
    assert after == tools.get(tx, tool_id(1))
    assert (after.tags, after.description, after.version, after.updated_at) == (("n",), "d", 2, 9)
    again, changed, affected = tools.update(tx, tool_id(1), {"tags": ["n"]}, 99, None)
    assert (again, changed, affected) == (after, False, ())
    with pytest.raises(InvalidInput, match="version"):
        tools.update(tx, tool_id(1), {"version": 7}, 9, None)


def test_upsert_keeps_the_id_and_the_birth(tx: Tx) -> None:
    first, affected = tools.upsert(tx, tool(1, "square"))
    assert first == tools.get(tx, tool_id(1)) and affected == ()
    tools.attach(tx, ANN, tool_id(1))
    new = replace(tool(2, "square"), source_code="new", tags=("t",), updated_at=50)
    after, affected = tools.upsert(tx, new)
    assert (after.id, after.created_at, after.source_code, after.tags) == (tool_id(1), 1, "new", ("t",))
    assert (after.version, after.updated_at, affected) == (2, 50, (ANN,))
    assert tools.count(tx, DEFAULT_ORGANIZATION, ToolQuery()) == 1


def test_agents_keep_the_order_they_were_given(tx: Tx) -> None:
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        tools.insert(tx, tool(number, name))
    assert [tools.attach(tx, ANN, tool_id(n)) for n in (3, 1, 3)] == [True, True, False]
    assert names(tools.of_agent(tx, ANN)) == ["c", "a"]
    tools.replace_for_agent(tx, ANN, [tool_id(2), tool_id(3), tool_id(2), tool_id(1)])
    assert names(tools.of_agent(tx, ANN)) == ["b", "c", "a"]
    assert [tools.detach(tx, ANN, tool_id(3)), tools.detach(tx, ANN, tool_id(3))] == [True, False]
    assert {k: names(v) for k, v in AttachedTools(tx, [BEN, ANN], writes=True).of([BEN, ANN]).items()} == {
        BEN: [],
        ANN: ["b", "a"],
    }
    assert names(tools.page_of_agent(tx, DEFAULT_ORGANIZATION, ANN, Page(limit=1))) == ["b"], "newest first by default"
    for agent_id, wanted in ((ANN, tool_id(9)), (AgentId("agent-00000000-0000-4000-8000-000000000099"), tool_id(1))):
        with pytest.raises(NotFound):
            tools.attach(tx, agent_id, wanted)


def test_delete_takes_the_tool_from_its_agents(tx: Tx) -> None:
    tools.insert(tx, tool(1, "a"))
    tools.attach(tx, BEN, tool_id(1))
    assert tools.delete(tx, tool_id(1)) == (BEN,)
    assert tools.of_agent(tx, BEN) == []
    with pytest.raises(NotFound):
        tools.get(tx, tool_id(1))


def test_filters(tx: Tx) -> None:
    tools.insert(tx, replace(tool(1, "send_message", ToolType.letta_core), project_id=None))
    tools.insert(tx, replace(tool(2, "a_b"), project_id="p"))
    tools.insert(tx, replace(tool(3, "aXb"), project_id="q"))
    tools.insert(tx, tool(4, "files", ToolType.letta_files_core))

    def found(query: ToolQuery) -> list[str]:
        assert tools.count(tx, DEFAULT_ORGANIZATION, query) == len(tools.select(tx, DEFAULT_ORGANIZATION, query))
        return names(tools.select(tx, DEFAULT_ORGANIZATION, query))

    assert found(ToolQuery()) == ["files", "aXb", "a_b", "send_message"]
    assert found(ToolQuery(name="a_b")) == ["a_b"]
    assert found(ToolQuery(names=("files", "none"))) == ["files"]
    assert found(ToolQuery(tool_ids=(tool_id(3),))) == ["aXb"]
    assert found(ToolQuery(search="A_")) == ["a_b"]
    assert found(ToolQuery(tool_types=(ToolType.custom,))) == ["aXb", "a_b"]
    assert found(ToolQuery(exclude_tool_types=(ToolType.custom, ToolType.letta_core))) == ["files"]
    assert found(ToolQuery(only_letta=True)) == ["files", "send_message"]
    assert found(ToolQuery(project_id="p")) == ["files", "a_b", "send_message"], "what has no project is everyone's"
    first = tools.select(tx, DEFAULT_ORGANIZATION, ToolQuery(page=Page(limit=2)))
    rest = tools.select(tx, DEFAULT_ORGANIZATION, ToolQuery(page=Page(limit=2, after=first[-1].id)))
    assert names(first + rest) == ["files", "aXb", "a_b", "send_message"]
