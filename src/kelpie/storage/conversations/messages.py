"""Messages: the whole history. `contexts` selects the part that the model sees."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Select,
    asc,
    bindparam,
    delete,
    desc,
    func,
    select,
    update,
)

from kelpie.core.conversations.messages import Message, MessageQuery, Part, Role
from kelpie.core.errors import Damaged, NotFound
from kelpie.core.ids import DEFAULT_CONVERSATION, AgentId, MessageId, RunId, StepId
from kelpie.core.paging import Page
from kelpie.search import items
from kelpie.search.items import Item
from kelpie.storage.conversations import contexts, fact_progress
from kelpie.storage.conversations.message_rows import from_row, from_rows_within, rewritten, to_row
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.rows.row_bytes import row_bytes
from kelpie.storage.tables import messages
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

SEARCHABLE = frozenset({Role.user, Role.assistant, Role.summary})
_ID_CHUNK = 500  # ids per IN list


_INSERT = Insert(messages)
_LAST_SEQ = Prepared(
    select(func.coalesce(func.max(messages.c.seq), 0)).where(messages.c.agent_id == bindparam("of_agent"))
)


def append(tx: Tx, new: Sequence[Message], conversation: str | None = None) -> None:
    """Writes messages of one agent at the end of its history, with their text index.

    With a conversation they are also added to the end of its context.
    """
    if not new:
        return
    agent_id = new[0].agent_id
    last: int = _LAST_SEQ.scalar(tx, {"of_agent": agent_id})
    _write(tx, new, last + 1)
    if conversation is not None:
        contexts.insert_at(tx, agent_id, [m.id for m in new], conversation, last + 1)


def begin(tx: Tx, first: Sequence[Message]) -> None:
    """Writes the first messages of an agent that has none, and makes them its context."""
    _write(tx, first, 1)
    contexts.insert_at(tx, first[0].agent_id, [message.id for message in first], "", 0)


def _write(tx: Tx, new: Sequence[Message], seq: int) -> None:
    _INSERT.run(tx, [to_row(message, seq + i) for i, message in enumerate(new)])
    spoken = [
        searchable(message, seq + i) for i, message in enumerate(new) if message.role in SEARCHABLE and message.said
    ]
    items.put_many(tx, "message", new[0].agent_id, spoken)


def searchable(message: Message, seq: int) -> Item:
    """A message as the search knows it; the messages before and after it in its conversation are its neighbours."""
    return Item(message.id, message.said, (), message.conversation_id or message.agent_id, seq)


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


MessageVersion = tuple[Any, ...]  # the values of `_VERSION`: two rows with the same say the same
_VERSION = ("id", "checksum", "created_at", "name", "otid", "sender_id", "run_id", "step_id", "is_err")
_FEW = 20  # messages that are read by their ids, whatever their sizes
_CONDITIONS = {
    "of_agent": messages.c.agent_id == bindparam("of_agent"),
    "after": messages.c.seq > bindparam("after"),
    "before": messages.c.seq < bindparam("before"),
    "in_default": messages.c.conversation_id.is_(None),
    "of_conversation": messages.c.conversation_id == bindparam("of_conversation"),
    "of_run": messages.c.run_id == bindparam("of_run"),
    "of_step": messages.c.step_id == bindparam("of_step"),
}


@lru_cache(maxsize=256)
def _selecting(given: tuple[str, ...], descending: bool, versions: bool = False) -> Select[Any]:
    """The statement for these parameters, all of which but `most` are conditions: whole rows, or `versions` alone."""
    columns = select(*(messages.c[name] for name in _VERSION)) if versions else select(messages)
    found = columns.where(*(_CONDITIONS[name] for name in given if name != "most"))
    ordered = found.order_by((desc if descending else asc)(messages.c.seq))
    return ordered.limit(bindparam("most")) if "most" in given else ordered


def select_of_agent(tx: Tx, agent_id: AgentId, query: MessageQuery) -> list[Message]:
    """Messages of one agent, oldest first. Raises NotFound for a cursor that is not a message of the agent."""
    bound = _bound(tx, agent_id, query)
    rows = tx.execute(_selecting(tuple(bound), query.descending), bound)
    found = from_rows_within(rows, query.bytes_max)
    return found[::-1] if query.descending else found


def select_versions(
    tx: Tx, agent_id: AgentId, query: MessageQuery, size_of: Callable[[MessageVersion], int | None]
) -> list[tuple[MessageVersion, Message | None]]:
    """The same messages by version. Those whose size the caller knows are not read, because it has them already.

    `size_of` is called on the thread of the transaction.
    """
    bound = _bound(tx, agent_id, query)
    rows = tx.execute(_selecting(tuple(bound), query.descending, versions=True), bound)
    versions: list[MessageVersion] = [tuple(row) for row in rows]
    sizes = [size_of(version) for version in versions]
    missing = [version[0] for version, size in zip(versions, sizes, strict=True) if size is None]
    found: list[tuple[MessageVersion, Message | None]]
    if len(missing) > _FEW:  # then in the order of the page, so that none is read beyond its end
        whole = tx.execute(_selecting(tuple(bound), query.descending), bound)
        found = list(zip(versions, from_rows_within(whole, query.bytes_max), strict=False))
    else:
        read = {row.id: row for row in tx.execute(_MANY, {"ids": missing})} if missing else {}
        found, total = [], 0
        for version, size in zip(versions, sizes, strict=True):
            row = read.get(version[0])
            total += size or (0 if row is None else row_bytes(row))
            if found and query.bytes_max is not None and total > query.bytes_max:
                break
            found.append((version, None if row is None else from_row(row)))
    return found[::-1] if query.descending else found


def _bound(tx: Tx, agent_id: AgentId, query: MessageQuery) -> dict[str, Any]:
    """The parameters of the statement for a query."""
    bound: dict[str, Any] = {"of_agent": agent_id}
    if query.after:
        bound["after"] = _cursor(tx, agent_id, query.after)
    if query.before:
        bound["before"] = _cursor(tx, agent_id, query.before)
    if query.conversation_id == DEFAULT_CONVERSATION:
        bound["in_default"] = True
    elif query.conversation_id:
        bound["of_conversation"] = query.conversation_id
    if query.run_id:
        bound["of_run"] = query.run_id
    if query.step_id:
        bound["of_step"] = query.step_id
    if query.limit is not None:
        bound["most"] = query.limit
    return bound


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
    """A page of a short list: the ids first, because the messages themselves may be large. One `before` a cursor
    touches it."""
    ordered = list(tx.execute(ids, bound).scalars())
    if page.descending:
        ordered.reverse()
    start = ordered.index(page.after) + 1 if page.after in ordered else 0
    stop = ordered.index(page.before) if page.before in ordered else len(ordered)
    between, most = ordered[start:stop], page.limit or len(ordered)
    backwards = page.before in ordered and page.after not in ordered  # read from the cursor, reversed afterwards
    wanted = set(between[-most:] if backwards else between[:most])
    if page.descending != backwards:
        rows = rows.order_by(None).order_by(messages.c.seq.desc())
    found = from_rows_within((row for row in tx.execute(rows, bound) if row.id in wanted), page.bytes_max)
    return found[::-1] if backwards else found


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


_ANSWERING_IN = (
    select(messages)
    .where(messages.c.conversation_id == bindparam("of_conversation"), messages.c.answers.is_not(None))
    .order_by(messages.c.seq.desc())
    .limit(bindparam("most"))
)


def answering_in(tx: Tx, conversation: str, most: int) -> list[Message]:
    """The same of one conversation that is not the default one."""
    return [from_row(row) for row in tx.execute(_ANSWERING_IN, {"of_conversation": conversation, "most": most})]


def of_runs(tx: Tx, run_ids: Sequence[RunId]) -> list[Message]:
    """The messages of the runs of one turn, one run after the other."""
    return [row for run_id in run_ids for row in of_run(tx, run_id)]


def of_step(tx: Tx, step_id: StepId) -> list[Message]:
    return [from_row(row) for row in tx.execute(_OF_STEP, {"of_step": step_id})]
