"""Identities: the person or thing that an agent or a block is about or belongs to, under a key the client chooses."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, BlockId, IdentityId, OrganizationId
from kelpie.core.json_limits import LISTED
from kelpie.core.paging import Page
from kelpie.core.time import Micros

KEY_CHARS_MAX = 500
NAME_CHARS_MAX = 500

PropertyValue: TypeAlias = str | int | float | bool | Mapping[str, object]


class IdentityType(StrEnum):
    org = "org"
    user = "user"
    other = "other"


class PropertyType(StrEnum):
    string = "string"
    number = "number"
    boolean = "boolean"
    json = "json"


@dataclass(frozen=True, slots=True)
class Property:
    """A fact about an identity; its key is unique within the identity."""

    key: str
    value: PropertyValue
    type: PropertyType


@dataclass(frozen=True, slots=True)
class Identity:
    id: IdentityId
    identifier_key: str
    name: str
    identity_type: IdentityType
    created_at: Micros
    updated_at: Micros
    project_id: str | None = None
    properties: tuple[Property, ...] = ()
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewIdentity:
    """An identity to create or, if its key is known, to change; None leaves a field unchanged."""

    identifier_key: str
    name: str
    identity_type: IdentityType
    project_id: str | None = None
    properties: tuple[Property, ...] | None = None
    agent_ids: tuple[AgentId, ...] | None = None
    block_ids: tuple[BlockId, ...] | None = None


@dataclass(frozen=True, slots=True)
class IdentityChanges:
    """Changes to an identity; None leaves a field unchanged. Properties and links are added to the existing ones."""

    identifier_key: str | None = None
    name: str | None = None
    identity_type: IdentityType | None = None
    properties: tuple[Property, ...] | None = None
    agent_ids: tuple[AgentId, ...] | None = None
    block_ids: tuple[BlockId, ...] | None = None


@dataclass(frozen=True, slots=True)
class IdentityQuery:
    """Filter for a list of identities; `name` matches any part of the name."""

    page: Page = Page()
    name: str | None = None
    project_id: str | None = None
    identifier_key: str | None = None
    identity_type: IdentityType | None = None


def merged(there: tuple[Property, ...], given: tuple[Property, ...]) -> tuple[Property, ...]:
    """The properties after a change: an existing key keeps its position and gets the new value. Raises InvalidInput
    when they are too many or too large together.
    """
    after = tuple({each.key: each for each in (*there, *given)}.values())
    try:
        LISTED.check([[each.key, each.value] for each in after])
    except ValueError as error:
        raise InvalidInput("properties", f"all properties of an identity together: {error}") from None
    return after
