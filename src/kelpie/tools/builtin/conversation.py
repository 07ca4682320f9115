"""The tools of conversations: sending a message to the user, and searching the message history.

A search is by words and meaning. One that could only be made by words says so, because a model that believes it
searched by meaning takes an empty answer for a fact.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from kelpie.core.conversations.messages import Message, MessageSearch, Role
from kelpie.core.dates import dates
from kelpie.core.dates.date_mentions import mentions
from kelpie.core.errors import ToolError
from kelpie.core.search_hits import Hit
from kelpie.core.time import Micros
from kelpie.storage.conversations import message_search
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.tools.calls.precomputed_search import Precompute
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
    wanted = _query(call, arguments)
    return Outcome(answer(message_results(tx, call, wanted), wanted.text, call.precomputed))


async def precompute_search(precompute: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
    """The nearest items to the words of a search."""
    wanted = _query(call, arguments)
    return await precompute.of_messages(call, wanted) if wanted.text.strip() else NOTHING


def _query(call: CallContext, arguments: Mapping[str, Any]) -> MessageSearch:
    roles = _SPOKEN & {Role(role) for role in arguments.get("roles") or _SPOKEN}
    since, until = dates.bounds(
        ("start_date", arguments.get("start_date")),
        ("end_date", arguments.get("end_date")),
        dates.zone_of(call.agent.timezone),
        call.now,
    )
    return message_query(
        call, arguments.get("query") or "", (since, until), checked_count("limit", arguments.get("limit")), roles
    )


def message_query(
    call: CallContext,
    query: str,
    window: tuple[Micros | None, Micros | None],
    limit: int,
    roles: frozenset[Role] = _SPOKEN,
) -> MessageSearch:
    """A query over the messages to and from the agent."""
    since, until = window
    order = tuple(role for role in Role if role in roles)
    search = MessageSearch(query, limit, call.agent.id, roles=order, created_from=since, created_to=until)
    # The text that the agent writes with the call itself is no result, even where it was stored before the call is
    # answered.
    mentioned = mentions(query, call.now, dates.zone_of(call.agent.timezone))
    return replace(search, spoken=True, not_step=call.step_id, mentions=mentioned)


def conversation_search_date(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Messages in a time span, oldest first, page by page."""
    zone, page = dates.zone_of(call.agent.timezone), arguments.get("page") or 0
    if not 0 <= page <= PAGES_MAX:
        raise ToolError(f"'page' must be from 0 to {PAGES_MAX}.")
    since, until = dates.bounds(
        ("start_date", arguments["start_date"]), ("end_date", arguments.get("end_date")), zone, call.now
    )
    found = message_search.messages_between(tx, call.agent.id, since, until, page * PAGE, PAGE + 1)
    shown = {
        "message": f"{min(len(found), PAGE)} messages on page {page}, oldest first."
        if found
        else f"No messages on page {page}.",
        "page": page,
        "more": len(found) > PAGE,
        "from": None if since is None else dates.format_moment(since, zone),
        "to": None if until is None else dates.format_moment(until, zone),
        "results": [_shown_message(message, None, call, zone) for message in found[:PAGE]],
    }
    return Outcome(orjson.dumps(shown).decode())


def message_results(tx: Tx, call: CallContext, wanted: MessageSearch) -> list[dict[str, Any]]:
    """Found messages, as the model reads them: the best matches, or without a query the newest."""
    if not wanted.roles:
        return []
    zone, precomputed = dates.zone_of(call.agent.timezone), call.precomputed
    found = message_search.search(tx, call.agent.organization_id, wanted, precomputed.messages)
    return [_shown_message(message, hit, call, zone) for message, hit in found]


def _shown_message(message: Message, hit: Hit | None, call: CallContext, zone: ZoneInfo) -> dict[str, Any]:
    return {
        "timestamp": dates.format_moment(message.created_at, zone),
        "time_ago": dates.ago(message.created_at, call.now),
        "role": message.role.value,
        "content": message.said,
        "relevance": relevance(hit, call.precomputed),
    }


def checked_count(name: str, given: int | None) -> int:
    """The number of results asked for. Raises ToolError for an invalid number."""
    if given is None:
        return RESULTS_DEFAULT
    if not 1 <= given <= RESULTS_MAX:
        raise ToolError(f"'{name}' must be from 1 to {RESULTS_MAX}.")
    return given


def search_mode(precomputed: Precomputed) -> str:
    return BY_BOTH if precomputed.by_vectors else BY_WORDS


def relevance(hit: Hit | None, precomputed: Precomputed) -> dict[str, Any]:
    found = {} if hit is None else {"score": round(hit.score, 6), "matched": list(hit.matched)}
    return {"search_mode": search_mode(precomputed), **found}


def answer(results: list[dict[str, Any]], query: str, precomputed: Precomputed) -> str:
    """Results as the model reads them, with a note on the search mode."""
    mode = search_mode(precomputed)
    found = {"message": summary(len(results), query, precomputed), "search_mode": mode, "results": results}
    return orjson.dumps(found).decode()


def summary(count: int, query: str, precomputed: Precomputed) -> str:
    if not query.strip():
        how = "Newest first."
    elif precomputed.by_vectors:
        how = "Searched by words and by meaning."
    else:
        why = f" ({precomputed.lacking})" if precomputed.lacking else ""
        how = f"Searched by words (full text), not by meaning{why}. Other words may find more."
    return f"{count} found. {how}" if count else f"Nothing found. {how}"
