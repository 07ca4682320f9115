"""Construction of every resource's router: under /v1, with Kelpie's reading of bodies and the check of the caller."""

from fastapi import APIRouter, Depends

from kelpie.server.http.headers.user_header import actor
from kelpie.server.http.json_body import JsonRoute


def resource(prefix: str, tag: str) -> APIRouter:
    return APIRouter(prefix=f"/v1{prefix}", tags=[tag], route_class=JsonRoute, dependencies=[Depends(actor)])
