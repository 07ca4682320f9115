"""Users and organizations, for the operator."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.access.callers import NAME_CHARS_MAX, Organization, User
from kelpie.core.ids import OrganizationId, UserId
from kelpie.core.paging import Page
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import After, limit_query, page_of
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp

organization_router = resource("/admin/orgs", "organizations")
user_router = resource("/admin/users", "users")

Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]


class CreateOrganization(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name | None = Field(None, description="Defaults to a generated name.")
    privileged_tools: bool | None = False


class UpdateOrganization(BaseModel):
    """Changes to an organization; omitted or null fields stay as they are."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    privileged_tools: bool | None = None


class CreateUser(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name
    organization_id: str


class UpdateUser(BaseModel):
    """Changes to a user; omitted or null fields stay as they are."""

    model_config = ConfigDict(extra="forbid")

    id: str
    name: Name | None = None
    organization_id: str | None = Field(
        None, description="Moves the user to this organization and revokes the user's keys and tokens."
    )


OrgId = Annotated[str, Query(alias="org_id", description="The id of the organization.")]
UserQuery = Annotated[str, Query(alias="user_id", description="The id of the user.")]


def _page(after: str | None, limit: int | None) -> Page:
    return page_of(None, after, limit, "asc")


@organization_router.get("/", summary="List organizations", response_model=None)
async def list_organizations(api: CallerApi, after: After = None, limit: int | None = limit_query(50)) -> JsonAnswer:
    return await listed(await api.organizations.page(_page(after, limit)), organization_shape)


@organization_router.post("/", summary="Create an organization", response_model=None)
async def create_organization(api: CallerApi, body: CreateOrganization) -> JsonAnswer:
    made = await api.organizations.create(body.name, privileged_tools=bool(body.privileged_tools))
    return JsonAnswer(organization_shape(made))


@organization_router.patch("/", summary="Update an organization", response_model=None)
async def update_organization(api: CallerApi, organization: OrgId, body: UpdateOrganization) -> JsonAnswer:
    wanted = OrganizationId.parse(organization)
    return JsonAnswer(organization_shape(await api.organizations.update(wanted, body.name, body.privileged_tools)))


@organization_router.delete("/", summary="Delete an empty organization", response_model=None)
async def delete_organization(api: CallerApi, organization: OrgId) -> JsonAnswer:
    return JsonAnswer(organization_shape(await api.organizations.delete(OrganizationId.parse(organization))))


@user_router.get("/", summary="List users", response_model=None)
async def list_users(api: CallerApi, after: After = None, limit: int | None = limit_query(50)) -> JsonAnswer:
    return await listed(await api.users.page(_page(after, limit)), user_shape)


@user_router.post("/", summary="Create a user", response_model=None)
async def create_user(api: CallerApi, body: CreateUser) -> JsonAnswer:
    return JsonAnswer(user_shape(await api.users.create(body.name, OrganizationId.parse(body.organization_id))))


@user_router.put("/", summary="Update a user", response_model=None)
async def update_user(api: CallerApi, body: UpdateUser) -> JsonAnswer:
    moved_to = None if body.organization_id is None else OrganizationId.parse(body.organization_id)
    return JsonAnswer(user_shape(await api.users.update(UserId.parse(body.id), body.name, moved_to)))


@user_router.delete("/", summary="Delete a user with all keys and tokens", response_model=None)
async def delete_user(api: CallerApi, user: UserQuery) -> JsonAnswer:
    return JsonAnswer(user_shape(await api.users.delete(UserId.parse(user))))


def organization_shape(organization: Organization) -> dict[str, Any]:
    return {
        "id": organization.id,
        "name": organization.name,
        "created_at": timestamp(organization.created_at),
        "privileged_tools": organization.privileged_tools,
    }


def user_shape(user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "organization_id": user.organization_id,
        "name": user.name,
        "created_at": timestamp(user.created_at),
        "updated_at": timestamp(user.updated_at),
        "is_deleted": False,
    }
