"""Messages to a group, as one answer or as a stream. Letta has no such route any more; Kelpie's answers like an
agent's, and every message names the agent that speaks.

A member that fails is reported beside the other members' messages, as `kelpie_failures`: the stream's protocol knows
errors only as its end.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from kelpie.agent.events.turn_events import Lagged, MessageCommitted, TurnEnded
from kelpie.agent.multi_agent.group_chat import ChatEnded, Listener, MemberEvent, MemberFailed
from kelpie.core.errors import InvalidInput, InvariantBroken
from kelpie.server.http import sse
from kelpie.server.http.errors import PartialFailure, error_frame, refusal
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.path_ids import GroupPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.sse import EventStream
from kelpie.server.letta.messages.body import SendBody, send_command
from kelpie.server.letta.messages.shape import View, envelope
from kelpie.server.letta.messages.stream_shape import commit_messages, stop_shape, usage_shape

router = resource("/groups", "groups")

_STREAMS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "What the group's agents say; with `streaming`, as server-sent events.",
        "content": {"text/event-stream": {}},
    }
}
_NOT_IN_GROUPS = ("background", "client_tools", "override_model", "override_system", "system", "stream_tokens")


@router.post("/{group_id}/messages", summary="Send messages to a group", responses=_STREAMS, response_model=None)
async def send_group_message(api: CallerApi, group_id: GroupPath, body: SendBody) -> Response:
    if body.streaming:
        return await _streamed(api, group_id, body)
    return JsonAnswer(await _whole(await _sent(api, group_id, body, streaming=False), body.view))


@router.post(
    "/{group_id}/messages/stream",
    summary="Send messages to a group and stream the answers",
    responses=_STREAMS,
    response_model=None,
)
async def stream_group_message(api: CallerApi, group_id: GroupPath, body: SendBody) -> Response:
    return await _streamed(api, group_id, body)


async def _sent(api: CallerApi, group_id: GroupPath, body: SendBody, *, streaming: bool) -> Listener:
    for name in _NOT_IN_GROUPS:
        if getattr(body, name, None):
            raise InvalidInput(name, "is not supported for groups; omit it, or send the message to the agent")
    send = send_command(body, streaming=streaming, max_steps=api.settings.max_steps)
    if send.answers:
        raise InvalidInput(
            "messages", "send approvals and tool results to the agent that made the call, not to its group"
        )
    return await api.groups.send(group_id, send)


async def _whole(listener: Listener, view: View) -> dict[str, Any]:
    """The answer that is not streamed. Raises the error of the group chat."""
    found, failures = list[dict[str, Any]](), list[dict[str, Any]]()
    async with aclosing(listener.events()) as events:
        async for event in events:
            match event:
                case MemberEvent():
                    found += _member_messages(event, listener, view)
                case MemberFailed():
                    failures.append(_failure(event))
                case ChatEnded():
                    if event.error:
                        raise PartialFailure(event.error) if found else event.error
                    return {
                        "messages": found,
                        "stop_reason": stop_shape(event.stop_reason),
                        "usage": usage_shape(event.usage, event.step_count, None, event.run_ids),
                        "logprobs": None,
                        "turns": None,
                        "kelpie_failures": failures,
                    }
    raise InvariantBroken(f"{listener.group_id}: the events of a group chat ended without its end")


async def _streamed(api: CallerApi, group_id: GroupPath, body: SendBody) -> EventStream:
    listener = await _sent(api, group_id, body, streaming=True)
    world, settings = api.world, api.settings

    def ping() -> bytes:
        return sse.frame(envelope("ping", f"ping-{world.ids.uuid()}", at=world.clock.now(), otid=None))

    pings = ping if body.include_pings else None
    return EventStream(_frames(listener, body.view), ping=pings, ping_s=settings.ping_s, stall_s=settings.stall_s)


async def _frames(listener: Listener, view: View) -> AsyncIterator[bytes]:
    failures: list[dict[str, Any]] = []
    async with aclosing(listener.events()) as events:
        async for event in events:
            match event:
                case MemberEvent():
                    for message in _member_messages(event, listener, view):
                        yield sse.frame(message)
                case MemberFailed():
                    failures.append(_failure(event))
                case ChatEnded():
                    told = {"kelpie_failures": failures} if failures else {}
                    yield sse.frame(stop_shape(event.stop_reason) | told)
                    if event.error:
                        yield sse.error(error_frame(event.error, None))
                    else:
                        yield sse.frame(usage_shape(event.usage, event.step_count, None, event.run_ids))
                    yield sse.DONE


def _member_messages(spoke: MemberEvent, listener: Listener, view: View) -> list[dict[str, Any]]:
    """The messages of one of the agents, each with its sender."""
    match spoke.event:
        case MessageCommitted():
            who = {"sender_id": spoke.member.id, "group_id": listener.group_id}
            return [m | who | {"name": m["name"] or spoke.member.name} for m in commit_messages(spoke.event, view)]
        case TurnEnded() | Lagged():
            raise InvariantBroken(f"{spoke.run_id}: a group chat reported the end of a turn")
        case _:
            return []


def _failure(failed: MemberFailed) -> dict[str, Any]:
    told = refusal(failed.error)
    return {"agent_id": failed.member.id, "name": failed.member.name, "run_id": failed.run_id, "message": told.message}
