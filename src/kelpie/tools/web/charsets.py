"""Text out of bytes whose encoding a server, a byte order mark or the page itself tells. Pure.

Only encodings of web pages are taken: some of Python's others cost far more time than the text is long.
"""

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml[^>]{0,100}?encoding\s*=\s*["']([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_HEADER = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_LOOKED_AT = 4096
_FALLBACK = "cp1252"
_SAME = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}
_WEB = frozenset(
    {"utf-8", "utf-16-le", "utf-16-be", "utf-16", "big5", "euc_jp", "euc_kr", "gb18030", "iso2022_jp", "shift_jis"}
    | {"cp932", "cp949", "cp866", "cp874", "koi8-r", "koi8-u", "mac-roman", "tis-620"}
    | {f"cp{number}" for number in range(1250, 1259)}
    | {f"iso8859-{number}" for number in range(1, 17)}
)


def text_of(body: bytes, content_type: str, *, markup: bool) -> str:
    """The text. What cannot be decoded becomes a replacement character; with `markup`, declarations inside count."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    told = _HEADER.search(content_type)
    inside = _declared(body) if markup else None
    for name in (told[1] if told else None, inside):
        if name and (codec := _codec(name)):
            return body.decode(codec, "replace")
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode(_FALLBACK, "replace")


def _declared(body: bytes) -> str | None:
    start = body[:_LOOKED_AT]
    found = _DECLARED.search(start) or _XML.search(start)
    name = found[1].decode("ascii") if found else None
    # A declaration that could be read as ASCII is not in UTF-16.
    return "utf-8" if name and name.lower().startswith("utf-16") else name


def _codec(name: str) -> str | None:
    """Python's name of an encoding of the web; None for any other."""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return None
    found = _SAME.get(found, found)
    return found if found in _WEB else None
