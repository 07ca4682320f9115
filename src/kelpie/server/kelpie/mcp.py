"""The state of connections to MCP servers, and the tasks that they run for agents (Kelpie)."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.conversations.mcp_tasks import McpTask
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.limits.free_json import Arguments
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.mcp.shape import status_shape

router = resource("/kelpie/mcp-servers", "mcp-servers (Kelpie)")
task_router = resource("/kelpie/mcp-tasks", "mcp-servers (Kelpie)")

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of tasks.")]


class Answers(BaseModel):
    """Answers to the questions of a task, by their keys; null declines a question."""

    model_config = ConfigDict(extra="forbid")

    answers: Arguments = Field(default_factory=dict[str, Any])


class OAuthClient(BaseModel):
    """A client that a person registered at the authorization server of an MCP server. It is stored encrypted, is used
    by the next login, and is not shown again."""

    model_config = ConfigDict(extra="forbid")

    client_id: Annotated[str, Field(min_length=1, max_length=2000)]
    client_secret: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None


@router.get("", summary="List the connections to MCP servers (Kelpie)", response_model=None)
async def list_connections(api: CallerApi) -> JsonAnswer:
    servers = await api.mcp_servers.all()
    return await listed(servers, lambda server: status_shape(server, api.mcp_servers.report(server)))


@router.get("/{mcp_server_id}", summary="Get the connection to an MCP server (Kelpie)", response_model=None)
async def get_connection(api: CallerApi, mcp_server_id: str) -> JsonAnswer:
    server = await api.mcp_servers.get(mcp_server_id)
    return JsonAnswer(status_shape(server, api.mcp_servers.report(server)))


@router.put(
    "/{mcp_server_id}/oauth-client", summary="Set the OAuth client for an MCP server (Kelpie)", response_model=None
)
async def set_oauth_client(api: CallerApi, mcp_server_id: str, body: OAuthClient) -> JsonAnswer:
    """Returns the state of the connection, which is closed: the next login makes another."""
    server = await api.mcp_servers.get(mcp_server_id)
    await api.mcp_logins.set_client(server, body.client_id, body.client_secret)
    return JsonAnswer(status_shape(server, api.mcp_servers.report(server)))


@task_router.get("", summary="List the tasks of MCP servers, newest first (Kelpie)", response_model=None)
async def list_tasks(api: CallerApi, limit: Limit = 50) -> JsonAnswer:
    return await listed(await api.mcp_tasks.newest(limit), task_shape)


@task_router.get("/{mcp_task_id}", summary="Get a task of an MCP server (Kelpie)", response_model=None)
async def get_task(api: CallerApi, mcp_task_id: str) -> JsonAnswer:
    return JsonAnswer(task_shape(await api.mcp_tasks.get(mcp_task_id)))


@task_router.post("/{mcp_task_id}/cancel", summary="Cancel a task of an MCP server (Kelpie)", response_model=None)
async def cancel_task(api: CallerApi, mcp_task_id: str) -> JsonAnswer:
    return JsonAnswer(task_shape(await api.mcp_tasks.cancel(mcp_task_id)))


@task_router.post("/{mcp_task_id}/answers", summary="Answer the questions of a task (Kelpie)", response_model=None)
async def answer_task(api: CallerApi, mcp_task_id: str, body: Answers) -> JsonAnswer:
    return JsonAnswer(task_shape(await api.mcp_tasks.answer(mcp_task_id, body.answers)))


def task_shape(task: McpTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "mcp_server_id": task.server_id,
        "agent_id": task.agent_id,
        "conversation_id": task.conversation_id,
        "tool_name": task.tool_name,
        "task_id": task.task_id,
        "status": task.status,
        "status_message": task.status_message,
        "questions": [
            {"key": key, "message": each.message, "schema": each.schema, "url": each.url}
            for key, each in task.questions.items()
        ],
        "run_id": task.run_id,
        "created_at": timestamp(task.created_at),
        "updated_at": timestamp(task.updated_at),
        "expires_at": timestamp(task.expires_at),
    }
