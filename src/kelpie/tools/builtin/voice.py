"""The tools of agents that talk by voice: storing parts of a transcript, and searching quickly while talking."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.dates import dates
from kelpie.core.dates.date_mentions import mentions
from kelpie.core.errors import ToolError
from kelpie.core.ids import PassageId
from kelpie.core.memory.passages import PASSAGE_CHARS_MAX, PassageQuery
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.memory.text_edits import cleaned
from kelpie.storage.conversations import messages
from kelpie.tools.builtin import archival, conversation
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx

CHUNKS_MAX = 100
TAG = "transcript"  # on every passage that came from one

_MINUTE = 60 * MICROS_PER_SECOND
_MINUTES_MAX = 1_000_000_000  # nearly two thousand years: enough, and no date overflows
_LOOK_BACK = 100  # rows; the transcript is the newest thing said to the agent, so it is never far
_NUMBER = re.compile(r"[ \t]*[(\[]?(\d{1,9})[)\].:→|]")


def store_memories(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Stores ranges of the transcript, each with a note on its subject; all of them or none."""
    chunks: Sequence[Mapping[str, Any]] = arguments["chunks"]
    if len(chunks) > CHUNKS_MAX:
        raise ToolError(f"Nothing was stored: 'chunks' has {len(chunks)} entries, and the limit is {CHUNKS_MAX}.")
    lines = _numbered(_transcript(tx, call))
    for number, chunk in enumerate(chunks):
        text = _passage(chunk, lines)
        archival.store(tx, call, PassageId(f"passage-{stable_uuid(call.fresh_uuid, str(number))}"), text, (TAG,))
    return Outcome(f"Stored {len(chunks)} parts of the transcript.")


def _transcript(tx: Tx, call: CallContext) -> str:
    """The newest user message of the agent: in this very commit, or before. Raises ToolError when there is none."""
    stored = messages.select_of_agent(tx, call.agent.id, MessageQuery(limit=_LOOK_BACK))
    for message in reversed((*stored, *call.unwritten)):
        if message.role is Role.user and message.text.strip():
            return message.text
    raise ToolError("Nothing was stored: you have not received a transcript.")


def _numbered(transcript: str) -> dict[int, str]:
    """Line by number: the lines' own numbers if they have any, otherwise their positions."""
    lines = transcript.splitlines()
    marked = {int(found.group(1)): line for line in lines if (found := _NUMBER.match(line))}
    return marked or dict(enumerate(lines))


def _passage(chunk: Mapping[str, Any], lines: Mapping[int, str]) -> str:
    start, end, about = chunk["start_index"], chunk["end_index"], cleaned(chunk["context"]).strip()
    first, last = min(lines), max(lines)
    if not about:
        raise ToolError("Nothing was stored: a chunk has an empty 'context'. Describe the chunk in a sentence.")
    if not first <= start <= end <= last:
        raise ToolError(
            f"Nothing was stored: {start} to {end} is not a valid range. The transcript has lines {first} to {last}, "
            "and a range must not end before it begins."
        )
    said = "\n".join(line for number, line in sorted(lines.items()) if start <= number <= end)
    text = f"{about}\n\n{cleaned(said)}"
    if len(text) > PASSAGE_CHARS_MAX:
        raise ToolError(
            f"Nothing was stored: lines {start} to {end} have {len(text)} characters, and the limit is "
            f"{PASSAGE_CHARS_MAX}. Split the range."
        )
    return text


def search_memory(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Finds messages and passages, by words and by age."""
    query = " ".join(arguments.get("convo_keyword_queries") or ())
    since, until = _window(call.now, arguments.get("start_minutes_ago"), arguments.get("end_minutes_ago"))
    said = conversation.message_results(
        tx, call, conversation.message_query(call, query, (since, until), conversation.RESULTS_DEFAULT)
    )
    filed = archival.passage_results(tx, call, _passages(call, query, (since, until)))
    found = {
        "message": conversation.summary(len(said) + len(filed), query, call.precomputed),
        "search_mode": conversation.search_mode(call.precomputed),
    }
    return Outcome(orjson.dumps(found | {"results": said, "archive": filed}).decode())


async def precompute_search(precompute: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
    """The nearest messages and passages to the words of a search."""
    query = " ".join(arguments.get("convo_keyword_queries") or ())
    if not query.strip():
        return NOTHING
    window = _window(call.now, arguments.get("start_minutes_ago"), arguments.get("end_minutes_ago"))
    most = conversation.RESULTS_DEFAULT
    said = await precompute.of_messages(call, conversation.message_query(call, query, window, most))
    filed = await precompute.of_passages(call, _passages(call, query, window))
    return replace(said, passages=filed.passages, by_vectors=said.by_vectors or filed.by_vectors)


def _passages(call: CallContext, query: str, window: tuple[Micros | None, Micros | None]) -> PassageQuery:
    mentioned = mentions(query, call.now, dates.zone_of(call.agent.timezone))
    return PassageQuery(query, conversation.RESULTS_DEFAULT, since=window[0], until=window[1], mentions=mentioned)


def _window(now: Micros, newer: int | None, older: int | None) -> tuple[Micros | None, Micros | None]:
    """The first and the last moment. Models mix the two ends up, so the one with more minutes ago is the first."""
    for name, minutes in (("start_minutes_ago", newer), ("end_minutes_ago", older)):
        if minutes is not None and not 0 <= minutes <= _MINUTES_MAX:
            raise ToolError(f"'{name}' must be a number of minutes, from 0 to {_MINUTES_MAX}.")
    if newer is not None and older is not None:
        newer, older = min(newer, older), max(newer, older)
    return (
        None if older is None else now - older * _MINUTE,
        None if newer is None else now - newer * _MINUTE,
    )
