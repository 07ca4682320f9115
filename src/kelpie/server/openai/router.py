"""Construction of the routers of OpenAI's API: under /openai/v1, with Kelpie's reading of bodies."""

from fastapi import APIRouter, Depends

from kelpie.server.http.headers.user_header import actor
from kelpie.server.http.json_body import JsonRoute

PREFIX = "/openai/v1"


def openai_resource(tag: str) -> APIRouter:
    return APIRouter(prefix=PREFIX, tags=[tag], route_class=JsonRoute, dependencies=[Depends(actor)])
