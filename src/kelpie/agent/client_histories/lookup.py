"""Lookup of the conversation that a client's history belongs to, by its fingerprint.

Only what was asked is stored, before it is sent. The answer that followed is read from the history of the agent, so a
client that left, or a server that crashed, before the answer was delivered makes no difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.core.conversations.client_histories import ClientAnswer, ClientMessage, ClientTurn, answer_of, is_said
from kelpie.core.conversations.messages import Message
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus
from kelpie.core.errors import NotFound
from kelpie.core.ids import MessageId, RunId
from kelpie.storage.conversations import approvals, client_turns, contexts, conversations, messages
from kelpie.storage.runs import client_ids, runs
from kelpie.world.database import Tx

BOUNDARIES_MAX = 64  # answers in a history, from its end, that are looked for
CANDIDATES_MAX = 256  # turns that are looked through for one request
RUNS_MAX = 8  # of one turn, which has several only if some failed
ANSWERS_MAX = 20  # messages with results of tools that are looked through


@dataclass(frozen=True, slots=True)
class AnsweredTurn:
    """A turn of a client, with the run that answered it. `last` is the last message that the run wrote."""

    turn: ClientTurn
    run: Run
    rows: tuple[Message, ...]
    answer: ClientAnswer

    @property
    def last(self) -> MessageId | None:
        return self.rows[-1].id if self.rows else None


@dataclass(frozen=True, slots=True)
class KnownHistory:
    """The longest beginning of a history that is known: so many messages of it, up to the answer of a turn."""

    length: int
    answered: AnsweredTurn


def run_of(tx: Tx, turn: ClientTurn) -> Run | None:
    """The newest run of a turn; None if it never began."""
    found = client_ids.newest(tx, turn.agent_id, turn.conversation, turn.id, RUNS_MAX)
    if not found and turn.call_id is not None and (answering := _answering_run(tx, turn)) is not None:
        found = [answering]
    for run_id in found:
        try:
            return runs.get(tx, run_id)
        except NotFound:  # its record was deleted
            continue
    return None


def _answering_run(tx: Tx, turn: ClientTurn) -> RunId | None:
    if turn.conversation:
        rows = messages.answering_in(tx, turn.conversation, ANSWERS_MAX)
    else:
        rows = messages.answering(tx, turn.agent_id, ANSWERS_MAX)
    return next((row.run_id for row in rows if any(one.call_id == turn.call_id for one in row.answers)), None)


def answered(tx: Tx, turn: ClientTurn) -> AnsweredTurn | None:
    """The turn with its answer; None while it runs, or if it never ran."""
    run = run_of(tx, turn)
    if run is None or run.status in UNFINISHED:
        return None
    rows = tuple(messages.of_run(tx, run.id))
    return AnsweredTurn(turn, run, rows, answer_of(rows))


def failed_halfway(tx: Tx, turn: ClientTurn) -> bool:
    """True if the turn failed after a part of it had been said: to repeat it there would say that part twice."""
    run = run_of(tx, turn)
    return run is not None and run.status is RunStatus.failed and messages.has_run(tx, run.id)


def known_histories(
    tx: Tx, turns: Sequence[ClientTurn], said: Sequence[ClientMessage], fingerprints: Sequence[str]
) -> list[KnownHistory]:
    """The beginnings of a history that are known, the longest first; of equal ones the newest first."""
    by_fingerprint: dict[str, list[ClientTurn]] = {}
    for turn in turns:
        by_fingerprint.setdefault(turn.fingerprint, []).append(turn)
    found: list[KnownHistory] = []
    for at in boundaries(said):
        for turn in by_fingerprint.get(fingerprints[at - 1], ()):
            if turn.conversation and not conversations.is_live(tx, turn.conversation):
                continue
            known = answered(tx, turn)
            if known is not None and known.rows and is_said(known.answer, said[at - 1]):
                found.append(KnownHistory(at, known))
    return found


def boundaries(said: Sequence[ClientMessage]) -> list[int]:
    """The lengths of the beginnings that end with an answer, the longest first."""
    ends = [at for at in range(len(said), 0, -1) if said[at - 1].role == "assistant"]
    return ends[:BOUNDARIES_MAX]


def find_turns(tx: Tx, turn_agent: ClientTurn, fingerprints: Sequence[str]) -> list[ClientTurn]:
    """The turns with these fingerprints, the newest first."""
    return client_turns.by_fingerprints(tx, turn_agent.agent_id, fingerprints, CANDIDATES_MAX)


def is_head(tx: Tx, known: AnsweredTurn) -> bool:
    """True if nothing was said in the conversation since this answer."""
    seen = contexts.ids(tx, known.turn.agent_id, known.turn.conversation)
    return bool(seen) and seen[-1] == known.last


def awaits_client(tx: Tx, known: AnsweredTurn) -> bool:
    """True if the conversation still waits for the results of this answer's calls."""
    pending = approvals.get(tx, known.turn.agent_id, known.turn.conversation)
    return pending is not None and any(row.id == pending.request for row in known.rows)
