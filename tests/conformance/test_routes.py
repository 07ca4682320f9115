"""The routes of the running app beside Letta's: what is not there is listed with its reason, and nothing is claimed
that no test asks for."""

import re
from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from tests.acceptance.served import served
from tests.conformance.compatibility import PAGE, described, page, shape
from tests.conformance.letta_routes import Route, letta_routes
from tests.conformance.raw_cases import CASES, STATUS
from tests.conformance.sdk_cases import CASES as SDK_CASES
from tests.conformance.things import Things
from tests.mcp.http_server import HttpServer
from tests.provider_server import keyed_provider
from tests.server.description import bare_app

ROUTES = letta_routes()
HERE = [route for route in ROUTES if route.not_meant is None]


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Things]:
    data = tmp_path_factory.mktemp("routes")
    private = {"KELPIE_MCP_PRIVATE": "true", "KELPIE_PROVIDER_PRIVATE": "true"}
    with HttpServer().in_thread() as mcp, keyed_provider() as provider, served(data, **private) as server:
        yield Things(server.url, f"{mcp.url}/mcp", provider)


def test_what_is_meant_is_there_and_nothing_else_of_letta_is() -> None:
    ours = {(method, shape(path)) for method, path in described()}
    assert [route.name for route in ROUTES if (route in HERE) != ((route.method, shape(route.path)) in ours)] == []


def test_a_static_path_wins_over_a_parameter() -> None:
    """For every pair of routes that fit one path, such as /agents/count and /agents/{agent_id}."""
    routes = [route for route in bare_app().routes if isinstance(route, APIRoute)]
    pairs = 0
    for route in routes:
        path = re.sub(r"{[^}]*}", "x", route.path)
        for method in route.methods:
            fits = [other for other in routes if method in other.methods and other.path_regex.fullmatch(path)]
            pairs += len(fits) > 1
            assert fits[0] is route, f"{method} {path} goes to {fits[0].path}"
    assert pairs > 10


def test_the_page_says_what_the_tests_know() -> None:
    remedy = "run: python -m tests.conformance.compatibility"
    assert PAGE.read_text() == page(), remedy


def test_every_route_that_is_there_is_asked_for() -> None:
    without_sdk = {route.name for route in HERE if route.sdk is None}
    assert without_sdk == set(CASES)
    assert {route.sdk for route in HERE if route.sdk is not None} <= set(SDK_CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_route_without_an_sdk_method_answers(things: Things, name: str) -> None:
    path, fields = CASES[name](things)
    answer = things.http.request(name.split()[0], path, **fields)
    assert answer.status_code in ((STATUS[name],) if name in STATUS else (200, 201, 204)), answer.text


def _filled(route: Route) -> str:
    return "/".join("x" if part.startswith("{") else part for part in route.path.split("/"))


@pytest.mark.parametrize("route", [route for route in ROUTES if route.not_meant], ids=lambda route: route.name)
def test_what_is_not_meant_says_so(things: Things, route: Route) -> None:
    answer = things.http.request(route.method, _filled(route))
    assert answer.status_code == route.refusal
    assert route.method == "HEAD" or len(answer.json()["detail"].split()) > 5


def test_latest_is_another_name_for_v1(things: Things) -> None:
    assert things.call("GET", "/latest/agents/count") == things.call("GET", "/v1/agents/count")
