"""What the model sees of a history, as rows; and the tags that come with an agent."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

from kelpie.core.agents.agent import Agent, AgentQuery, AgentType, ModelChoice
from kelpie.core.conversations.messages import Message, MessageQuery, Role, Text
from kelpie.core.conversations.runs import StopReason
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, MessageId
from kelpie.core.paging import Page
from kelpie.storage.agents import agents
from kelpie.storage.conversations import contexts, messages
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

ANN, BEN, CID = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2, 3))
ONE = Agent(ANN, "Ann", AgentType.letta_v1_agent, "", ModelChoice("kelpie/demo", 8000), 1, 1)


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        agents.create(connection, replace(ONE, tags=("z", "a,b", "\x1f")))
        agents.create(connection, replace(ONE, id=BEN, created_at=2))
        agents.create(connection, replace(ONE, id=CID, created_at=3, tags=("t",)))
        yield connection


def row(agent_id: AgentId, number: int) -> Message:
    message_id = MessageId(f"message-{agent_id[-1]}0000000-0000-4000-8000-{(number * 7919) % 10**12:012}")
    return Message(message_id, agent_id, Role.user, number, (Text(f"word{number}"),))


def test_a_context_is_read_in_its_order(tx: Tx) -> None:
    rows = [row(ANN, number) for number in range(700)]
    messages.begin(tx, rows[:3])
    messages.append(tx, rows[3:], "")
    messages.begin(tx, [row(BEN, 1)])
    assert contexts.ids(tx, ANN) == tuple(message.id for message in rows)
    several = contexts.ids_of(tx, [BEN, ANN, CID])
    assert several == {ANN: contexts.ids(tx, ANN), BEN: (row(BEN, 1).id,), CID: ()}

    turned = [message.id for message in reversed(rows[::5])]
    contexts.replace(tx, ANN, turned)
    assert contexts.ids(tx, ANN) == tuple(turned)
    assert all(isinstance(message_id, MessageId) for message_id in contexts.ids(tx, ANN))
    assert contexts.ids(tx, ANN, "conv-other") == ()


def test_a_context_in_pages_has_every_message_once(tx: Tx) -> None:
    rows = [row(ANN, number) for number in range(10)]
    messages.begin(tx, rows)
    for size in (1, 3, 5, 10, 11):
        pages = list(islice(contexts.pages(tx, ANN, "", size), 12))
        assert [message.id for page in reversed(pages) for message in page] == [message.id for message in rows]
        assert all(len(page) <= size for page in pages)


def test_the_first_messages_are_history_and_can_be_followed(tx: Tx) -> None:
    messages.begin(tx, [row(ANN, 1), row(ANN, 2)])
    messages.append(tx, [row(ANN, 3)], "")
    found = messages.select_of_agent(tx, ANN, MessageQuery())
    assert [(message.seq, message.created_at) for message in found] == [(1, 1), (2, 2), (3, 3)]
    assert contexts.ids(tx, ANN) == tuple(message.id for message in found)


def test_tags_come_with_the_agents_that_have_some(tx: Tx) -> None:
    tags = ("\x1f", "a,b", "z")
    assert agents.get(tx, ANN).tags == tags
    assert agents.get(tx, BEN).tags == ()
    listed = agents.select_agents(tx, DEFAULT_ORGANIZATION, AgentQuery(Page(descending=False)))
    assert [(agent.id, agent.tags) for agent in listed] == [(ANN, tags), (BEN, ()), (CID, ("t",))]
    assert [agent.tags for agent in agents.get_many(tx, DEFAULT_ORGANIZATION, [CID, ANN])] == [("t",), tags]


def test_the_last_use_of_an_agent_does_not_go_back(tx: Tx) -> None:
    agents.touch(tx, ANN, 50)
    agents.record_run(tx, ANN, 20, 1, StopReason.end_turn)  # it ended before the change, and is stored after it
    found = agents.get(tx, ANN)
    assert (found.updated_at, found.last_run_completion) == (50, 20)
    agents.record_run(tx, ANN, 60, 1, StopReason.end_turn)
    assert agents.get(tx, ANN).updated_at == 60
