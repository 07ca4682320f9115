"""MCP servers as records, through Letta's newer API and its older one, which uses names.

A record starts nothing: requests that would talk to an MCP server are refused until Kelpie supports that.
"""

from starlette.responses import Response

from kelpie.core.errors import InvalidInput, NotFound
from kelpie.server.http.caller_api import CallerApi
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.router import resource
from kelpie.server.letta.mcp.body import (
    CreateServer,
    OldChange,
    OldServer,
    UpdateServer,
    config_change,
    new_config,
    old_change,
    old_config,
)
from kelpie.server.letta.mcp.shape import old_shape, server_shape

router = resource("/mcp-servers", "mcp-servers")
old_router = resource("/tools/mcp/servers", "mcp-servers")


@router.get("/", summary="List MCP servers", response_model=None)
async def list_servers(api: CallerApi) -> JsonAnswer:
    return JsonAnswer([server_shape(server, api.caller.sees_secrets) for server in await api.mcp_servers.all()])


@router.post("/", summary="Register an MCP server, without starting it", response_model=None)
async def create_server(api: CallerApi, body: CreateServer) -> JsonAnswer:
    server = await api.mcp_servers.create(body.server_name, new_config(body.config))
    return JsonAnswer(server_shape(server, api.caller.sees_secrets))


@router.get("/{mcp_server_id}", summary="Get an MCP server", response_model=None)
async def retrieve_server(api: CallerApi, mcp_server_id: str) -> JsonAnswer:
    return JsonAnswer(server_shape(await api.mcp_servers.get(mcp_server_id), api.caller.sees_secrets))


@router.patch("/{mcp_server_id}", summary="Update an MCP server", response_model=None)
async def update_server(api: CallerApi, mcp_server_id: str, body: UpdateServer) -> JsonAnswer:
    server = await api.mcp_servers.update(mcp_server_id, body.server_name, config_change(body.config))
    return JsonAnswer(server_shape(server, api.caller.sees_secrets))


@router.delete("/{mcp_server_id}", summary="Delete an MCP server", status_code=204, response_model=None)
async def delete_server(api: CallerApi, mcp_server_id: str) -> Response:
    try:
        await api.mcp_servers.delete(mcp_server_id)
    except NotFound as error:
        raise InvalidInput("mcp_server_id", str(error)) from None  # Letta's clients expect 400 here
    return Response(status_code=204)


@router.get("/{mcp_server_id}/tools", summary="List the tools stored for an MCP server", response_model=None)
async def list_server_tools(mcp_server_id: str) -> JsonAnswer:
    """Always empty for now: tools are stored when Kelpie connects to a server. An unknown server has none either, as in
    Letta.
    """
    return JsonAnswer([])


# --- the older API --------------------------------------------------------------------------------------------------


@old_router.get("", summary="List MCP servers by name", response_model=None)
async def map_servers(api: CallerApi) -> JsonAnswer:
    sees = api.caller.sees_secrets
    return JsonAnswer({server.server_name: old_shape(server, sees) for server in await api.mcp_servers.all()})


@old_router.put("", summary="Register an MCP server, without starting it", response_model=None)
async def put_server(api: CallerApi, body: OldServer) -> JsonAnswer:
    _, servers = await api.mcp_servers.add(body.server_name, old_config(body))
    return JsonAnswer([old_shape(server, api.caller.sees_secrets) for server in servers])


@old_router.patch("/{mcp_server_name}", summary="Update an MCP server by name", response_model=None)
async def update_server_by_name(api: CallerApi, mcp_server_name: str, body: OldChange) -> JsonAnswer:
    server = await api.mcp_servers.update_by_name(mcp_server_name, body.server_name, old_change(body))
    return JsonAnswer(old_shape(server, api.caller.sees_secrets))


@old_router.delete("/{mcp_server_name}", summary="Delete an MCP server by name", response_model=None)
async def delete_server_by_name(api: CallerApi, mcp_server_name: str) -> JsonAnswer:
    servers = await api.mcp_servers.delete_by_name(mcp_server_name)
    return JsonAnswer([old_shape(server, api.caller.sees_secrets) for server in servers])
