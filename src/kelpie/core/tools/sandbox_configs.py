"""Sandbox configurations that clients set: one of each kind, with environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId, SandboxConfigId, SandboxVariableId
from kelpie.core.time import Micros


class SandboxType(StrEnum):
    e2b = "e2b"
    modal = "modal"
    local = "local"


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    id: SandboxConfigId
    type: SandboxType
    config: Mapping[str, Any]
    created_at: Micros
    updated_at: Micros
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class SandboxVariable:
    """An environment variable of every tool in that sandbox."""

    id: SandboxVariableId
    sandbox_config_id: SandboxConfigId
    key: str
    value: str
    created_at: Micros
    updated_at: Micros
    description: str | None = None
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    unreadable: str | None = None  # why the value cannot be decrypted; then it is empty
