"""The health check and the readiness check.

`version` is the version of Letta whose API Kelpie implements: clients of Letta compare it with the oldest version that
they support. `kelpie_version` is the version of Kelpie.
"""

from starlette.requests import Request

from kelpie import __version__
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.router import resource

LETTA_VERSION = "0.16.8"

_VERSIONS = {"version": LETTA_VERSION, "kelpie_version": __version__}

router = resource("", "health")


@router.get("/health/", summary="Check that the server is running", response_model=None)
async def health() -> JsonAnswer:
    return JsonAnswer({**_VERSIONS, "status": "ok"})


@router.get("/ready/", summary="Check that the server can store what it accepts", response_model=None)
@router.get("/ready", include_in_schema=False, response_model=None)
async def ready(request: Request) -> JsonAnswer:
    why: str | None = await request.app.state.why_not_ready()
    if why is None:
        return JsonAnswer({**_VERSIONS, "status": "ok"})
    return JsonAnswer({**_VERSIONS, "status": "unavailable", "detail": why}, status_code=503)
