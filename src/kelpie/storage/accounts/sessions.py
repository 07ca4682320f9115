"""Sessions in browsers as rows. An expired one counts as absent, and is deleted when the next one is opened."""

import sqlalchemy as sa

from kelpie.core.access.credential_scopes import Session
from kelpie.core.ids import KeyId, SessionId
from kelpie.core.time import Micros
from kelpie.storage.tables import sessions
from kelpie.world.database import Tx

_c = sessions.c
_ONE = sa.select(sessions).where(_c.id == sa.bindparam("of_session"))
_INSERT = sa.insert(sessions)
_DELETE = sa.delete(sessions).where(_c.id == sa.bindparam("of_session"))
_DELETE_EXPIRED = sa.delete(sessions).where(_c.expires_at <= sa.bindparam("now"))
_NEWEST = sa.select(_c.id).order_by(_c.created_at.desc(), _c.id.desc()).limit(sa.bindparam("at_most"))
_DELETE_OLDEST = sa.delete(sessions).where(_c.id.not_in(_NEWEST))


def insert(tx: Tx, session: Session, digest: str) -> None:
    values = {
        "id": session.id,
        "key_id": session.key_id,
        "digest": digest,
        "created_at": session.created_at,
        "expires_at": session.expires_at,
    }
    tx.execute(_INSERT, values)


def find(tx: Tx, session_id: SessionId) -> tuple[Session, str] | None:
    """The session and the digest of its secret."""
    row = tx.execute(_ONE, {"of_session": session_id}).first()
    if row is None:
        return None
    key_id = None if row.key_id is None else KeyId(row.key_id)
    return Session(SessionId(row.id), key_id, row.created_at, row.expires_at), row.digest


def delete(tx: Tx, session_id: SessionId) -> None:
    tx.execute(_DELETE, {"of_session": session_id})


def delete_expired(tx: Tx, now: Micros) -> None:
    tx.execute(_DELETE_EXPIRED, {"now": now})


def delete_oldest(tx: Tx, kept_max: int) -> None:
    """Deletes all but the newest."""
    tx.execute(_DELETE_OLDEST, {"at_most": kept_max})
