"""The envelope of a request from 2026-07-28 on: version, client and capabilities, in `_meta` of its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.mcp.protocol.messages import INVALID_PARAMS, UNSUPPORTED_VERSION
from kelpie.mcp.protocol.versions import STATELESS_VERSIONS

META = "_meta"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"  # in `_meta` of a result
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"  # in `_meta` of what a subscription sends
PROGRESS_TOKEN = "progressToken"


class Rejected(ValueError):
    """The request cannot be answered as it is; `code` and `data` are for a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@dataclass(frozen=True, slots=True)
class Envelope:
    version: str
    capabilities: Mapping[str, Any]
    client: Mapping[str, Any] | None = None

    def meta(self) -> dict[str, Any]:
        """The fields of `_meta`."""
        named = {} if self.client is None else {CLIENT_KEY: dict(self.client)}
        return {VERSION_KEY: self.version, CAPABILITIES_KEY: dict(self.capabilities), **named}


def sealed(params: Mapping[str, Any], envelope: Envelope) -> dict[str, Any]:
    """The parameters with the envelope in them; other fields of their `_meta` stay."""
    return {**params, META: {**_meta(params), **envelope.meta()}}


def has_envelope(params: Mapping[str, Any]) -> bool:
    """True if the request is of the stateless generation."""
    return VERSION_KEY in _meta(params)


def named_version(params: Mapping[str, Any]) -> Any:
    """The version that the envelope of a request names, whatever it is; None without one."""
    return _meta(params).get(VERSION_KEY)


def opened(params: Mapping[str, Any]) -> Envelope:
    """The envelope of a request. Raises Rejected when it is missing, malformed, or of an unknown version."""
    meta = _meta(params)
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise Rejected(INVALID_PARAMS, f"params._meta must contain {' and '.join(missing)}")
    version, capabilities, client = meta[VERSION_KEY], meta[CAPABILITIES_KEY], meta.get(CLIENT_KEY)
    if not isinstance(version, str):
        raise Rejected(INVALID_PARAMS, f"params._meta.{VERSION_KEY} must be text")
    if not isinstance(capabilities, Mapping):
        raise Rejected(INVALID_PARAMS, f"params._meta.{CAPABILITIES_KEY} must be an object")
    if version not in STATELESS_VERSIONS:
        raise unsupported(version)
    return Envelope(version, capabilities, client if isinstance(client, Mapping) else None)


def unsupported(version: str) -> Rejected:
    return Rejected(
        UNSUPPORTED_VERSION,
        "Unsupported protocol version",
        {"supported": list(STATELESS_VERSIONS), "requested": version},
    )


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get(META)
    return meta if isinstance(meta, Mapping) else {}
