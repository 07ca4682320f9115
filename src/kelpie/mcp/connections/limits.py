"""Limits on talking to an MCP server: the operator's, and those that a server has of its own."""

from dataclasses import dataclass, replace

from kelpie.core.tools.mcp_servers import McpOptions
from kelpie.mcp.transports.port import TransportLimits


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connect_s: float = 30.0
    read_s: float = 30.0
    call_s: float = 300.0
    answer_bytes: int = 4 * 1024 * 1024
    failures_max: int = 5
    retry_s: float = 30.0
    idle_s: float = 600.0
    processes_max: int = 16
    connections_max: int = 256  # over HTTP

    def of(self, options: McpOptions) -> "ConnectionLimits":
        """The limits of one server."""
        return replace(
            self,
            connect_s=options.connect_s or self.connect_s,
            read_s=options.read_s or self.read_s,
            call_s=options.call_s or self.call_s,
        )

    @property
    def transport(self) -> TransportLimits:
        return TransportLimits(self.connect_s, self.read_s, self.answer_bytes)
