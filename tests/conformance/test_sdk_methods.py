"""Every public method of `letta-client` 1.12.1, found by looking at the client, answers as its own model says."""

import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from letta_client import APIStatusError, AsyncLetta, AsyncStream, Letta, Stream
from letta_client._resource import AsyncAPIResource, SyncAPIResource

from tests.acceptance.sdk import KINDS, every, got, sdk_client
from tests.acceptance.served import served
from tests.conformance.letta_routes import letta_routes
from tests.conformance.sdk_cases import CASES
from tests.conformance.things import Things
from tests.mcp.http_server import HttpServer
from tests.turns import in_turns

ROUTES = {route.sdk: route for route in letta_routes() if route.sdk}
# What the client has for itself, without a route.
OWN = {
    "close",
    "copy",
    "delete",
    "get",
    "get_api_list",
    "is_closed",
    "patch",
    "platform_headers",
    "post",
    "put",
    "request",
}

# What may be empty on a new server.
EMPTY = {
    "access_tokens.delete",
    "agents.files.open",  # of a file that is open already
    "conversations.messages.list",
    "models.embeddings.list",
    "runs.trace.retrieve",
}


def methods(resource: object, path: str = "") -> Iterator[str]:
    """The dotted names of the public methods of a client and of the resources under it."""
    for name in sorted(dir(type(resource))):
        found = inspect.getattr_static(type(resource), name)
        if name.startswith(("_", "with_")):
            continue
        if isinstance(found, functools.cached_property | property):
            child = getattr(resource, name)
            if isinstance(child, SyncAPIResource | AsyncAPIResource):
                yield from methods(child, f"{path}{name}.")
        elif inspect.isfunction(found) and (path or name not in OWN):
            yield f"{path}{name}"


@pytest.mark.parametrize("client", [Letta, AsyncLetta])
def test_every_method_has_a_case_and_a_route(client: Any) -> None:
    found = set(methods(client(base_url="http://127.0.0.1:1", api_key="none")))
    assert found == set(CASES) == set(ROUTES)


def _cases() -> dict[str, tuple[str, str]]:
    """Every method that is meant, with either client; of two that follow each other, one is of the other client."""
    meant = [name for name in CASES if ROUTES[name].not_meant is None]
    kinds = [KINDS, KINDS[::-1]] * len(meant)
    return {f"{kind}-{name}": (kind, name) for name, both in zip(meant, kinds, strict=False) for kind in both}


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Things]:
    data: Path = tmp_path_factory.mktemp("conformance")
    with HttpServer().in_thread() as mcp, served(data, KELPIE_MCP_PRIVATE="true") as server:
        yield Things(server.url, f"{mcp.url}/mcp")


@pytest.mark.parametrize("case", in_turns("clients of methods", _cases(), len(KINDS)))
async def test_a_method_answers_as_its_model_says(things: Things, case: tuple[str, str]) -> None:
    """Each method has its turn with every change of the product, with one of the two clients."""
    kind, name = case
    async with sdk_client(kind, str(things.http.base_url)) as sdk:
        answer = await got(CASES[name](sdk, things))
        if hasattr(answer, "iter_pages") or isinstance(answer, Stream | AsyncStream):
            assert await every(answer) or name in EMPTY, "nothing came: the case shows nothing"
        else:
            assert answer or name in EMPTY or answer is None, "nothing came: the case shows nothing"


@pytest.mark.parametrize("name", [name for name, route in ROUTES.items() if route.not_meant])
async def test_what_is_not_meant_says_so(things: Things, name: str) -> None:
    async with sdk_client("sync", str(things.http.base_url)) as sdk:
        with pytest.raises(APIStatusError) as refused:
            await got(CASES[name](sdk, things))
    assert refused.value.status_code == ROUTES[name].refusal
    assert len(refused.value.response.json()["detail"].split()) > 5
