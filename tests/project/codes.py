"""The tables of codes in docs/errors.md and docs/operations.md, made from the registry and from the source.

python -m tests.project.codes        writes them into the pages
"""

import re
from pathlib import Path

from kelpie.core.codes.code import Code
from kelpie.core.codes.registry import AREAS, CODES
from kelpie.server.http.error_status import STATUS
from tests.project.log_events import OTHERS, all_events

DOCS = Path(__file__).parents[2] / "docs"
ERRORS_PAGE, EVENTS_PAGE = DOCS / "errors.md", DOCS / "operations.md"
TOO_MANY = 429
_ERRORS = re.compile(r"(?<=^## Codes\n).*?(?=^## )", re.MULTILINE | re.DOTALL)
_LIMITS = re.compile(r"(?<=^## Limits that return 429\n).*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_EVENTS = re.compile(
    r"(?<=^\| Code \| Level \| Meaning \| What to do \|\n\|---\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE
)


def levels() -> dict[str, str]:
    """The level of every log event, by its code."""
    return {event.code: event.level for event in all_events()} | OTHERS


def errors_page() -> str:
    """docs/errors.md as it should be."""
    text, found = _ERRORS.subn(lambda _: _error_tables(), ERRORS_PAGE.read_text())
    text, more = _LIMITS.subn(lambda _: _limit_table(), text)
    assert (found, more) == (1, 1)
    return text


def events_page() -> str:
    """docs/operations.md as it should be. Raises AssertionError for an event whose code has no entry."""
    known = levels()
    assert not (missing := known.keys() - CODES.keys()), f"add these to src/kelpie/core/codes: {sorted(missing)}"
    rows = (f"| `{name}` | {known[name]} | {_text(CODES[name])} |\n" for name in sorted(known))
    text, found = _EVENTS.subn(lambda _: "".join(rows), EVENTS_PAGE.read_text())
    assert found == 1
    return text


def _error_tables() -> str:
    parts: list[str] = []
    for area, codes in AREAS.items():
        shown = [code for code in codes if STATUS.get(code.name, TOO_MANY) != TOO_MANY]
        if shown:
            parts += ["", f"### {area}", "", *_table(shown)]
    return "\n".join((*parts, "", ""))


def _limit_table() -> str:
    shown = [code for codes in AREAS.values() for code in codes if STATUS.get(code.name) == TOO_MANY]
    intro = (
        "Each response has a `Retry-After` header with the number of seconds after which it makes sense to try again."
    )
    return "\n".join(("", intro, "", *_table(shown), "", ""))


def _table(codes: list[Code]) -> list[str]:
    rows = [f"| `{code.name}` | {STATUS[code.name]} | {_text(code)} |" for code in codes]
    return ["| Code | Status | Meaning | What to do |", "|---|---|---|---|", *rows]


def _text(code: Code) -> str:
    return f"{code.meaning} | {code.remedy or '—'}"


if __name__ == "__main__":
    ERRORS_PAGE.write_text(errors_page())
    EVENTS_PAGE.write_text(events_page())
