"""How an endpoint gets at the product: `kelpie: House` as a parameter is the doors of whoever asks."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from starlette.requests import Request

if TYPE_CHECKING:
    from kelpie.api import Doors


async def _doors(request: Request) -> Any:  # async on purpose: FastAPI runs a plain function on a thread
    return request.app.state.kelpie.doors(request.scope["caller"])


if TYPE_CHECKING:
    House = Doors
else:
    House = Annotated[Any, Depends(_doors)]
