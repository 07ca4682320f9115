"""The description of the API, which a test process builds once: it is the same for every server."""

from functools import cache
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI

from kelpie.core.settings.settings import Settings
from kelpie.server.app import create_app
from kelpie.server.pages import api_docs


def bare_app() -> FastAPI:
    """The app over nothing: it can tell its routes, and cannot answer."""
    nothing: Any = SimpleNamespace(
        settings=Settings(),
        world=SimpleNamespace(ids=None),
        runtime=SimpleNamespace(authenticator=None, passports=None, quotas=None, processor_time=None),
        why_not_ready=None,
        api=None,
        connect_api=lambda serve: None,
    )
    return create_app(nothing)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document. Building it takes longer than most tests."""
    return api_docs.document(bare_app())
