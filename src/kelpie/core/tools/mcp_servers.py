"""MCP servers as records: the address of a server and its protocol. A record starts and connects nothing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import DEFAULT_ORGANIZATION, McpServerId, OrganizationId
from kelpie.core.public_addresses import is_address, is_public
from kelpie.core.time import Micros

AUTHORIZATION = "Authorization"
BEARER = "Bearer "
_NUMBERS = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?")  # ways to write an IPv4 address


class McpServerType(StrEnum):
    stdio = "stdio"
    sse = "sse"
    streamable_http = "streamable_http"


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

    @property
    def shown_token(self) -> str | None:
        """The token as its header has it."""
        bearer = self.token and self.auth_header in (None, AUTHORIZATION)
        return f"{BEARER}{self.token}" if bearer else self.token


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


def check_address(field: str, url: str) -> str:
    """The address of a server on the network, if it is allowed.

    A name is resolved when the server is connected to, and not here. Raises InvalidInput for an invalid web address,
    and for an address of this machine or of a private network: a user who may register a server could otherwise reach
    them.
    """
    parts = _parts(field, url)
    host = (parts or "").lower()
    if host == "localhost" or host.endswith(".localhost"):
        raise InvalidInput(field, f"Non-public IP not allowed: {host} is this machine")
    if not is_address(host):
        if _NUMBERS.fullmatch(host):
            raise InvalidInput(field, f"'{host}' is not a plain IP address; write it as four decimal numbers")
        return url
    if not is_public(host):
        raise InvalidInput(field, f"Non-public IP not allowed: {host}")
    return url


def _parts(field: str, url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidInput(field, "is not a URL") from None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise InvalidInput(field, "must begin with http:// or https:// and contain a host")
    if any(letter.isspace() or ord(letter) < 32 for letter in url):
        raise InvalidInput(field, "must not contain white space")
    return parts.hostname
