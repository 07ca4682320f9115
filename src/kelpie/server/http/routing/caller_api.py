"""The API object of a request's caller, as a parameter of an endpoint: `api: CallerApi`."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from starlette.requests import Request

if TYPE_CHECKING:
    from kelpie.api import Api


async def _api(request: Request) -> Any:  # async on purpose: FastAPI runs a plain function on a thread
    return request.app.state.api(request.scope["caller"])


if TYPE_CHECKING:
    CallerApi = Api
else:
    CallerApi = Annotated[Any, Depends(_api)]
