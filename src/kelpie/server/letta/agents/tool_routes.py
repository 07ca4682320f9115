"""The tools of an agent."""

from typing import Annotated

from fastapi import Query

from kelpie.core.agents.agent import AgentView
from kelpie.server.http.errors import Unprocessable
from kelpie.server.http.headers.sdk_version import SdkV1
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Page10
from kelpie.server.http.path_ids import AgentPath, ToolPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents.routes import shape
from kelpie.server.letta.tools.body import Approval
from kelpie.server.letta.tools.shape import tool_shape

router = resource("/agents/{agent_id}/tools", "tools")


@router.get("", summary="List an agent's tools", response_model=None)
async def list_agent_tools(api: CallerApi, agent_id: AgentPath, page: Page10) -> JsonAnswer:
    return await listed(await api.tools.of_agent(agent_id, page), tool_shape)


@router.patch("/attach/{tool_id}", summary="Attach a tool to an agent", response_model=None)
async def attach_tool(api: CallerApi, agent_id: AgentPath, tool_id: ToolPath, sdk_v1: SdkV1) -> JsonAnswer:
    return await _changed(api, await api.tools.attach(agent_id, tool_id), sdk_v1)


@router.patch("/detach/{tool_id}", summary="Detach a tool from an agent", response_model=None)
async def detach_tool(api: CallerApi, agent_id: AgentPath, tool_id: ToolPath, sdk_v1: SdkV1) -> JsonAnswer:
    return await _changed(api, await api.tools.detach(agent_id, tool_id), sdk_v1)


@router.patch("/approval/{tool_name}", summary="Set whether a tool requires approval", response_model=None)
async def modify_approval(
    api: CallerApi,
    agent_id: AgentPath,
    tool_name: str,
    sdk_v1: SdkV1,
    body: Approval | None = None,
    requires_approval: Annotated[bool | None, Query(description="For clients that do not send a body.")] = None,
) -> JsonAnswer:
    wanted = body.requires_approval if body is not None else requires_approval
    if wanted is None:
        raise Unprocessable("requires_approval: send true or false, in the body or in the query")
    return await _changed(api, await api.tools.set_approval(agent_id, tool_name, wanted), sdk_v1)


async def _changed(api: CallerApi, view: AgentView, sdk_v1: bool) -> JsonAnswer:
    return JsonAnswer(None if sdk_v1 else await shape(api, api.agents.with_status(view)))
