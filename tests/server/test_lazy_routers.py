"""A request finds the same route whether all routers are loaded or only those that its path may need."""

import random
import re

import pytest
from fastapi import APIRouter
from starlette.routing import BaseRoute

from kelpie.app import Kelpie
from kelpie.server.http.routing.lazy_routers import LazyRouter, LazyRouters
from kelpie.server.http.routing.route_index import RouteIndex
from kelpie.server.routers import ROUTERS
from tests.server.rig import client_of
from tests.server.test_dispatch import METHODS, paths_like


def begins(path: str, declared: str) -> bool:
    given = [re.sub(r"\{\w+(:path)?\}", "*", part) for part in path.split("/")]
    wanted = declared.split("/")
    return len(given) >= len(wanted) and all(b in ("*", a) for a, b in zip(given, wanted, strict=False))


def all_routes() -> list[BaseRoute]:
    routes: list[BaseRoute] = []
    LazyRouters(ROUTERS, routes).load_all()
    return routes


def test_every_route_begins_as_its_router_says_and_nothing_more_is_said() -> None:
    for router in ROUTERS:
        paths = [getattr(route, "path", "") for route in router.load().routes]
        for path in paths:
            assert any(begins(path, declared) for declared in router.paths), f"declare {path} in server/routers.py"
        for declared in router.paths:
            assert any(begins(path, declared) for path in paths), f"{declared} in server/routers.py fits no route"


def test_a_request_finds_the_route_that_it_would_find_among_all() -> None:
    whole = all_routes()
    index = RouteIndex(whole)
    found = 0
    for path in sorted({like for route in whole for like in paths_like(getattr(route, "path", "/"))}):
        few: list[BaseRoute] = []
        LazyRouters(ROUTERS, few).load_for(path)
        partly = RouteIndex(few)
        for method in METHODS:
            expected, chosen = index.find(method, path), partly.find(method, path)
            assert (chosen is None) == (expected is None), (method, path)
            if expected is not None and chosen is not None:
                assert (chosen[0] is expected[0], chosen[1]) == (True, expected[1]), (method, path)
                found += 1
    assert found > 500


def test_routes_keep_their_order_however_they_are_loaded() -> None:
    whole = all_routes()
    paths = [getattr(route, "path", "/") for route in whole]
    random.Random(7).shuffle(paths)
    own = BaseRoute()
    routes = [own]
    routers = LazyRouters(ROUTERS, routes)
    for path in paths:
        routers.load_for(path)
    assert routers.loaded == len(ROUTERS)
    assert routes == [*whole, own]


def test_a_path_of_nobody_loads_nothing() -> None:
    routes: list[BaseRoute] = []
    routers = LazyRouters(ROUTERS, routes)
    for path in ("/", "/v2/agents", "/wp-login.php", "/v1", "//", "/v1/no-such-thing/at/all", "/favicon.ico"):
        routers.load_for(path)
    assert (routes, routers.loaded) == ([], 0)


def test_a_router_that_cannot_be_loaded_is_tried_again() -> None:
    made, failures = APIRouter(), [OSError("the disk is on strike")]

    @made.get("/sample")
    async def sample() -> None: ...

    def load() -> APIRouter:
        if failures:
            raise failures.pop()
        return made

    routes: list[BaseRoute] = []
    routers = LazyRouters((LazyRouter(load, "/sample"),), routes)
    with pytest.raises(OSError, match="on strike"):
        routers.load_for("/sample")
    routers.load_for("/sample")
    assert routes == made.routes


async def test_a_request_after_the_description_of_the_api_finds_its_route(kelpie: Kelpie) -> None:
    """The description loads all routers, also those that stand before one whose route has taken a request."""
    async with client_of(kelpie, describes_itself=True) as client:
        assert (await client.get("/v1/messages/message-00000000-0000-4000-8000-000000000001")).status_code == 404
        assert (await client.get("/openapi.json")).status_code == 200
        listed = await client.get("/v1/messages/batches")
    assert (listed.status_code, listed.json()) == (200, [])
