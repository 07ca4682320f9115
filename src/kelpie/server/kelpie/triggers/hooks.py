"""Webhooks: their records, and the address at which other programs deliver (Kelpie)."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from kelpie.core.ids import ConversationId
from kelpie.core.triggers.webhooks import INSTRUCTIONS_CHARS_MAX, NAME_CHARS_MAX, Webhook
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp

router = resource("/agents/{agent_id}/hooks", "webhooks (Kelpie)")
all_router = resource("/kelpie/hooks", "webhooks (Kelpie)")
delivery_router = resource("/hooks", "webhooks (Kelpie)")

HookPath = Annotated[str, Path(max_length=100, description="The id of a webhook.")]
TokenPath = Annotated[str, Path(max_length=200, description="The token of a webhook.")]
_ANY_BODY = {"content": {"application/json": {"schema": {}}, "text/plain": {"schema": {"type": "string"}}}}


class CreateHook(BaseModel):
    """A webhook to create."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1, max_length=NAME_CHARS_MAX)
    instructions: str | None = Field(
        None, max_length=INSTRUCTIONS_CHARS_MAX, description="Text that stands before each body."
    )
    conversation_id: str | None = Field(None, description="The conversation; by default the agent's default one.")


class UpdateHook(BaseModel):
    """Changes of a webhook."""

    model_config = ConfigDict(extra="ignore")

    name: str | None = Field(None, min_length=1, max_length=NAME_CHARS_MAX)
    instructions: str | None = Field(None, max_length=INSTRUCTIONS_CHARS_MAX)
    conversation_id: str | None = None
    enabled: bool | None = None


@router.post("", summary="Create a webhook; its address is shown once (Kelpie)", response_model=None)
async def create_hook(api: CallerApi, agent_id: AgentPath, body: CreateHook) -> JsonAnswer:
    hook, token = await api.webhooks.create(agent_id, body.name, _conversation(body.conversation_id), body.instructions)
    return JsonAnswer(_with_token(hook, token))


@router.get("", summary="List the webhooks of an agent (Kelpie)", response_model=None)
async def list_hooks(api: CallerApi, agent_id: AgentPath, page: Page50) -> JsonAnswer:
    return await listed(await api.webhooks.page(agent_id, page), hook_shape)


@router.get("/{hook_id}", summary="Get a webhook (Kelpie)", response_model=None)
async def get_hook(api: CallerApi, agent_id: AgentPath, hook_id: HookPath) -> JsonAnswer:
    return JsonAnswer(hook_shape(await api.webhooks.get(agent_id, hook_id)))


@router.patch("/{hook_id}", summary="Update a webhook, or switch it off (Kelpie)", response_model=None)
async def update_hook(api: CallerApi, agent_id: AgentPath, hook_id: HookPath, body: UpdateHook) -> JsonAnswer:
    given = body.model_fields_set

    def change(hook: Webhook) -> Webhook:
        after = replace(
            hook,
            name=hook.name if body.name is None else body.name,
            enabled=hook.enabled if body.enabled is None else body.enabled,
        )
        if "instructions" in given:
            after = replace(after, instructions=body.instructions)
        if "conversation_id" in given:
            after = replace(after, conversation_id=_conversation(body.conversation_id))
        return after

    return JsonAnswer(hook_shape(await api.webhooks.update(agent_id, hook_id, change)))


@router.post("/{hook_id}/renew", summary="Give a webhook a new address (Kelpie)", response_model=None)
async def renew_hook(api: CallerApi, agent_id: AgentPath, hook_id: HookPath) -> JsonAnswer:
    return JsonAnswer(_with_token(*await api.webhooks.renew(agent_id, hook_id)))


@router.delete("/{hook_id}", summary="Delete a webhook (Kelpie)", response_model=None)
async def delete_hook(api: CallerApi, agent_id: AgentPath, hook_id: HookPath) -> JsonAnswer:
    await api.webhooks.delete(agent_id, hook_id)
    return JsonAnswer({"success": True})


@all_router.get("", summary="List the webhooks of all agents (Kelpie)", response_model=None)
async def list_all_hooks(api: CallerApi, page: Page50) -> JsonAnswer:
    return await listed(await api.webhooks.page(None, page), hook_shape)


@all_router.get("/{hook_id}", summary="Get a webhook of any agent (Kelpie)", response_model=None)
async def get_any_hook(api: CallerApi, hook_id: HookPath) -> JsonAnswer:
    return JsonAnswer(hook_shape(await api.webhooks.get(None, hook_id)))


@delivery_router.post(
    "/{token}",
    summary="Deliver to a webhook: wake its agent with the body (Kelpie)",
    response_model=None,
    openapi_extra={"requestBody": _ANY_BODY},
)
async def deliver(api: CallerApi, token: TokenPath, request: Request) -> JsonAnswer:
    run = await api.webhooks.deliver(await request.body(), request.headers)
    return JsonAnswer({"run_id": run.id, "agent_id": run.agent_id, "status": run.status.value}, 202)


def hook_shape(hook: Webhook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "agent_id": hook.agent_id,
        "name": hook.name,
        "instructions": hook.instructions,
        "conversation_id": hook.conversation_id,
        "enabled": hook.enabled,
        "last_used_at": timestamp(hook.last_used_at),
        "created_at": timestamp(hook.created_at),
        "updated_at": timestamp(hook.updated_at),
    }


def _with_token(hook: Webhook, token: str) -> dict[str, Any]:
    return hook_shape(hook) | {"token": token, "path": f"/v1/hooks/{token}"}


def _conversation(text: str | None) -> ConversationId | None:
    return None if text is None or text == "default" else ConversationId.parse(text)
