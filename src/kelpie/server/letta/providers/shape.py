"""A provider as Letta's clients see it. A key is never shown, to no caller.

Letta leaves `api_key` empty in every answer and returns the key itself in `api_key_enc`. Here that field only says
whether there is a key.
"""

from typing import Any

from kelpie.core.models.model_providers import ModelProvider
from kelpie.server.http.masks import MASK
from kelpie.server.http.times import timestamp


def provider_shape(provider: ModelProvider) -> dict[str, Any]:
    access = provider.access
    shape = {
        "id": provider.id,
        "name": provider.name,
        "provider_type": access.provider_type,
        "provider_category": "byok",
        "api_key": None,
        "base_url": access.base_url,
        "access_key": None,
        "region": access.region,
        "api_version": access.api_version,
        "organization_id": provider.organization_id,
        "updated_at": timestamp(provider.updated_at),
        "last_synced": timestamp(provider.last_synced_at),
        "api_key_enc": _masked(access.api_key, "api_key" in provider.unreadable),
        "access_key_enc": _masked(access.access_key, "access_key" in provider.unreadable),
    }
    return shape | ({"kelpie_error": " ".join(provider.unreadable.values())} if provider.unreadable else {})


def _masked(key: str | None, unreadable: bool) -> str | None:
    return MASK if key is not None or unreadable else None
