"""Text of strangers as it may be written to a terminal or a log.

Control characters can clear a screen, change its title or forge lines; bidirectional controls make a text look like
another one. Logs escape everything that is not printable. Texts for people keep joiners and special spaces, which many
languages need.
"""

import re

# Control and bidirectional characters, line and paragraph separators, invisible ones, and halves of surrogate pairs.
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
_ALL_UNSAFE = re.compile(f"[{_UNSAFE}]")
_UNSAFE_BUT_LAYOUT = re.compile(rf"(?![\t\n])[{_UNSAFE}]")
_BREAKS = re.compile(r"[\t-\r\x1c-\x1f\x85\u2028\u2029]+")


def escaped(text: str) -> str:
    r"""The text with everything that is not printable written as `\x1b` or `\u202e`; for one line of a log."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in text)


def escaped_json(text: str) -> str:
    r"""JSON text with everything that is not printable, but line breaks, written as `\u001b`; its meaning stays."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else _json_escape(each) for each in text)


def on_one_line(text: str) -> str:
    """The text for people on one line: line breaks and tabs become spaces, unsafe characters are escaped."""
    return text if text.isprintable() else _ALL_UNSAFE.sub(_escape_found, _BREAKS.sub(" ", text))


def readable(text: str) -> str:
    """The text for people, with its line breaks and tabs; unsafe characters are escaped."""
    return text if text.isprintable() else _UNSAFE_BUT_LAYOUT.sub(_escape_found, text)


def without_unsafe(text: str) -> str:
    """The text for people, with its line breaks and tabs and without unsafe characters."""
    return text if text.isprintable() else _UNSAFE_BUT_LAYOUT.sub("", text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def _escape_found(found: re.Match[str]) -> str:
    return _escape(found[0])
