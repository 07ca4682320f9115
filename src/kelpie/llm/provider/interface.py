"""Interface of model providers for the agent loop; it contains nothing about any wire format.

`stream` is the one path: it yields deltas when the request asks for them and ends with exactly one `Reply`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from kelpie.core.access.consumers import SERVER, Consumer
from kelpie.core.conversations.messages import Message, Part, ToolCall, Usage


class PreparedMessage:
    """A message ready for a prompt, with a cache for its encoded form in each wire format.

    The history of an agent is encoded once, not once per call.
    """

    __slots__ = ("blind", "message", "picture_chars", "pictures", "wire")

    def __init__(self, message: Message) -> None:
        images = message.images
        self.message = message
        self.wire: dict[str, bytes] = {}
        self.pictures = len(images)
        self.picture_chars = sum(len(image.source.get("data") or "") for image in images)
        self.blind: tuple[str, PreparedMessage] | None = None  # the same with words in the place of its images


@dataclass(slots=True)
class EncodedBeginning:
    """The beginning of a conversation as one wire format writes it: its first `count` messages."""

    count: int
    closed: bytearray  # what no later message changes
    open: Any = None  # what a later message may still be joined with, in a form of the wire format's own


class PreparedHistory(list[PreparedMessage]):
    """The messages of a prompt, none of which has an image. The first `settled` are those of every later prompt as
    well, so what one prompt has encoded of them is kept in `encoded`, by wire format, for the next.
    """

    __slots__ = ("encoded", "settled")

    def __init__(self, settled: Sequence[PreparedMessage], encoded: dict[str, EncodedBeginning]) -> None:
        super().__init__(settled)
        self.settled = len(settled)
        self.encoded = encoded

    def beginning(self, wire: str) -> EncodedBeginning:
        """As far as it is encoded in this format; the caller adds what is missing."""
        found = self.encoded.get(wire)
        if found is None or found.count > self.settled:  # that of a later prompt is of no use
            found = self.encoded[wire] = EncodedBeginning(0, bytearray())
        return found

    def unencoded(self, wire: str) -> list[PreparedMessage]:
        """The settled messages that are missing from the beginning."""
        return self[self.beginning(wire).count : self.settled]

    @property
    def unsettled(self) -> list[PreparedMessage]:
        return self[self.settled :]


@dataclass(frozen=True, slots=True)
class ToolSchema:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    model: str  # the provider's own name for it, without the provider prefix
    system: str
    messages: Sequence[PreparedMessage]  # without the system message
    tools: Sequence[ToolSchema] = ()
    tool_choice: str = "auto"  # "auto", "required", "none", or the name of the one tool to call
    parallel_tool_calls: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    deltas: bool = False  # true if the caller wants tokens as they come
    user: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    consumer: Consumer = SERVER  # who takes turns with others for the limits of the provider


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of a thought; a `hidden` one has its whole opaque form in one piece, empty when there is none."""

    text: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of the call at `index`: id and name come with the first piece, arguments in fragments."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeRecord:
    """The request body, and the response body if it came in one piece."""

    sent: bytes
    received: bytes | None


@dataclass(frozen=True, slots=True)
class Reply:
    content: tuple[Part, ...]
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str  # "stop", "tool_calls", "length", "content_filter"
    usage: Usage
    answered_by: str | None = None  # the handle of the model that stood in for the one asked for
    exchanged: ExchangeRecord | None = field(default=None, compare=False, repr=False)  # None: no wire was used


Event = TextDelta | ReasoningDelta | ToolCallDelta | Reply


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model a provider offers."""

    handle: str
    name: str
    provider_name: str
    provider_type: str
    context_window: int
    endpoint: str
    max_tokens: int | None = None  # default limit on a reply; None when not known
    tools: bool = True  # true if it calls tools; most do, and one that does not reports that
    vision: bool = False
    structured_output: bool = False  # true if a JSON schema can be enforced on a reply
    reasoning: bool = False
    streaming: bool = True
    category: str = "base"  # "byok" if its provider was added by an organization
    temperature: float | None = 1.0  # default for an agent; None leaves it to the server
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])  # defaults for an agent's settings


@dataclass(frozen=True, slots=True)
class EmbeddingInfo:
    handle: str
    name: str
    provider_name: str
    provider_type: str
    dimensions: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class HiddenModel:
    """A model that exists but cannot chat. A provider with such models lists them as `hidden`."""

    name: str
    reason: str
    embeds: bool = False  # true for an embedding model


class ChatModel(Protocol):
    """Anything that answers a request: a provider, a provider within limits, or a chain of models."""

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Calls the model. Raises ModelError, also after some deltas were yielded.

        A caller that may stop before the end wraps it in `contextlib.aclosing`, so that the connection is released at
        once; `completion.complete` does so.
        """
        ...


class ChatProvider(ChatModel, Protocol):
    """Provider as far as its chat models are asked."""

    name: str

    def describe(self, name: str) -> ModelInfo:
        """Known facts about a model by its name alone, without a request."""
        ...


class Provider(ChatProvider, Protocol):
    """Provider of chat models that can be listed; it may have embedding models."""

    async def models(self) -> Sequence[ModelInfo]:
        """The chat models on offer. Raises ModelError."""
        ...

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """The embedding models on offer. Raises ModelError."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class EmbeddingProvider(Protocol):
    """A provider with embedding models."""

    async def embed(self, info: EmbeddingInfo, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """One vector per text, as little-endian 32-bit floats, `info.dimensions` each. Raises ModelError.

        `patient` means that no caller waits: a model on this machine then runs at the lowest priority.
        """
        ...


@runtime_checkable
class PayloadProvider(Protocol):
    """A provider with a wire format that can show the request it would send."""

    async def payload(self, request: Request) -> bytes:
        """The body of the call, as JSON, without making it. Raises ModelError when a server must be asked first."""
        ...
