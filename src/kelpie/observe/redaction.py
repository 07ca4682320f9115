"""Makes a value fit to be logged: secrets are hidden, everything is cut to a bound, only plain values remain.

A secret is known by the name it is filed under or by its look. Numbers are never hidden: `total_tokens` is no token.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

TEXT_MAX = 2_000
TRACEBACK_MAX = 12_000
ITEMS_MAX = 50
DEPTH_MAX = 5
HIDDEN = "[hidden]"

_SECRET_NAME = re.compile(
    r"api[-_]?key|passw(or)?d|passphrase|authorization|secret|token|credential|cookie|private[-_]?key", re.IGNORECASE
)
_SECRET_LOOKS = (
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"), HIDDEN),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abpr]-|AKIA|AIza)[A-Za-z0-9_-]{10,}"), HIDDEN),
    (re.compile(r"\bkelpie-(?:key|token|session|hook|passport)_[A-Za-z0-9_-]+"), HIDDEN),
    (re.compile(r"(://[^\s:/@]*:)[^\s@]+(@)"), rf"\1{HIDDEN}\2"),
    (re.compile(r"([?&](?:api_?key|key|token|secret|password)=)[^&\s]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (
        re.compile(r"""(["']?\w*(?:api_?key|password|secret)\w*["']?\s*[=:]\s*["']?)[^\s"',}&]+""", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
)
# Each of the above contains one of these, in lower case, and few other texts do: to look for them costs a tenth.
_SUSPECT = ("bearer", "basic", "k-", "_", "glpat-", "xox", "akia", "aiza", "://", "key", "token=", "secret", "password")


@lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def fit(value: Any, name: str = "", depth: int = 0) -> Any:
    """The value as it may be logged under this name."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if name and _is_secret_name(name):
        return HIDDEN
    if isinstance(value, str):
        return fit_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if depth >= DEPTH_MAX:
        return "…"
    if isinstance(value, Mapping):
        return _fit_mapping(value, depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _fit_items(value, depth)
    return fit_text(str(value))


def fit_text(text: str, chars_max: int = TEXT_MAX) -> str:
    """The text without secrets, at most chars_max characters of it."""
    # Cut first, with room to spare, so that a huge text costs no more than a large one.
    shown = hide_secrets(text[: chars_max * 2])
    if len(text) <= chars_max and len(shown) <= chars_max * 2:
        return shown
    return f"{shown[:chars_max]}… ({len(text)} characters)"


def hide_secrets(text: str) -> str:
    """The text with everything that looks like a secret replaced."""
    folded = text.casefold()
    if not any([each in folded for each in _SUSPECT]):  # noqa: C419 - a generator takes twice as long
        return text
    for looks, instead in _SECRET_LOOKS:
        text = looks.sub(instead, text)
    return text


def _fit_mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for index, (key, item) in enumerate(value.items()):
        if index == ITEMS_MAX:
            shown["…"] = f"{len(value) - ITEMS_MAX} more"
            break
        name = str(key)[:100]
        shown[name] = fit(item, name, depth + 1)
    return shown


def _fit_items(value: Iterable[Any], depth: int) -> list[Any]:
    items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else list(value)
    shown = [fit(item, "", depth + 1) for item in items[:ITEMS_MAX]]
    return [*shown, f"… {len(items) - ITEMS_MAX} more"] if len(items) > ITEMS_MAX else shown
