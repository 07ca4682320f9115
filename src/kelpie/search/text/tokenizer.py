"""Tokenizer: a text as the numbers of its words, in their order, for the text index and its queries.

The words of a query that say nothing about its subject ("when", "did", "the") are left out of it; the index has them.
A word has neither case, nor accents, nor an English ending. Scripts without spaces are split character by character. A
word's number is a checksum of 32 bits: that one of 100,000 words has the number of the requested word happens once in
40,000 times, and then an item is found that does not contain it. No input can mean anything but words.
"""

import re
import struct
import unicodedata
from functools import lru_cache
from zlib import crc32

from kelpie.search.text.stemmer import LONGEST, stem
from kelpie.search.text.stop_words import telling

QUERY_TERMS_MAX = 32
QUERY_CHARS_MAX = 2000
_KNOWN_MAX = 65_536  # words whose numbers are remembered, but for very long ones: to make one takes 10 microseconds

_PLAIN = re.compile("[a-z0-9]+")


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of all words of a text."""
    return tuple(map(_numbered, _words(text)))


def packed(text: str) -> bytes:
    """The numbers of all words of a text, each in four bytes, the lowest first."""
    found = numbers(text)
    return struct.pack(f"<{len(found)}I", *found)


def asked(query: str) -> tuple[int, ...]:
    """The numbers of the words of a query that say what it is about, each once, up to the limit; all of its words if
    none of them does."""
    words = _words(query[:QUERY_CHARS_MAX])
    return tuple(dict.fromkeys(map(_numbered, telling(words))))[:QUERY_TERMS_MAX]


def _numbered(word: str) -> int:
    return _number(word) if len(word) <= LONGEST else crc32(word.encode())


def _words(text: str) -> list[str]:
    if text.isascii():
        return _PLAIN.findall(text.lower())
    return unicodedata.normalize("NFKD", text).casefold().translate(_SIGNS).split()


@lru_cache(maxsize=_KNOWN_MAX)
def _number(word: str) -> int:
    return crc32(stem(word).encode())


class _Signs(dict[int, str | None]):
    """The replacement of each character that is not a plain letter; computed once for each."""

    def __missing__(self, sign: int) -> str | None:
        self[sign] = found = _become(chr(sign))
        return found


def _become(sign: str) -> str | None:
    if unicodedata.combining(sign):
        return None  # an accent
    if not sign.isalnum() and unicodedata.category(sign)[0] != "M":
        return " "
    return f" {sign} " if _stands_alone(sign) else sign


def _stands_alone(sign: str) -> bool:
    """Checks whether it is of a script without spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese."""
    code = ord(sign)
    return (
        0x0E00 <= code <= 0x0EFF
        or 0x1000 <= code <= 0x109F
        or 0x1780 <= code <= 0x17FF
        or 0x3040 <= code <= 0x30FF
        or 0x3400 <= code <= 0x9FFF
        or 0x20000 <= code <= 0x3FFFF
    )


_SIGNS = _Signs()
