"""The stream of a background run as server-sent events, from the beginning or after the frame with a number."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from kelpie.core.conversations.runs import Run
from kelpie.core.errors import KelpieError
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.sse import EventStream
from kelpie.server.letta.messages.shape import View
from kelpie.server.letta.messages.stream_shape import StreamFrames


def following(api: CallerApi, run: Run, *, include_pings: bool, after: int = 0) -> EventStream:
    """The stream of a background run, after the frame with this number."""
    frames = StreamFrames(run.agent_id, run.id, view_of(run.request_config), after)
    world, settings = api.world, api.settings
    ping = (lambda: frames.ping(world.ids.uuid(), world.clock.now())) if include_pings else None
    told = _frames(api, run, frames, frames.opening(run.created_at) if include_pings else b"")
    return EventStream(told, ping=ping, ping_s=settings.ping_s, stall_s=settings.stall_s, greets=False)


async def _frames(api: CallerApi, run: Run, frames: StreamFrames, opening: bytes) -> AsyncIterator[bytes]:
    if opening:
        yield opening
    try:
        async with aclosing(api.background_runs.follow(run.id)) as events:
            async for event in events:
                if data := b"".join(frames.of(event)):
                    yield data
    except KelpieError as error:
        yield b"".join(frames.broken(error))


def view_of(config: Mapping[str, Any]) -> View:
    """The view of messages that the client of the run asked for."""
    types = config.get("include_return_message_types")
    return View(
        config.get("use_assistant_message", True),
        config.get("assistant_message_tool_name", "send_message"),
        config.get("assistant_message_tool_kwarg", "message"),
        None if types is None else frozenset(types),
        config.get("include_compaction_messages", False),
    )
