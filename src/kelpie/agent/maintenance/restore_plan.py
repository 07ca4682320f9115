"""Plan of a restore: a checkpoint that has been checked from end to end, and the pieces that write it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from kelpie.agent.journal.history_repair import repair
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.memory.block_history import Author, AuthorKind, Change
from kelpie.core.memory.blocks import Block
from kelpie.core.memory.checkpoints import Memory, RestoreResult
from kelpie.core.memory.working_memory import WorkingMemoryEntry
from kelpie.storage.agents import agents
from kelpie.storage.checkpoints import archive as checkpoint_archive
from kelpie.storage.checkpoints import blocks as checkpoint_blocks
from kelpie.storage.checkpoints import facts as checkpoint_facts
from kelpie.storage.checkpoints import recall as checkpoint_recall
from kelpie.storage.checkpoints import working_memory as checkpoint_working_memory
from kelpie.storage.checkpoints.archive import ArchiveSection
from kelpie.storage.checkpoints.blocks import Target
from kelpie.storage.checkpoints.facts import FactsSection
from kelpie.storage.checkpoints.pieces import Piece, one
from kelpie.storage.checkpoints.recall import RecallSection
from kelpie.world.database import Tx


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A checkpoint that has been checked from end to end."""

    blocks: list[Block]
    archive: ArchiveSection | None
    entries: list[tuple[WorkingMemoryEntry, str]]
    recall: RecallSection
    learnt: FactsSection


def read_plan(memory: Memory, agent_id: AgentId) -> RestorePlan:
    """Raises InvalidInput that names the place of what is wrong."""
    return RestorePlan(
        checkpoint_blocks.read_all(memory),
        checkpoint_archive.read(memory),
        checkpoint_working_memory.read(memory),
        checkpoint_recall.read(memory, agent_id),
        checkpoint_facts.read(memory, agent_id),
    )


@dataclass(frozen=True, slots=True)
class PlannedWrites:
    """The writes of a restore in order, and its result once they are done."""

    result: RestoreResult
    pieces: Sequence[Piece]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


def plan_writes(tx: Tx, target: Target, wanted: RestorePlan) -> PlannedWrites:
    """The writes that make the memory what the checkpoint says. Raises InvalidInput, Conflict."""
    agent_id, at = target.agent_id, target.change.at
    left, blocks = checkpoint_blocks.pieces(tx, target, wanted.blocks)
    archives_left, passages, archive = checkpoint_archive.pieces(tx, target, wanted.archive)
    entries, lapsed, working_memory = checkpoint_working_memory.pieces(tx, agent_id, wanted.entries, at)
    recall = checkpoint_recall.pieces(tx, target, wanted.recall)
    learnt = checkpoint_facts.pieces(tx, agent_id, wanted.learnt)
    # A checkpoint of something broken must not break the agent.
    repairs = [one(partial(repair, agent_id=agent_id, conversation=each, at=at)) for each in wanted.recall.contexts]
    result = RestoreResult(
        blocks=len(wanted.blocks) - len(left),
        entries=entries,
        lapsed=lapsed,
        passages=passages,
        messages=len(wanted.recall.messages),
        conversations=len(wanted.recall.threads),
        facts=len(wanted.learnt.facts),
        left=(*left, *archives_left),
    )
    pieces = [*blocks, *archive, *working_memory, *recall, *learnt, *repairs]
    return PlannedWrites(result, [*pieces, one(partial(agents.bump, agent_id=agent_id))])


def run_all(tx: Tx, pieces: Sequence[Piece]) -> tuple[AgentId, ...]:
    """Runs the pieces in one transaction; returns the agents that must reload."""
    return tuple(dict.fromkeys(agent_id for piece in pieces for agent_id in piece.run(tx)))


def target_to_json(target: Target) -> dict[str, Any]:
    change = target.change
    return {
        "overwrite_shared": target.overwrite_shared,
        "by": asdict(change.by) | {"kind": change.by.kind.value},
        "at": change.at,
        "kept": change.kept,
    }


def target_from_json(agent_id: AgentId, organization: OrganizationId, data: Mapping[str, Any]) -> Target:
    by = Author(**{**data["by"], "kind": AuthorKind(data["by"]["kind"])})
    return Target(agent_id, organization, Change(by, data["at"], data["kept"]), data["overwrite_shared"])
