"""How an endpoint gets at the product: `kelpie: House` as a parameter, filled from the app's state."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from starlette.requests import Request

if TYPE_CHECKING:
    from kelpie.app import Kelpie


async def _kelpie(request: Request) -> Any:  # async on purpose: FastAPI runs a plain function on a thread
    return request.app.state.kelpie


if TYPE_CHECKING:
    House = Kelpie
else:
    House = Annotated[Any, Depends(_kelpie)]
