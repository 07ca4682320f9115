"""Tool calls that wait for a client's decision or result, and the tools that a client runs by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.conversations.messages import CallAnswer, Message
from kelpie.core.ids import AgentId, MessageId, RunId
from kelpie.core.time import Micros


@dataclass(frozen=True, slots=True)
class PendingCalls:
    """The waiting calls of a conversation: `request` is the reply with the calls, `answers` those given so far.

    `runs` are those of the turn so far, the one that asked last, because tool rules apply to the whole turn.
    """

    agent_id: AgentId
    conversation: str
    request: MessageId
    runs: tuple[RunId, ...]
    requested_at: Micros
    answers: tuple[CallAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """The same for a person who answers: the message with the calls, and the calls that already have an answer."""

    agent_name: str
    conversation: str
    message: Message
    requested_at: Micros
    answered: frozenset[str]  # ids of calls


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client of one turn offers and runs. It takes precedence over a tool of the agent with the same
    name."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]
