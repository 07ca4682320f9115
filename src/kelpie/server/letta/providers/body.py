"""Request bodies for providers. A field that is an empty text counts as not sent, as in Letta."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from kelpie.core.errors import InvalidInput
from kelpie.core.models.model_providers import KEY_CHARS_MAX, NAME_CHARS_MAX, TEXT_CHARS_MAX, ProviderAccess
from kelpie.core.models.provider_types import PROVIDER_TYPES, UNUSABLE_TYPES
from kelpie.server.http.masks import MASK

_KEYS = ("api_key", "access_key")


def _or_none(text: str) -> str | None:
    return text.strip() or None


def _known(text: str) -> str:
    if text not in PROVIDER_TYPES and text not in UNUSABLE_TYPES:
        raise ValueError(f"'{text}' is unknown; use one of {', '.join(PROVIDER_TYPES)}")
    return text


Kind = Annotated[str, Field(max_length=NAME_CHARS_MAX), AfterValidator(_known)]
Key = Annotated[str, Field(max_length=KEY_CHARS_MAX), AfterValidator(_or_none)]
Text = Annotated[str, Field(max_length=TEXT_CHARS_MAX), AfterValidator(_or_none)]


class CheckProvider(BaseModel):
    """What a provider is called with."""

    provider_type: Kind
    api_key: Key | None = Field(description="The key; an empty text for a server that needs none.")
    access_key: Key | None = None
    region: Text | None = None
    base_url: Text | None = None
    api_version: Text | None = None


class CreateProvider(CheckProvider):
    """A provider to add."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=NAME_CHARS_MAX, description="The first part of its models' handles.")]


class UpdateProvider(BaseModel):
    """Changes to a provider. Omitted, null or empty fields stay as they are, and so does a key that is only a mask."""

    model_config = ConfigDict(extra="forbid")

    api_key: Key | None = None
    access_key: Key | None = None
    region: Text | None = None
    base_url: Text | None = None
    api_version: Text | None = None


def access_of(body: CheckProvider) -> ProviderAccess:
    """Raises InvalidInput for a mask in the place of a key."""
    values = body.model_dump(include={"provider_type", *_KEYS, "region", "base_url", "api_version"})
    for name in _KEYS:
        if values[name] == MASK:
            raise InvalidInput(name, f"{MASK} stands for a key that is not shown; send the key itself")
    return ProviderAccess(**values)


def changes_of(body: UpdateProvider) -> dict[str, Any]:
    """The fields to change."""
    given = body.model_dump(exclude_none=True)
    return {name: value for name, value in given.items() if not (name in _KEYS and value == MASK)}
