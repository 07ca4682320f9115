"""The last log lines of the server, for the operator, as a list or as a stream. Secrets are removed before a line is
written.

A stream keeps nothing of its own: it reads the lines that the server keeps, a few at a time, when its client has taken
the ones before. A client that is too slow is told how many lines gave way in the meantime.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from fastapi import Header, Query
from starlette.requests import Request

from kelpie.core.errors import Forbidden, InvalidInput, KelpieError
from kelpie.observe import logs
from kelpie.observe.recent_lines import LINES_MAX, RecentLine, RecentLines
from kelpie.server.http import sse
from kelpie.server.http.json_answer import JsonAnswer, built
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.sse import EventStream

router = resource("/kelpie/logs", "logs (Kelpie)")

TEXT_CHARS_MAX = 200
LOOK_S = 0.25  # between two looks at the kept lines while there is nothing new
PIECE = 100  # lines that a stream holds at a time
Level = Literal["debug", "info", "warning", "error"]
_GRAVER: dict[str, tuple[str, ...]] = {
    "debug": ("debug", "info", "warning", "error"),
    "info": ("info", "warning", "error"),
    "warning": ("warning", "error"),
    "error": ("error",),
}
_EVENT_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})")

AtLeast = Annotated[Level, Query(description="Return only lines of this level or graver.")]
Contains = Annotated[
    str, Query(max_length=TEXT_CHARS_MAX, description="Return only lines with this text, such as the id of a run.")
]


@router.get("", summary="Get the last log lines; for the operator (Kelpie)", response_model=None)
async def list_lines(
    api: CallerApi,
    after: Annotated[int, Query(ge=0, le=2**53, description="Return only lines after the one of this number.")] = 0,
    level: AtLeast = "debug",
    contains: Contains = "",
    limit: Annotated[int, Query(ge=1, le=LINES_MAX, description="Return at most this many lines: the newest.")] = 200,
) -> JsonAnswer:
    _check_operator(api)
    kept = logs.recent.after(after)
    found = list(filter(LineFilter(level, contains).matches, kept))
    last = kept[-1].number if kept else after
    return JsonAnswer({"lines": await built(found[-limit:], line_shape), "last": last})


@router.get("/stream", summary="Follow the log as events; for the operator (Kelpie)", response_model=None)
async def stream_lines(
    api: CallerApi,
    request: Request,
    level: AtLeast = "debug",
    contains: Contains = "",
    limit: Annotated[
        int, Query(ge=0, le=LINES_MAX, description="Begin with at most this many lines that are kept: the newest.")
    ] = 200,
    after: Annotated[
        str, Query(max_length=40, description="Begin after the event of this id. `Last-Event-ID` does the same.")
    ] = "",
    last_event_id: Annotated[str, Header(max_length=40)] = "",
) -> EventStream:
    """Each event is a line with its `number`, or `skipped`: how many lines a slow client has missed. The stream ends
    when the credential ends, and when the server stops.
    """
    _check_operator(api)
    wanted = LineFilter(level, contains)
    resumed = resumed_at(logs.recent, after or last_event_id)
    start = newest(logs.recent, wanted, limit) if resumed is None else resumed
    goes_on = _Admission(request.scope["admit_again"], request.app.state.stopping)
    frames = follow(logs.recent, wanted, start, goes_on)
    return EventStream(frames, ping=lambda: b": waiting\n\n", ping_s=api.settings.ping_s, stall_s=api.settings.stall_s)


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines a reader wants."""

    level: Level
    contains: str

    def matches(self, line: RecentLine) -> bool:
        return line.level in _GRAVER[self.level] and self.contains.lower() in line.text.lower()


async def follow(
    lines: RecentLines, wanted: LineFilter, start: int, goes_on: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """The lines after the one of this number, and then every new one, as events."""
    seen, told = start, start > 0  # only who has had lines before can miss some
    while await goes_on():
        piece = lines.after(seen)[:PIECE] if lines.last > seen else []
        if not piece:
            await asyncio.sleep(LOOK_S)
            continue
        if told and piece[0].number > seen + 1:
            yield sse.frame({"skipped": piece[0].number - seen - 1})
        told = True
        for line in filter(wanted.matches, piece):
            yield sse.frame(line_shape(line), f"{lines.origin}-{line.number}")
        seen = piece[-1].number
        await asyncio.sleep(0)  # a log of many lines that do not match must not keep others waiting


def newest(lines: RecentLines, wanted: LineFilter, limit: int) -> int:
    """The number before the newest lines that match, at most so many."""
    if limit == 0:
        return lines.last
    kept = list(filter(wanted.matches, lines.after(0)))
    return kept[-limit].number - 1 if limit <= len(kept) else 0


def resumed_at(lines: RecentLines, event_id: str) -> int | None:
    """The number of the line that an event was; None for none, and for one of another process. Raises InvalidInput."""
    if not event_id:
        return None
    found = _EVENT_ID.fullmatch(event_id)
    if found is None:
        raise InvalidInput("after", "must be the id of an event of this stream, such as 1a2b3c4d-17")
    return int(found[2]) if found[1] == lines.origin and int(found[2]) <= lines.last else None


def line_shape(line: RecentLine) -> dict[str, Any]:
    try:
        told = orjson.loads(line.text)
    except orjson.JSONDecodeError:  # it was cut
        told = {"level": line.level, "event": line.text}
    return {"number": line.number, "line": told}


def _check_operator(api: CallerApi) -> None:
    if not api.caller.operator:
        raise Forbidden("Only the operator may read the log; authenticate with the server password.")


@dataclass(frozen=True, slots=True)
class _Admission:
    """Whether a stream that began may go on: the server runs, and still accepts the credential."""

    admit_again: Callable[[], Awaitable[Any]]
    stopping: Callable[[], bool]

    async def __call__(self) -> bool:
        if self.stopping():
            return False
        try:
            await self.admit_again()
        except KelpieError:  # the client asks again and is told why
            return False
        return True
