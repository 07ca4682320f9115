"""Events out of bytes, however these are cut; the independent reader is that of httpx-sse."""

import random

import httpx
import httpx_sse
import pytest

from kelpie.world.http.event_stream import EventReader, ServerEvent

ENDS = ("\n", "\r\n", "\r")
LINES = (
    "data: plain",
    "data:no space",
    "data:  two spaces",
    "data",
    'data: {"text": "déjà vu 🐕"}',
    "event: error",
    "event: message_start",
    ": a comment",
    "id: 7",
    "retry: 10",
    "unknown: field",
    "",
    "",
    "",
)


def read(*pieces: bytes) -> list[ServerEvent]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def cut(text: bytes, chance: random.Random) -> list[bytes]:
    marks = sorted(chance.choices(range(len(text) + 1), k=chance.randint(0, 12)))
    return [text[a:b] for a, b in zip([0, *marks], [*marks, len(text)], strict=True)]


def told_by_the_other(text: bytes) -> list[tuple[str, str]]:
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=text)
    # A nameless event is called "message" there.
    read = httpx_sse.EventSource(response).iter_sse()
    events = [("" if event.event == "message" else event.event, event.data) for event in read]
    return [event for event in events if event != ("", "")]


@pytest.mark.parametrize("seed", range(100))
def test_what_is_read_depends_neither_on_cuts_nor_on_line_ends(seed):
    chance = random.Random(seed)
    lines = [chance.choice(LINES) for _ in range(chance.randint(1, 40))]
    if chance.random() < 0.5:
        end = chance.choice(ENDS)
        text = "".join(line + end for line in lines).encode()
    else:
        text = "".join(line + chance.choice(ENDS[:2]) for line in lines).encode()
    found = read(*cut(text, chance))
    assert found == read(text) == read(*(bytes([byte]) for byte in text))
    assert [(event.name, event.data) for event in found if event != ServerEvent("", "")] == told_by_the_other(text)


def test_lines_of_data_are_joined():
    assert read(b"data: one\ndata: two\n\n") == [ServerEvent("", "one\ntwo")]


def test_an_event_that_is_cut_off_is_not_told():
    assert read(b"data: one\n\ndata: tw") == [ServerEvent("", "one")]
    assert read(b"data: one\n\ndata: two\n") == [ServerEvent("", "one")]


def test_a_mark_at_the_beginning_is_no_text():
    assert read(b"\xef", b"\xbb\xbfdata: one\n\n") == [ServerEvent("", "one")]


def test_bytes_that_are_no_text_break_nothing():
    assert read(b"data: a\xffb\n\n") == [ServerEvent("", "a�b")]


def test_a_long_line_in_many_pieces():
    assert read(b"data: ", *([b"x" * 1000] * 1000), b"\n\n") == [ServerEvent("", "x" * 1_000_000)]
