"""Requests reach the endpoint that FastAPI's router would choose, with the parameters that its solver would read."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse
from starlette.routing import Match

from kelpie.app import Kelpie
from kelpie.server.app import create_app
from kelpie.server.http.json_body import JsonRoute
from kelpie.server.http.routing import dispatch
from kelpie.server.http.routing.route_index import RouteIndex
from tests.server.rig import client_of, make_agent, open_rig

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NEW = ("id", "created_at", "updated_at", "message_ids")
ID = "agent-00000000-0000-4000-8000-000000000001"


@pytest.fixture
async def app(tmp_path: Path) -> FastAPI:
    async with open_rig(tmp_path, lifecycle=False) as (kelpie, _):
        made = create_app(kelpie)
        await kelpie.runtime.world.database.close()
        return made


def paths_like(pattern: str) -> set[str]:
    """Paths that fit the pattern of a route, and some that nearly do."""
    filled = re.sub(r"\{\w+(:path)?\}", "x", pattern)
    deep = re.sub(r"\{\w+:path\}", "a/b//c", re.sub(r"\{\w+\}", ID, pattern))
    return {filled, deep, f"{filled}/", filled.rstrip("/"), f"{filled}/more", f"/{filled}", filled.replace("x", "", 1)}


async def test_the_index_finds_what_the_router_finds(app: FastAPI) -> None:
    routes, index = app.routes, RouteIndex(app.routes)
    found = 0
    for path in sorted({path for route in routes for path in paths_like(getattr(route, "path", "/"))}):
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []}
        fitting = [route for route in routes if route.matches(scope)[0] is not Match.NONE]  # whatever the method is
        for method in METHODS:
            scope["method"] = method
            matches = ((route, *route.matches(scope)) for route in fitting)
            expected = next(((route, child) for route, match, child in matches if match is Match.FULL), None)
            chosen = index.find(method, path)
            if expected is None:
                assert chosen is None, (method, path)
            else:
                assert chosen is not None and chosen[0] is expected[0], (method, path)
                assert chosen[1] == expected[1]["path_params"]
                found += 1
    assert found > 500


async def test_nearly_every_route_is_read_without_the_solver(app: FastAPI) -> None:
    slow = [
        route
        for route in app.routes
        if getattr(route, "path", "").startswith("/v1/") and dispatch._endpoint(route) is None  # type: ignore[arg-type]
    ]
    assert len(slow) <= 5, [getattr(route, "path", "") for route in slow]


REQUESTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", "/v1/agents/?limit=1&order=asc&tags=a&tags=b&match_all_tags=true", {}),
    ("GET", "/v1/agents/?limit=1&limit=2", {}),
    ("GET", "/v1/agents/?limit=many", {}),
    ("GET", "/v1/agents/?limit=-1&order=sideways", {}),
    ("GET", "/v1/agents/?include=agent.tools&include=agent.nothing", {}),
    ("GET", "/v1/agents/?include=agent.tools&include=agent.blocks", {}),
    ("GET", "/v1/agents", {}),
    ("GET", "/v1/agents/not-an-id", {}),
    ("GET", f"/v1/agents/{ID}", {}),
    ("GET", "/v1/agents/{agent}", {}),
    ("GET", "/v1/agents/{agent}/messages?limit=&order=", {}),
    ("GET", "/v1/agents/{agent}/messages?before=nothing", {}),
    ("GET", "/v1/steps/?start_date=2024-01-01T00:00:00Z", {}),
    ("GET", "/v1/steps/?start_date=yesterday", {}),
    ("PUT", "/v1/agents/{agent}", {}),
    ("HEAD", "/v1/agents/{agent}", {}),
    ("GET", "/v1/nothing", {}),
    ("GET", "/v1/folders/", {}),
    ("GET", "/latest/agents/{agent}", {}),
    ("PATCH", "/v1/agents/{agent}", {"json": {"description": "changed", "unknown": 1}}),
    ("PATCH", "/v1/agents/{agent}", {"json": None}),
    ("PATCH", "/v1/agents/{agent}", {"json": []}),
    ("PATCH", "/v1/agents/{agent}", {"json": {"description": 5}}),
    ("PATCH", "/v1/agents/{agent}", {"content": b"", "headers": {"content-type": "application/json"}}),
    ("PATCH", "/v1/agents/{agent}", {"content": b"{", "headers": {"content-type": "application/json"}}),
    ("PATCH", "/v1/agents/{agent}", {"content": b"null", "headers": {"content-type": "application/json"}}),
    ("PATCH", "/v1/agents/{agent}", {"content": b'{"description": "x"}', "headers": {"content-type": "text/plain"}}),
    ("PATCH", "/v1/agents/{agent}", {"content": b'{"description": "y"}'}),
    (
        "PATCH",
        "/v1/agents/{agent}",
        {"content": b'{"description": "z"}', "headers": {"content-type": "application/merge-patch+json"}},
    ),
    ("PATCH", "/v1/agents/{agent}", {"content": b"[" * 200, "headers": {"content-type": "application/json"}}),
    ("PATCH", "/v1/agents/{agent}/reset-messages", {}),
    ("POST", "/v1/blocks/", {"json": {"label": "a", "value": "b"}}),
    ("POST", "/v1/blocks/", {"json": {"label": "a"}}),
)


async def test_answers_are_those_of_fastapi(kelpie: Kelpie, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(kelpie) as direct, client_of(kelpie) as solved:
        agent = (await make_agent(direct))["id"]
        for method, path, given in REQUESTS:
            path = path.replace("{agent}", agent)
            ours = await direct.request(method, path, **given)
            with monkeypatch.context() as patch:
                patch.setattr(RouteIndex, "find", lambda *_: None)
                theirs = await solved.request(method, path, **given)
            assert shown(ours) == shown(theirs), (method, path, given)


def shown(answer: httpx.Response) -> Any:
    """An answer without what differs from one request to the next."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "content-length")}
    try:
        body = answer.json()
    except ValueError:
        body = answer.text
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in NEW}
    return answer.status_code, headers, body


async def test_a_route_is_analysed_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    analysed: list[str] = []
    whole = APIRoute.__init__

    def analyse(route: APIRoute, path: str, *args: Any, **declared: Any) -> None:
        analysed.append(path)
        whole(route, path, *args, **declared)

    monkeypatch.setattr(APIRoute, "__init__", analyse)
    router = APIRouter(route_class=JsonRoute)

    @router.get("/used/{name}")
    async def used(name: str) -> JSONResponse:
        return JSONResponse(name)

    @router.get("/unused")
    async def unused() -> JSONResponse:
        return JSONResponse(None)

    assert analysed == []
    app = FastAPI(openapi_url=None)
    app.router.routes.extend(router.routes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://kelpie") as http:
        assert (await http.get("/used/bea")).json() == "bea"
        assert (await http.get("/neither")).status_code == 404
        assert (await http.get("/used/cyd")).json() == "cyd"
    assert analysed == ["/used/{name}"]
    assert set(app.openapi()["paths"]) == {"/used/{name}", "/unused"}
    assert analysed == ["/used/{name}", "/unused"]
