"""Changes of memory that are too long for one transaction: large restores, and the deletion of large histories.

What is wanted is stored first, in parts. One small transaction then decides: before it nothing has changed, after it
the change is completed, also after a crash. In between the agent cannot work, and the clients of its organization wait,
so that everybody sees all of the old memory or all of the new one. Other organizations write between the pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kelpie.accounts.quotas.organization_database import MemoryGate
from kelpie.agent.definition import first_messages, loaded_agent
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.core.conversations.messages import Message
from kelpie.core.errors import CallerError, CommitUnknown, Conflict, KelpieError, NotFound, StorageError
from kelpie.core.ids import AgentId, ConversationId, OrganizationId, UserId
from kelpie.core.memory.checkpoint_pieces import joined
from kelpie.core.memory.checkpoints import RestoreResult, sections
from kelpie.core.time import Micros
from kelpie.observe import logs
from kelpie.storage.agents import agents, ownership_fence
from kelpie.storage.checkpoints import changes
from kelpie.storage.checkpoints.changes import PART_BYTES, MemoryChange
from kelpie.storage.conversations import conversations, messages
from kelpie.storage.conversations.message_rows import message_from_json, message_to_json
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.world.database import Tx
from kelpie.world.lazy_imports import lazily
from kelpie.world.long_writes import write_piece
from kelpie.world.world import World

with lazily:
    from kelpie.agent.maintenance import restore_plan as _restore_plan
    from kelpie.storage.checkpoints import authors as _authors
    from kelpie.storage.checkpoints import pieces as _pieces
    from kelpie.storage.checkpoints import recall as _recall

if TYPE_CHECKING:
    from kelpie.storage.checkpoints.blocks import Target

RETRIES_S = (0.2, 0.5, 1.0, 2.0)

_log = logs.get("app")

Check = Callable[[Tx], None]


class MemoryChanges:
    """The changes of this server that take several transactions."""

    def __init__(
        self,
        world: World,
        gate: MemoryGate,
        live_agents: LiveAgents,
        release: Callable[[str, str], Awaitable[None]],
        piece_size: PieceSize,
    ) -> None:
        self._piece_size = piece_size
        self._world = world
        self._database = world.database
        self._gate = gate
        self._live_agents = live_agents
        self._release = release
        self._working: dict[AgentId, asyncio.Task[Any]] = {}
        self._completing = asyncio.Lock()
        self._failed: Callable[[], None] = _ignore

    def when_unfinished(self, tell: Callable[[], None]) -> None:
        """Registers `tell` to be called when a change was cut off and `complete_all` has work to do."""
        self._failed = tell

    def is_long(self, rows: int) -> bool:
        """Checks whether a change of so many rows takes several transactions."""
        return rows > self._piece_size.rows

    # --- the two kinds -------------------------------------------------------------------------------------------

    async def restore(self, target: Target, document: bytes, user: UserId, check: Check) -> RestoreResult:
        """Replaces the memory by that of a document in pieces, which has been checked.

        `user` is put in place of authors of other organizations; `check` runs in the deciding transaction.

        Raises what `check` raises, Conflict, and StorageError; CommitUnknown when it goes on without the caller.
        """
        request = {"kind": "restore", "target": _restore_plan.target_to_json(target), "user": user}
        return await self._change(target.agent_id, target.organization, request, document, target.change.at, check)

    async def reset(
        self, agent_id: AgentId, organization: OrganizationId, first: Sequence[Message], at: Micros, check: Check
    ) -> None:
        """Deletes the history and begins it anew with these messages. Raises as `restore` does."""
        request = {"kind": "reset", "first": [message_to_json(each) for each in first]}
        await self._change(agent_id, organization, request, b"", at, check)

    # --- after a crash -------------------------------------------------------------------------------------------

    async def close_gates(self) -> None:
        """At the start: the clients of organizations with an unfinished change wait. Raises StorageError."""
        for change in await self._database.read(changes.every):
            if change.decided:
                self._gate.hold(change.organization, change.agent_id)

    async def complete_all(self) -> None:
        """Completes what was decided, and drops what was not. Raises StorageError."""
        async with self._completing:
            await self._complete_all()

    async def _complete_all(self) -> None:
        for change in await self._database.read(changes.every):
            if change.agent_id in self._working:
                continue
            if change.decided:
                _log.info("memory_change_resumed", "Resuming a change of memory", agent_id=change.agent_id)
                self._gate.hold(change.organization, change.agent_id)
                with suppress(CallerError):  # reported
                    await self._insist(change)
            await self._clear(change)
        self._gate.keep(self._working)

    async def _insist(self, change: MemoryChange) -> None:
        """Clients wait for it, so a failure is tried again soon. Raises StorageError after some attempts."""
        for wait_s in RETRIES_S:
            try:
                await self._apply(change)
                return
            except StorageError as error:
                _log.warning(
                    "memory_change_interrupted",
                    "A change of memory was interrupted; trying again",
                    agent_id=change.agent_id,
                    error=str(error),
                )
                await asyncio.sleep(wait_s)
        await self._apply(change)

    # --- one change ----------------------------------------------------------------------------------------------

    async def _change(
        self,
        agent_id: AgentId,
        organization: OrganizationId,
        request: dict[str, Any],
        document: bytes,
        at: Micros,
        check: Check,
    ) -> Any:
        if agent_id in self._working:
            raise Conflict(f"The memory of {agent_id} is being replaced by another request. Try again when it is done.")
        change = MemoryChange(agent_id, organization, False, request, at)
        task = asyncio.create_task(self._work(change, document, check))
        self._working[agent_id] = task
        task.add_done_callback(partial(self._done, agent_id))
        return await asyncio.shield(task)  # goes on if the caller does not

    def _done(self, agent_id: AgentId, task: asyncio.Task[Any]) -> None:
        self._working.pop(agent_id, None)
        if not task.cancelled():
            task.exception()  # retrieved: the caller may be gone

    async def _work(self, change: MemoryChange, document: bytes, check: Check) -> Any:
        agent_id, database = change.agent_id, self._database
        if not await database.transact(partial(changes.begin, change=change)):
            raise Conflict(f"The memory of {agent_id} is being replaced by another request. Try again when it is done.")
        try:
            for number, start in enumerate(range(0, len(document), PART_BYTES)):
                part = document[start : start + PART_BYTES]
                await write_piece(database, partial(changes.add_part, agent_id=agent_id, number=number, data=part))
        except KelpieError:
            await self._clear(change)
            raise
        self._gate.hold(change.organization, agent_id)
        try:
            await database.transact(partial(_decide, agent_id=agent_id, check=check))
        except CommitUnknown:  # the next round of maintenance finds out, and opens the gate
            self._failed()
            raise
        except KelpieError:
            await self._clear(change)
            raise
        try:
            result = await self._apply(change)
            await self._clear(change)
        except CallerError:
            await self._clear(change)
            raise
        except StorageError as error:
            self._failed()
            raise CommitUnknown(
                f"The memory of {agent_id} is being replaced. The database failed meanwhile; the server completes the "
                f"change by itself. {error}"
            ) from error
        return result

    async def _apply(self, change: MemoryChange) -> Any:
        """Writes piece by piece. Raises StorageError; then the gate stays closed, and it is tried again."""
        agent_id, database = change.agent_id, self._database
        await self._release(agent_id, "its memory is being replaced")
        try:
            planned = await database.read(partial(_planned, change=change))
            if planned is None:  # it is done, and the answer to the last commit was lost
                self._live_agents.forget_context((agent_id,))
                return None
            for piece in planned.pieces:
                await write_piece(database, piece.run, self._live_agents.reload)
        except NotFound:  # deleted meanwhile
            return None
        except CallerError as error:  # an id was taken by another organization since it was decided
            _log.error(
                "memory_change_failed",
                "A change of memory could not be completed",
                agent_id=agent_id,
                error=str(error),
            )
            await database.transact(partial(changes.settle, agent_id=agent_id))
            raise
        except (StorageError, asyncio.CancelledError):  # perhaps stored, and the next attempt does not write it again
            self._live_agents.reload_all()
            raise
        finally:
            self._live_agents.reload((agent_id,))
        await database.transact(partial(changes.settle, agent_id=agent_id))
        self._live_agents.forget_context((agent_id,))
        return planned.result

    async def _clear(self, change: MemoryChange) -> None:
        """Opens the gate and deletes the document. What fails here is dropped in the next round."""
        self._gate.release(change.organization, change.agent_id)
        try:
            while not await write_piece(self._database, partial(changes.drop_parts, agent_id=change.agent_id)):
                pass
            await self._database.transact(partial(changes.end, agent_id=change.agent_id))
        except StorageError as error:
            _log.warning(
                "memory_change_kept",
                "The document of a change of memory could not be deleted; trying again later",
                agent_id=change.agent_id,
                error=str(error),
            )


def _ignore() -> None:
    """Default when nobody completes what was cut off."""


def _decide(tx: Tx, agent_id: AgentId, check: Check) -> None:
    check(tx)
    if not changes.decide(tx, agent_id):
        raise NotFound("Agent", agent_id)
    ownership_fence.end_claims(tx, agent_id)


def _planned(tx: Tx, change: MemoryChange) -> _restore_plan.PlannedWrites | None:
    """The writes that are still to be done; None when the change is done: beginning it again would take the memory
    apart, and nobody would complete it after a crash. Raises NotFound when the agent is gone."""
    agent_id, request = change.agent_id, change.request
    agents.require(tx, agent_id)
    if not changes.is_decided(tx, agent_id):
        return None
    if request["kind"] == "restore":
        target = _restore_plan.target_from_json(agent_id, change.organization, request["target"])
        memory = sections(joined(changes.document(tx, agent_id)), agent_id)
        _authors.replace_foreign(tx, memory, change.organization, UserId(request["user"]))
        return _restore_plan.plan_writes(tx, target, _restore_plan.read_plan(memory, agent_id))
    first = [message_from_json(each) for each in request["first"]]
    begin = _pieces.one(partial(begin_history, agent_id=agent_id, first=first))
    others = _pieces.each_part(
        conversations.live_of_agent(tx, agent_id),
        _recall.WRITTEN,
        lambda tx, some: begin_conversations(tx, agent_id, some, first),
    )
    return _restore_plan.PlannedWrites(RestoreResult(), [*_recall.history_pieces(tx, agent_id), begin, *others])


def begin_history(tx: Tx, agent_id: AgentId, first: Sequence[Message]) -> None:
    """Makes these the whole history of an agent; the caller begins its other conversations anew."""
    loaded = loaded_agent.load(tx, agents.get(tx, agent_id))
    messages.remove_all(tx, agent_id)
    first_messages.write(tx, loaded, tuple(first))


def begin_conversations(tx: Tx, agent_id: AgentId, emptied: Sequence[ConversationId], first: Sequence[Message]) -> None:
    """Gives conversations that were emptied with the agent's history their instructions again."""
    first_messages.write_instructions(tx, agents.get(tx, agent_id), emptied, first[0])
