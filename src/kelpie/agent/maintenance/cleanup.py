"""Cleanup of old rows in the background, in small transactions, so that turns can write in between.
No client waits for it."""

import asyncio
from functools import partial

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.agent.maintenance.staged_agents import StagedAgents
from kelpie.core.conversations.batches import KEPT
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.observe import logs
from kelpie.search import scope_removal
from kelpie.search.text import segment_queue
from kelpie.storage.agents import agents
from kelpie.storage.agents import removal as agent_removal
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.conversations import client_turns
from kelpie.storage.files import removal as file_removal
from kelpie.storage.memory import working_memory
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.storage.runs import batches, journal_keys, tool_calls
from kelpie.storage.runs import events as run_events
from kelpie.world.lazy_imports import lazily
from kelpie.world.long_writes import write_all, write_piece
from kelpie.world.world import World

with lazily:
    from kelpie.search.text import segment_merge as _segment_merge  # it needs numpy

PRUNE_EVERY_S = 600.0
PRUNE_PIECE = 500  # turns: about 10 ms
WORKSPACES_PIECE = 500
WORKSPACES_MEASURED = 50  # in one round
BY_HAND_KEPT = 30 * 24 * 3600 * MICROS_PER_SECOND  # the record of tool calls that belong to no run
CLIENT_TURNS_KEPT = 30 * 24 * 3600 * MICROS_PER_SECOND  # as long as OpenAI keeps a response
IN_DOUBT = 24 * 3600 * MICROS_PER_SECOND  # a commit whose outcome is unknown has been looked up long before

_log = logs.get("app")


class Cleanup:
    def __init__(
        self,
        world: World,
        stream_kept_s: float,
        piece_size: PieceSize,
        disk: DiskUsage,
        staged: StagedAgents | None = None,
    ) -> None:
        self._world = world
        self._staged = staged or StagedAgents()
        self._piece_size = piece_size
        self._disk = disk
        self._stream_kept_s = stream_kept_s
        self._pruned_s: float | None = None

    async def clean_up(self) -> None:
        """Deletes what removed archives, folders, files and agents, old streams, old turns and lapsed entries have
        left, and puts the text index in order.

        Raises StorageError.
        """
        database, rows = self._world.database, self._piece_size.rows
        await write_all(database, archive_removal.needs_cleanup, partial(archive_removal.clean_up, rows=rows))
        await write_all(
            database,
            lambda tx: agent_removal.needs_cleanup(tx, self._staged.ids),
            lambda tx: agent_removal.clean_up(tx, rows, self._staged.ids),
        )
        await write_all(database, file_removal.needs_cleanup, partial(file_removal.clean_up, rows=rows))
        await write_all(database, scope_removal.needs_cleanup, partial(scope_removal.clean_up, rows=rows))
        await self._put_in_order()
        await self._drop_lapsed()
        await self._drop_streams()
        try:
            await self._drop_workspaces()
        except OSError as error:  # files that cannot be removed keep nothing else from being done
            _log.warning(
                "workspace_cleanup_failed", "Workspaces of deleted agents could not be removed", error=str(error)
            )
        now_s = asyncio.get_running_loop().time()
        if self._pruned_s is None or now_s - self._pruned_s >= PRUNE_EVERY_S:
            await self._prune_journal()
            await self._prune_calls()
            await self._prune_client_turns()
            await self._prune_batches()
            self._pruned_s = now_s

    async def _put_in_order(self) -> None:
        """The text index, scope by scope: so much as is to be done, in pieces."""
        database = self._world.database
        while (found := await database.read(segment_queue.next_scope)) is not None:
            kind, scope = found
            while await write_piece(database, partial(_segment_merge.seal, kind=kind, scope=scope)):
                pass
            while (merged := await database.read(partial(_segment_merge.merge, kind=kind, scope=scope))) is not None:
                await write_piece(database, partial(_segment_merge.replace, merged=merged))
            await database.transact(partial(segment_queue.done, kind=kind, scope=scope))

    async def _drop_lapsed(self) -> None:
        database, now = self._world.database, self._world.clock.now()
        await write_all(
            database, partial(working_memory.needs_cleanup, now=now), partial(working_memory.clean_up, now=now)
        )

    async def _drop_streams(self) -> None:
        database, before = self._world.database, self._world.clock.now() - int(self._stream_kept_s * MICROS_PER_SECOND)
        await write_all(
            database, partial(run_events.needs_cleanup, before=before), partial(run_events.clean_up, before=before)
        )

    async def _drop_workspaces(self) -> None:
        """Files are no part of the commit that deletes their agent, so they are looked for afterwards."""
        workspaces = self._world.workspaces
        names = await workspaces.names() if workspaces is not None else []
        for at in range(0, len(names), WORKSPACES_PIECE):
            piece = names[at : at + WORKSPACES_PIECE]
            there = await self._world.database.read(partial(agents.existing, ids=piece))
            for agent_id in piece:
                if workspaces is not None and agent_id not in there:
                    await workspaces.remove(agent_id)
        if workspaces is not None:
            unmeasured = self._disk.unmeasured(names, WORKSPACES_MEASURED)
            owners = await self._world.database.read(partial(agents.owners, ids=unmeasured)) if unmeasured else {}
            for agent_id, organization in owners.items():
                self._disk.measured(organization, agent_id, (await workspaces.size(agent_id)).bytes)

    async def _prune_journal(self) -> None:
        database, before = self._world.database, self._world.clock.now() - IN_DOUBT
        while old := await database.read(lambda tx: journal_keys.old_turns(tx, before, PRUNE_PIECE)):
            await write_piece(database, partial(journal_keys.remove, turns=old))

    async def _prune_client_turns(self) -> None:
        """Their conversations stay; only a client that comes back after so long begins a new one."""
        database, before = self._world.database, self._world.clock.now() - CLIENT_TURNS_KEPT
        await write_all(
            database, partial(client_turns.needs_cleanup, before=before), partial(client_turns.clean_up, before=before)
        )

    async def _prune_batches(self) -> None:
        """Their runs and messages stay."""
        database, before = self._world.database, self._world.clock.now() - KEPT
        await write_all(
            database, partial(batches.needs_cleanup, before=before), partial(batches.clean_up, before=before)
        )

    async def _prune_calls(self) -> None:
        """The calls of a run go with it; these were made by hand."""
        database, before = self._world.database, self._world.clock.now() - BY_HAND_KEPT
        await write_all(
            database,
            partial(tool_calls.has_manual_calls, until=before),
            partial(tool_calls.delete_manual_calls, until=before, most=PRUNE_PIECE),
        )
