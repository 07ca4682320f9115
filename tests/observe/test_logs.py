"""What operators rely on in the logs: the fixed fields, no secrets, bounded lines, work that never fails for a log."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kelpie.observe import logs
from kelpie.observe.redaction import HIDDEN, TEXT_MAX, TRACEBACK_MAX


@pytest.fixture
def sink() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", stream, now=lambda: 1_700_000_000_123_456)
    yield stream
    logs.configure("warning")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_utc_time_level_component_code_and_facts(sink: io.StringIO) -> None:
    logs.get("agent").info("turn_ended", "Turn ended", steps=2)
    assert lines(sink) == [
        {
            "time": "2023-11-14T22:13:20.123456Z",
            "level": "info",
            "component": "agent",
            "code": "turn_ended",
            "event": "Turn ended",
            "steps": 2,
        }
    ]


def test_lines_below_the_level_are_dropped(sink: io.StringIO) -> None:
    logs.get("agent").debug("detail", "detail")
    assert sink.getvalue() == ""


async def test_bound_ids_follow_the_task_and_no_other(sink: io.StringIO) -> None:
    async def work(request_id: str) -> None:
        with logs.bind(request_id=request_id, run_id=None):
            await asyncio.sleep(0)
            logs.get("server").info("inside", "inside")

    await asyncio.gather(work("req-1"), work("req-2"))
    logs.get("server").info("outside", "outside")
    assert [line.get("request_id") for line in lines(sink)] == ["req-1", "req-2", None]
    assert all("run_id" not in line for line in lines(sink))


def test_nested_binds_give_the_outer_value_back(sink: io.StringIO) -> None:
    log = logs.get("server")
    with logs.bind(run_id="run-outer"):
        with logs.bind(run_id="run-inner"):
            log.info("a", "a")
        log.info("b", "b")
    assert [line["run_id"] for line in lines(sink)] == ["run-inner", "run-outer"]


@pytest.mark.parametrize(
    "name", ["api_key", "apiKey", "OPENAI_API_KEY", "password", "Authorization", "client_secret", "token", "cookie"]
)
def test_a_value_under_a_secret_name_is_hidden_at_any_depth(sink: io.StringIO, name: str) -> None:
    logs.get("llm").info("call", "call", **{name: "hunter2", "nested": {"list": [{name: "hunter2"}]}})
    assert "hunter2" not in sink.getvalue()
    assert HIDDEN in sink.getvalue()


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("refused: sk-proj-abcdefgh12345678", "abcdefgh12345678"),
        ("Authorization: Bearer abc.def-ghi_jkl", "abc.def-ghi_jkl"),
        ("could not reach postgresql://kelpie:hunter2@db:5432/kelpie", "hunter2"),
        ("GET https://example.org/v1?key=hunter2hunter2&x=1", "hunter2"),
        ("{'openai_api_key': 'hunter2'}", "hunter2"),
        ("password=hunter2 host=db", "hunter2"),
        *(
            (f"the credential {kind}_0123_hunter2hunter2 was refused", "hunter2")
            for kind in ("kelpie-key", "kelpie-token", "kelpie-session", "kelpie-hook", "kelpie-passport")
        ),
    ],
)
def test_a_secret_inside_a_text_is_hidden(sink: io.StringIO, text: str, secret: str) -> None:
    log = logs.get("llm")
    log.info("failed", "failed", detail=text)
    log.info("failed", text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        log.exception("failed", "failed")
    assert secret not in sink.getvalue()
    assert len(lines(sink)) == 3


def test_counts_of_tokens_are_not_secrets(sink: io.StringIO) -> None:
    logs.get("llm").info("usage", "usage", total_tokens=12, prompt_tokens=7)
    assert lines(sink)[0]["total_tokens"] == 12


def test_every_value_is_bounded(sink: io.StringIO) -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    logs.get("agent").info(
        "long", "x" * 100_000, text="y" * 100_000, items=list(range(100_000)), raw=b"z" * 100_000, endless=endless
    )
    [line] = lines(sink)
    assert len(line["text"]) < TEXT_MAX + 50 and len(line["event"]) < TEXT_MAX + 50
    assert "100000 characters" in line["text"]
    assert len(sink.getvalue()) < 3 * TEXT_MAX


def test_a_traceback_is_kept_with_its_end_and_bounded(sink: io.StringIO) -> None:
    def deep(depth: int) -> None:
        if depth == 0:
            raise ValueError("the cause")
        deep(depth - 1)

    try:
        deep(300)
    except ValueError:
        logs.get("agent").exception("turn_failed", "turn failed")
    [line] = lines(sink)
    assert line["level"] == "error"
    assert line["exception"].endswith("ValueError: the cause")
    assert len(line["exception"]) <= TRACEBACK_MAX


def test_a_value_with_line_breaks_cannot_forge_a_line() -> None:
    stream = io.StringIO()
    for human in (False, True):
        logs.configure("info", stream, human=human)
        logs.get("server").info("got", "got\n2026 error forged", value="a\nerror forged")
    logs.configure("warning")
    assert len(stream.getvalue().splitlines()) == 2


HOSTILE = "/v1/\x1b]0;PWNED\x07\x1b[31mRED\x9b2J\u202etxt\u2066\u200f\u061c"


@pytest.mark.parametrize("human", [False, True])
def test_no_control_character_gets_into_a_line(human: bool) -> None:
    stream = io.StringIO()
    logs.configure("info", stream, human=human)
    with logs.bind(request_id=HOSTILE):
        logs.get(HOSTILE).info("got", HOSTILE, path=HOSTILE, items=[HOSTILE], **{"na\x1bme": HOSTILE})
    try:
        raise ValueError(f"{HOSTILE}\n2026-01-01T00:00:00.000000Z error   server   forged [forged]")
    except ValueError:
        logs.get("server").exception("failed", "failed")
    logs.configure("warning")
    lines = stream.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    if human:
        assert r'path="/v1/\u001b]0;PWNED' in lines[0] and r"\u202etxt" in lines[0]
        assert all(line.startswith("  ") for line in lines[2:]), "a message cannot pretend to be a line"
    else:
        got, failed = map(json.loads, lines)
        assert got["path"] == got["event"] == HOSTILE, "nothing is lost"
        assert HOSTILE in failed["exception"]


def test_the_text_form_shows_the_code_next_to_the_sentence() -> None:
    stream = io.StringIO()
    logs.configure("info", stream, human=True)
    logs.get("agent").warning("approval_expired", "Approval expired", tool="wipe", code="forged")
    logs.configure("warning")
    assert stream.getvalue() == "- warning agent    Approval expired [approval_expired]  tool=wipe\n"


def test_what_libraries_log_becomes_a_line_of_ours(sink: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").warning("slow %s", "client")
    logging.getLogger("uvicorn.error").info("chatter")
    assert [(line["component"], line["code"], line["event"]) for line in lines(sink)] == [
        ("uvicorn.error", "library_message", "slow client")
    ]


class BrokenSink(io.StringIO):
    broken = True

    def write(self, text: str, /) -> int:
        if self.broken:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_sink_that_fails_costs_lines_and_the_loss_is_told() -> None:
    sink = BrokenSink()
    logs.configure("info", sink)
    logs.get("agent").info("one", "one")
    logs.get("agent").info("two", "two")
    sink.broken = False
    logs.get("agent").info("three", "three")
    logs.configure("warning")
    assert [(line["code"], line.get("lost")) for line in lines(sink)] == [("log_lines_lost", 2), ("three", None)]
