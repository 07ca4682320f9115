"""The keys of the journal go when nobody can be in doubt about their turn any more, all of a turn at once."""

from sqlalchemy import Connection, insert, select

from kelpie.storage.runs import journal_keys
from kelpie.storage.tables import journal, metadata, runs
from kelpie.world.sqlite.connections import memory_connection

THEN, CUTOFF, LATELY = 100, 1_000, 2_000


def rig() -> Connection:
    tx = memory_connection()
    tx.exec_driver_sql("PRAGMA foreign_keys = OFF")
    metadata.create_all(tx)
    return tx


def turn(tx: Connection, name: str, commits: list[int], status: str | None, completed_at: int | None = None) -> None:
    """A turn with a key for each of its commits; without a status its run is gone."""
    keys = {"agent_id": "a", "turn_id": name, "kind": "step", "epoch": 1}
    tx.execute(insert(journal), [{**keys, "step": i, "created_at": at} for i, at in enumerate(commits)])
    if status is None:
        return
    empty = {"input": {}, "metadata": {}, "request_config": {}, "usage": {}}
    tx.execute(
        insert(runs),
        {
            "id": name,
            "agent_id": "a",
            "organization_id": "o",
            "status": status,
            "background": False,
            "step_count": 1,
            "owner": "n",
            "owner_incarnation": 1,
            "taken_up": 0,
            "callback_attempts": 0,
            "created_at": commits[0],
            "completed_at": completed_at,
            **empty,
        },
    )


def left(tx: Connection) -> list[tuple[str, int]]:
    rows = tx.execute(select(journal.c.turn_id, journal.c.step).order_by(journal.c.turn_id, journal.c.step))
    return [(row.turn_id, row.step) for row in rows]


def prune(tx: Connection, most: int = 100) -> int:
    old = journal_keys.old_turns(tx, CUTOFF, most)
    journal_keys.remove(tx, old)
    return len(old)


def test_only_turns_that_ended_long_ago_lose_their_keys() -> None:
    tx = rig()
    turn(tx, "ended", [THEN, THEN + 1, THEN + 2], "completed", THEN + 2)
    turn(tx, "failed", [THEN, THEN + 1], "failed", THEN + 1)
    turn(tx, "deleted", [THEN, THEN + 1], None)
    turn(tx, "still-running", [THEN, THEN + 1], "running")
    turn(tx, "ended-lately", [THEN, LATELY], "completed", LATELY)
    turn(tx, "new", [LATELY], "completed", LATELY)
    assert prune(tx) == 3
    assert left(tx) == [
        ("ended-lately", 0),
        ("ended-lately", 1),
        ("new", 0),
        ("still-running", 0),
        ("still-running", 1),
    ]
    assert prune(tx) == 0


def test_a_piece_holds_whole_turns() -> None:
    tx = rig()
    for number in range(5):
        turn(tx, f"turn-{number}", [THEN, THEN], "completed", THEN)
    assert [prune(tx, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert left(tx) == []
