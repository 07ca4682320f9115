"""Codes of errors and log events are stable names that programs and operators rely on: each has one meaning, in one
registry, and the pages list them all."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from kelpie.core.codes.registry import AREAS, CODES
from kelpie.core.errors import McpFault, ModelFault
from kelpie.server.http.error_status import STATUS
from tests.project.codes import DOCS, ERRORS_PAGE, EVENTS_PAGE, errors_page, events_page, levels
from tests.project.log_events import OTHERS, SOURCE, all_events

REMEDY = "run: python -m tests.project.codes"
# Where an error is made whose code is an argument, and which argument.
CODED_CALLS = {"Overloaded": 0, "Refused": 0, "refused": 0, "Refusal": 0, "SlotLimits": 0}


def _literal_codes(path: Path) -> Iterator[str]:
    """Codes that the classes of errors have, or that are given where an error is made."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            names = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(names[0], ast.Name) and names[0].id == "error_code":
                yield str(node.value.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CODED_CALLS and node.args:
            code = node.args[CODED_CALLS[node.func.id]]
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                yield code.value


def test_the_registry_has_what_is_used_and_nothing_else() -> None:
    faults = {kind.value for kind in ModelFault} | {f"mcp_{kind.value}" for kind in McpFault}
    literal = {code for path in SOURCE.rglob("*.py") for code in _literal_codes(path)}
    library = {"validation_failed", "head_late", "route_unknown", "mailbox_full", "rate_exceeded"}
    used_by_errors = faults | literal | library
    assert used_by_errors == set(STATUS), "an error code has a status in server/http/error_status.py"
    assert set(CODES) == set(STATUS) | set(levels()), "a code has an entry in core/codes"


def test_a_code_is_registered_once_and_says_what_to_do_in_sentences() -> None:
    codes = [code for area in AREAS.values() for code in area]
    assert len(codes) == len(CODES)
    for area in AREAS.values():
        assert [code.name for code in area] == sorted(code.name for code in area)
    for code in codes:
        assert re.fullmatch(r"[a-z]+(?:_[a-z]+){0,5}", code.name)
        assert code.meaning.endswith(".") and (code.remedy or ".").endswith("."), code
        assert "|" not in code.meaning + code.remedy


def test_a_remedy_names_only_settings_and_commands_that_exist() -> None:
    said = " ".join(code.meaning + code.remedy for code in CODES.values())
    settings, commands = (DOCS / "settings.md").read_text(), (DOCS / "cli.md").read_text()
    assert [name for name in re.findall(r"KELPIE_[A-Z_]+", said) if f"`{name}`" not in settings] == []
    assert [name for name in re.findall(r"`(kelpie [a-z ]+)`", said) if f"## {name}" not in commands] == []


def test_the_pages_say_what_the_registry_says() -> None:
    assert ERRORS_PAGE.read_text() == errors_page(), REMEDY
    assert EVENTS_PAGE.read_text() == events_page(), REMEDY


def test_a_log_code_has_one_sentence_and_a_sentence_one_code() -> None:
    pairs = {(event.code, event.sentence) for event in all_events()}
    assert len(pairs) > 80
    assert len(pairs) == len({code for code, _ in pairs}) == len({sentence for _, sentence in pairs})


def test_log_codes_are_short_snake_case_phrases() -> None:
    codes = {event.code for event in all_events()} | set(OTHERS)
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(?:_[a-z]+){1,4}", code)] == []
