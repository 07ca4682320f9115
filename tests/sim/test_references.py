"""The search for rows that refer to what is gone finds one that does, whether or not the database knows the key."""

import sqlite3

import pytest
from sqlalchemy import create_engine, insert
from sqlalchemy.engine import Connection

from kelpie.sim.checks.references import dangling
from kelpie.storage.tables import agent_tags, context, metadata, runs

_RUN = {
    "organization_id": "", "status": "completed", "background": False, "input": [], "metadata": {},
    "request_config": {}, "usage": {}, "step_count": 0, "owner": "", "owner_incarnation": 0, "created_at": 0,
    "taken_up": 0, "callback_attempts": 0,
}  # fmt: skip


@pytest.fixture
def tx() -> Connection:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    return engine.connect()


def found(tx: Connection) -> dict[str, list[tuple[str]]]:
    raw = tx.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)
    return dangling(lambda statement: raw.execute(statement).fetchall())


def test_an_empty_database_has_none(tx: Connection) -> None:
    assert found(tx) == {}


def test_a_broken_foreign_key_is_found(tx: Connection) -> None:
    tx.execute(insert(agent_tags), {"agent_id": "agent-gone", "tag": "t"})
    assert found(tx) == {"agent_tags.agent_id": [("agent-gone",)]}


def test_a_reference_that_is_no_key_is_found(tx: Connection) -> None:
    row = {"agent_id": "agent-gone", "conversation_id": "", "position": 0, "message_id": "message-gone"}
    tx.execute(insert(context), row)
    assert found(tx)["context.message_id"] == [("message-gone",)]


def test_what_tells_of_the_past_may_outlive_it(tx: Connection) -> None:
    tx.execute(insert(runs), {"id": "run-1", "agent_id": "agent-gone", "conversation_id": "conv-gone", **_RUN})
    assert "runs.agent_id" in found(tx)
    assert "runs.conversation_id" not in found(tx)
