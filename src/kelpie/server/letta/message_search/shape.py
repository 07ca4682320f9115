"""Messages found by a search, as Letta's clients see them: flat, or as the stored row."""

from typing import Any

from kelpie.core.conversations.messages import Message, Role
from kelpie.core.search_hits import Hit
from kelpie.server.http.match_reasons import matched_shape
from kelpie.server.http.times import timestamp
from kelpie.server.letta.conversations.window_shape import stored_message

RANK_OFFSET = 60  # how much the first place counts more than the next

_KINDS = {Role.system: "system_message", Role.assistant: "assistant_message"}


def found_shape(message: Message, hit: Hit | None) -> dict[str, Any]:
    """One result of a search over all agents."""
    return {
        "message_id": message.id,
        "message_type": _KINDS.get(message.role, "user_message"),
        "content": message.said,
        "agent_id": message.agent_id,
        "conversation_id": message.conversation_id,
        "created_at": timestamp(message.created_at),
        **matched_shape(hit),
    }


def ranked_shape(message: Message, hit: Hit | None, place: int, user_id: str) -> dict[str, Any]:
    """One result with its ranks; the newest messages, when there is no query, have only their order."""
    return {
        "embedded_text": message.said,
        "message": stored_message(message, user_id),
        "fts_rank": hit.words_rank if hit else place,
        "vector_rank": hit.meaning_rank if hit else None,
        "rrf_score": 1 / (RANK_OFFSET + place),
        **matched_shape(hit),
    }
