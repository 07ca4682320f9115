"""A partial reply, for the wire formats that number its blocks: text, thoughts and calls, grown piece by piece.

Each format has its own names of blocks and events; this module has what they share.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from kelpie.core.conversations.messages import HiddenReasoning, Part, Reasoning, Text, ToolCall
from kelpie.llm.provider.interface import ReasoningDelta, TextDelta, ToolCallDelta
from kelpie.llm.wire.exchange import Delta, Unreadable

Kind = Literal["text", "thought", "hidden", "call", "other"]


class Block:
    """One block. A thought's `secret` is its signature; for a hidden one it is the whole content."""

    __slots__ = ("call_index", "given", "id", "kind", "name", "part", "pieces", "secret", "settled")

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self.pieces: list[str] = []
        self.secret = ""
        self.id = ""
        self.name = ""
        self.call_index = 0
        self.given = ""  # the arguments of a call as they stood when it began, for one that has no pieces
        self.part: object = None  # the part of a thought that the last piece belonged to
        self.settled = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Blocks:
    """The blocks received so far. `made_id` gives an id to the n-th call when the server gave none."""

    def __init__(self, made_id: Callable[[int], str]) -> None:
        self._made_id = made_id
        self._blocks: dict[int, Block] = {}
        self._calls = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, index: int) -> Block | None:
        return self._blocks.get(index)

    def at(self, index: int) -> Block:
        """The block that a piece belongs to. Raises Unreadable."""
        block = self._blocks.get(index)
        if block is None:
            raise Unreadable("a content block continued before it began")
        return block

    def begin(self, index: int, kind: Kind) -> Block:
        block = self._blocks[index] = Block(kind)
        return block

    def begin_call(self, index: int, name: object, given_id: object) -> Iterator[Delta]:
        """Begins a tool call; without an id of its own, or with one that is taken, it gets a generated one.

        Raises Unreadable when it has no name.
        """
        if not isinstance(name, str) or not name:
            raise Unreadable("a tool call has no name")
        taken = any(block.id == given_id for block in self._blocks.values())
        block = self.begin(index, "call")
        block.name = name
        block.call_index, self._calls = self._calls, self._calls + 1
        usable = isinstance(given_id, str) and given_id and not taken
        block.id = str(given_id) if usable else self._made_id(block.call_index)
        yield ToolCallDelta(block.call_index, block.id, block.name)

    def grow(self, block: Block, piece: object) -> Iterator[Delta]:
        if not isinstance(piece, str) or not piece:
            return
        block.pieces.append(piece)
        match block.kind:
            case "text":
                yield TextDelta(piece)
            case "thought":
                yield ReasoningDelta(piece)
            case "call":
                yield ToolCallDelta(block.call_index, arguments=piece)
            case _:
                return

    def hide(self, block: Block, secret: str) -> Iterator[Delta]:
        """Makes it a thought that the provider does not disclose."""
        block.kind, block.secret = "hidden", secret
        yield ReasoningDelta(secret, hidden=True)

    def parts(self) -> tuple[tuple[Part, ...], tuple[ToolCall, ...]]:
        """Content and calls, in the order of their numbers."""
        content: list[Part] = []
        calls: list[ToolCall] = []
        for _, block in sorted(self._blocks.items()):
            match block.kind:
                case "text" if block.pieces:
                    content.append(Text(block.text))
                case "thought" if block.pieces or block.secret:
                    content.append(Reasoning(block.text, signature=block.secret or None))
                case "hidden":
                    content.append(HiddenReasoning(block.secret))
                case "call":
                    calls.append(ToolCall(block.id, block.name, block.text or block.given))
                case _:
                    pass
        return tuple(content), tuple(calls)


def number(data: Mapping[str, Any], field: str) -> int:
    """The number of the block that an event is about. Raises Unreadable."""
    index = data.get(field)
    if not isinstance(index, int):
        raise Unreadable("an event does not name its content block")
    return index


def count(value: object) -> int | None:
    """Tokens as a server counts them; None when it does not."""
    return int(value) if isinstance(value, int | float) else None
