"""OAuth state of MCP servers as rows: what a login waits for, and the tokens that it gave. Encrypted."""

import sqlalchemy as sa

from kelpie.core.encryption import SecretPlace
from kelpie.core.time import Micros
from kelpie.storage.encryption.sealing import Sealing, text_of
from kelpie.storage.tables import mcp_oauth, mcp_servers
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring

_ONE = sa.select(mcp_oauth).where(mcp_oauth.c.id == sa.bindparam("of_server"))
_SERVER = sa.select(mcp_servers.c.id).where(mcp_servers.c.id == sa.bindparam("of_server"))
_BY_LOGIN = sa.select(mcp_oauth.c.id).where(mcp_oauth.c.login == sa.bindparam("of_login"))
_INSERT = sa.insert(mcp_oauth)
_UPDATE = (
    sa.update(mcp_oauth)
    .where(mcp_oauth.c.id == sa.bindparam("of_server"))
    .values(
        login=sa.bindparam("new_login"),
        tokens=sa.bindparam("new_tokens"),
        updated_at=sa.bindparam("new_updated_at"),
    )
)
_DELETE = sa.delete(mcp_oauth).where(mcp_oauth.c.id == sa.bindparam("of_server"))


def get(tx: Tx, server_id: str, keyring: Keyring) -> str | None:
    """The state of a server as JSON text; None if there is none. Raises SecretUnreadable."""
    row = tx.execute(_ONE, {"of_server": server_id}).first()
    return None if row is None or row.tokens is None else text_of(keyring, _place(server_id), row.tokens)


def has_server(tx: Tx, server_id: str) -> bool:
    """False if the server was deleted, and its tokens with it."""
    return tx.execute(_SERVER, {"of_server": server_id}).first() is not None


def by_login(tx: Tx, login: str) -> str | None:
    """The server whose login has this `state`."""
    return tx.execute(_BY_LOGIN, {"of_login": login}).scalar()


def put(tx: Tx, server_id: str, state: str, login: str | None, now: Micros, sealing: Sealing) -> None:
    """Raises SecretUnreadable when there is no key."""
    sealed = sealing.key(tx).seal(_place(server_id), sealing.seed, state)
    if tx.execute(_ONE, {"of_server": server_id}).first() is None:
        tx.execute(_INSERT, {"id": server_id, "login": login, "tokens": sealed, "updated_at": now})
    else:
        tx.execute(_UPDATE, {"of_server": server_id, "new_login": login, "new_tokens": sealed, "new_updated_at": now})


def delete(tx: Tx, server_id: str) -> None:
    tx.execute(_DELETE, {"of_server": server_id})


def _place(server_id: str) -> SecretPlace:
    return SecretPlace(mcp_oauth.name, server_id, "tokens")
