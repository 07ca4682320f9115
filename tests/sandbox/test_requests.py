"""What runners answer, and what foreign code writes in their place: read without believing it, or making much of it."""

import json
import tracemalloc
from typing import Any

import pytest

from kelpie.sandbox.runner_messages import VALUE_CHARS_MAX, read_answer


def _told(**entries: Any) -> bytes:
    return json.dumps(entries).encode()


def test_a_value_comes_with_its_text() -> None:
    answer = read_answer(_told(ok=True, text="{'a': 1}", value={"a": [1, None, "é"]}))
    assert answer is not None and answer.ok
    assert (answer.text, answer.value) == ("{'a': 1}", {"a": [1, None, "é"]})
    compact = read_answer(b'{"ok":true,"text":"1, \\"value\\": 2","value":1}')
    assert compact is not None and (compact.text, compact.value) == ('1, "value": 2', 1)


def test_an_error_comes_with_its_way() -> None:
    answer = read_answer(_told(ok=False, error='no "x"', traceback="line 1\n"))
    assert answer is not None and not answer.ok
    assert (answer.text, answer.traceback) == ('no "x"', "line 1\n")


@pytest.mark.parametrize(
    "written",
    [
        b"", b"null", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"ok": 1, "text": "x", "value": 1}',
        b'{"ok": true, "text": ["x"], "value": 1}', b'{"ok": true, "text": "x"}', b'{"ok": true, "text": "x',
        b'{"ok": true, "error": "x", "traceback": ""}', b'{"ok": false, "error": "x", "traceback": 1}',
        b'{"ok": false, "error": "x"}', b'{"ok": true, "text": "x", "value": 1',
        b'{"text": "x", "ok": true, "value": 1}',
    ],
)  # fmt: skip
def test_of_what_is_no_answer_nothing_is_made(written: bytes) -> None:
    assert read_answer(written) is None


@pytest.mark.parametrize("value", [b"NaN", b"[1,", b"1}{", b"[" * 5000 + b"]" * 5000, b'"\\ud800"', b""])
def test_a_value_that_is_none_is_told_as_text(value: bytes) -> None:
    answer = read_answer(b'{"ok": true, "text": "words", "value": ' + value + b"}")
    assert answer is not None and answer.value == "words"


def test_what_cannot_be_stored_is_replaced() -> None:
    answer = read_answer(b'{"ok": true, "text": "a\\ud800b\\u0000c", "value": 1}')
    assert answer is not None and answer.text == "a?b\ufffdc"
    failed = read_answer(b'{"ok": false, "error": "\\udfff", "traceback": "\\ud800"}')
    assert failed is not None and (failed.text, failed.traceback) == ("?", "?")


def test_a_value_of_very_many_parts_is_not_taken_apart() -> None:
    """Sixteen megabytes of small lists would be hundreds of megabytes here, and seconds for everybody."""
    bomb = b'{"ok": true, "text": "x", "value": [' + b"[]," * (2 * 1024 * 1024) + b"0]}"
    tracemalloc.start()
    try:
        answer = read_answer(bomb)
        assert answer is not None and answer.value == "x"
        assert tracemalloc.get_traced_memory()[1] < 3 * len(bomb)
    finally:
        tracemalloc.stop()
    large = read_answer(_told(ok=True, text="y" * VALUE_CHARS_MAX, value="y" * VALUE_CHARS_MAX))
    assert large is not None and large.value == large.text == "y" * VALUE_CHARS_MAX
