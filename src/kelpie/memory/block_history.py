"""Block history API: the versions of a memory block, the difference between two, and rollback.

A rollback is a change like any other: it is atomic, every agent that sees the block reloads, and it becomes a
version of its own. People are not bound by `read_only` and limits here, as with every change from outside.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.ids import AgentId, BlockId
from kelpie.core.memory.block_history import BlockVersion, Change, author_of
from kelpie.core.memory.blocks import DEFAULT_RULES, Block, BlockRules
from kelpie.memory.diff import Hunk, hunks
from kelpie.storage.accounts import row_ownership
from kelpie.storage.blocks import blocks
from kelpie.storage.blocks import history as rows
from kelpie.world.database import Tx
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class Difference:
    before: BlockVersion
    after: BlockVersion
    hunks: Sequence[Hunk]


class BlockHistory:
    """Histories of the blocks of the caller's organization. `reload_agents` is called after the commit."""

    def __init__(
        self,
        world: World,
        reload_agents: Callable[[Iterable[AgentId]], None],
        rules: BlockRules = DEFAULT_RULES,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._reload_agents = reload_agents
        self._kept = rules.versions_kept
        self._caller = caller

    async def get(self, block_id: BlockId, version: int) -> BlockVersion:
        """One version with its value. Raises NotFound."""
        return await self._world.database.read(lambda tx: rows.get(tx, self._block(tx, block_id), version, self._kept))

    async def diff(self, block_id: BlockId, before: int | None, after: int | None) -> Difference:
        """Changes from one version to another; without them from the last but one to the last.

        Raises NotFound for a version that is not kept.
        """

        def read(tx: Tx) -> tuple[BlockVersion, BlockVersion]:
            block = self._block(tx, block_id)
            end = after or block.version
            start = before or max(1, end - 1)
            return rows.get(tx, block, start, self._kept), rows.get(tx, block, end, self._kept)

        old, new = await self._world.database.read(read)
        return Difference(old, new, hunks(old.value, new.value))

    async def rollback(self, block_id: BlockId, version: int, expected: int | None = None) -> Block:
        """Gives the block the value that it had in a version; all else of it stays.

        Raises NotFound, or Conflict when the block is not of the version that is expected.
        """
        change = Change(author_of(self._caller), self._world.clock.now(), self._kept, restores=version)

        def write(tx: Tx) -> tuple[Block, tuple[AgentId, ...]]:
            old = rows.get(tx, self._block(tx, block_id, lock=True), version, self._kept)
            block, _, affected = blocks.update(tx, block_id, {"value": old.value}, change, expected=expected)
            return block, affected

        block, affected = await self._world.database.transact(write)
        self._reload_agents(affected)
        return block

    def _block(self, tx: Tx, block_id: BlockId, *, lock: bool = False) -> Block:
        row_ownership.block(tx, self._caller.organization_id, block_id)
        return blocks.get(tx, block_id, lock=lock)

    async def page(self, block_id: BlockId, before: int | None, limit: int) -> list[BlockVersion]:
        """The versions that are kept, the newest first, without their values. Raises NotFound."""
        return await self._world.database.read(
            lambda tx: rows.select(tx, self._block(tx, block_id), self._kept, before, limit)
        )
