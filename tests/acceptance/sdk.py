"""One way to write a script for both clients of `letta-client`: answers are waited for if they have to be.

Both clients check every answer against the SDK's own models and never retry.
"""

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from letta_client import AsyncLetta, Letta

KINDS = ("sync", "async")
TIMEOUT_S = 60.0


@asynccontextmanager
async def sdk_client(kind: str, url: str) -> AsyncIterator[Any]:
    """A client of the kind asked for, closed at the end."""
    made = Letta if kind == "sync" else AsyncLetta
    client: Any = made(base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT_S, _strict_response_validation=True)
    try:
        yield client
    finally:
        await got(client.close())


async def got(answer: Any) -> Any:
    """The answer of a call, whichever client made it."""
    return await answer if inspect.isawaitable(answer) else answer


async def every(answer: Any) -> list[Any]:
    """All items of a list, over all its pages, or all events of a stream."""
    found = await got(answer)
    items = [item async for item in found] if hasattr(found, "__aiter__") else list(found)
    return [_checked(item) for item in items]


def _checked(item: Any) -> Any:
    """The item as its model accepts it: the SDK builds the items of a page without a check."""
    return type(item).model_validate(item.model_dump(mode="json", by_alias=True))
