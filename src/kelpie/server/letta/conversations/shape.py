"""A conversation as Letta's clients see it. The ids of the messages in its context are included only when a single
conversation is read.
"""

from collections.abc import Sequence
from typing import Any

from kelpie.core.conversations.conversations import Conversation
from kelpie.server.http.times import timestamp


def conversation_shape(conversation: Conversation, in_context: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "created_by_id": conversation.created_by_id,
        "last_updated_by_id": conversation.last_updated_by_id,
        "created_at": timestamp(conversation.created_at),
        "updated_at": timestamp(conversation.updated_at),
        "id": conversation.id,
        "agent_id": conversation.agent_id,
        "summary": conversation.summary,
        "description": conversation.description,
        "in_context_message_ids": list(in_context),
        "isolated_block_ids": list(conversation.isolated_block_ids),
        "model": conversation.model,
        "model_settings": None if conversation.model_settings is None else dict(conversation.model_settings),
        "context_window_limit": conversation.context_window_limit,
        "hidden": conversation.hidden,
        "archived": conversation.archived_at is not None,
        "archived_at": timestamp(conversation.archived_at),
        "last_message_at": timestamp(conversation.last_message_at),
    }
