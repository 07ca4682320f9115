"""The demo model's view of a request: the messages, its own steps so far, and the memory in the prompt."""

import re
from dataclasses import dataclass

import orjson

from kelpie.core.conversations.messages import Message, Role, ToolReturn
from kelpie.llm.provider.interface import Request

_BLOCK = re.compile(
    r"<(?P<label>[^<>\s]+)>\s*"
    r"(?:<description>(?:.*?)</description>\s*)?"
    r"(?:<metadata>(?P<metadata>.*?)</metadata>\s*)?"
    r"<value>\n?(?P<value>.*?)\n?</value>\s*</(?P=label)>",
    re.DOTALL,
)
_SERVER_MADE = ("heartbeat", "login", "system_alert")


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory block as the prompt shows it."""

    label: str
    value: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """The current turn: `said` is the message that began it, `steps` the number of the model's answers since."""

    said: str
    steps: int
    returns: tuple[ToolReturn, ...]


def read_turn(request: Request) -> Turn:
    """The turn this request belongs to."""
    steps, returns = 0, list[ToolReturn]()
    for prepared in reversed(request.messages):
        message = prepared.message
        said = _said(message)
        if said is not None:
            return Turn(said, steps, tuple(reversed(returns)))
        steps += message.role is Role.assistant or bool(message.tool_calls)
        returns += reversed(message.tool_returns)
    return Turn("", steps, tuple(reversed(returns)))


def read_memory(system: str) -> list[Memory]:
    """The memory blocks in a system prompt."""
    _, _, rendered = system.partition("<memory_blocks>")
    return [
        Memory(found["label"], found["value"], "read_only=true" in (found["metadata"] or ""))
        for found in _BLOCK.finditer(rendered)
    ]


def unwrap(text: str) -> str:
    """The message inside a JSON envelope, or the text itself when it is in none."""
    packed = _packed(text)
    return str(packed["message"]) if isinstance(packed.get("message"), str) else text


def _said(message: Message) -> str | None:
    """A person's text in this message; None when it is not a person's."""
    if message.role not in (Role.user, Role.system) or message.tool_returns:
        return None
    return None if _packed(message.text).get("type") in _SERVER_MADE else unwrap(message.text).strip()


def _packed(text: str) -> dict[str, object]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}
