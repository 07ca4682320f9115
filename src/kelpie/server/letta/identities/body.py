"""Request bodies for identities. Unknown fields are refused, as in Letta."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kelpie.core.access.identities import (
    KEY_CHARS_MAX,
    NAME_CHARS_MAX,
    IdentityChanges,
    IdentityType,
    NewIdentity,
    Property,
    PropertyType,
)
from kelpie.core.ids import AgentId, BlockId
from kelpie.core.json_limits import LISTED
from kelpie.server.http.limits.free_json import within
from kelpie.server.http.limits.request_limits import LINKS_MAX, Links

Key = Annotated[str, Field(min_length=1, max_length=KEY_CHARS_MAX)]
Name = Annotated[str, Field(max_length=NAME_CHARS_MAX)]


class PropertyBody(BaseModel):
    """A fact about an identity."""

    model_config = ConfigDict(extra="forbid")

    key: Key
    value: str | int | float | bool | dict[str, Any]
    type: PropertyType


Properties = Annotated[list[PropertyBody], Field(max_length=LINKS_MAX, fail_fast=True), BeforeValidator(within(LISTED))]


class _Relations(BaseModel):
    model_config = ConfigDict(extra="forbid")

    agent_ids: Links | None = Field(None, json_schema_extra={"deprecated": True})
    block_ids: Links | None = Field(None, json_schema_extra={"deprecated": True})
    properties: Properties | None = None

    def relations(self) -> dict[str, Any]:
        """Fields that both requests that change an identity share. Raises InvalidId."""
        return {
            "properties": None if self.properties is None else properties_of(self.properties),
            "agent_ids": None if self.agent_ids is None else tuple(AgentId.parse(one) for one in self.agent_ids),
            "block_ids": None if self.block_ids is None else tuple(BlockId.parse(one) for one in self.block_ids),
        }


class CreateIdentity(_Relations):
    """A new identity, or changes to the one with this key."""

    identifier_key: Key = Field(description="The client's own key for the identity, unique within a project.")
    name: Name
    identity_type: IdentityType
    project_id: str | None = None


class UpdateIdentity(_Relations):
    """Changes to an identity; omitted or null fields stay as they are, properties and links are added."""

    identifier_key: Key | None = None
    name: Name | None = None
    identity_type: IdentityType | None = None


def new_identity(body: CreateIdentity) -> NewIdentity:
    return NewIdentity(body.identifier_key, body.name, body.identity_type, body.project_id, **body.relations())


def identity_changes(body: UpdateIdentity) -> IdentityChanges:
    return IdentityChanges(body.identifier_key, body.name, body.identity_type, **body.relations())


def properties_of(given: list[PropertyBody]) -> tuple[Property, ...]:
    return tuple(Property(each.key, each.value, each.type) for each in given)
