"""Port to an MCP server: requests out, answers in, and what the server sends on its own.

Every failure is an McpError. A transport neither retries nor knows what a method means; `client` does.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kelpie.core.errors import McpError, McpFault
from kelpie.mcp.protocol.messages import Failure, Notification, Request, RequestId, Result

# Takes what the server sends on its own, with the request that it came with, if the transport knows.
Inbound = Callable[[Request | Notification, RequestId | None], None]


def nobody(message: Request | Notification, during: RequestId | None) -> None:
    """Takes what a server sends before anybody listens."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    connect_s: float = 30.0
    read_s: float = 30.0  # without a sign of the server
    answer_bytes: int = 4 * 1024 * 1024


class Transport(Protocol):
    """`version` is that of the session, set once it is agreed on."""

    version: str | None
    inbound: Inbound

    @property
    def alive(self) -> bool:
        """False when a new transport must be made."""
        ...

    @property
    def closing_cancels(self) -> bool:
        """True if giving up on a stateless request tells the server already."""
        ...

    @property
    def probes(self) -> bool:
        """True if servers of the stateless generation can be met on it."""
        ...

    async def start(self) -> None:
        """Connects. The caller limits the time."""
        ...

    async def request(self, request: Request, headers: Mapping[str, str], *, patient: bool = False) -> Result | Failure:
        """Sends a request and waits for its answer, as long as the server gives signs of life; a `patient` one waits
        for ever."""
        ...

    async def tell(self, message: Notification | Result | Failure) -> None:
        """Sends what gets no answer."""
        ...

    async def listen(self, ready: Callable[[], None]) -> None:
        """Receives what the server sends on its own, until that ends; returns at once where nothing must be asked.

        Calls `ready` when it arrives from now on, also after a break, or when there is nothing to receive.
        """
        ...

    async def close(self) -> None: ...


Headers = Callable[[], Awaitable[Mapping[str, str]]]  # the headers that authorize a request, at this moment


class StreamBroken(McpError):
    """The answer broke off before its end; the request may be sent again."""

    def __init__(self, why: str) -> None:
        super().__init__(McpFault.closed, why)


class SessionOver(McpError):
    """The server no longer knows the session; another may be begun."""

    def __init__(self) -> None:
        super().__init__(McpFault.closed, "the server has ended the session")


class Unauthorized(McpError):
    """The server wants a token, or another one; `challenge` is its `www-authenticate` header."""

    def __init__(self, status: int, challenge: str) -> None:
        super().__init__(McpFault.unauthorized, f"the server refused the request with {status}", code=status)
        self.challenge = challenge


def timed_out(what: str, seconds: float) -> McpError:
    return McpError(McpFault.timed_out, f"{what} within {seconds:g} s")


def too_large(limit: int) -> McpError:
    return McpError(McpFault.too_large, f"its answer is larger than the limit of {limit / 1024 / 1024:g} MB")


def malformed(why: str) -> McpError:
    return McpError(McpFault.malformed, f"its answer cannot be read: {why}")
