"""MCP servers and their tools through Letta's older API, which uses names."""

from dataclasses import replace
from typing import Any

from kelpie.mcp.client.answers import RemoteTool, read_tool
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.mcp.body import Arguments, OldChange, OldServer, check_public, old_change, old_config
from kelpie.server.letta.mcp.shape import health_shape, old_shape, refresh_shape, remote_shape
from kelpie.server.letta.tools.shape import tool_shape
from kelpie.tools.registry.mcp_servers import ServerTool

router = resource("/tools/mcp/servers", "mcp-servers")


@router.get("", summary="List MCP servers by name", response_model=None)
async def map_servers(api: CallerApi) -> JsonAnswer:
    sees = api.caller.sees_secrets
    return JsonAnswer({server.server_name: old_shape(server, sees) for server in await api.mcp_servers.all()})


@router.put("", summary="Register an MCP server by name", response_model=None)
async def put_server(api: CallerApi, body: OldServer) -> JsonAnswer:
    if not api.settings.mcp_private:
        check_public(body, "server_url")
    _, servers = await api.mcp_servers.add(body.server_name, old_config(body))
    return await listed(servers, lambda server: old_shape(server, api.caller.sees_secrets))


@router.patch("/{mcp_server_name}", summary="Update an MCP server by name", response_model=None)
async def update_server_by_name(api: CallerApi, mcp_server_name: str, body: OldChange) -> JsonAnswer:
    if not api.settings.mcp_private:
        check_public(body, "server_url")
    server = await api.mcp_servers.update_by_name(mcp_server_name, body.server_name, old_change(body))
    return JsonAnswer(old_shape(server, api.caller.sees_secrets))


@router.delete("/{mcp_server_name}", summary="Delete an MCP server by name", response_model=None)
async def delete_server_by_name(api: CallerApi, mcp_server_name: str) -> JsonAnswer:
    servers = await api.mcp_servers.delete_by_name(mcp_server_name)
    return await listed(servers, lambda server: old_shape(server, api.caller.sees_secrets))


@router.post("/test", summary="Connect to an MCP server without registering it", response_model=None)
async def test_server(api: CallerApi, body: OldServer) -> JsonAnswer:
    if not api.settings.mcp_private:
        check_public(body, "server_url")
    tools = await api.mcp_servers.look(body.server_name, old_config(body))
    return JsonAnswer({"status": "success", "tools": [remote_shape(tool) for tool in tools]})


@router.get("/{mcp_server_name}/tools", summary="List the tools of an MCP server by name", response_model=None)
async def list_tools_by_name(api: CallerApi, mcp_server_name: str) -> JsonAnswer:
    """The tools as the server lists them. They are read from it if none are stored."""
    server = await api.mcp_servers.by_name(mcp_server_name)
    found = await api.mcp_servers.tools(server.id)
    if not found:
        await api.mcp_servers.refresh(server)
        found = await api.mcp_servers.tools(server.id)
    return await listed(found, _listed_tool)


def _listed_tool(each: ServerTool) -> dict[str, Any]:
    schema = each.tool.json_schema
    tool: RemoteTool = replace(read_tool(each.remote), input_schema=schema["parameters"])
    return remote_shape(tool) | {"health": health_shape(schema)}


@router.post("/{mcp_server_name}/resync", summary="Read the tools of an MCP server by name again", response_model=None)
async def resync_by_name(api: CallerApi, mcp_server_name: str, agent_id: str | None = None) -> JsonAnswer:
    return JsonAnswer(refresh_shape(await api.mcp_servers.refresh(await api.mcp_servers.by_name(mcp_server_name))))


@router.post(
    "/{mcp_server_name}/tools/{tool_name}/execute", summary="Call a tool of an MCP server by name", response_model=None
)
async def execute_by_name(api: CallerApi, mcp_server_name: str, tool_name: str, body: Arguments) -> JsonAnswer:
    tool = await api.mcp_servers.tool_named(mcp_server_name, tool_name)
    tried = await api.manual_tool_runs.run_mcp(tool, body.args)
    return JsonAnswer({"result": tried.outcome.text, "success": tried.outcome.ok})


@router.post("/{mcp_server_name}/{mcp_tool_name}", summary="Get a tool of an MCP server by name", response_model=None)
async def add_tool_by_name(api: CallerApi, mcp_server_name: str, mcp_tool_name: str) -> JsonAnswer:
    """Letta registers the tool here; Kelpie has it since the server was registered."""
    return JsonAnswer(tool_shape(await api.mcp_servers.tool_named(mcp_server_name, mcp_tool_name)))
