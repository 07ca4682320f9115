"""Histories that a client sends again with every request, as OpenAI's clients do.

A fingerprint stands for a history: a chain of hashes, one link per message. Two histories with the same fingerprint say
the same, apart from white space. Instructions are no part of it, because clients change them from one request to the
next, for example to state the date.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kelpie.core.conversations.messages import Awaits, Image, Message, Part, Text, ToolCall
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros

ClientRole = Literal["user", "assistant", "tool"]
PARAGRAPH = "\n\n"  # between two messages of an agent that a client sees as one


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """One message of a client's history. `calls` are of an assistant, `call_id` is of a tool's result."""

    role: ClientRole
    content: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class ClientTurn:
    """What a client asked: the conversation it went to, and the fingerprint of the history that ended with it.

    `known` is the number of messages that the conversation had already. `continued` is set when a later turn has
    followed in the same conversation: any other that follows needs a copy of it.
    """

    id: str  # also the client id of its first message
    agent_id: AgentId
    conversation: str  # its id; empty for the one that every agent has
    fingerprint: str
    known: int
    created_at: Micros
    idempotency_key: str | None = None
    call_id: str | None = None  # of a tool call that it answered
    continued: bool = False


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """The answer of a run as a client sees it: one text, and the calls that the client makes itself."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    awaits_approval: tuple[ToolCall, ...] = ()  # calls that a person must allow before they run

    @property
    def note(self) -> str:
        """What the client is told about calls that wait for a person, for which its API has no word."""
        if not self.awaits_approval:
            return ""
        names = ", ".join(dict.fromkeys(call.name for call in self.awaits_approval))
        return (
            f"[Waiting for approval of a call of {names}. A person must approve or deny it, for example with "
            "`kelpie approvals`, before the conversation continues.]"
        )

    @property
    def shown(self) -> str:
        """The text with the note."""
        return PARAGRAPH.join(text for text in (self.text, self.note) if text)


def replies_of(rows: Iterable[Message]) -> list[Message]:
    """What the model wrote among the messages of one run; a client may have sent words of the assistant, too."""
    return [row for row in rows if row.is_reply and row.otid is None]


def answer_of(rows: Iterable[Message]) -> ClientAnswer:
    """The answer in the messages of one run."""
    replies = replies_of(rows)
    text = PARAGRAPH.join(said for row in replies if (said := row.said))
    waiting = [call for call in (replies[-1].tool_calls if replies else ()) if call.awaits is not None]
    return ClientAnswer(
        text,
        tuple(call for call in waiting if call.awaits is Awaits.client),
        tuple(call for call in waiting if call.awaits is Awaits.approval),
    )


def is_said(answer: ClientAnswer, message: ClientMessage) -> bool:
    """True if a client's message is this answer."""
    same_calls = {call.id for call in answer.calls} == {call.id for call in message.calls}
    return message.role == "assistant" and same_calls and normalized(message.text) == normalized(answer.shown)


def normalized(text: str) -> str:
    """The text with every run of white space as one space: clients trim, and join paragraphs in their own way."""
    return " ".join(text.split())


def scope(*parts: str) -> str:
    """The fingerprint of an empty history, of one user with one agent."""
    return _hash(parts)


def chain(start: str, messages: Sequence[ClientMessage]) -> list[str]:
    """The fingerprints of the history after each of its messages; the first is of none."""
    found = [start]
    for message in messages:
        found.append(_hash((found[-1], *_facts(message))))
    return found


def _facts(message: ClientMessage) -> Iterator[str]:
    yield message.role
    yield normalized(message.text)
    for part in message.content:
        if isinstance(part, Image):
            yield _hash(f"{name}={part.source[name]}" for name in sorted(part.source))
    for call in message.calls:
        yield call.id
    yield message.call_id


def _hash(parts: Iterable[str]) -> str:
    """A hash of texts that no other sequence of texts has."""
    made = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass")
        made.update(len(data).to_bytes(8, "big"))
        made.update(data)
    return made.hexdigest()
