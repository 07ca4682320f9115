"""One question to a model: its reply, a reply that breaks off, failures, the deadline and cancellation."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from kelpie.core.conversations.messages import Text, Usage
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider.completion import complete
from kelpie.llm.provider.interface import Event, Reply, Request, TextDelta

HANDLE = "test/model"
REQUEST = Request(model="model", system="", messages=())
REPLY = Reply((Text("hi"),), (), "stop", Usage())


class ScriptedModel:
    """Gives these events, then raises or hangs as told; remembers when its stream was closed."""

    def __init__(self, *events: Event, error: Exception | None = None, hangs: bool = False) -> None:
        self._events, self._error, self._hangs = events, error, hangs
        self.hanging, self.closed = asyncio.Event(), False

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        assert request is REQUEST
        try:
            for event in self._events:
                yield event
            if self._error is not None:
                raise self._error
            if self._hangs:
                self.hanging.set()
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_the_reply_is_returned_and_each_event_is_passed_on() -> None:
    model, received = ScriptedModel(TextDelta("h"), TextDelta("i"), REPLY), list[Event]()
    assert await complete(model, REQUEST, handle=HANDLE, received=received.append) is REPLY
    assert received == [TextDelta("h"), TextDelta("i"), REPLY]
    assert model.closed


async def test_a_stream_without_a_reply_is_malformed_and_names_the_model() -> None:
    with pytest.raises(ModelError, match=r"test/model stopped before its answer was complete\.") as caught:
        await complete(ScriptedModel(TextDelta("h")), REQUEST, handle=HANDLE)
    assert caught.value.kind is ModelFault.malformed


async def test_the_failure_of_a_model_is_passed_on() -> None:
    failure = ModelError(ModelFault.rate_limit, "busy")
    with pytest.raises(ModelError) as caught:
        await complete(ScriptedModel(TextDelta("h"), error=failure), REQUEST, handle=HANDLE, within_s=60.0)
    assert caught.value is failure


async def test_a_deadline_that_passes_is_a_timeout_and_closes_the_stream() -> None:
    model = ScriptedModel(TextDelta("h"), hangs=True)
    with pytest.raises(ModelError, match=r"test/model did not answer within 0\.001 s\.") as caught:
        await complete(model, REQUEST, handle=HANDLE, within_s=0.001)
    assert caught.value.kind is ModelFault.timeout
    assert model.closed


async def test_a_timeout_of_the_model_itself_is_not_taken_for_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        await complete(ScriptedModel(error=TimeoutError()), REQUEST, handle=HANDLE, within_s=60.0)


async def test_cancelling_closes_the_stream() -> None:
    model = ScriptedModel(hangs=True)
    task = asyncio.create_task(complete(model, REQUEST, handle=HANDLE))
    async with asyncio.timeout(30):
        await model.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.closed
