"""Messages and the context: what was ever said, and which of it the model sees."""

from collections.abc import Iterator, Sequence
from typing import cast

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    asc,
    bindparam,
    delete,
    desc,
    func,
    insert,
    literal_column,
    select,
    update,
)

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, MessageId, RunId, StepId
from kelpie.core.messages import Message, MessageQuery, Part, Role
from kelpie.search import fulltext, items
from kelpie.storage.message_rows import content_to_json, from_row, to_row
from kelpie.storage.tables import agents, context, messages
from kelpie.world.database import Tx

SEARCHABLE = frozenset({Role.user, Role.assistant, Role.summary})
_ID_CHUNK = 500  # how many ids go into one IN list
_ID_SEPARATOR = ","


_INSERT = insert(messages)
_LAST_SEQ = select(func.coalesce(func.max(messages.c.seq), 0)).where(messages.c.agent_id == bindparam("of_agent"))


def append(tx: Tx, new: Sequence[Message], conversation: str | None = None) -> None:
    """Writes messages of one agent at the end of its history, with their text index.

    With a conversation they also come to the end of what the model sees of it.
    """
    if not new:
        return
    agent_id = new[0].agent_id
    last: int = tx.execute(_LAST_SEQ, {"of_agent": agent_id}).scalar_one()
    _write(tx, new, last + 1)
    if conversation is not None:
        _place(tx, agent_id, [m.id for m in new], conversation, last + 1)


def begin(tx: Tx, first: Sequence[Message]) -> None:
    """Writes the first messages of an agent that has none, and makes them what the model sees."""
    _write(tx, first, 1)
    _place(tx, first[0].agent_id, [message.id for message in first], "", 0)


def _write(tx: Tx, new: Sequence[Message], seq: int) -> None:
    tx.execute(_INSERT, [to_row(message, seq + i) for i, message in enumerate(new)])
    for message in new:
        if message.role in SEARCHABLE and message.said:
            fulltext.index(tx, "message", message.agent_id, message.id, message.said)


_UPDATE_CONTENT = (
    update(messages).where(messages.c.id == bindparam("of_message")).values(content=bindparam("new_content"))
)


def rewrite(tx: Tx, message_id: MessageId, content: Sequence[Part]) -> None:
    """Replaces what a message says: only the system message is ever rewritten."""
    tx.execute(_UPDATE_CONTENT, {"of_message": message_id, "new_content": content_to_json(content)})


_DELETE_ALL = delete(messages).where(messages.c.agent_id == bindparam("of_agent"))
_CLEAR_ALL = delete(context).where(context.c.agent_id == bindparam("of_agent"))


def remove_all(tx: Tx, agent_id: AgentId) -> None:
    """Deletes an agent's whole history with its text index; the contexts must be set anew."""
    tx.execute(_DELETE_ALL, {"of_agent": agent_id})
    tx.execute(_CLEAR_ALL, {"of_agent": agent_id})
    items.remove_scope(tx, "message", agent_id)


_ONE = select(messages).where(messages.c.id == bindparam("of_message"))


def get(tx: Tx, message_id: MessageId) -> Message:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_message": message_id}).first()
    if row is None:
        raise NotFound("Message", message_id)
    return from_row(row)


_MANY = select(messages).where(messages.c.id.in_(bindparam("ids", expanding=True)))


def get_many(tx: Tx, ids: Sequence[str]) -> list[Message]:
    """The messages with these ids, in the order asked for; ids that do not exist are left out."""
    found: dict[str, Message] = {}
    for start in range(0, len(ids), _ID_CHUNK):
        rows = tx.execute(_MANY, {"ids": list(ids[start : start + _ID_CHUNK])})
        found.update((row.id, from_row(row)) for row in rows)
    return [found[i] for i in ids if i in found]


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
    if query.conversation_id == "default":
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
    found = [from_row(row) for row in tx.execute(statement)]
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
    """How many messages an agent has, in its context or not."""
    return int(tx.execute(_COUNT, {"of_agent": agent_id}).scalar_one())


def of_run(tx: Tx, run_id: RunId) -> list[Message]:
    return [from_row(row) for row in tx.execute(_OF_RUN, {"of_run": run_id})]


_SOME_OF_RUN = select(messages.c.id).where(messages.c.run_id == bindparam("of_run")).limit(1)


def has_run(tx: Tx, run_id: RunId) -> bool:
    """Whether anything that a run said is in the history."""
    return tx.execute(_SOME_OF_RUN, {"of_run": run_id}).scalar() is not None


_ANSWERING = (
    select(messages)
    .where(messages.c.agent_id == bindparam("of_agent"), messages.c.answers.is_not(None))
    .order_by(messages.c.seq.desc())
    .limit(bindparam("most"))
)


def answering(tx: Tx, agent_id: AgentId, most: int) -> list[Message]:
    """The newest rows of an agent that answer calls which waited, the newest first."""
    return [from_row(row) for row in tx.execute(_ANSWERING, {"of_agent": agent_id, "most": most})]


def of_runs(tx: Tx, run_ids: Sequence[RunId]) -> list[Message]:
    """What the runs of one turn have said, one run after the other."""
    return [row for run_id in run_ids for row in of_run(tx, run_id)]


def of_step(tx: Tx, step_id: StepId) -> list[Message]:
    return [from_row(row) for row in tx.execute(_OF_STEP, {"of_step": step_id})]


# --- the context -----------------------------------------------------------------------------------------------------

_CONTEXT_INSERT = insert(context)
_CONTEXT_CLEAR = delete(context).where(
    context.c.agent_id == bindparam("of_agent"), context.c.conversation_id == bindparam("of_conversation")
)


def _joined(of_agent: ColumnElement[str]) -> Select[str]:
    """The ids of a context as one text, in their order: a row for each would cost several times as much."""
    ordered = (
        select(context.c.message_id)
        .where(context.c.agent_id == of_agent, context.c.conversation_id == bindparam("of_conversation"))
        .order_by(context.c.position)
        .subquery()
    )
    # As a parameter the separator would be put into the statement anew each time.
    separator = cast("str", literal_column(f"'{_ID_SEPARATOR}'", String()))
    return select(func.aggregate_strings(ordered.c.message_id, separator))


_CONTEXT_IDS = _joined(bindparam("of_agent"))
_CONTEXT_NEWEST = (
    select(messages, context.c.position.label("place"))
    .join(context, context.c.message_id == messages.c.id)
    .where(context.c.agent_id == bindparam("of_agent"), context.c.conversation_id == bindparam("of_conversation"))
    .order_by(context.c.position.desc())
    .limit(bindparam("most"))
)
_CONTEXT_BEFORE = _CONTEXT_NEWEST.where(context.c.position < bindparam("before"))
_CONTEXT_OF_MANY = select(agents.c.id, _joined(literal_column("agents.id")).scalar_subquery()).where(
    agents.c.id.in_(bindparam("ids", expanding=True))
)


def _place(tx: Tx, agent_id: AgentId, ids: Sequence[MessageId], conversation: str, first: int) -> None:
    """Puts messages into a context from this position on. The sequence number of a message is always a free position
    at the end: a context never holds more messages than the agent ever had."""
    tx.execute(
        _CONTEXT_INSERT,
        [
            {"agent_id": agent_id, "conversation_id": conversation, "position": first + i, "message_id": message_id}
            for i, message_id in enumerate(ids)
        ],
    )


def replace_context(tx: Tx, agent_id: AgentId, ids: Sequence[MessageId], conversation: str = "") -> None:
    """Makes exactly these the messages that the model sees."""
    tx.execute(_CONTEXT_CLEAR, {"of_agent": agent_id, "of_conversation": conversation})
    if ids:
        _place(tx, agent_id, ids, conversation, 0)


def context_ids(tx: Tx, agent_id: AgentId, conversation: str = "") -> tuple[MessageId, ...]:
    found = tx.execute(_CONTEXT_IDS, {"of_agent": agent_id, "of_conversation": conversation}).scalar()
    return _apart(found)


def context_ids_of(tx: Tx, agent_ids: Sequence[AgentId]) -> dict[str, tuple[MessageId, ...]]:
    """The default context of many agents in one query."""
    if len(agent_ids) == 1:
        return {agent_ids[0]: context_ids(tx, agent_ids[0])}
    found = tx.execute(_CONTEXT_OF_MANY, {"ids": list(agent_ids), "of_conversation": ""})
    return {agent_id: _apart(joined) for agent_id, joined in found}


def _apart(joined: str | None) -> tuple[MessageId, ...]:
    return tuple(map(MessageId, joined.split(_ID_SEPARATOR))) if joined else ()


_CONTEXTS = select(context.c.conversation_id).where(context.c.agent_id == bindparam("of_agent")).distinct()


def contexts_of(tx: Tx, agent_id: AgentId) -> list[str]:
    """The conversations that an agent has a context of; the default one is the empty string."""
    return sorted(tx.execute(_CONTEXTS, {"of_agent": agent_id}).scalars())


def context_messages(tx: Tx, agent_id: AgentId, conversation: str, most: int) -> list[Message]:
    """The newest messages of a context, at most so many, oldest first."""
    return next(context_pages(tx, agent_id, conversation, most), list[Message]())


def context_pages(tx: Tx, agent_id: AgentId, conversation: str, size: int) -> Iterator[list[Message]]:
    """The messages of a context in pages, the newest page first, each oldest first; read only as far as is asked."""
    bound = {"of_agent": agent_id, "of_conversation": conversation, "most": size}
    rows = tx.execute(_CONTEXT_NEWEST, bound).all()
    while rows:
        yield [from_row(row) for row in reversed(rows)]
        if len(rows) < size:
            return
        rows = tx.execute(_CONTEXT_BEFORE, {**bound, "before": rows[-1].place}).all()
