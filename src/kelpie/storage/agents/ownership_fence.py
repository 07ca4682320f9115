"""The fence. One narrow row per agent names its owner; every journal commit moves it first, or fails.

Ownership is per node and incarnation, never per agent: a node that comes back has a new incarnation, so everything it
owned before is free to be claimed again.
"""

from dataclasses import dataclass

from sqlalchemy import bindparam, insert, or_, select, update

from kelpie.core.errors import Fenced, NotFound, StorageBusy
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.tables import agent_head, memory_changes, nodes
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared


@dataclass(frozen=True, slots=True)
class Node:
    """This server's identity in the database."""

    id: str
    incarnation: int


NOBODY = Node("", 0)  # the node of a run that has not started


@dataclass(slots=True)
class Claim:
    """The right to write for one agent, until another node claims it or this one has unloaded the agent."""

    agent_id: AgentId
    epoch: int
    node: Node
    ended: bool = False  # known in this process only: it holds at once, also while nothing can be stored


_NODE = select(nodes.c.incarnation).where(nodes.c.id == bindparam("node_id"))
_REJOIN = (
    update(nodes)
    .where(nodes.c.id == bindparam("node_id"))
    .values(incarnation=nodes.c.incarnation + 1, address=bindparam("address"), expires_at=bindparam("expires_at"))
)


def join(tx: Tx, node_id: str, address: str, expires_at: Micros) -> Node:
    """Registers this node as a member with a new incarnation."""
    if tx.execute(_NODE, {"node_id": node_id}).scalar() is None:
        tx.execute(insert(nodes), {"id": node_id, "incarnation": 1, "address": address, "expires_at": expires_at})
        return Node(node_id, 1)
    tx.execute(_REJOIN, {"node_id": node_id, "address": address, "expires_at": expires_at})
    return Node(node_id, int(tx.execute(_NODE, {"node_id": node_id}).scalar_one()))


_REWRITE = update(nodes).where(nodes.c.id == bindparam("node_id")).values(address=nodes.c.address)


def rewrite(tx: Tx, node: Node) -> None:
    """Writes the row of this node again as it is; for checking that something can be written."""
    tx.execute(_REWRITE, {"node_id": node.id})


_NEW_HEAD = Insert(agent_head)


def create(tx: Tx, agent_id: AgentId) -> None:
    _NEW_HEAD.run(tx, [{"agent_id": agent_id, "owner": None, "owner_incarnation": 0, "epoch": 0, "version": 0}])


_END_CLAIMS = (
    update(agent_head)
    .where(agent_head.c.agent_id == bindparam("of_agent"))
    .values(epoch=agent_head.c.epoch + 1, owner=None, owner_incarnation=0)
)
_CHANGING = select(memory_changes.c.agent_id).where(
    memory_changes.c.agent_id == bindparam("of_agent"), memory_changes.c.decided.is_(True)
)
_EPOCH = select(agent_head.c.epoch).where(agent_head.c.agent_id == bindparam("of_agent"))
_LIVE_OWNER = (
    select(nodes.c.id)
    .where(nodes.c.id == agent_head.c.owner, nodes.c.incarnation == agent_head.c.owner_incarnation)
    .exists()
)
_CLAIM = (
    update(agent_head)
    .where(
        agent_head.c.agent_id == bindparam("of_agent"),
        or_(agent_head.c.owner.is_(None), agent_head.c.owner == bindparam("node_id"), ~_LIVE_OWNER),
    )
    .values(epoch=agent_head.c.epoch + 1, owner=bindparam("node_id"), owner_incarnation=bindparam("node_incarnation"))
)


def end_claims(tx: Tx, agent_id: AgentId) -> None:
    """Makes every claim invalid that exists: the agent must be loaded again before it works. Raises NotFound."""
    if tx.execute(_END_CLAIMS, {"of_agent": agent_id}).rowcount != 1:
        raise NotFound("Agent", agent_id)


def claim(tx: Tx, agent_id: AgentId, node: Node) -> Claim:
    """Claims the agent, unless another live node owns it.

    Raises NotFound, Fenced when it is owned, and StorageBusy while its memory is being replaced.
    """
    if tx.execute(_CHANGING, {"of_agent": agent_id}).scalar() is not None:
        raise StorageBusy(f"The memory of {agent_id} is being replaced. Try again in a moment.")
    taken = tx.execute(
        _CLAIM, {"of_agent": agent_id, "node_id": node.id, "node_incarnation": node.incarnation}
    ).rowcount
    epoch = tx.execute(_EPOCH, {"of_agent": agent_id}).scalar()
    if epoch is None:
        raise NotFound("Agent", agent_id)
    if taken != 1:
        raise Fenced(f"{agent_id} is running in another server process")
    return Claim(agent_id, int(epoch), node)


_ADVANCE = Prepared(
    update(agent_head)
    .where(
        agent_head.c.agent_id == bindparam("of_agent"),
        agent_head.c.epoch == bindparam("of_epoch"),
        agent_head.c.owner == bindparam("node_id"),
        agent_head.c.owner_incarnation == bindparam("node_incarnation"),
    )
    .values(version=agent_head.c.version + 1)
)


def advance(tx: Tx, claim: Claim) -> None:
    """The first statement of every journal commit. Raises Fenced when the claim no longer holds."""
    if claim.ended:
        raise Fenced(f"{claim.agent_id} was unloaded while this was running")
    moved = _ADVANCE.run(
        tx,
        {
            "of_agent": claim.agent_id,
            "of_epoch": claim.epoch,
            "node_id": claim.node.id,
            "node_incarnation": claim.node.incarnation,
        },
    )
    if moved != 1:
        raise Fenced(f"{claim.agent_id} was taken over or deleted")
