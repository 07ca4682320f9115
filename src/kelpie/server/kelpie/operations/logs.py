"""The last log lines of the server, for the operator. Secrets are removed before a line is written."""

from typing import Annotated, Any, Literal

import orjson
from fastapi import Query

from kelpie.core.errors import Forbidden
from kelpie.observe import logs
from kelpie.observe.recent_lines import RecentLine
from kelpie.server.http.caller_api import CallerApi
from kelpie.server.http.json_answer import JsonAnswer, built
from kelpie.server.http.router import resource

router = resource("/kelpie/logs", "logs (Kelpie)")

LIMIT_MAX = 2000
TEXT_CHARS_MAX = 200
Level = Literal["debug", "info", "warning", "error"]
_GRAVER: dict[str, tuple[str, ...]] = {
    "debug": ("debug", "info", "warning", "error"),
    "info": ("info", "warning", "error"),
    "warning": ("warning", "error"),
    "error": ("error",),
}


@router.get("", summary="Get the last log lines; for the operator (Kelpie)", response_model=None)
async def list_lines(
    api: CallerApi,
    after: Annotated[int, Query(ge=0, le=2**53, description="Return only lines after the one of this number.")] = 0,
    level: Annotated[Level, Query(description="Return only lines of this level or graver.")] = "debug",
    contains: Annotated[
        str, Query(max_length=TEXT_CHARS_MAX, description="Return only lines with this text, such as the id of a run.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Return at most this many lines: the newest.")] = 200,
) -> JsonAnswer:
    if not api.caller.operator:
        raise Forbidden("Only the operator may read the log; authenticate with the server password.")
    kept = logs.recent.after(after)
    found = [line for line in kept if line.level in _GRAVER[level] and contains.lower() in line.text.lower()]
    last = kept[-1].number if kept else after
    return JsonAnswer({"lines": await built(found[-limit:], line_shape), "last": last})


def line_shape(line: RecentLine) -> dict[str, Any]:
    try:
        told = orjson.loads(line.text)
    except orjson.JSONDecodeError:  # it was cut
        told = {"level": line.level, "event": line.text}
    return {"number": line.number, "line": told}
