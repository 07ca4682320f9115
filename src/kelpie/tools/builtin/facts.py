"""The tool that finds facts the agent has learnt: as they are now, or as they were at some time."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.dates import dates
from kelpie.core.dates.date_mentions import mentions
from kelpie.core.memory.facts import FactSearch, FoundFact
from kelpie.storage.memory import facts
from kelpie.tools.builtin.conversation import answer, checked_count, relevance
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.world.database import Tx


def fact_search(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Finds facts by their words and meaning."""
    wanted = _query(call, arguments)
    found = facts.search(tx, call.agent.id, wanted, call.now, call.precomputed.facts)
    return Outcome(answer([_shown_fact(each, call) for each in found], wanted.text, call.precomputed))


async def precompute_search(precompute: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
    """The nearest items to the words of a search."""
    wanted = _query(call, arguments)
    return await precompute.of_facts(call, wanted) if wanted.text.strip() else NOTHING


def _query(call: CallContext, arguments: Mapping[str, Any]) -> FactSearch:
    zone, given = dates.zone_of(call.agent.timezone), arguments.get("at")
    at = dates.bounds(("at", given), ("at", given), zone, call.now)[1] if given else None
    text = arguments["query"]
    mentioned = mentions(text, call.now, zone)
    return FactSearch(text, checked_count("limit", arguments.get("limit")), at=at, mentions=mentioned)


def _shown_fact(found: FoundFact, call: CallContext) -> dict[str, Any]:
    fact, zone = found.fact, dates.zone_of(call.agent.timezone)
    return {
        "id": fact.id,
        "statement": fact.statement,
        "current": found.current,
        "valid_from": dates.format_moment(fact.valid_from, zone),
        "valid_until": None if fact.valid_until is None else dates.format_moment(fact.valid_until, zone),
        "superseded_by": fact.superseded_by,
        "supersedes": fact.supersedes,
        "link": fact.link,
        "relevance": relevance(found.hit, call.precomputed),
    }
