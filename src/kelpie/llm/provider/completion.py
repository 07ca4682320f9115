"""Completion: asks a model once and returns its whole reply.

Every caller that needs one reply goes through here, so that a reply that breaks off and a deadline that passes are the
same errors everywhere. The connection is released as soon as the caller is cancelled or the deadline passes.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider.interface import ChatModel, Event, Reply, Request


async def complete(
    model: ChatModel,
    request: Request,
    *,
    handle: str,
    within_s: float | None = None,
    received: Callable[[Event], None] | None = None,
) -> Reply:
    """The model's reply. `handle` names the model in errors; `received` gets each event as it arrives, the reply too.

    `within_s` limits the whole call, with all its retries and the models that stand in; without it only the limits of
    the providers apply. Raises ModelError.
    """
    reply: Reply | None = None
    deadline = asyncio.timeout(within_s)
    try:
        async with deadline, aclosing(model.stream(request)) as events:
            async for event in events:
                if received is not None:
                    received(event)
                if isinstance(event, Reply):
                    reply = event
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise ModelError(ModelFault.timeout, f"{handle} did not answer within {within_s:g} s.") from error
    if reply is None:
        raise ModelError(ModelFault.malformed, f"{handle} stopped before its answer was complete.")
    return reply
