"""Environments: in Letta's cloud these are devices on which a client runs. Here there is one: this server.

No device is connected to it, so it takes no messages for one: `missing_routes` has the reason.
"""

from typing import Annotated, Any, Literal

from fastapi import Path, Query

from kelpie import __version__
from kelpie.core.access.callers import Caller
from kelpie.core.errors import NotFound
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.compatibility.health_routes import LETTA_VERSION

router = resource("/environments", "environments")

DEVICE = "kelpie"
ID_CHARS_MAX = 200
LIMIT_MAX = 1_000
_US_PER_MS = 1000

Short = Annotated[str | None, Query(max_length=ID_CHARS_MAX)]
DevicePath = Annotated[str, Path(max_length=ID_CHARS_MAX)]


@router.get("", summary="List the environments: this server", response_model=None)
@router.get("/", include_in_schema=False, response_model=None)
async def list_environments(
    api: CallerApi,
    after: Short = None,
    limit: Annotated[int, Query(ge=0, le=LIMIT_MAX)] = LIMIT_MAX,
    online_only: Annotated[str | None, Query(alias="onlineOnly", max_length=ID_CHARS_MAX)] = None,
    source: Literal["local", "remote"] | None = None,
    user_id: Annotated[str | None, Query(alias="userId", max_length=ID_CHARS_MAX)] = None,
) -> JsonAnswer:
    hidden = after is not None or source == "local" or user_id is not None or limit == 0
    shown = [] if hidden else [_server(api.caller, api.world.clock.now())]
    return JsonAnswer({"connections": shown, "hasNextPage": False})


@router.get("/{device_id}", summary="Get an environment: this server", response_model=None)
async def retrieve_environment(api: CallerApi, device_id: DevicePath) -> JsonAnswer:
    if device_id != DEVICE:
        raise NotFound("Environment", device_id)
    return JsonAnswer(_server(api.caller, api.world.clock.now()))


def _server(caller: Caller, now: int) -> dict[str, Any]:
    """The server. It is seen now, and for how long it has been there nobody asks it."""
    at = now // _US_PER_MS
    return {
        "id": DEVICE,
        "connectionId": DEVICE,
        "connectionName": "Kelpie server",
        "deviceId": DEVICE,
        "organizationId": caller.organization_id,
        "podId": None,
        "userId": None,
        "apiKeyOwner": None,
        "currentMode": None,
        "connectedAt": None,
        "firstSeenAt": at,
        "lastSeenAt": at,
        "lastHeartbeat": at,
        "metadata": {"kelpieVersion": __version__, "lettaVersion": LETTA_VERSION},
    }
