"""Standard texts in rows: they come back, take little space and count in full, and an upgrade keeps every row."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, text

from kelpie.agent.definition import compaction_settings
from kelpie.agent.prompt import agent_types
from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.conversations.messages import LOST, Message, MessageQuery, Role, Text
from kelpie.core.errors import Damaged
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, MessageId
from kelpie.core.permissions.organization_limits import OrganizationUsage
from kelpie.storage import migrations, schema
from kelpie.storage.accounts import usage
from kelpie.storage.agents import agents
from kelpie.storage.conversations import messages
from kelpie.storage.rows import standard_texts
from kelpie.storage.rows.standard_texts import packed, unpacked
from kelpie.storage.tables import agents as agents_table
from kelpie.storage.tables import organizations
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
ORGANIZATION = {"id": DEFAULT_ORGANIZATION, "name": "x", "privileged_tools": False, "created_at": 1, "updated_at": 1}
TEXTS = tuple(standard_texts._LISTS["texts"])  # pyright: ignore[reportPrivateUsage]
PIECES = tuple(standard_texts._LISTS["json"])  # pyright: ignore[reportPrivateUsage]
SMALL = 120  # bytes of what has nothing of its own


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        connection.execute(insert(organizations), ORGANIZATION)
        yield connection


def agent(system: str) -> Agent:
    model = ModelChoice("openai/gpt-4o-mini", 128_000, 16_384, 1.0)
    made = Agent(AGENT, "one", AgentType.letta_v1_agent, system, model, 1, 1)
    settings = compaction_settings.made(None, model.handle)
    return replace(made, organization_id=DEFAULT_ORGANIZATION, compaction_settings=settings)


@given(st.lists(st.sampled_from((*TEXTS, *PIECES, "own words", "\x01", "0", "é\n", ""))).map("".join))
def test_every_text_comes_back(whole: str) -> None:
    assert unpacked(packed(whole)) == whole


@given(st.binary(max_size=60))
def test_a_damaged_value_is_refused_or_has_its_length(noise: bytes) -> None:
    stored = packed(TEXTS[0] + " and more")
    assert isinstance(stored, bytes)
    for damaged in (stored[: len(noise)] + noise, noise + stored):
        if damaged != stored:
            try:
                found = unpacked(damaged)
            except ValueError:
                continue
            assert int(damaged.partition(b":")[0]) == len(found.encode())


def test_entries_keep_their_positions() -> None:
    """Databases refer to entries by their position: add new ones at the end only."""
    assert (len(TEXTS), len(PIECES)) >= (22, 5) and len(TEXTS) <= 0x61 - 0x30 and len(PIECES) <= 0x7F - 0x61
    assert [len(each) for each in TEXTS[:22]] == [
        1044, 1345, 1460, 639, 931, 797, 699, 495, 672, 612, 611, 640, 652, 94, 85, 68, 44, 43, 21, 56, 37, 19,
    ]  # fmt: skip
    assert [len(each) for each in PIECES[:5]] == [108, 34, 24, 60, 24]


@pytest.mark.parametrize("agent_type", sorted(set(AgentType) - {AgentType.split_thread_agent}))
def test_the_default_instructions_of_every_type_take_little_space(tx: Tx, agent_type: AgentType) -> None:
    """When this fails, the default texts were changed: add the new ones to the end of `standard_texts.json`."""
    system = agent_types.instructions_for(agent_type, None)
    agents.create(tx, agent(system))
    sizes = tx.execute(text("SELECT length(system), length(compaction_settings), length(model) FROM agents")).one()
    assert all(size < SMALL for size in sizes) or len(system) < SMALL
    stored = agents.get(tx, AGENT)
    assert stored.system == system and stored == agent(system)


def test_packed_rows_count_in_full(tx: Tx) -> None:
    said = Message(MessageId("message-1"), AGENT, Role.system, 1, (Text(f"{TEXTS[0]} Alice é"),))
    heard = Message(MessageId("message-2"), AGENT, Role.user, 1, (Text(TEXTS[0]),))
    agents.create(tx, agent(TEXTS[0]))
    messages.begin(tx, (said, heard))
    assert [m.content for m in messages.get_many(tx, [said.id, heard.id])] == [said.content, heard.content]
    kinds = tx.execute(text("SELECT typeof(content) FROM messages ORDER BY seq")).scalars().all()
    assert kinds == ["blob", "text"]  # statements look into what others say
    plain = '[{"type":"text","text":%s}]'
    contents = sum(len((plain % as_json(m)).encode()) + 2 * len("[]") for m in (f"{TEXTS[0]} Alice é", TEXTS[0]))
    assert counted(tx) == len(TEXTS[0]) + len("null") + contents
    agents.update_agent(tx, AGENT, {"system": "short"}, 2)
    assert counted(tx) == len("short") + len("null") + contents


def as_json(value: str) -> str:
    return orjson.dumps(value).decode()


def counted(tx: Tx) -> int:
    """The bytes that the triggers have counted, which are those of the rows."""
    assert usage.deviation(tx, DEFAULT_ORGANIZATION) == OrganizationUsage()
    return usage.state(tx, DEFAULT_ORGANIZATION).used.bytes


def test_a_damaged_text_of_an_agent_is_told(tx: Tx) -> None:
    agents.create(tx, agent(TEXTS[0]))
    tx.execute(text("UPDATE agents SET system = CAST('1044:' || char(1) || '1' AS BLOB)"))
    with pytest.raises(Damaged, match="damaged on the disk"):
        agents.get(tx, AGENT)


def test_a_damaged_system_message_is_lost_and_not_shown(tx: Tx) -> None:
    agents.create(tx, agent(""))
    said = Message(MessageId("message-1"), AGENT, Role.system, 1, (Text(TEXTS[0]),))
    messages.begin(tx, (said,))
    tx.execute(text("UPDATE messages SET content = CAST('1' || content AS BLOB)"))
    (found,) = messages.select_of_agent(tx, AGENT, MessageQuery())
    assert found.content == LOST


def everything(tx: Tx) -> dict[str, list[Any]]:
    """All rows of the tables that the revision touches."""
    names = ("agents", "messages", "agent_tags", "agent_head", "agent_tools", "agent_blocks", "context")
    columns = dict.fromkeys((*names, "block_history"), "*")
    columns["organization_usage"] = "organization_id, agents, messages, bytes"  # later revisions add others
    columns["agents"] = ", ".join(agents_table.c.keys())
    return {name: sorted(map(repr, tx.execute(text(f"SELECT {of} FROM {name}")).all())) for name, of in columns.items()}


def test_an_upgrade_and_the_way_back_keep_every_row() -> None:
    with memory_connection() as tx:
        create_schema(tx)
        tx.execute(insert(organizations), ORGANIZATION)
        agents.create(tx, replace(agent(TEXTS[0]), tags=("a", "b")))
        messages.begin(tx, (Message(MessageId("message-1"), AGENT, Role.system, 1, (Text(TEXTS[0]),)),))
        before = everything(tx)
        migrations.downgrade(tx, schema.REVISIONS.locations, "0012")
        old = everything(tx)
        assert old["context"] == before["context"] and old["agent_tags"] == before["agent_tags"]
        assert old["organization_usage"] == before["organization_usage"]
        assert tx.execute(text("SELECT system FROM agents")).scalar() == TEXTS[0]
        assert tx.execute(text("SELECT json_extract(content, '$[0].text') FROM messages")).scalar() == TEXTS[0]
        schema.migrate(tx)
        assert everything(tx) == old  # rows are packed when they are next written
        assert agents.get(tx, AGENT) == replace(agent(TEXTS[0]), tags=("a", "b"))
        agents.update_agent(tx, AGENT, {"system": TEXTS[0]}, 1)
        assert tx.execute(text("SELECT typeof(system) FROM agents")).scalar() == "blob"
