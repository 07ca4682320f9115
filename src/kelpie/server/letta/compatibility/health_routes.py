"""The health check."""

from kelpie import __version__
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.router import resource

router = resource("", "health")


@router.get("/health/", summary="Check that the server is running", response_model=None)
@router.get("/ready/", summary="Check that the server accepts requests", response_model=None)
@router.get("/ready", include_in_schema=False, response_model=None)
async def health() -> JsonAnswer:
    return JsonAnswer({"version": __version__, "status": "ok"})
