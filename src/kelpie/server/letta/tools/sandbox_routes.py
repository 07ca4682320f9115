"""Sandbox configurations and their environment variables, which every custom tool finds in its environment."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from kelpie.core.tools.sandbox_configs import SandboxType
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import LIMIT_MAX, page_of
from kelpie.server.http.path_ids import SandboxPath, SandboxVariablePath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.tools.sandbox_body import (
    CreateVariable,
    LocalSandbox,
    SandboxBody,
    UpdateVariable,
    config_shape,
    sandbox_type,
    variable_shape,
)

router = resource("/sandbox-config", "sandbox-config")

Limit = Annotated[int, Query(ge=0, le=LIMIT_MAX, description="Maximum number of items; 0 for all.")]
After = Annotated[str | None, Query(description="Return only items created after the item with this id.")]


@router.post("/", summary="Create a sandbox configuration, or update the one of its kind", response_model=None)
async def create_config(api: CallerApi, body: SandboxBody) -> JsonAnswer:
    kind = sandbox_type(body.config)
    return JsonAnswer(config_shape(await api.sandbox_configs.put(kind, body.config.model_dump())))


@router.get("/", summary="List sandbox configurations", response_model=None)
async def list_configs(
    api: CallerApi, limit: Limit = 1000, after: After = None, sandbox_type: SandboxType | None = None
) -> JsonAnswer:
    found = await api.sandbox_configs.page(page_of(None, after, limit, "asc"))
    return JsonAnswer([config_shape(one) for one in found if sandbox_type in (None, one.type)])


@router.post("/local/default", summary="Get the local sandbox configuration, created if missing", response_model=None)
async def default_local(api: CallerApi) -> JsonAnswer:
    made = await api.sandbox_configs.ensure(SandboxType.local, LocalSandbox().model_dump())
    return JsonAnswer(config_shape(made))


@router.post("/local", summary="Create or update the local sandbox configuration", response_model=None)
async def put_local(api: CallerApi, body: LocalSandbox) -> JsonAnswer:
    return JsonAnswer(config_shape(await api.sandbox_configs.put(SandboxType.local, body.model_dump())))


@router.patch(
    "/environment-variable/{env_var_id}",
    summary="Update an environment variable of a sandbox configuration",
    response_model=None,
)
async def update_variable(api: CallerApi, env_var_id: SandboxVariablePath, body: UpdateVariable) -> JsonAnswer:
    changes = body.model_dump(exclude_none=True)
    return JsonAnswer(variable_shape(await api.sandbox_configs.update_variable(env_var_id, changes)))


@router.delete(
    "/environment-variable/{env_var_id}",
    summary="Delete an environment variable of a sandbox configuration",
    status_code=204,
    response_model=None,
)
async def delete_variable(api: CallerApi, env_var_id: SandboxVariablePath) -> Response:
    await api.sandbox_configs.delete_variable(env_var_id)
    return Response(status_code=204)


@router.patch("/{sandbox_config_id}", summary="Replace a sandbox configuration", response_model=None)
async def update_config(api: CallerApi, sandbox_config_id: SandboxPath, body: SandboxBody) -> JsonAnswer:
    kind = sandbox_type(body.config)
    updated = await api.sandbox_configs.update(sandbox_config_id, kind, body.config.model_dump())
    return JsonAnswer(config_shape(updated))


@router.delete(
    "/{sandbox_config_id}",
    summary="Delete a sandbox configuration and its variables",
    status_code=204,
    response_model=None,
)
async def delete_config(api: CallerApi, sandbox_config_id: SandboxPath) -> Response:
    await api.sandbox_configs.delete(sandbox_config_id)
    return Response(status_code=204)


@router.get(
    "/{sandbox_config_id}/environment-variable",
    summary="List the environment variables of a sandbox configuration",
    response_model=None,
)
async def list_variables(
    api: CallerApi, sandbox_config_id: SandboxPath, limit: Limit = 1000, after: After = None
) -> JsonAnswer:
    found = await api.sandbox_configs.variables(sandbox_config_id, page_of(None, after, limit, "asc"))
    return await listed(found if api.caller.sees_secrets else [], variable_shape)


@router.post(
    "/{sandbox_config_id}/environment-variable",
    summary="Create an environment variable of a sandbox configuration",
    response_model=None,
)
async def create_variable(api: CallerApi, sandbox_config_id: SandboxPath, body: CreateVariable) -> JsonAnswer:
    made = await api.sandbox_configs.add_variable(sandbox_config_id, body.key, body.value, body.description)
    return JsonAnswer(variable_shape(made))
