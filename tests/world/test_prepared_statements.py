"""A prepared statement does what SQLAlchemy does with the same statement."""

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    MetaData,
    Table,
    Text,
    bindparam,
    case,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import InvariantBroken
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.sqlite.group_commit import watch_statements
from kelpie.world.statements import Prepared

_METADATA = MetaData()
_THINGS = Table(
    "things",
    _METADATA,
    Column("id", Text, primary_key=True),
    Column("facts", JSON),
    Column("done", Boolean),
    Column("at", BigInteger),
)
_INSERT = insert(_THINGS)
_ONE = select(_THINGS, func.length(_THINGS.c.id)).where(_THINGS.c.id == bindparam("of_thing"))
ROWS = [
    {"id": "a", "facts": {"b": [1, None, "ü"]}, "done": True, "at": 2**40},
    {"id": "b", "facts": None, "done": None, "at": None},
]


@pytest.fixture
def tx() -> Connection:
    connection = memory_connection()
    _METADATA.create_all(connection)
    return connection


@pytest.mark.parametrize("row", ROWS)
def test_values_are_written_and_read_as_by_sqlalchemy(tx: Connection, row: dict[str, object]) -> None:
    Prepared(_INSERT).run(tx, row)
    written = tx.execute(_ONE, {"of_thing": row["id"]}).one()
    assert (written.id, written.facts, written.done, written.at) == tuple(row.values())
    found = Prepared(_ONE).first(tx, {"of_thing": row["id"]})
    assert tuple(found) == tuple(written)
    assert (found.id, found.facts, found.done, found.at) == tuple(row.values())


def test_many_rows_are_written_at_once(tx: Connection) -> None:
    Prepared(_INSERT).run_many(tx, ROWS)
    assert [row.id for row in Prepared(select(_THINGS).order_by(_THINGS.c.id)).rows(tx, {})] == ["a", "b"]
    assert Prepared(select(func.count()).select_from(_THINGS)).scalar(tx, {}) == 2


def test_nothing_found_is_none(tx: Connection) -> None:
    assert Prepared(_ONE).first(tx, {"of_thing": "no"}) is None
    assert Prepared(_ONE).scalar(tx, {"of_thing": "no"}) is None


def test_constants_and_a_parameter_that_comes_twice(tx: Connection) -> None:
    Prepared(_INSERT).run_many(tx, ROWS)
    at = bindparam("new_at", type_=BigInteger())
    later = case((_THINGS.c.at > at, _THINGS.c.at), else_=at)
    change = Prepared(update(_THINGS).where(_THINGS.c.done == True).values(at=later, facts={"c": 1}))  # noqa: E712
    assert change.run(tx, {"new_at": 7}) == 1
    assert change.run(tx, {"new_at": 2**41}) == 1
    found = Prepared(_ONE).first(tx, {"of_thing": "a"})
    assert (found.at, found.facts) == (2**41, {"c": 1})


def test_a_broken_constraint_is_sqlalchemys_error(tx: Connection) -> None:
    Prepared(_INSERT).run(tx, ROWS[0])
    with pytest.raises(IntegrityError):
        Prepared(_INSERT).run(tx, ROWS[0])


def test_a_missing_parameter_is_refused(tx: Connection) -> None:
    with pytest.raises(KeyError):
        Prepared(_ONE).first(tx, {})


def test_a_list_of_parameters_is_refused(tx: Connection) -> None:
    listed = Prepared(select(_THINGS).where(_THINGS.c.id.in_(bindparam("ids", expanding=True))))
    with pytest.raises(InvariantBroken, match="no lists of parameters"):
        listed.rows(tx, {"ids": ["a"]})


def test_a_watched_connection_passes_the_fault_points(tx: Connection) -> None:
    class Counting:
        def __init__(self) -> None:
            self.points: list[str] = []

        def before(self, point: object) -> None:
            self.points.append(f"before {point}")

        def after(self, point: object) -> None:
            self.points.append(f"after {point}")

    faults = Counting()
    watch_statements(tx, faults)
    Prepared(_INSERT).run(tx, ROWS[0])
    assert faults.points == ["before statement", "after statement"]
