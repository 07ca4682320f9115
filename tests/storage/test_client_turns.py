"""Turns of clients that send their history again: found by what was said, followed once, forgotten after their time."""

from collections.abc import Iterator

import pytest

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.conversations.client_histories import ClientTurn
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, OrganizationId
from kelpie.storage.agents import agents
from kelpie.storage.conversations import client_turns
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

OURS, THEIRS = DEFAULT_ORGANIZATION, OrganizationId("org-00000000-0000-4000-8000-000000000009")
ONE, TWO = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{number}") for number in (1, 2))


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        for agent_id in (ONE, TWO):
            agents.create(
                connection, Agent(agent_id, "Ann", AgentType.letta_v1_agent, "", ModelChoice("kelpie/demo", 8000), 1, 1)
            )
        yield connection


def turn(name: str, at: int = 1, *, of: AgentId = ONE, fingerprint: str = "f", known: int = 2) -> ClientTurn:
    return ClientTurn(name, of, "", fingerprint, known, at, f"key of {name}", f"call of {name}")


def test_turns_are_found_by_what_was_said_to_their_agent_the_newest_first(tx: Tx) -> None:
    given = [turn("a", 1), turn("b", 3), turn("c", 2, fingerprint="g"), turn("d", 9, of=TWO), turn("e", 3)]
    given.append(turn("f", 8, fingerprint="other"))
    for each in given:
        client_turns.add(tx, OURS, each, None)
    found = client_turns.by_fingerprints(tx, ONE, ["f", "g"], 10)
    assert [each.id for each in found] == ["e", "b", "c", "a"]
    assert found[-1] == given[0]  # every field is read as it was written
    assert [each.id for each in client_turns.by_fingerprints(tx, ONE, ["f", "g"], 2)] == ["e", "b"]
    assert client_turns.by_fingerprints(tx, ONE, [], 10) == []


def test_a_turn_is_followed_once(tx: Tx) -> None:
    for name in ("a", "b"):
        client_turns.add(tx, OURS, turn(name), None)
    assert [client_turns.continue_once(tx, name) for name in ("a", "a", "b", "nobody")] == [True, False, True, False]
    assert all(each.continued for each in client_turns.by_fingerprints(tx, ONE, ["f"], 9))


def test_a_turn_that_its_client_sends_again_is_not_withdrawn(tx: Tx) -> None:
    for name in ("kept", "gone"):
        client_turns.add(tx, OURS, turn(name), None)
    assert client_turns.repeat(tx, "kept")
    assert [client_turns.withdraw(tx, name) for name in ("kept", "gone", "gone")] == [False, True, False]
    assert not client_turns.repeat(tx, "gone")
    assert [each.id for each in client_turns.by_fingerprints(tx, ONE, ["f"], 9)] == ["kept"]


def test_what_a_client_may_read_again_is_its_organizations_until_it_is_forgotten(tx: Tx) -> None:
    client_turns.add(tx, OURS, turn("a"), {"model": "bea", "input": "hi"})
    client_turns.add(tx, OURS, turn("b"), {"model": "bea"})
    assert client_turns.find(tx, OURS, "a") == (turn("a"), {"model": "bea", "input": "hi"})
    assert client_turns.find(tx, THEIRS, "a") is None
    client_turns.forget_request(tx, "a")
    assert client_turns.find(tx, OURS, "a") == (turn("a"), None)  # the conversation can still go on
    assert client_turns.find(tx, OURS, "b") == (turn("b"), {"model": "bea"})


def test_old_turns_go_in_pieces_and_lasting_conversations_stay(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_turns, "PIECE", 2)
    for number in range(5):
        client_turns.add(tx, OURS, turn(f"old {number}", 10, known=0), None)
    client_turns.add(tx, OURS, turn("lasting", 1, known=-1), None)
    client_turns.add(tx, OURS, turn("new", 20), None)
    pieces = 0
    while client_turns.needs_cleanup(tx, 20):
        client_turns.clean_up(tx, 20)
        pieces += 1
    assert pieces == 3
    assert [each.id for each in client_turns.by_fingerprints(tx, ONE, ["f"], 9)] == ["new", "lasting"]
