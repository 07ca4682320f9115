"""Background runs over HTTP: sends whose client does not wait, and streams that a client resumes."""

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from kelpie.agent.turn.send_request import NOBODY_WAITS
from kelpie.core.access.hosts import check_callback
from kelpie.core.conversations.runs import Run
from kelpie.core.ids import RunId
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.path_ids import AgentPath, ThreadPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.sse import EventStream
from kelpie.server.letta.conversations.routes import thread_of
from kelpie.server.letta.messages.background_stream import following
from kelpie.server.letta.messages.body import AsyncBody, send_command
from kelpie.server.letta.runs.shape import run_shape

router = resource("", "runs")

NUMBER_MAX = 2**53


class FollowBody(BaseModel):
    """The position from which a stream is read. Events are sent as they come, so a polling interval has no effect."""

    model_config = ConfigDict(extra="ignore")

    starting_after: int = Field(
        0, ge=0, le=NUMBER_MAX, description="The number of the last event that the client has received."
    )
    include_pings: bool | None = True
    poll_interval: float | None = Field(None, ge=0, description="Accepted for compatibility; has no effect.")
    batch_size: int | None = Field(None, ge=1, description="Accepted for compatibility; has no effect.")
    agent_id: str | None = Field(None, description="The agent, if the path says `default`.")
    run_id: str | None = Field(None, description="The run. Defaults to the run of `otid`, or the newest active run.")
    otid: str | None = Field(None, description="The client's own id of one of the run's messages.")


_FROM_THE_START = FollowBody.model_validate({})


@router.post("/runs/{run_id}/stream", summary="Read the stream of a background run", response_model=None)
async def follow_run(api: CallerApi, run_id: str, body: FollowBody | None = None) -> Response:
    return _resumed(api, await api.background_runs.find(RunId.parse(run_id)), body or _FROM_THE_START)


@router.post(
    "/conversations/{conversation_id}/stream", summary="Read the stream of a conversation", response_model=None
)
async def follow_conversation(api: CallerApi, conversation_id: ThreadPath, body: FollowBody | None = None) -> Response:
    body = body or _FROM_THE_START
    if body.run_id is not None:
        return _resumed(api, await api.background_runs.find(RunId.parse(body.run_id)), body)
    agent_id, lane = await api.conversations.lane(thread_of(conversation_id, body.agent_id))
    return _resumed(api, await api.background_runs.latest(agent_id, lane, body.otid), body)


@router.post("/agents/{agent_id}/messages/async", summary="Send messages without waiting", response_model=None)
async def send_async(api: CallerApi, agent_id: AgentPath, body: AsyncBody) -> JsonAnswer:
    send = send_command(body, streaming=False, max_steps=api.settings.max_steps)
    if body.callback_url is not None:
        check_callback(body.callback_url, private=api.settings.callback_private)
    send = replace(send, run_type=NOBODY_WAITS, callback_url=body.callback_url)
    return JsonAnswer(run_shape(await api.background_runs.accept(agent_id, send)))


def _resumed(api: CallerApi, run: Run, body: FollowBody) -> EventStream:
    return following(api, run, include_pings=body.include_pings is not False, after=body.starting_after)
