"""MCP servers as records: the address of a server and its protocol. A record starts and connects nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kelpie.core.ids import DEFAULT_ORGANIZATION, McpServerId, OrganizationId
from kelpie.core.outbound_addresses import check_outbound
from kelpie.core.time import Micros

AUTHORIZATION = "Authorization"
BEARER = "Bearer "


class McpServerType(StrEnum):
    stdio = "stdio"
    sse = "sse"
    streamable_http = "streamable_http"


@dataclass(frozen=True, slots=True)
class GrantedDirectory:
    """A directory of this machine that the program of a stdio server may use, at the same path."""

    path: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class McpOptions:
    """Kelpie's own settings of a server: time limits where they differ from the operator's, and what the sandbox of a
    stdio server grants."""

    connect_s: float | None = None
    read_s: float | None = None
    call_s: float | None = None
    egress: tuple[str, ...] = ()  # hosts that the program may reach
    memory_mb: int | None = None
    directories: tuple[GrantedDirectory, ...] = ()


@dataclass(frozen=True, slots=True)
class McpConfig:
    """Connection settings of a server: a command for stdio, an address for the others. `token` is without its
    `Bearer`."""

    server_type: McpServerType
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    server_url: str | None = None
    auth_header: str | None = None
    token: str | None = None
    custom_headers: Mapping[str, str] | None = None
    options: McpOptions = McpOptions()

    @property
    def shown_token(self) -> str | None:
        """The token as its header has it."""
        bearer = self.token and self.auth_header in (None, AUTHORIZATION)
        return f"{BEARER}{self.token}" if bearer else self.token

    @property
    def secrets(self) -> tuple[str, ...]:
        """Everything in it that is stored encrypted."""
        kept = (*(self.env or {}).values(), *(self.custom_headers or {}).values())
        return kept if self.token is None else (self.token, *kept)


@dataclass(frozen=True, slots=True)
class McpServer:
    id: McpServerId
    server_name: str
    config: McpConfig
    created_at: Micros
    updated_at: Micros
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])  # secrets that cannot be decrypted, and why


def bare_token(text: str | None) -> str | None:
    """A token without the word `Bearer`, which people write with or without it."""
    if text is None:
        return None
    return text[len(BEARER) :].strip() if text.lower().startswith(BEARER.lower()) else text.strip()


def check_address(field: str, url: str, *, private: bool = False) -> str:
    """The address of a server on the network, if it is allowed.

    A name is resolved when the server is connected to, and not here. Raises InvalidInput for an invalid web address,
    and for an address of this machine or of a private network unless `private` allows them: a user who may register a
    server could otherwise reach them.
    """
    return check_outbound(field, url, private=private, setting="mcp.private (KELPIE_MCP_PRIVATE)")
