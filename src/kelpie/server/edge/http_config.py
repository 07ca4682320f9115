"""Configuration of uvicorn for every listener: plain requests only, and no logs but Kelpie's."""

from typing import Any

from starlette.types import ASGIApp
from uvicorn.config import Config

from kelpie.server.edge.http_protocol import BoundedProtocol


def http_config(app: ASGIApp, protocol: Any = BoundedProtocol, **own: Any) -> Config:
    """Options common to all listeners, with the protocol (or a function that makes it) and the `own` options of
    one."""
    return Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        **own,
    )
