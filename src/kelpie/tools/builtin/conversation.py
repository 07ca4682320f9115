"""The tools about what is said: saying something, and searching what was said.

A search is by words and meaning. One that could only be made by words says so, because a model that believes it
searched by meaning takes an empty answer for a fact.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from kelpie.core.conversations.messages import Message, MessageSearch, Role
from kelpie.core.errors import ToolError
from kelpie.core.search_hits import Hit
from kelpie.core.time import Micros
from kelpie.storage.conversations import message_search
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.tools.dates import dates
from kelpie.world.database import Tx

SENT = "Sent message successfully."
BY_WORDS, BY_BOTH = "full_text", "hybrid"
PAGE = 20
PAGES_MAX = 10_000
RESULTS_DEFAULT = 5
RESULTS_MAX = 100

_SPOKEN = frozenset({Role.user, Role.assistant})


def send_message(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """The message itself is in the call, from where the loop shows it to the user."""
    return Outcome(SENT)


def conversation_search(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Finds messages of this agent; tool messages are left out."""
    wanted = _wanted(call, arguments)
    return Outcome(answer(said(tx, call, wanted), wanted.text, call.insight))


async def foresee_search(foresight: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
    """What is near in meaning to the words of a search."""
    wanted = _wanted(call, arguments)
    return await foresight.of_messages(call, wanted) if wanted.text.strip() else NOTHING


def _wanted(call: CallContext, arguments: Mapping[str, Any]) -> MessageSearch:
    roles = _SPOKEN & {Role(role) for role in arguments.get("roles") or _SPOKEN}
    since, until = dates.bounds(
        ("start_date", arguments.get("start_date")),
        ("end_date", arguments.get("end_date")),
        dates.zone_of(call.agent.timezone),
        call.now,
    )
    return spoken(
        call, arguments.get("query") or "", (since, until), checked_count("limit", arguments.get("limit")), roles
    )


def spoken(
    call: CallContext,
    query: str,
    window: tuple[Micros | None, Micros | None],
    limit: int,
    roles: frozenset[Role] = _SPOKEN,
) -> MessageSearch:
    """A search among what was said to or by the agent."""
    since, until = window
    order = tuple(role for role in Role if role in roles)
    search = MessageSearch(query, limit, call.agent.id, roles=order, created_from=since, created_to=until)
    # What the agent says with the call itself is no find, even where it was stored before the call is answered.
    return replace(search, spoken=True, not_step=call.step_id)


def conversation_search_date(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """What was said in a stretch of time, oldest first, page by page."""
    zone, page = dates.zone_of(call.agent.timezone), arguments.get("page") or 0
    if not 0 <= page <= PAGES_MAX:
        raise ToolError(f"'page' must be from 0 to {PAGES_MAX}.")
    since, until = dates.bounds(
        ("start_date", arguments["start_date"]), ("end_date", arguments.get("end_date")), zone, call.now
    )
    found = message_search.spoken_between(tx, call.agent.id, since, until, page * PAGE, PAGE + 1)
    shown = {
        "message": f"{min(len(found), PAGE)} messages on page {page}, oldest first."
        if found
        else f"No messages on page {page}.",
        "page": page,
        "more": len(found) > PAGE,
        "from": None if since is None else dates.shown(since, zone),
        "to": None if until is None else dates.shown(until, zone),
        "results": [_shown(message, None, call, zone) for message in found[:PAGE]],
    }
    return Outcome(orjson.dumps(shown).decode())


def said(tx: Tx, call: CallContext, wanted: MessageSearch) -> list[dict[str, Any]]:
    """What was said, as the model reads it: the best matches, or without a query the newest."""
    if not wanted.roles:
        return []
    zone, insight = dates.zone_of(call.agent.timezone), call.insight
    asked = replace(wanted, mode=insight.mode)
    found = message_search.search(tx, call.agent.organization_id, asked, insight.messages)
    return [_shown(message, hit, call, zone) for message, hit in found]


def _shown(message: Message, hit: Hit | None, call: CallContext, zone: ZoneInfo) -> dict[str, Any]:
    return {
        "timestamp": dates.shown(message.created_at, zone),
        "time_ago": dates.ago(message.created_at, call.now),
        "role": message.role.value,
        "content": message.said,
        "relevance": relevance(hit, call.insight),
    }


def checked_count(name: str, given: int | None) -> int:
    """How many results are wanted. Raises ToolError for a number that cannot be."""
    if given is None:
        return RESULTS_DEFAULT
    if not 1 <= given <= RESULTS_MAX:
        raise ToolError(f"'{name}' must be from 1 to {RESULTS_MAX}.")
    return given


def search_mode(insight: Precomputed) -> str:
    return BY_BOTH if insight.by_vectors else BY_WORDS


def relevance(hit: Hit | None, insight: Precomputed) -> dict[str, Any]:
    return {"search_mode": search_mode(insight)} | ({} if hit is None else {"score": round(hit.score, 6)})


def answer(results: list[dict[str, Any]], query: str, insight: Precomputed) -> str:
    """Results as the model reads them, with a word on how they were found."""
    mode = search_mode(insight)
    found = {"message": summary(len(results), query, insight), "search_mode": mode, "results": results}
    return orjson.dumps(found).decode()


def summary(count: int, query: str, insight: Precomputed) -> str:
    if not query.strip():
        how = "Newest first."
    elif insight.by_vectors:
        how = "Searched by words and by meaning."
    else:
        why = f" ({insight.lacking})" if insight.lacking else ""
        how = f"Searched by words (full text), not by meaning{why}. Other words may find more."
    return f"{count} found. {how}" if count else f"Nothing found. {how}"
