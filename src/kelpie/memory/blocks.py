"""Blocks API: memory blocks as clients read and change them.

Clients are not bound by a block's limit or by `read_only`; those are promises about what the agent itself may write,
and so they bind the code of its tools. After every change the agents with the block reload, so that no prompt
keeps an old value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import EVERYTHING, AgentView
from kelpie.core.errors import Forbidden, InvalidInput, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, BlockId, OrganizationId
from kelpie.core.memory.block_history import Change, author_of
from kelpie.core.memory.blocks import DEFAULT_LIMIT, DEFAULT_RULES, Block, BlockQuery, BlockRules, NewBlock
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.memory.text_edits import cleaned
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.agents import groups
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks as rows
from kelpie.storage.views import agents as agent_views
from kelpie.world.database import Tx
from kelpie.world.world import World

LABEL_CHARS_MAX = 500
ALL = BlockQuery(show_hidden=True)

_STOCK_DESCRIPTIONS = {
    "human": "What you know about the user: name, preferences and facts that help you give personal answers.",
    "persona": "Who you are: your personality, your style and how you should behave. Act accordingly.",
}
_FIELDS = tuple(field.name for field in fields(NewBlock))


def make(
    new: NewBlock,
    block_id: BlockId,
    now: Micros,
    by: str | None = None,
    organization: OrganizationId = DEFAULT_ORGANIZATION,
    *,
    limit: int = DEFAULT_LIMIT,
) -> Block:
    """The block that was described, ready to be stored; well-known labels get a description if they have none.

    `limit` is for a block that names none. Raises InvalidInput for a label or a limit that cannot be.
    """
    given = {name: getattr(new, name) for name in _FIELDS} | {"limit": limit if new.limit is None else new.limit}
    return Block(
        id=block_id,
        created_at=now,
        updated_at=now,
        organization_id=organization,
        created_by_id=by,
        last_updated_by_id=by,
        **_checked(given | {"description": new.description or _STOCK_DESCRIPTIONS.get(new.label)}),
    )


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values for a block's fields, fit to be stored. Raises InvalidInput naming the field."""
    values: dict[str, Any] = {name: cleaned(v) if isinstance(v, str) else v for name, v in given.items()}
    label = values.get("label")
    if label is not None and not 0 < len(label) <= LABEL_CHARS_MAX:
        raise InvalidInput("label", f"must have 1 to {LABEL_CHARS_MAX} characters")
    if values.get("limit") is not None and values["limit"] < 0:
        raise InvalidInput("limit", "must not be negative")
    if values.get("tags") is not None:
        values["tags"] = tuple(sorted({cleaned(tag) for tag in values["tags"]}))
    return values


def _check_as_agent(block: Block, changes: Mapping[str, Any]) -> None:
    """The code of a tool is bound as its agent is. Raises Forbidden, InvalidInput."""
    if others := sorted(set(changes) - {"value"}):
        raise Forbidden(f"Tool code may only change the value of a block, not its {', '.join(others)}.")
    if block.read_only:
        raise Forbidden(f"The block '{block.label}' is read-only.")
    if len(changes.get("value") or "") > block.limit:
        raise InvalidInput("value", f"exceeds the limit of {block.limit} characters of the block '{block.label}'")


class Blocks:
    """Blocks of the caller's organization. `reload_agents` is called after the commit."""

    def __init__(
        self,
        world: World,
        reload_agents: Callable[[Iterable[AgentId]], None],
        rules: BlockRules = DEFAULT_RULES,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._reload_agents = reload_agents
        self._rules = rules
        self._author = author_of(caller)
        self._as_agent = caller.passport is not None
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def create(self, new: NewBlock) -> Block:
        """Makes a block that no agent carries yet. Raises InvalidInput."""
        block_id, now = self._world.ids.new(BlockId), self._world.clock.now()
        block = make(new, block_id, now, self._user, self._organization, limit=self._rules.limit)
        return await self._world.database.transact(lambda tx: self._create(tx, (block,))[0])

    async def create_many(self, new: Sequence[NewBlock]) -> list[Block]:
        """Makes blocks, all or none, in the order given. Raises InvalidInput."""
        now = self._world.clock.now()
        made = [  # a microsecond apart, so that they are listed in their order
            make(one, self._world.ids.new(BlockId), now + i, self._user, self._organization, limit=self._rules.limit)
            for i, one in enumerate(new)
        ]
        return await self._world.database.transact(lambda tx: self._create(tx, made))

    async def get(self, block_id: BlockId) -> Block:
        """Raises NotFound, or Damaged."""
        return await self._world.database.read(lambda tx: rows.require_whole(rows.get(tx, self._ours(tx, block_id))))

    async def count(self, query: BlockQuery = ALL) -> int:
        """Number of blocks that match, on all pages together."""
        return await self._world.database.read(lambda tx: rows.count(tx, self._organization, query))

    async def update(self, block_id: BlockId, changes: Mapping[str, Any]) -> Block:
        """Changes fields by name; what is equal already changes nothing. Raises NotFound, Conflict, InvalidInput."""
        return await self._update(lambda tx: self._ours(tx, block_id), changes)

    async def update_by_label(self, agent_id: AgentId, label: str, changes: Mapping[str, Any]) -> Block:
        """Changes the block of this label that the agent carries. Raises NotFound, Conflict, InvalidInput."""

        def which(tx: Tx) -> BlockId:
            block = self._labelled(tx, agent_id, label)
            if self._as_agent:
                _check_as_agent(block, changes)
            return block.id

        return await self._update(which, changes)

    async def edit_by_label(self, agent_id: AgentId, label: str, edit: Callable[[str], str]) -> Block:
        """Changes the value of the agent's block with a pure function of it, so that no other change is lost.

        Raises NotFound, Conflict, InvalidInput, and what the function raises.
        """
        change = Change(self._author, self._world.clock.now(), self._rules.versions_kept)

        def write(tx: Tx) -> tuple[Block, Sequence[AgentId]]:
            block = rows.require_whole(self._labelled(tx, agent_id, label))
            values = _checked({"value": edit(block.value)})
            if self._as_agent:
                _check_as_agent(block, values)
            changed, _, affected = rows.update(tx, block.id, values, change)
            return changed, affected

        block, affected = await self._world.database.transact(write)
        self._reload_agents(affected)
        return block

    async def _update(self, which: Callable[[Tx], BlockId], changes: Mapping[str, Any]) -> Block:
        values = _checked(changes)
        change = Change(self._author, self._world.clock.now(), self._rules.versions_kept)
        block, _, affected = await self._world.database.transact(lambda tx: rows.update(tx, which(tx), values, change))
        self._reload_agents(affected)
        return block

    async def delete(self, block_id: BlockId) -> None:
        """Removes the block from everywhere. Raises NotFound."""
        self._reload_agents(await self._world.database.transact(lambda tx: rows.delete(tx, self._ours(tx, block_id))))

    async def agents_of(self, block_id: BlockId, page: Page) -> list[AgentId]:
        """The agents that carry the block; none for an unknown block."""
        return await self._world.database.read(
            lambda tx: block_attachments.agents_page(tx, self._organization, block_id, page)
        )

    async def of_agent(self, agent_id: AgentId) -> list[Block]:
        """The agent's blocks, oldest first. Raises NotFound for an unknown agent."""
        return await self._world.database.read(lambda tx: block_attachments.of_agent(tx, self._our_agent(tx, agent_id)))

    async def of_agent_by_label(self, agent_id: AgentId, label: str) -> Block:
        """Raises NotFound, or Damaged."""
        return await self._world.database.read(lambda tx: rows.require_whole(self._labelled(tx, agent_id, label)))

    async def attach(self, agent_id: AgentId, block_id: BlockId) -> AgentView:
        """Attaches the block to the agent and returns the agent.

        Raises NotFound, or Conflict when it has another block of that label. Its companion shares it.
        """

        def change(tx: Tx) -> tuple[AgentId, ...]:
            block_attachments.attach(tx, self._our_agent(tx, agent_id), self._ours(tx, block_id))
            return block_attachments.share(tx, block_id, groups.companions_of(tx, agent_id))

        return await self._change(agent_id, change)

    async def detach(self, agent_id: AgentId, block_id: BlockId) -> AgentView:
        """Detaches the block and returns the agent. Raises NotFound when the agent does not have it."""

        def change(tx: Tx) -> tuple[AgentId, ...]:
            block_attachments.detach(tx, self._our_agent(tx, agent_id), block_id)
            return ()

        return await self._change(agent_id, change)

    async def _change(self, agent_id: AgentId, change: Callable[[Tx], tuple[AgentId, ...]]) -> AgentView:
        """Commits a change, then makes the agent and the others it returns reload."""
        now = self._world.clock.now()

        def write(tx: Tx) -> tuple[AgentView, tuple[AgentId, ...]]:
            others = change(tx)
            agent_rows.touch(tx, agent_id, now)
            return agent_views.one(tx, agent_id, EVERYTHING, self._world.keyring), others

        view, others = await self._world.database.transact(write)
        self._reload_agents((agent_id, *others))
        return view

    def _ours(self, tx: Tx, block_id: BlockId) -> BlockId:
        row_ownership.block(tx, self._organization, block_id)
        return block_id

    def _our_agent(self, tx: Tx, agent_id: AgentId) -> AgentId:
        row_ownership.agent(tx, self._organization, agent_id)
        return agent_id

    def _labelled(self, tx: Tx, agent_id: AgentId, label: str) -> Block:
        block = block_attachments.by_label(tx, self._our_agent(tx, agent_id), label)
        if block is None:
            raise NotFound("Block", label)
        return block

    def _create(self, tx: Tx, made: Sequence[Block]) -> list[Block]:
        rows.insert(tx, made, self._author)
        return [replace(block, tags=tuple(sorted(set(block.tags)))) for block in made]

    async def page(self, query: BlockQuery) -> list[Block]:
        """Raises InvalidInput for a page that cannot be."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, query))
