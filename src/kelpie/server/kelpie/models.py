"""Maintenance of models: which providers answer, which models are hidden and why; pull and removal of local ones."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel, Field

from kelpie.core.errors import KelpieError, ModelError
from kelpie.server.http import sse
from kelpie.server.http.errors import error_frame, refusal
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.sse import EventStream
from kelpie.server.kelpie.model_report import default_shape, report_shape

router = resource("/kelpie/models", "models (Kelpie)")

_PING = sse.frame({"message_type": "ping"})


class ModelBody(BaseModel):
    """The model to check, pull or remove."""

    handle: str = Field(max_length=1000, description="The model's handle, `provider/model`.")


@router.get("", summary="Get a report on providers and models, including hidden ones (Kelpie)", response_model=None)
async def report(api: CallerApi) -> JsonAnswer:
    embedding = await api.archives.embedding()
    told = report_shape(await api.models.report(), api.models.absent(), await api.models.nearby())
    told["embedding"] = {"model": embedding.model, "remedy": embedding.lacking}
    try:
        told["default_model"] = default_shape(await api.models.default())
    except ModelError as error:
        told["default_model"] = default_shape(error)
    return JsonAnswer(told)


@router.post("/check", summary="Check that a model answers (Kelpie)", response_model=None)
async def check(api: CallerApi, body: ModelBody) -> JsonAnswer:
    try:
        answer = await api.models.check(body.handle)
    except ModelError as error:
        told = refusal(error)
        return JsonAnswer(_checked(body.handle, None, told.message, told.detail, told.hint))
    return JsonAnswer(_checked(body.handle, answer))


@router.post("/pull", summary="Pull a model to a local server and stream the progress (Kelpie)", response_model=None)
async def pull(api: CallerApi, body: ModelBody) -> EventStream:
    steps = api.models.pull(body.handle)
    first = await anext(steps, None)  # a refusal comes before the first byte of the answer

    async def frames() -> AsyncIterator[bytes]:
        async with aclosing(steps):
            try:
                if first is not None:
                    yield sse.frame(_step(first))
                async for step in steps:
                    yield sse.frame(_step(step))
            except KelpieError as error:
                yield sse.error(error_frame(error, None))
            yield sse.DONE

    settings = api.settings
    return EventStream(frames(), ping=lambda: _PING, ping_s=settings.ping_s, stall_s=settings.stall_s)


@router.post("/remove", summary="Remove a model from a local server (Kelpie)", response_model=None)
async def remove(api: CallerApi, body: ModelBody) -> JsonAnswer:
    await api.models.remove(body.handle)
    return JsonAnswer({"handle": body.handle})


def _step(step: Any) -> dict[str, Any]:
    return {"status": step.status, "completed": step.completed, "total": step.total}


def _checked(
    handle: str, answer: str | None, error: str | None = None, detail: str | None = None, hint: str | None = None
) -> dict[str, Any]:
    return {"handle": handle, "ok": error is None, "answer": answer, "error": error, "detail": detail, "hint": hint}
