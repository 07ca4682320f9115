"""Identities: the people or things that agents and blocks are about, under keys that the client chooses."""

from collections.abc import Sequence
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.access.identities import Identity, IdentityChanges, IdentityQuery, NewIdentity, Property, merged
from kelpie.core.ids import AgentId, BlockId, IdentityId
from kelpie.core.memory.blocks import Block
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import identities as rows
from kelpie.storage.blocks import blocks
from kelpie.world.database import Tx
from kelpie.world.world import World


class Identities:
    """Identities of the caller's organization."""

    def __init__(self, world: World, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def create(self, new: NewIdentity) -> Identity:
        """Creates an identity and links it. Raises Conflict when its key is taken, NotFound for an agent or block."""
        made = self._made(new)
        return await self._world.database.transact(lambda tx: self._insert(tx, made, new))

    async def upsert(self, new: NewIdentity) -> Identity:
        """Creates the identity with this key, or updates the existing one. Raises NotFound."""
        made, now = self._made(new), self._world.clock.now()

        def write(tx: Tx) -> Identity:
            there = rows.by_key(tx, self._organization, new.identifier_key, new.project_id)
            if there is None:
                return self._insert(tx, made, new)
            changes: dict[str, Any] = {"name": new.name, "identity_type": new.identity_type.value}
            if new.properties is not None:
                changes["properties"] = merged((), new.properties)
            changed = rows.update(tx, there, changes, now, self._user)
            self._require_rows(tx, new.agent_ids or (), new.block_ids or ())
            if new.agent_ids is not None:
                rows.of_agents.replace_rows(tx, there.id, new.agent_ids)
            if new.block_ids is not None:
                rows.of_blocks.replace_rows(tx, there.id, new.block_ids)
            return changed

        return await self._world.database.transact(write)

    async def known(self, new: NewIdentity) -> Identity:
        """The identity with this key, created if there is none, and linked with the agents; it is not changed.

        Raises NotFound.
        """

        def read(tx: Tx) -> Identity | None:
            there = rows.by_key(tx, self._organization, new.identifier_key, new.project_id)
            return there if there is not None and rows.of_agents.has_all(tx, there.id, new.agent_ids or ()) else None

        if (found := await self._world.database.read(read)) is not None:
            return found
        made = self._made(new)

        def write(tx: Tx) -> Identity:
            there = rows.by_key(tx, self._organization, new.identifier_key, new.project_id)
            if there is None:
                return self._insert(tx, made, new)
            self._link(tx, there.id, new.agent_ids or (), ())
            return there

        return await self._world.database.transact(write)

    def _made(self, new: NewIdentity) -> Identity:
        now = self._world.clock.now()
        return Identity(
            id=self._world.ids.new(IdentityId),
            identifier_key=new.identifier_key,
            name=new.name,
            identity_type=new.identity_type,
            created_at=now,
            updated_at=now,
            project_id=new.project_id or None,
            properties=merged((), new.properties or ()),
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )

    def _insert(self, tx: Tx, made: Identity, new: NewIdentity) -> Identity:
        rows.insert(tx, made)
        self._link(tx, made.id, new.agent_ids or (), new.block_ids or ())
        return made

    def _link(self, tx: Tx, identity_id: IdentityId, agents: Sequence[AgentId], blocks: Sequence[BlockId]) -> None:
        self._require_rows(tx, agents, blocks)
        rows.of_agents.add(tx, agents, (identity_id,))
        rows.of_blocks.add(tx, blocks, (identity_id,))

    def _require_rows(self, tx: Tx, agents: Sequence[AgentId], blocks: Sequence[BlockId]) -> None:
        for agent_id in agents:
            row_ownership.agent(tx, self._organization, agent_id)
        for block_id in blocks:
            row_ownership.block(tx, self._organization, block_id)

    async def get(self, identity_id: IdentityId) -> Identity:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: rows.get(tx, self._organization, identity_id))

    async def count(self) -> int:
        return await self._world.database.read(lambda tx: rows.count(tx, self._organization))

    async def update(self, identity_id: IdentityId, changes: IdentityChanges) -> Identity:
        """Changes the given fields; properties and links are added. Raises NotFound, Conflict when the key is taken."""
        now = self._world.clock.now()

        def write(tx: Tx) -> Identity:
            there = rows.get(tx, self._organization, identity_id)
            self._link(tx, identity_id, changes.agent_ids or (), changes.block_ids or ())
            return rows.update(tx, there, _columns(there, changes), now, self._user)

        return await self._world.database.transact(write)

    async def set_properties(self, identity_id: IdentityId, properties: tuple[Property, ...]) -> Identity:
        """Replaces all properties of the identity. Raises NotFound."""
        now = self._world.clock.now()

        def write(tx: Tx) -> Identity:
            there = rows.get(tx, self._organization, identity_id)
            return rows.update(tx, there, {"properties": merged((), properties)}, now, self._user)

        return await self._world.database.transact(write)

    async def delete(self, identity_id: IdentityId) -> None:
        """Deletes the identity; its agents and blocks stay. Raises NotFound."""
        await self._world.database.transact(lambda tx: rows.delete(tx, self._organization, identity_id))

    # --- links ---------------------------------------------------------------------------------------------------

    async def attach_to_agent(self, agent_id: AgentId, identity_id: IdentityId) -> None:
        """Links them, if they are not linked. Raises NotFound."""
        await self._change_agent(agent_id, identity_id, attach=True)

    async def detach_from_agent(self, agent_id: AgentId, identity_id: IdentityId) -> None:
        """Unlinks them, if they are linked. Raises NotFound when there is no such agent or identity."""
        await self._change_agent(agent_id, identity_id, attach=False)

    async def attach_to_block(self, block_id: BlockId, identity_id: IdentityId) -> Block:
        """Links them, if they are not linked, and returns the block. Raises NotFound."""
        return await self._change_block(block_id, identity_id, attach=True)

    async def detach_from_block(self, block_id: BlockId, identity_id: IdentityId) -> Block:
        """Unlinks them, if they are linked, and returns the block. Raises NotFound when one of them does not exist."""
        return await self._change_block(block_id, identity_id, attach=False)

    async def _change_agent(self, agent_id: AgentId, identity_id: IdentityId, *, attach: bool) -> None:
        def write(tx: Tx) -> None:
            row_ownership.agent(tx, self._organization, agent_id)
            rows.require(tx, self._organization, identity_id)
            rows.of_agents.change(tx, agent_id, identity_id, attach=attach)

        await self._world.database.transact(write)

    async def _change_block(self, block_id: BlockId, identity_id: IdentityId, *, attach: bool) -> Block:
        def write(tx: Tx) -> Block:
            row_ownership.block(tx, self._organization, block_id)
            rows.require(tx, self._organization, identity_id)
            rows.of_blocks.change(tx, block_id, identity_id, attach=attach)
            return blocks.get(tx, block_id)

        return await self._world.database.transact(write)

    async def page(self, query: IdentityQuery) -> list[Identity]:
        """Raises NotFound for an unknown cursor, and InvalidInput for an invalid page."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, query))


def _columns(there: Identity, changes: IdentityChanges) -> dict[str, Any]:
    """The columns a change sets."""
    given: dict[str, Any] = {"identifier_key": changes.identifier_key, "name": changes.name}
    columns = {name: value for name, value in given.items() if value is not None}
    if changes.identity_type is not None:
        columns["identity_type"] = changes.identity_type.value
    if changes.properties is not None:
        columns["properties"] = merged(there.properties, changes.properties)
    return columns
