"""Agents, blocks and groups made from a template: each carries the ids of its template and deployment."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Body, Query

from kelpie.core.agents.deployments import KINDS, DeployedItem
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents.body import CreateAgent, new_agent
from kelpie.server.letta.agents.routes import shape
from kelpie.server.letta.blocks.body import CreateBlock, new_block
from kelpie.server.letta.blocks.shape import block_shape
from kelpie.server.letta.groups.body import CreateGroup, new_group
from kelpie.server.letta.groups.shape import group_shape

router = resource("/_internal_templates", "templates")

BATCH_MAX = 1000


# Fields that are optional elsewhere are required here, which the checker takes for a mistake.
# pyright: reportIncompatibleVariableOverride=false, reportGeneralTypeIssues=false


class TemplateGroup(CreateGroup):
    base_template_id: str
    template_id: str
    deployment_id: str


class TemplateAgent(CreateAgent):
    template_id: str
    base_template_id: str
    deployment_id: str
    entity_id: str


class TemplateBlock(CreateBlock):
    value: str
    template_id: str
    base_template_id: str
    deployment_id: str
    entity_id: str


Batch = Annotated[list[TemplateBlock], Body(max_length=BATCH_MAX)]
Kinds = Annotated[
    list[Literal["block", "agent", "group"]] | None, Query(description="Return only resources of these kinds.")
]


@router.post("/groups", summary="Create a group for a deployment", response_model=None)
async def create_template_group(api: CallerApi, body: TemplateGroup) -> JsonAnswer:
    ids = {name: getattr(body, name) for name in ("base_template_id", "template_id", "deployment_id")}
    return JsonAnswer(group_shape(await api.groups.create(replace(new_group(body), **ids))))


@router.post("/agents", summary="Create an agent for a deployment", response_model=None)
async def create_template_agent(api: CallerApi, body: TemplateAgent) -> JsonAnswer:
    new = replace(new_agent(body), deployment_id=body.deployment_id, entity_id=body.entity_id)
    return JsonAnswer(await shape(api, await api.agents.create(new)))


@router.post("/blocks", summary="Create a block for a deployment", response_model=None)
async def create_template_block(api: CallerApi, body: TemplateBlock) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.blocks.create(new_block(body))))


@router.post("/blocks/batch", summary="Create blocks for a deployment, all or none", response_model=None)
async def create_template_blocks(api: CallerApi, body: Batch) -> JsonAnswer:
    return await listed(await api.blocks.create_many([new_block(one) for one in body]), block_shape)


@router.get("/deployment/{deployment_id}", summary="List the resources of a deployment", response_model=None)
async def list_deployment(api: CallerApi, deployment_id: str, entity_types: Kinds = None) -> JsonAnswer:
    found = await api.deployments.entities(deployment_id, [kind for kind in KINDS if kind in (entity_types or KINDS)])
    return JsonAnswer(
        {
            "entities": [_shape(one) for one in found],
            "total_count": len(found),
            "deployment_id": deployment_id,
            "message": f"{len(found)} entities belong to deployment {deployment_id}.",
        }
    )


@router.delete("/deployment/{deployment_id}", summary="Delete the resources of a deployment", response_model=None)
async def delete_deployment(api: CallerApi, deployment_id: str) -> JsonAnswer:
    gone = await api.deployments.delete(deployment_id)
    return JsonAnswer(
        {
            **{f"deleted_{kind}s": _ids(gone, kind) for kind in KINDS},
            "message": f"{len(gone)} entities of deployment {deployment_id} were deleted.",
        }
    )


def _ids(found: Sequence[DeployedItem], kind: str) -> list[str]:
    return [one.id for one in found if one.kind == kind]


def _shape(one: DeployedItem) -> dict[str, Any]:
    return {
        "id": one.id,
        "type": one.kind,
        "name": one.name,
        "description": one.description,
        "entity_id": one.entity_id,
        "project_id": one.project_id,
    }
