"""MCP servers and their tools through Letta's newer API, which uses ids."""

from starlette.responses import Response

from kelpie.core.errors import InvalidInput, NotFound
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.mcp.body import Arguments, CreateServer, UpdateServer, check_public, config_change, new_config
from kelpie.server.letta.mcp.shape import refresh_shape, result_shape, server_shape
from kelpie.server.letta.tools.shape import tool_shape

router = resource("/mcp-servers", "mcp-servers")


@router.get("/", summary="List MCP servers", response_model=None)
async def list_servers(api: CallerApi) -> JsonAnswer:
    return await listed(await api.mcp_servers.all(), lambda server: server_shape(server, api.caller.sees_secrets))


@router.post("/", summary="Register an MCP server and read its tools", response_model=None)
async def create_server(api: CallerApi, body: CreateServer) -> JsonAnswer:
    if not api.settings.mcp_private:
        check_public(body.config, f"config.{body.config.mcp_server_type}.server_url")
    server = await api.mcp_servers.create(body.server_name, new_config(body.config))
    return JsonAnswer(server_shape(server, api.caller.sees_secrets))


@router.get("/{mcp_server_id}", summary="Get an MCP server", response_model=None)
async def retrieve_server(api: CallerApi, mcp_server_id: str) -> JsonAnswer:
    return JsonAnswer(server_shape(await api.mcp_servers.get(mcp_server_id), api.caller.sees_secrets))


@router.patch("/{mcp_server_id}", summary="Update an MCP server", response_model=None)
async def update_server(api: CallerApi, mcp_server_id: str, body: UpdateServer) -> JsonAnswer:
    if not api.settings.mcp_private:
        check_public(body.config, f"config.{body.config.mcp_server_type}.server_url")
    server = await api.mcp_servers.update(mcp_server_id, body.server_name, config_change(body.config))
    return JsonAnswer(server_shape(server, api.caller.sees_secrets))


@router.delete("/{mcp_server_id}", summary="Delete an MCP server and its tools", status_code=204, response_model=None)
async def delete_server(api: CallerApi, mcp_server_id: str) -> Response:
    try:
        await api.mcp_servers.delete(mcp_server_id)
    except NotFound as error:
        raise InvalidInput("mcp_server_id", str(error)) from None  # Letta's clients expect 400 here
    return Response(status_code=204)


@router.patch("/{mcp_server_id}/refresh", summary="Read the tools of an MCP server again", response_model=None)
async def refresh_server(api: CallerApi, mcp_server_id: str, agent_id: str | None = None) -> JsonAnswer:
    """`agent_id` is accepted and not needed: the tools of a server do not depend on an agent."""
    return JsonAnswer(refresh_shape(await api.mcp_servers.refresh(await api.mcp_servers.get(mcp_server_id))))


@router.get("/{mcp_server_id}/tools", summary="List the tools of an MCP server", response_model=None)
async def list_server_tools(api: CallerApi, mcp_server_id: str) -> JsonAnswer:
    """The stored tools. An unknown server has none, as in Letta."""
    return await listed(await api.mcp_servers.tools(mcp_server_id), lambda each: tool_shape(each.tool))


@router.get("/{mcp_server_id}/tools/{tool_id}", summary="Get a tool of an MCP server", response_model=None)
async def retrieve_server_tool(api: CallerApi, mcp_server_id: str, tool_id: str) -> JsonAnswer:
    return JsonAnswer(tool_shape(await api.mcp_servers.tool(mcp_server_id, tool_id)))


@router.post("/{mcp_server_id}/tools/{tool_id}/run", summary="Call a tool of an MCP server", response_model=None)
async def run_server_tool(
    api: CallerApi, mcp_server_id: str, tool_id: str, body: Arguments | None = None
) -> JsonAnswer:
    tool = await api.mcp_servers.tool(mcp_server_id, tool_id)
    return JsonAnswer(result_shape(await api.manual_tool_runs.run_mcp(tool, body.args if body else {})))
