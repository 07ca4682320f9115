"""A part of an answer as JSON text, kept so that it need not be written again for every request."""

from dataclasses import dataclass

_OVERHEAD = 300  # bytes of the objects around a text


@dataclass(frozen=True, slots=True)
class EncodedJson:
    text: bytes

    @property
    def bytes(self) -> int:
        """Memory that it takes."""
        return len(self.text) + _OVERHEAD
