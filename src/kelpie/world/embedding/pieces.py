"""Pieces of texts that are embedded in one go, so that no caller waits for another's thousand texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PieceSize:
    """The most texts of one piece, and about how long they are together."""

    texts: int
    chars: int


ON_THIS_MACHINE = PieceSize(16, 4_000)  # what the model on this machine embeds in a fraction of a second
BY_A_SERVER = PieceSize(256, 200_000)


def pieces(texts: Sequence[str], size: PieceSize) -> Iterator[Sequence[str]]:
    """The texts in order, cut by their number and by their length; a long text is a piece of its own."""
    start = chars = 0
    for at, text in enumerate(texts):
        if at > start and (at - start == size.texts or chars + len(text) > size.chars):
            yield texts[start:at]
            start, chars = at, 0
        chars += len(text)
    if texts:
        yield texts[start:]
