"""Health as a dashboard shows it: whether the server can work, how long runs wait, how searches work, and, for the
operator, the disk.
"""

from typing import Any

from starlette.requests import Request

from kelpie import __version__
from kelpie.core.conversations.runs import RunStatus
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/kelpie/health", "health (Kelpie)")

_NAMES = {RunStatus.created: "waiting", RunStatus.running: "running"}


@router.get("", summary="Get the health of the server and the age of its queue (Kelpie)", response_model=None)
async def health(api: CallerApi, request: Request) -> JsonAnswer:
    why: str | None = await request.app.state.why_not_ready()
    now, operator = api.world.clock.now(), api.caller.operator
    queue: dict[str, Any] = {name: {"runs": 0, "oldest_seconds": None} for name in _NAMES.values()}
    for each in await api.runs.backlog(everywhere=operator):
        seconds = max(0, now - each.oldest_at) / MICROS_PER_SECOND
        queue[_NAMES[each.status]] = {"runs": each.runs, "oldest_seconds": round(seconds, 3)}
    embedding = await api.archives.embedding()
    disk = api.world.disk_space() if operator else None
    return JsonAnswer(
        {
            "version": __version__,
            "ready": why is None,
            "why_not_ready": why,
            "queue": queue,
            "search": {
                "model": embedding.model,
                "degraded": embedding.lacking is not None,
                "remedy": embedding.lacking,
            },
            "disk": None if disk is None else {"total_bytes": disk.total_bytes, "free_bytes": disk.free_bytes},
        }
    )
