"""The tools of archival memory: storing a passage, and finding it again by its words or by its meaning."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.dates import dates
from kelpie.core.dates.date_mentions import mentions
from kelpie.core.errors import ToolError
from kelpie.core.ids import ArchiveId, PassageId
from kelpie.core.memory.passages import PASSAGE_CHARS_MAX, TAGS_MAX, Passage, PassageQuery
from kelpie.core.search_hits import reach
from kelpie.memory.text_edits import cleaned
from kelpie.storage.archives import archives, passage_search, passages
from kelpie.tools.builtin.conversation import answer, checked_count, relevance
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.world.database import Tx

PAGES_MAX = 100


def archival_memory_insert(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Stores the model's text as one passage."""
    text = cleaned(arguments["content"])
    if not text.strip():
        raise ToolError("Nothing was stored: 'content' is empty.")
    if len(text) > PASSAGE_CHARS_MAX:
        raise ToolError(
            f"Nothing was stored: 'content' has {len(text)} characters, and the limit is {PASSAGE_CHARS_MAX}. Split it."
        )
    passage_id = PassageId(f"passage-{call.fresh_uuid}")
    store(tx, call, passage_id, text, _tags(arguments))
    return Outcome(f"Stored in archival memory as {passage_id}.")


def store(tx: Tx, call: CallContext, passage_id: PassageId, text: str, tags: tuple[str, ...] = ()) -> None:
    """Writes a passage into the agent's archive, which is created when it has none."""
    archive_id = archives.ensure(tx, call.agent.id, ArchiveId(f"archive-{call.fresh_uuid}"), call.now)
    passage = Passage(
        id=passage_id,
        archive_id=archive_id,
        text=text,
        created_at=call.now,
        updated_at=call.now,
        tags=tags,
        organization_id=call.agent.organization_id,
        created_by_id=call.agent.created_by_id,
        last_updated_by_id=call.agent.created_by_id,
    )
    passages.insert(tx, passage, call.precomputed.vectors)


async def precompute_insert(precompute: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
    """The vectors of the text about to be stored."""
    text = cleaned(arguments["content"])
    return await precompute.of_stored(call, text) if text.strip() and len(text) <= PASSAGE_CHARS_MAX else NOTHING


def archival_memory_search(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Finds passages by their words and meaning, their tags and their dates, page by page."""
    query, page = _query(call, arguments), _page(arguments)
    found = passage_results(tx, call, replace(query, limit=reach(query.limit, page)))
    return Outcome(answer(found[page * query.limit :][: query.limit], query.text, call.precomputed))


async def precompute_search(precompute: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
    """The nearest items to the words of a search."""
    query = _query(call, arguments)
    if not query.text.strip():
        return NOTHING
    return await precompute.of_passages(call, replace(query, limit=reach(query.limit, _page(arguments))))


def _query(call: CallContext, arguments: Mapping[str, Any]) -> PassageQuery:
    zone = dates.zone_of(call.agent.timezone)
    since, until = dates.bounds(
        ("start_datetime", arguments.get("start_datetime")),
        ("end_datetime", arguments.get("end_datetime")),
        zone,
        call.now,
    )
    return PassageQuery(
        text=arguments["query"],
        mentions=mentions(arguments["query"], call.now, zone),
        limit=checked_count("top_k", arguments.get("top_k")),
        tags=_tags(arguments),
        match_all_tags=arguments.get("tag_match_mode") == "all",
        since=since,
        until=until,
    )


def _page(arguments: Mapping[str, Any]) -> int:
    page = arguments.get("page") or 0
    if not 0 <= page <= PAGES_MAX:
        raise ToolError(f"'page' must be from 0 to {PAGES_MAX}.")
    return page


def passage_results(tx: Tx, call: CallContext, query: PassageQuery) -> list[dict[str, Any]]:
    """The passages of the agent's archive, as the model reads them."""
    zone = dates.zone_of(call.agent.timezone)
    archive_id = archives.archive_of(tx, call.agent.id)
    every = passage_search.search(tx, archive_id, query, call.precomputed.passages) if archive_id else []
    found = [each for each in every if not each.passage.lost]
    return [
        {
            "id": each.passage.id,
            "timestamp": dates.format_moment(each.passage.created_at, zone),
            "content": each.passage.text,
            "tags": each.passage.tags,
            "relevance": relevance(each.hit, call.precomputed),
        }
        for each in found
    ]


def _tags(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    tags = tuple(sorted({cleaned(tag) for tag in arguments.get("tags") or () if tag.strip()}))
    if len(tags) > TAGS_MAX:
        raise ToolError(f"'tags' has {len(tags)} entries; give at most {TAGS_MAX}.")
    return tags
