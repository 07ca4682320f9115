"""The health check and the readiness check."""

from starlette.requests import Request

from kelpie import __version__
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.router import resource

router = resource("", "health")


@router.get("/health/", summary="Check that the server is running", response_model=None)
async def health() -> JsonAnswer:
    return JsonAnswer({"version": __version__, "status": "ok"})


@router.get("/ready/", summary="Check that the server can store what it accepts", response_model=None)
@router.get("/ready", include_in_schema=False, response_model=None)
async def ready(request: Request) -> JsonAnswer:
    why: str | None = await request.app.state.why_not_ready()
    if why is None:
        return JsonAnswer({"version": __version__, "status": "ok"})
    return JsonAnswer({"version": __version__, "status": "unavailable", "detail": why}, status_code=503)
