"""Checkpoints over HTTP: an agent's whole memory as one document, saved and restored. The document is
streamed to disk and read from there.
"""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/agents/{agent_id}/memory", "checkpoints (Kelpie)")

Overwrite = Annotated[bool, Query(description="Also replace blocks and archives shared with other agents.")]
_DOCUMENT = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}


@router.get("/checkpoint", summary="Get a checkpoint of an agent's whole memory (Kelpie)", response_model=None)
async def take(api: CallerApi, agent_id: AgentPath) -> Response:
    return Response(await api.checkpoints.take(agent_id), media_type="application/json")


@router.post(
    "/restore",
    summary="Replace an agent's memory with a checkpoint, all or nothing (Kelpie)",
    response_model=None,
    openapi_extra={"requestBody": _DOCUMENT},
)
async def restore(
    api: CallerApi, agent_id: AgentPath, request: Request, overwrite_shared: Overwrite = False
) -> JsonAnswer:
    async with api.world.uploads.receive(request.stream()) as upload:
        restored = await api.checkpoints.restore(agent_id, upload, overwrite_shared=overwrite_shared)
    return JsonAnswer(asdict(restored))
