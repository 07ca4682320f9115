"""Messages as they are stored: one row per message, with parts, tool calls and tool returns.

The package `server/letta` may show one row as several messages on the wire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import orjson

from kelpie.core.conversations.questions import ToolQuestions
from kelpie.core.dates.date_mentions import Mention
from kelpie.core.ids import AgentId, ConversationId, MessageId, RunId, StepId
from kelpie.core.search_hits import SearchMode
from kelpie.core.time import Micros


class Role(StrEnum):
    system = "system"
    user = "user"
    assistant = "assistant"
    tool = "tool"
    approval = "approval"
    summary = "summary"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image by reference or by value; `source` is stored as the client sent it."""

    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thoughts of the model. `native` separates a reasoning model's own from those requested in a tool argument."""

    text: str
    native: bool = True
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class HiddenReasoning:
    """Thoughts that the provider does not disclose: `data` is its opaque form, None when it gave nothing."""

    data: str | None = None


Part = Text | Image | Reasoning | HiddenReasoning


class Awaits(StrEnum):
    """The party whose answer a call waits for before it has a result."""

    approval = "approval"  # a person's, who lets it run or not
    client = "client"  # that of the client which offered the tool and runs it


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON text exactly as the model gave it
    awaits: Awaits | None = None  # stays on the row when the word was given
    questions: ToolQuestions | None = None  # that the person who approves it answers as well


@dataclass(frozen=True, slots=True)
class ToolReturn:
    call_id: str
    name: str
    ok: bool
    text: str
    stdout: tuple[str, ...] | None = None  # None: this kind of tool has no output of its own
    stderr: tuple[str, ...] | None = None
    untried: bool = False  # it was turned away before any tool was reached; for the tool rules it never happened
    ran_with: str | None = None  # the arguments, if a person changed them before they let it run
    content: tuple[Part, ...] = ()  # text and images in their order, for a result that is more than `text`

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.content if isinstance(part, Image))


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A person's decision on a call that waits for approval. With `arguments` the call runs with those instead."""

    call_id: str
    approve: bool
    reason: str | None = None
    arguments: str | None = None  # a JSON object


CallAnswer = ApprovalDecision | ToolReturn
"""An answer to a call that waits: a person's word, or the result that a client has from its own tool."""


@dataclass(frozen=True, slots=True)
class Message:
    id: MessageId
    agent_id: AgentId
    role: Role
    created_at: Micros
    content: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_returns: tuple[ToolReturn, ...] = ()
    conversation_id: ConversationId | None = None
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    group_id: str | None = None
    run_id: RunId | None = None
    step_id: StepId | None = None
    is_err: bool = False
    answers: tuple[CallAnswer, ...] = ()  # of a row that answers calls which waited
    seq: int = 0  # order within the agent, given by storage

    @property
    def is_reply(self) -> bool:
        """True if the model wrote this; a reply with a call that waits for an answer has the role `approval`."""
        return self.role is Role.assistant or (self.role is Role.approval and bool(self.tool_calls))

    @property
    def lost(self) -> bool:
        """True if the row was damaged on the disk: the message then contains that notice and nothing else."""
        return self.content is LOST

    @property
    def text(self) -> str:
        """The text that a person reads: the text parts, joined."""
        if len(self.content) == 1 and isinstance(self.content[0], Text):
            return self.content[0].text
        return "\n".join([part.text for part in self.content if isinstance(part, Text)])

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the message and of the tool results in it."""
        own = tuple(part for part in self.content if isinstance(part, Image))
        return own + tuple(image for given in self.tool_returns for image in given.images)

    @property
    def said(self) -> str:
        """The visible text: the text parts, or what the agent sent with `send_message`."""
        if self.text or self.role is not Role.assistant:
            return self.text
        sent = (_sent(call.arguments) for call in self.tool_calls if call.name == "send_message")
        return "\n".join(text for text in sent if text)


def _sent(arguments: str) -> str:
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return ""
    text: Any = cast("dict[str, Any]", value).get("message") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


# Text of a message whose row was damaged on the disk; compared by identity, because a client may send the same text.
LOST: tuple[Part, ...] = (Text("[This message is damaged on the disk and cannot be shown.]"),)


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message that a client sends, before it is a row."""

    role: Role
    content: tuple[Part, ...]
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    group_id: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and times as the provider counted them; None where it did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    load_ns: int | None = None  # time a local server took to load the model
    inference_ns: int | None = None  # time it took to read the prompt and to write the reply
    cost_micros: int = 0  # millionths of a dollar, of the calls whose price is known
    unpriced_calls: int = 0  # calls whose cost is unknown

    @property
    def cost_usd(self) -> float | None:
        """Dollars; None when a part of it is not known."""
        return None if self.unpriced_calls else self.cost_micros / 1_000_000

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.total_tokens + other.total_tokens,
            _sum(self.cached_input_tokens, other.cached_input_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            _sum(self.load_ns, other.load_ns),
            _sum(self.inference_ns, other.inference_ns),
            self.cost_micros + other.cost_micros,
            self.unpriced_calls + other.unpriced_calls,
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Filter for the messages of an agent. Cursors are absolute: `after` means newer, whatever the order.

    `descending` picks the newest `limit` rows; the answer is always oldest first.
    """

    limit: int | None = 100
    after: MessageId | None = None
    before: MessageId | None = None
    descending: bool = True
    run_id: RunId | None = None
    step_id: StepId | None = None
    conversation_id: str | None = None  # None = all, "default" = the unthreaded ones
    bytes_max: int | None = None  # the answer ends early where its messages have more


@dataclass(frozen=True, slots=True)
class MessageSearch:
    """Search among the messages of all agents. Without words every message matches, the newest first."""

    text: str
    limit: int = 50
    agent_id: AgentId | None = None
    conversation_id: str | None = None  # as in MessageQuery
    roles: tuple[Role, ...] = ()
    project_id: str | None = None
    template_id: str | None = None
    created_from: Micros | None = None
    created_to: Micros | None = None
    spoken: bool = False  # only messages that say something
    not_step: StepId | None = None  # the step whose messages are left out
    mode: SearchMode = "hybrid"
    mentions: tuple[Mention, ...] = ()  # the dates in the text: items of that time are better matches
