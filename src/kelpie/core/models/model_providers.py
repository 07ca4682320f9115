"""Model providers that an organization adds with its own key, as values. A record calls nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import OrganizationId, ProviderId
from kelpie.core.models.provider_types import PROVIDER_TYPES, UNUSABLE_TYPES
from kelpie.core.outbound_addresses import check_outbound
from kelpie.core.paging import Page
from kelpie.core.time import Micros

NAME_CHARS_MAX = 100
TEXT_CHARS_MAX = 2000  # of an address, a region or a version
KEY_CHARS_MAX = 20_000
PRIVATE_SETTING = "providers.private (KELPIE_PROVIDER_PRIVATE)"


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """Where a provider is, and what it is called with."""

    provider_type: str
    api_key: str | None = field(default=None, repr=False)
    access_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    region: str | None = None
    api_version: str | None = None


UNSAVED = "the provider"  # the name of one that is only checked


@dataclass(frozen=True, slots=True)
class ModelProvider:
    """A provider of one organization. `revision` grows with each change of what it is called with."""

    id: ProviderId
    organization_id: OrganizationId
    name: str
    access: ProviderAccess
    revision: int
    created_at: Micros
    updated_at: Micros
    last_synced_at: Micros | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])  # keys that cannot be decrypted, and why


@dataclass(frozen=True, slots=True)
class ProviderQuery:
    """A page of providers."""

    page: Page
    name: str | None = None
    provider_type: str | None = None


def check_name(name: str) -> None:
    """Raises InvalidInput for a name that cannot begin the handle of a model."""
    if not name or len(name) > NAME_CHARS_MAX or "/" in name or name != name.strip() or not name.isprintable():
        raise InvalidInput(
            "name", f"must have 1 to {NAME_CHARS_MAX} printable characters, no '/', and no space at its ends"
        )


def check_access(access: ProviderAccess, *, private: bool) -> None:
    """Raises InvalidInput for a type that cannot be called, a missing key or address, or one that is not allowed."""
    kind = PROVIDER_TYPES.get(access.provider_type)
    if kind is None:
        why = UNUSABLE_TYPES.get(access.provider_type, "it is unknown")
        known = ", ".join(PROVIDER_TYPES)
        raise InvalidInput("provider_type", f"'{access.provider_type[:80]}' cannot be used: {why}. Use one of {known}")
    if not access.api_key and not kind.keyless:
        raise InvalidInput("api_key", f"is empty; a provider of type '{kind.name}' needs a key")
    for name, key in (("api_key", access.api_key), ("access_key", access.access_key)):
        if key and not (key.isascii() and key.isprintable() and " " not in key and len(key) <= KEY_CHARS_MAX):
            raise InvalidInput(name, "contains spaces or characters that are not valid in a key; copy it again")
    if access.base_url is None:
        if kind.url is None:
            raise InvalidInput("base_url", f"is empty; a provider of type '{kind.name}' needs its address")
        return
    check_outbound("base_url", access.base_url, private=private, setting=PRIVATE_SETTING)
    parts = urlsplit(access.base_url)
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("base_url", "must not contain a user name or password; send the key as api_key")
    if parts.query or parts.fragment:
        raise InvalidInput("base_url", "must not contain a query or fragment")


def origin(access: ProviderAccess) -> tuple[str, str | None, int | None]:
    """Scheme, host and port that the keys are sent to."""
    parts = urlsplit(access.base_url or PROVIDER_TYPES[access.provider_type].url or "")
    return parts.scheme.lower(), parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower())
