"""Journal of a turn: every commit moves the fence, takes the next number of the turn, and writes what happened.

A commit is one pure function over a transaction. What is returned was committed. A commit whose outcome is unknown is
looked up by its number instead of being written twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import CommitUnknown, StorageBusy, StorageError
from kelpie.core.time import Micros
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.ownership_fence import Claim
from kelpie.storage.runs import client_ids, journal_keys, runs
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Database, Tx

T = TypeVar("T")
ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """Position of a turn: its run so far, and the number of its next commit."""

    claim: Claim
    run: Run
    number: int = 0
    conversation: str = ""

    @property
    def rests_on_history(self) -> bool:
        """True if a step of the turn is in the history already; its first commit only opens it."""
        return self.number > 1

    def with_run(self, run: Run) -> "JournalPosition":
        """The same position with another state of its run."""
        return JournalPosition(self.claim, run, self.number, self.conversation)

    def after(self, run: Run) -> "JournalPosition":
        return JournalPosition(self.claim, run, self.number + 1, self.conversation)


async def commit(
    database: Database,
    position: JournalPosition,
    kind: str,
    at: Micros,
    body: Callable[[Tx], T],
    recall: Callable[[Tx], T],
) -> T:
    """Runs body as one numbered commit of the turn.

    A transient refusal is tried again a few times. An unknown outcome is looked up by its number, and if the commit is
    in, `recall` reads back what it did. Raises StorageError.
    """
    run = position.run

    def numbered(tx: Tx) -> T:
        ownership_fence.advance(tx, position.claim)
        journal_keys.add(tx, position.claim, run.id, position.number, kind, at)
        return body(tx)

    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return await database.transact(numbered)
        except StorageBusy:
            if attempt == ATTEMPTS_MAX:
                raise
        except CommitUnknown as unknown:
            try:
                if await database.read(lambda tx: journal_keys.has(tx, run.agent_id, run.id, position.number)):
                    return await database.read(recall)
            except StorageError as error:  # it stays unknown, and only that keeps a client from sending it again
                raise unknown from error
            if attempt == ATTEMPTS_MAX:
                raise
    raise AssertionError("unreachable: the loop returns or raises")


async def open_turn(
    database: Database, position: JournalPosition, loaded: AgentSnapshot, sent: RunInput, quotas: Quotas
) -> None:
    """The first commit of a turn: the run and its input, which is not history yet.

    Raises QuotaExceeded when the organization has no room for messages, and StorageError.
    """
    organization = loaded.agent.organization_id

    def body(tx: Tx) -> None:
        quotas.require_room(tx, organization)
        runs.open_run(tx, position.run, organization, sent, position.claim.node)
        if sent.otids:
            client_ids.add(tx, position.run.agent_id, position.run.id, sent.otids)

    await commit(database, position, "open", position.run.created_at, body, lambda tx: None)


async def open_queued(database: Database, position: JournalPosition, sent: RunInput) -> bool:
    """The first commit of a turn whose run was queued. False when the run has ended in the meantime."""
    claim, run = position.claim, position.run

    def body(tx: Tx) -> bool:
        if sent.request is not None or sent.earlier:  # answers, which were matched with what waits only now
            runs.replace_input(tx, run.id, sent)
        return runs.claim(tx, run.id, claim.node)

    return await commit(database, position, "open", run.created_at, body, lambda tx: True)
