"""A small application that touches every port, for tests of the simulation itself: FastAPI, a table, a model."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import httpx_sse
from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy import Column, Integer, MetaData, Table, Text, insert, select

from kelpie.core.errors import KelpieError
from kelpie.core.settings.settings import Settings
from kelpie.sim.network.http_server import App
from kelpie.sim.runs.machine import LLM_HOST
from kelpie.world.database import Tx
from kelpie.world.world import World

_metadata = MetaData()
_notes = Table("notes", _metadata, Column("id", Integer, primary_key=True), Column("text", Text, nullable=False))
_ADD = insert(_notes)
_ALL = select(_notes.c.text).order_by(_notes.c.id)


def schema(tx: Tx) -> None:
    _metadata.create_all(tx)


@dataclass(frozen=True, slots=True)
class Running:
    asgi: App
    client: httpx.AsyncClient
    world: World

    async def stop(self) -> None:
        await self.client.aclose()
        await self.world.database.close()


async def boot(world: World, _settings: Settings) -> Running:
    """The application on a World."""
    client = httpx.AsyncClient(transport=world.http.transport(), base_url=f"http://{LLM_HOST}/v1", timeout=30)
    await world.database.read(_read)
    return Running(_routes(world, client), client, world)


def _routes(world: World, client: httpx.AsyncClient) -> FastAPI:
    app = FastAPI()

    @app.exception_handler(KelpieError)
    async def failed(_request: Any, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503)

    @app.exception_handler(httpx.HTTPError)
    async def unreachable(_request: Any, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": type(error).__name__}, 502)

    @app.post("/notes")
    async def add(body: dict[str, str]) -> dict[str, Any]:
        text = f"{body['text']} {world.clock.now()} {world.ids.uuid()}"
        await world.database.transact(lambda tx: tx.execute(_ADD, {"text": text}) and None)
        return {"text": text}

    @app.get("/notes")
    async def notes() -> list[str]:
        return await world.database.read(_read)

    @app.post("/ask")
    async def ask(body: dict[str, Any]) -> Any:
        response = await client.post("/chat/completions", json=_request(body))
        try:
            return JSONResponse(response.json(), response.status_code)
        except json.JSONDecodeError:
            return JSONResponse({"detail": "no JSON"}, 502)

    @app.post("/stream")
    async def stream(body: dict[str, Any]) -> StreamingResponse:
        return StreamingResponse(_relay(client, body), media_type="text/event-stream")

    return app


async def _relay(client: httpx.AsyncClient, body: dict[str, Any]) -> AsyncIterator[str]:
    try:
        request = {**_request(body), "stream": True}
        async with httpx_sse.aconnect_sse(client, "POST", "/chat/completions", json=request) as source:
            if source.response.status_code != 200:
                yield "data: refused\n\n"
                return
            async for event in source.aiter_sse():
                yield f"data: {event.data}\n\n"
    except (httpx.HTTPError, httpx_sse.SSEError) as error:
        yield f"data: {type(error).__name__}\n\n"


def _request(body: dict[str, Any]) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "roll", "parameters": {}}}]
    return {"model": "scripted", "messages": [{"role": "user", "content": body["text"]}], "tools": tools}


def _read(tx: Tx) -> list[str]:
    return list(tx.scalars(_ALL))
