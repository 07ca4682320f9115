"""A history that any provider accepts: every call answered right after it, no answer without its call.

The journal keeps it so. This pass is for what came otherwise (an import, a reset in the middle of a turn, ids set by
hand): it repairs what the model is shown and never touches what is stored, so no history can brick an agent.
"""

from collections.abc import Sequence
from dataclasses import replace

from kelpie.agent.prompt.synthetic_results import interrupted
from kelpie.core.conversations.messages import (
    HiddenReasoning,
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from kelpie.core.ids import MessageId
from kelpie.core.token_estimates import byte_length

FRAME_WEIGHT = 20  # role, separators
_IMAGE_WEIGHT = 6_000  # whatever its bytes: providers count pixels, about 1,500 tokens for a large one

LeftOpen = tuple[Message, tuple[ToolCall, ...]]


def healed(messages: Sequence[Message], waiting: MessageId | None = None) -> list[Message]:
    """The messages with orphaned results left out and missing results filled in, except for the reply that waits.

    A person's answers to waiting calls are in the results of the calls, and not messages for the model.
    """
    shown: list[Message] = []
    open_calls: dict[str, Message] = {}
    for message in messages:
        if message.role is Role.approval and not message.tool_calls:
            continue
        if message.role is Role.tool:
            kept = tuple(r for r in message.tool_returns if open_calls.pop(r.call_id, None))
            if kept:
                shown.append(replace(message, tool_returns=kept))
            continue
        _close(shown, open_calls)
        shown.append(message)
        if message.is_reply:
            open_calls = {call.id: message for call in message.tool_calls}
    if not (shown and shown[-1].id == waiting):
        _close(shown, open_calls)
    return shown


def _close(shown: list[Message], open_calls: dict[str, Message]) -> None:
    """Answers what is still open, as a row after the last one."""
    if not open_calls:
        return
    asker = next(iter(open_calls.values()))
    results: tuple[ToolReturn, ...] = tuple(interrupted(c) for c in asker.tool_calls if c.id in open_calls)
    shown.append(replace(asker, role=Role.tool, content=(), tool_calls=(), tool_returns=results))
    open_calls.clear()


def weight(message: Message) -> int:
    """Roughly how many bytes a message takes in a prompt."""
    said = sum(_part_weight(part) for part in message.content)
    called = sum(len(call.name) + byte_length(call.arguments) for call in message.tool_calls)
    returned = sum(byte_length(result.text) + len(result.images) * _IMAGE_WEIGHT for result in message.tool_returns)
    return FRAME_WEIGHT + said + called + returned


def _part_weight(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return byte_length(part.text)
        case Image():
            return _IMAGE_WEIGHT
        case HiddenReasoning():
            return len(part.data or "")


def left_open(messages: Sequence[Message]) -> LeftOpen | None:
    """The last reply among the messages of a run and its calls that have no result yet, if there are any."""
    reply = next((m for m in reversed(messages) if m.is_reply), None)
    if reply is None:
        return None
    after = [m for m in messages if m.role is Role.tool and m.step_id == reply.step_id]
    answered = {r.call_id for m in after for r in m.tool_returns}
    left = tuple(c for c in reply.tool_calls if c.id not in answered)
    return (reply, left) if left else None
