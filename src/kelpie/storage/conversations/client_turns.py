"""Turns of clients that send their history again, as rows. They are kept for a time and then deleted.

A row with a negative `known` is no turn: it names the lasting conversation of a user, and is kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Row, bindparam, delete, insert, select, update

from kelpie.core.conversations.client_histories import ClientTurn
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.tables import client_turns
from kelpie.world.database import Tx

PIECE = 500  # rows that are deleted in one transaction

_C = client_turns.c
_INSERT = insert(client_turns)
_ONE = select(client_turns).where(_C.id == bindparam("of_id"), _C.organization_id == bindparam("of_organization"))
_BY_FINGERPRINT = (
    select(client_turns)
    .where(_C.agent_id == bindparam("of_agent"), _C.fingerprint.in_(bindparam("fingerprints", expanding=True)))
    .order_by(_C.created_at.desc(), _C.id.desc())
    .limit(bindparam("most"))
)
_CONTINUE = update(client_turns).where(_C.id == bindparam("of_id"), _C.continued.is_(False)).values(continued=True)
_RELEASE = update(client_turns).where(_C.id == bindparam("of_id")).values(continued=False)
_REFUSED = update(client_turns).where(_C.id == bindparam("of_id")).values(call_id=None)
_REPEAT = update(client_turns).where(_C.id == bindparam("of_id")).values(repeated=True)
_WITHDRAW = delete(client_turns).where(_C.id == bindparam("of_id"), _C.repeated.is_(False))
_FORGET_REQUEST = update(client_turns).where(_C.id == bindparam("of_id")).values(request=None)
_OLD = select(_C.id).where(_C.created_at < bindparam("before"), _C.known >= 0).limit(bindparam("most"))
_DELETE = delete(client_turns).where(_C.id.in_(bindparam("ids", expanding=True)))


def add(tx: Tx, organization: OrganizationId, turn: ClientTurn, request: Mapping[str, Any] | None) -> None:
    tx.execute(
        _INSERT,
        {
            "id": turn.id,
            "organization_id": organization,
            "agent_id": turn.agent_id,
            "conversation_id": turn.conversation or None,
            "fingerprint": turn.fingerprint,
            "known": turn.known,
            "idempotency_key": turn.idempotency_key,
            "call_id": turn.call_id,
            "continued": turn.continued,
            "repeated": False,
            "request": None if request is None else orjson.dumps(request).decode(),
            "created_at": turn.created_at,
        },
    )


def by_fingerprints(tx: Tx, agent_id: AgentId, fingerprints: Sequence[str], most: int) -> list[ClientTurn]:
    """The turns of an agent with one of these fingerprints, the newest first, up to a limit."""
    if not fingerprints:
        return []
    wanted = {"of_agent": agent_id, "fingerprints": list(fingerprints), "most": most}
    return [_from_row(row) for row in tx.execute(_BY_FINGERPRINT, wanted)]


def find(tx: Tx, organization: OrganizationId, turn_id: str) -> tuple[ClientTurn, dict[str, Any] | None] | None:
    """A turn of the organization, with its request if that is stored."""
    row = tx.execute(_ONE, {"of_id": turn_id, "of_organization": organization}).first()
    if row is None:
        return None
    return _from_row(row), None if row.request is None else orjson.loads(row.request)


def continue_once(tx: Tx, turn_id: str) -> bool:
    """Notes that another turn follows this one in its conversation; False if one does already."""
    return tx.execute(_CONTINUE, {"of_id": turn_id}).rowcount == 1


def release(tx: Tx, turn_id: str, refused_id: str) -> None:
    """Lets another turn follow this one, instead of one that was refused and has answered no call."""
    tx.execute(_RELEASE, {"of_id": turn_id})
    tx.execute(_REFUSED, {"of_id": refused_id})


def repeat(tx: Tx, turn_id: str) -> bool:
    """Notes that the client sends the turn again; False if it was withdrawn."""
    return tx.execute(_REPEAT, {"of_id": turn_id}).rowcount == 1


def withdraw(tx: Tx, turn_id: str) -> bool:
    """Deletes a turn; False if the client sends it again, or if it is gone."""
    return tx.execute(_WITHDRAW, {"of_id": turn_id}).rowcount == 1


def forget_request(tx: Tx, turn_id: str) -> None:
    """Deletes what the client could read again."""
    tx.execute(_FORGET_REQUEST, {"of_id": turn_id})


def needs_cleanup(tx: Tx, before: Micros) -> bool:
    """Checks whether there are turns from before this time."""
    return tx.execute(_OLD, {"before": before, "most": 1}).first() is not None


def clean_up(tx: Tx, before: Micros) -> None:
    """Deletes a piece of them."""
    ids = [row.id for row in tx.execute(_OLD, {"before": before, "most": PIECE})]
    if ids:
        tx.execute(_DELETE, {"ids": ids})


def _from_row(row: Row[Any]) -> ClientTurn:
    return ClientTurn(
        row.id,
        AgentId(row.agent_id),
        row.conversation_id or "",
        row.fingerprint,
        row.known,
        row.created_at,
        row.idempotency_key,
        row.call_id,
        bool(row.continued),
    )
