"""The secrets of agents: values that their tools may read and that are shown only on request. They are encrypted."""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, insert, select

from kelpie.core.agents.agent import Secret
from kelpie.core.encryption import SecretPlace
from kelpie.core.ids import AgentId, SecretId
from kelpie.storage.encryption.sealing import Sealing, opened
from kelpie.storage.tables import agent_secrets
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring

_OF_AGENTS = (
    select(agent_secrets)
    .where(agent_secrets.c.agent_id.in_(bindparam("ids", expanding=True)))
    .order_by(agent_secrets.c.agent_id, agent_secrets.c.key)
)
_CLEAR = delete(agent_secrets).where(agent_secrets.c.agent_id == bindparam("of_agent"))
_REMOVE_OTHERS = _CLEAR.where(agent_secrets.c.key.not_in(bindparam("keys", expanding=True)))
_INSERT = insert(agent_secrets)


def replace(tx: Tx, agent_id: AgentId, secrets: Sequence[Secret], sealing: Sealing) -> None:
    """Makes exactly these the secrets of the agent. Raises SecretUnreadable when there is no key."""
    tx.execute(_CLEAR, {"of_agent": agent_id})
    if secrets:
        key = sealing.key(tx)
        tx.execute(
            _INSERT,
            [
                {
                    "id": s.id,
                    "agent_id": agent_id,
                    "key": s.key,
                    "value": key.seal(_place(s.id), sealing.seed, s.value),
                    "description": s.description,
                    "created_at": s.created_at,
                    "updated_at": s.updated_at,
                }
                for s in secrets
            ],
        )


def remove_others(tx: Tx, agent_id: AgentId, keys: Sequence[str]) -> None:
    """Deletes the secrets of the agent that have other keys than these."""
    tx.execute(_REMOVE_OTHERS, {"of_agent": agent_id, "keys": list(keys)})


def of_agents(tx: Tx, ids: Sequence[AgentId], keyring: Keyring) -> dict[str, tuple[Secret, ...]]:
    """The secrets of many agents in one query. One that cannot be decrypted says so."""
    found: dict[str, list[Secret]] = {}
    for row in tx.execute(_OF_AGENTS, {"ids": list(ids)}):
        value = opened(keyring, _place(row.id), row.value)
        secret = Secret(
            SecretId(row.id), row.key, value.text, row.created_at, row.updated_at, row.description, value.unreadable
        )
        found.setdefault(row.agent_id, []).append(secret)
    return {agent_id: tuple(secrets) for agent_id, secrets in found.items()}


def _place(secret_id: str) -> SecretPlace:
    return SecretPlace(agent_secrets.name, secret_id, "value")
