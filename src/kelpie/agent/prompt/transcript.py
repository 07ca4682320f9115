"""A history as a text that a model can sum up, in pieces that each fit its window.

Thoughts are left out, images are named, long results lose their middle: what is summed up is what was said and done.
"""

from collections.abc import Iterable, Iterator

from kelpie.agent.prompt.summary import read_summary
from kelpie.core.conversations.messages import Image, Message, Part, Role, Text
from kelpie.core.token_estimates import byte_length

RESULT_CHARS_MAX = 4_000
PIECES_MAX = 16
LEFT_OUT = "[Earlier messages are omitted here. They are still in the history.]"
_CUT = "\n[... {count} characters omitted ...]\n"
_WHO = {Role.user: "user", Role.system: "system", Role.assistant: "assistant", Role.approval: "assistant"}


def transcript(said: Iterable[Message]) -> Iterator[str]:
    """One text for each message, call and result."""
    for message in said:
        if message.role is Role.summary:
            yield f"[summary of earlier messages] {read_summary(message).text}"
            continue
        if (text := "\n".join(filter(None, map(_shown, message.content)))) and message.role in _WHO:
            yield f"[{_WHO[message.role]}] {text}"
        for call in message.tool_calls:
            yield f"[assistant calls {call.name}] {clipped(call.arguments, RESULT_CHARS_MAX)}"
        for result in message.tool_returns:
            outcome = "result" if result.ok else "failure"
            yield f"[{outcome} of {result.name}] {clipped(result.text, RESULT_CHARS_MAX)}"


def pieces(lines: Iterable[str], size: int) -> list[str]:
    """The lines together in texts of at most so many bytes; of more than PIECES_MAX the oldest are left out."""
    made: list[str] = []
    piece, weight = list[str](), 0
    for line in _short(lines, size):
        if piece and weight + byte_length(line) + 1 > size:
            made.append("\n".join(piece))
            piece, weight = [], 0
        piece.append(line)
        weight += byte_length(line) + 1
    if piece:
        made.append("\n".join(piece))
    if len(made) <= PIECES_MAX:
        return made
    return [f"{LEFT_OUT}\n{made[-PIECES_MAX]}", *made[-PIECES_MAX + 1 :]]


def _short(lines: Iterable[str], size: int) -> Iterator[str]:
    """The lines, those that would fill a piece alone broken up."""
    for line in lines:
        if byte_length(line) < size:
            yield line
            continue
        chars = max(1, (size - 1) // 4 if not line.isascii() else size - 1)
        yield from (line[start : start + chars] for start in range(0, len(line), chars))


def clipped(text: str, chars_max: int) -> str:
    """The text, without its middle when it is longer."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return text[:half] + _CUT.format(count=len(text) - 2 * half) + text[len(text) - half :]


def _shown(part: Part) -> str | None:
    match part:
        case Text():
            return part.text
        case Image():
            return "[an image]"
        case _:
            return None
