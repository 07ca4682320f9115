"""The tools about what is said: saying something, and searching what was said.

The search is by words. It says so in every answer, because a model that believes it searched by meaning takes an empty
answer for a fact.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import orjson

from kelpie.core.errors import ToolError
from kelpie.core.messages import Message, MessageQuery, Role
from kelpie.core.time import Micros
from kelpie.storage import messages
from kelpie.storage.matches import BATCH, CANDIDATES_MAX, ranked
from kelpie.tools.builtin import dates
from kelpie.tools.port import CallContext, Outcome
from kelpie.world.database import Tx

SENT = "Sent message successfully."
SEARCH_MODE = "full_text"
RESULTS_DEFAULT = 5
RESULTS_MAX = 100

_SPOKEN = frozenset({Role.user, Role.assistant})
_Scored = tuple[Message, float | None]


def send_message(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """The message itself is in the call, from where the loop shows it to the user."""
    return Outcome(SENT)


def conversation_search(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Finds messages of this agent; tool messages are left out."""
    query: str = arguments.get("query") or ""
    roles = _SPOKEN & {Role(role) for role in arguments.get("roles") or _SPOKEN}
    limit = checked_count("limit", arguments.get("limit"))
    since, until = dates.bounds(
        ("start_date", arguments.get("start_date")),
        ("end_date", arguments.get("end_date")),
        dates.zone_of(call.agent.timezone),
    )
    return Outcome(answer(said(tx, call, query, (since, until), limit, roles), query))


def said(
    tx: Tx,
    call: CallContext,
    query: str,
    window: tuple[Micros | None, Micros | None],
    limit: int,
    roles: frozenset[Role] = _SPOKEN,
) -> list[dict[str, Any]]:
    """What was said within the window, as the model reads it: the best matches, or without a query the newest."""
    zone = dates.zone_of(call.agent.timezone)
    since, until = window

    def wanted(found: _Scored) -> bool:
        message = found[0]
        inside = (since is None or message.created_at >= since) and (until is None or message.created_at <= until)
        return inside and message.role in roles and bool(message.said)

    candidates = _matching(tx, call, query) if query.strip() else _newest(tx, call)
    return [
        {
            "timestamp": dates.shown(message.created_at, zone),
            "time_ago": dates.ago(message.created_at, call.now),
            "role": message.role.value,
            "content": message.said,
            "relevance": relevance(score),
        }
        for message, score in islice(filter(wanted, candidates), limit)
    ]


def checked_count(name: str, given: int | None) -> int:
    """How many results are wanted. Raises ToolError for a number that cannot be."""
    if given is None:
        return RESULTS_DEFAULT
    if not 1 <= given <= RESULTS_MAX:
        raise ToolError(f"'{name}' must be from 1 to {RESULTS_MAX}.")
    return given


def relevance(score: float | None) -> dict[str, Any]:
    return {"search_mode": SEARCH_MODE} | ({} if score is None else {"score": round(score, 6)})


def answer(results: list[dict[str, Any]], query: str) -> str:
    """Results as the model reads them, with a word on how they were found."""
    found = {"message": summary(len(results), query), "search_mode": SEARCH_MODE, "results": results}
    return orjson.dumps(found).decode()


def summary(count: int, query: str) -> str:
    if query.strip():
        how = "The search is by words (full text), not by meaning; other words may find more."
    else:
        how = "Newest first."
    return f"{count} found. {how}" if count else f"Nothing found. {how}"


def _matching(tx: Tx, call: CallContext, query: str) -> Iterator[_Scored]:
    for batch in ranked(tx, "message", call.agent.id, query):
        scores = dict(batch)
        found = messages.get_many(tx, [item_id for item_id, _ in batch])
        yield from ((message, scores[message.id]) for message in found if message.agent_id == call.agent.id)


def _newest(tx: Tx, call: CallContext) -> Iterator[_Scored]:
    before = None
    for _ in range(0, CANDIDATES_MAX, BATCH):
        found = messages.select_of_agent(tx, call.agent.id, MessageQuery(limit=BATCH, before=before))
        yield from ((message, None) for message in reversed(found))
        if len(found) < BATCH:
            return
        before = found[0].id
