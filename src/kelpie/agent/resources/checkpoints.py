"""Checkpoints API: export an agent's whole memory as one document, and restore it.

A crash during a restore leaves the memory as it was before or as the checkpoint has it: a small restore is one
transaction, a large one is decided by one (`maintenance.memory_changes`). Neither happens
while the agent is at work, because half a turn is no memory. What other agents share is left as it is unless the caller
says otherwise, and is reported.
"""

from functools import partial

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.maintenance.memory_changes import MemoryChanges
from kelpie.agent.maintenance.restore_plan import RestorePlan, plan_writes, read_plan, run_all
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.memory import checkpoint_pieces
from kelpie.core.memory.block_history import Change, author_of
from kelpie.core.memory.checkpoint_pieces import joined
from kelpie.core.memory.checkpoints import FIELD, Memory, RestoreResult, seal, sections
from kelpie.core.settings.settings import Settings
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.checkpoints import archive as checkpoint_archive
from kelpie.storage.checkpoints import authors as checkpoint_authors
from kelpie.storage.checkpoints import blocks as checkpoint_blocks
from kelpie.storage.checkpoints import facts as checkpoint_facts
from kelpie.storage.checkpoints import recall as checkpoint_recall
from kelpie.storage.checkpoints import working_memory as checkpoint_working_memory
from kelpie.storage.checkpoints.blocks import Target
from kelpie.storage.runs import unfinished
from kelpie.world.database import Tx
from kelpie.world.files.uploads import Upload
from kelpie.world.workers.port import WorkerFailed, WorkerProgram
from kelpie.world.world import World

READING_CPU_S = 30  # limits of the process that reads a document
READING_WALL_S = 300.0
READING_BYTES = 512 * 1024 * 1024  # besides the document itself, a few times


class Checkpoints:
    """Memory of the agents of the caller's organization."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        underway: ActiveTurns,
        live_agents: LiveAgents,
        memory_changes: MemoryChanges,
        quotas: Quotas,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._settings = settings
        self._underway = underway
        self._live_agents = live_agents
        self._memory_changes = memory_changes
        self._quotas = quotas
        self._author = author_of(caller)
        self._organization = caller.organization_id
        self._user = caller.user_id

    async def take(self, agent_id: AgentId) -> bytes:
        """The document. Raises NotFound, and Conflict while the agent works or when its memory is too large."""
        now, bytes_max = self._world.clock.now(), self._settings.upload_bytes_max

        def read(tx: Tx) -> bytes:
            row_ownership.agent(tx, self._organization, agent_id)
            self._require_idle(tx, agent_id)
            _require_small(checkpoint_recall.size(tx, agent_id) + checkpoint_archive.size(tx, agent_id), bytes_max)
            memory: Memory = {
                "blocks": checkpoint_blocks.take_all(tx, agent_id),
                "working_memory": checkpoint_working_memory.take(tx, agent_id, now),
                "archive": checkpoint_archive.take(tx, agent_id),
                **checkpoint_recall.take(tx, agent_id),
                **checkpoint_facts.take(tx, agent_id),
            }
            document = seal(agent_id, agents.get(tx, agent_id).name, now, memory)
            _require_small(len(document), bytes_max)
            return document

        return await self._world.database.read(read)

    async def restore(self, agent_id: AgentId, upload: Upload, *, overwrite_shared: bool = False) -> RestoreResult:
        """Replaces the memory by that of the document, all of it or nothing.

        Raises NotFound, InvalidInput for a document that is broken or of another agent, and Conflict while the agent
        works or when something else has taken a label or an id.
        """
        now = self._world.clock.now()
        change = Change(self._author, now, self._settings.block_rules.versions_kept)
        target = Target(agent_id, self._organization, change, overwrite_shared)

        await self._world.database.read(lambda tx: row_ownership.agent(tx, self._organization, agent_id))
        answered = await self._pieces(upload)

        def read(tx: Tx) -> tuple[RestorePlan, int]:  # checked where reads run, so that no writer waits for a large one
            row_ownership.agent(tx, self._organization, agent_id)
            self._require_idle(tx, agent_id)
            memory = sections(joined(answered), agent_id)
            checkpoint_authors.replace_foreign(tx, memory, self._organization, self._user)
            wanted = read_plan(memory, agent_id)
            return wanted, plan_writes(tx, target, wanted).rows

        wanted, rows = await self._world.database.read(read)
        if self._memory_changes.is_long(rows):
            check = partial(self._check_long, agent_id=agent_id, size=len(answered))
            return await self._memory_changes.restore(target, answered, self._user, check)

        def write(tx: Tx) -> tuple[RestoreResult, tuple[AgentId, ...]]:
            self._check(tx, agent_id)
            planned = plan_writes(tx, target, wanted)
            return planned.result, run_all(tx, planned.pieces)

        restored, others = await self._world.database.transact(write)
        self._live_agents.reload((agent_id, *others))
        self._live_agents.forget_context((agent_id,))
        return restored

    async def _pieces(self, upload: Upload) -> bytes:
        """The document in pieces, read by a worker process: parsing it here would hold up every other request."""
        bytes_max = self._settings.upload_bytes_max
        program = WorkerProgram(
            checkpoint_pieces.__name__,
            cpu_s=READING_CPU_S,
            wall_s=READING_WALL_S,
            memory_bytes=READING_BYTES + 6 * bytes_max,
            answer_bytes_max=2 * bytes_max + READING_BYTES,
        )
        try:
            return await self._world.workers.ask(program, upload, self._organization)
        except WorkerFailed as failure:
            raise InvalidInput(FIELD, f"cannot be read: {failure}; it may be too large or nested too deeply") from None

    def _check_long(self, tx: Tx, agent_id: AgentId, size: int) -> None:
        """Also requires room for the whole document: nobody looks at the quota between the pieces."""
        self._check(tx, agent_id)
        self._quotas.require_room(tx, self._organization, size)

    def _check(self, tx: Tx, agent_id: AgentId) -> None:
        row_ownership.agent(tx, self._organization, agent_id)
        self._require_idle(tx, agent_id)

    def _require_idle(self, tx: Tx, agent_id: AgentId) -> None:
        """Raises Conflict while a turn is under way or waits for its lane."""
        here = [work.run_id for work in self._underway.of(agent_id)]
        if running := here or [left.run.id for left in unfinished.unfinished_of(tx, agent_id)]:
            raise Conflict(f"{agent_id} has an active run ({running[0]}). Wait until it ends, or cancel it.")


def _require_small(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise Conflict(
            f"The checkpoint has {size} bytes. It could not be restored, because an upload may have at most "
            f"{bytes_max} bytes. Raise KELPIE_UPLOAD_BYTES_MAX."
        )
