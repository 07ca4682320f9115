"""Messages: the whole history. `contexts` selects the part that the model sees."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Select,
    asc,
    bindparam,
    delete,
    desc,
    func,
    insert,
    select,
    update,
)

from kelpie.core.conversations.messages import Message, MessageQuery, Part, Role
from kelpie.core.errors import Damaged, NotFound
from kelpie.core.ids import DEFAULT_CONVERSATION, AgentId, MessageId, RunId, StepId
from kelpie.core.paging import Page
from kelpie.search import items
from kelpie.search.text import fulltext
from kelpie.storage.conversations import contexts, fact_progress
from kelpie.storage.conversations.message_rows import from_row, rewritten, to_row
from kelpie.storage.rows.row_bytes import within_bytes
from kelpie.storage.tables import messages
from kelpie.world.database import Tx

SEARCHABLE = frozenset({Role.user, Role.assistant, Role.summary})
_ID_CHUNK = 500  # ids per IN list


_INSERT = insert(messages)
_LAST_SEQ = select(func.coalesce(func.max(messages.c.seq), 0)).where(messages.c.agent_id == bindparam("of_agent"))


def append(tx: Tx, new: Sequence[Message], conversation: str | None = None) -> None:
    """Writes messages of one agent at the end of its history, with their text index.

    With a conversation they are also added to the end of its context.
    """
    if not new:
        return
    agent_id = new[0].agent_id
    last: int = tx.execute(_LAST_SEQ, {"of_agent": agent_id}).scalar_one()
    _write(tx, new, last + 1)
    if conversation is not None:
        contexts.insert_at(tx, agent_id, [m.id for m in new], conversation, last + 1)


def begin(tx: Tx, first: Sequence[Message]) -> None:
    """Writes the first messages of an agent that has none, and makes them its context."""
    _write(tx, first, 1)
    contexts.insert_at(tx, first[0].agent_id, [message.id for message in first], "", 0)


def _write(tx: Tx, new: Sequence[Message], seq: int) -> None:
    tx.execute(_INSERT, [to_row(message, seq + i) for i, message in enumerate(new)])
    texts: dict[str, str] = {
        message.id: said for message in new if message.role in SEARCHABLE and (said := message.said)
    }
    fulltext.index_many(tx, "message", new[0].agent_id, texts)


_UPDATE_CONTENT = (
    update(messages)
    .where(messages.c.id == bindparam("of_message"))
    .values(content=bindparam("new_content"), checksum=bindparam("new_checksum"))
)


def rewrite(tx: Tx, message_id: MessageId, content: Sequence[Part]) -> None:
    """Replaces the text of a message: only the system message is ever rewritten."""
    new = {f"new_{name}": value for name, value in rewritten(content).items()}
    tx.execute(_UPDATE_CONTENT, {"of_message": message_id, **new})


_DELETE_ALL = delete(messages).where(messages.c.agent_id == bindparam("of_agent"))


def remove_all(tx: Tx, agent_id: AgentId) -> None:
    """Deletes an agent's whole history with its text index; the caller must write the contexts anew."""
    tx.execute(_DELETE_ALL, {"of_agent": agent_id})
    contexts.clear_all(tx, agent_id)
    items.remove_scope(tx, "message", agent_id)
    fact_progress.rewind(tx, agent_id)


_ONE = select(messages).where(messages.c.id == bindparam("of_message"))


def get(tx: Tx, message_id: MessageId) -> Message:
    """Raises NotFound, or Damaged."""
    row = tx.execute(_ONE, {"of_message": message_id}).first()
    if row is None:
        raise NotFound("Message", message_id)
    found = from_row(row)
    if found.lost:
        raise Damaged("Message", message_id)
    return found


_MANY = select(messages).where(messages.c.id.in_(bindparam("ids", expanding=True)))


def get_many(tx: Tx, ids: Sequence[str]) -> list[Message]:
    """The messages with these ids, in the requested order; missing or lost ones are left out."""
    found: dict[str, Message] = {}
    for start in range(0, len(ids), _ID_CHUNK):
        rows = tx.execute(_MANY, {"ids": list(ids[start : start + _ID_CHUNK])})
        found.update((row.id, from_row(row)) for row in rows)
    return [found[i] for i in ids if i in found and not found[i].lost]


_SEQ_OF = select(messages.c.seq).where(
    messages.c.id == bindparam("of_message"), messages.c.agent_id == bindparam("of_agent")
)


def select_of_agent(tx: Tx, agent_id: AgentId, query: MessageQuery) -> list[Message]:
    """Messages of one agent, oldest first. Raises NotFound for a cursor that is not a message of the agent."""
    statement = select(messages).where(messages.c.agent_id == agent_id)
    if query.after:
        statement = statement.where(messages.c.seq > _cursor(tx, agent_id, query.after))
    if query.before:
        statement = statement.where(messages.c.seq < _cursor(tx, agent_id, query.before))
    if query.conversation_id == DEFAULT_CONVERSATION:
        statement = statement.where(messages.c.conversation_id.is_(None))
    elif query.conversation_id:
        statement = statement.where(messages.c.conversation_id == query.conversation_id)
    if query.run_id:
        statement = statement.where(messages.c.run_id == query.run_id)
    if query.step_id:
        statement = statement.where(messages.c.step_id == query.step_id)
    statement = statement.order_by((desc if query.descending else asc)(messages.c.seq))
    if query.limit is not None:
        statement = statement.limit(query.limit)
    found = [from_row(row) for row in within_bytes(tx.execute(statement), query.bytes_max)]
    return found[::-1] if query.descending else found


def _cursor(tx: Tx, agent_id: AgentId, message_id: MessageId) -> int:
    seq = tx.execute(_SEQ_OF, {"of_message": message_id, "of_agent": agent_id}).scalar()
    if seq is None:
        raise NotFound("Message", message_id)
    return int(seq)


_OF_RUN = select(messages).where(messages.c.run_id == bindparam("of_run")).order_by(messages.c.seq)
_OF_STEP = select(messages).where(messages.c.step_id == bindparam("of_step")).order_by(messages.c.seq)


_COUNT = select(func.count()).select_from(messages).where(messages.c.agent_id == bindparam("of_agent"))


def count_of_agent(tx: Tx, agent_id: AgentId) -> int:
    """Number of an agent's messages, in its context or not."""
    return int(tx.execute(_COUNT, {"of_agent": agent_id}).scalar_one())


_IDS_OF_RUN = select(messages.c.id).where(messages.c.run_id == bindparam("of_run")).order_by(messages.c.seq)
_IDS_OF_STEP = select(messages.c.id).where(messages.c.step_id == bindparam("of_step")).order_by(messages.c.seq)


def page_of_run(tx: Tx, run_id: RunId, page: Page) -> list[Message]:
    """The messages of a run in the requested order."""
    return _page(tx, _IDS_OF_RUN, _OF_RUN, {"of_run": run_id}, page)


def page_of_step(tx: Tx, step_id: StepId, page: Page) -> list[Message]:
    """The messages of a step in the requested order."""
    return _page(tx, _IDS_OF_STEP, _OF_STEP, {"of_step": step_id}, page)


def _page(tx: Tx, ids: Select[Any], rows: Select[Any], bound: Mapping[str, str], page: Page) -> list[Message]:
    """A page of a short list: the ids first, because the messages themselves may be large."""
    ordered = list(tx.execute(ids, bound).scalars())
    if page.descending:
        ordered.reverse()
        rows = rows.order_by(None).order_by(messages.c.seq.desc())
    start = ordered.index(page.after) + 1 if page.after in ordered else 0
    stop = ordered.index(page.before) if page.before in ordered else len(ordered)
    wanted = set(ordered[start:stop][: page.limit])
    found = (row for row in tx.execute(rows, bound) if row.id in wanted)
    return [from_row(row) for row in within_bytes(found, page.bytes_max)]


def of_run(tx: Tx, run_id: RunId) -> list[Message]:
    return [from_row(row) for row in tx.execute(_OF_RUN, {"of_run": run_id})]


_SOME_OF_RUN = select(messages.c.id).where(messages.c.run_id == bindparam("of_run")).limit(1)


def has_run(tx: Tx, run_id: RunId) -> bool:
    """Checks whether the history contains any message of a run."""
    return tx.execute(_SOME_OF_RUN, {"of_run": run_id}).scalar() is not None


_ANSWERING = (
    select(messages)
    .where(messages.c.agent_id == bindparam("of_agent"), messages.c.answers.is_not(None))
    .order_by(messages.c.seq.desc())
    .limit(bindparam("most"))
)


def answering(tx: Tx, agent_id: AgentId, most: int) -> list[Message]:
    """The newest rows of an agent that answer pending calls, the newest first."""
    return [from_row(row) for row in tx.execute(_ANSWERING, {"of_agent": agent_id, "most": most})]


def of_runs(tx: Tx, run_ids: Sequence[RunId]) -> list[Message]:
    """The messages of the runs of one turn, one run after the other."""
    return [row for run_id in run_ids for row in of_run(tx, run_id)]


def of_step(tx: Tx, step_id: StepId) -> list[Message]:
    return [from_row(row) for row in tx.execute(_OF_STEP, {"of_step": step_id})]
