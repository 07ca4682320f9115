"""Dependencies that need only the request are called by us; to client and schema nothing looks different."""

from typing import Annotated

import httpx
from fastapi import APIRouter, Depends, FastAPI, Header, Query
from starlette.requests import Request
from starlette.responses import JSONResponse

from kelpie.server.http.dependencies import schema_only
from kelpie.server.http.json_body import JsonRoute

CALLED: list[str] = []


async def whole(request: Request) -> str:
    return request.headers["host"]


async def nested(host: Annotated[str, Depends(whole)], size: Annotated[int, Query()] = 1) -> str:
    return f"{host}:{size}"


@schema_only
async def told(token: Annotated[str | None, Header()] = None) -> None:
    CALLED.append("told")


router = APIRouter(route_class=JsonRoute, dependencies=[Depends(told)])


@router.get("/plain/{name}", response_model=None)
async def plain(name: str, host: Annotated[str, Depends(whole)], deep: Annotated[str, Depends(nested)]) -> JSONResponse:
    return JSONResponse([name, host, deep])


@router.get("/asks", response_model=None)
async def asks(request: Request, host: Annotated[str, Depends(whole)]) -> JSONResponse:
    return JSONResponse([request.url.path, host])


app = FastAPI()
app.router.routes.extend(router.routes)


async def get(path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://testhost") as client:
        return await client.get(path)


async def test_an_endpoint_gets_what_it_asks_for() -> None:
    assert (await get("/plain/ann?size=7")).json() == ["ann", "testhost", "testhost:7"]
    assert (await get("/asks")).json() == ["/asks", "testhost"], "an endpoint that takes the request keeps it"


async def test_what_is_wrong_is_still_found() -> None:
    answer = await get("/plain/ann?size=much")
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "size"]


async def test_what_is_there_for_the_schema_is_in_it_and_never_called() -> None:
    CALLED.clear()
    await get("/asks")
    assert CALLED == []
    parameters = app.openapi()["paths"]["/plain/{name}"]["get"]["parameters"]
    assert {(p["in"], p["name"]) for p in parameters} == {("path", "name"), ("query", "size"), ("header", "token")}
