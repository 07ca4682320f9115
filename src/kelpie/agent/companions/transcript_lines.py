"""Transcript for a companion: one line per message, without thoughts and without the server's own notes."""

from collections.abc import Iterable, Sequence

from kelpie.agent.prompt.agent_types import SPEAK
from kelpie.agent.prompt.transcript import clipped
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message, NewMessage, Role, Text

CHARS_MAX = 100_000
RESULT_CHARS_MAX = 1_000  # of what one tool gave back


def lines(rows: Iterable[Message]) -> list[str]:
    """One line for each message and each tool result."""
    found: list[str] = []
    for row in rows:
        if row.role is Role.user and row.otid is not None:  # without one it is a note of the server's
            found.append(f"user: {row.text}")
        elif row.role is Role.assistant and row.said:
            found.append(f"assistant: {row.said}")
        elif row.role is Role.tool:
            results = (result for result in row.tool_returns if result.name != SPEAK)
            found += [f"tool {result.name}: {clipped(result.text, RESULT_CHARS_MAX)}" for result in results]
    return [line for line in found if line]


def for_sleeptime(main: Agent, rows: Sequence[Message]) -> NewMessage:
    """Message to a companion with the turns since its last run."""
    head = (
        f"[You maintain the memory of the agent '{main.name}' ({main.id}). Below are the messages since your last "
        "update. 'assistant' is that agent, not you; 'user' is the person it talks to. Update the memory blocks as "
        "your own persona block describes, then finish.]"
    )
    return _message(main, head, lines(rows))


def for_voice(main: Agent, rows: Sequence[Message]) -> NewMessage:
    """The lines that an agent which speaks by voice loses sight of, numbered from 0."""
    head = (
        f"[A transcript of the agent '{main.name}' ({main.id}). These lines are leaving its context. 'assistant' is "
        "that agent, not you.]"
    )
    numbered = [f"({i}) {' '.join(line.split())}" for i, line in enumerate(lines(rows))]
    return _message(main, head, numbered)


def _message(main: Agent, head: str, said: Sequence[str]) -> NewMessage:
    kept, size = list[str](), 0
    for line in reversed(said):  # the newest matter most, should it be too much
        size += len(line)
        if size > CHARS_MAX and kept:
            kept.append("(earlier messages are omitted)")
            break
        kept.append(line[:CHARS_MAX])
    return NewMessage(Role.user, (Text("\n".join((head, "", *reversed(kept)))),), sender_id=main.id)
