"""Construction of every resource's router: under /v1, with Kelpie's reading of bodies and the check of the caller."""

from fastapi import APIRouter, Depends

from kelpie.server.http.json_body import JsonRoute
from kelpie.server.http.user_header import actor


def resource(prefix: str, tag: str) -> APIRouter:
    return APIRouter(prefix=f"/v1{prefix}", tags=[tag], route_class=JsonRoute, dependencies=[Depends(actor)])
