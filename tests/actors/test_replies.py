"""What becomes of a job's result and error, whether or not its caller is still there."""

import asyncio
import io
import json
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from kelpie.actors.reply import Reply
from kelpie.observe import logs
from tests.actors.harness import Handler, Harness, HeldJob, ignore, name, number, raising, seeded

request: ContextVar[str] = ContextVar("request", default="none")


@pytest.fixture
def sink() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", stream)
    yield stream
    logs.configure("warning")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@seeded()
async def test_a_caller_that_is_cancelled_leaves_the_job_running(harness: Harness) -> None:
    running, waiting = HeldJob(), HeldJob()

    async def call(job: HeldJob) -> None:
        await harness.dispatcher.submit("a", "default", job)

    callers = [asyncio.create_task(call(running))]
    await running.began.wait()
    callers.append(asyncio.create_task(call(waiting)))
    await asyncio.sleep(1)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    assert all(caller.cancelled() for caller in callers)
    running.go.set()
    waiting.go.set()
    await asyncio.wait_for(waiting.began.wait(), 1)
    assert not running.cancelled and not waiting.cancelled


@seeded()
async def test_a_reply_may_be_dropped(harness: Harness) -> None:
    job = HeldJob()
    harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    job.go.set()
    assert await harness.dispatcher.submit("a", "default", name) == "a"


@pytest.mark.parametrize("way", ["dropped", "cancelled", "no longer waited for"])
def test_an_error_nobody_waits_for_is_logged_once(way: str, sink: io.StringIO) -> None:
    @seeded(seeds=1)
    async def run(harness: Harness) -> None:
        job = HeldJob(error=ZeroDivisionError("lost and found"))
        reply = harness.dispatcher.submit("a", "default", job)
        await job.began.wait()
        if way == "cancelled":
            reply.cancel()
        elif way == "no longer waited for":
            await asyncio.wait([reply], timeout=1)
        job.go.set()
        await harness.dispatcher.submit("a", "default", ignore)

    run(0)
    (line,) = lines(sink)
    assert (
        line["component"] == "actors"
        and line["code"] == "unawaited_job_failed"
        and line["key"] == "a"
        and line["error"] == "lost and found"
    )
    assert "ZeroDivisionError" in line["exception"]


async def _plainly(reply: Reply[None]) -> None:
    await reply


async def _with_wait(reply: Reply[None]) -> None:
    await asyncio.wait([reply])
    reply.result()


async def _with_timeout(reply: Reply[None]) -> None:
    async with asyncio.timeout(5):
        await reply


@pytest.mark.parametrize("wait_for", [_plainly, _with_wait, _with_timeout, asyncio.gather, asyncio.shield])
def test_an_error_somebody_waits_for_is_not_logged(wait_for: Any, sink: io.StringIO) -> None:
    @seeded(seeds=1)
    async def run(harness: Harness) -> None:
        with pytest.raises(ZeroDivisionError):
            await wait_for(harness.dispatcher.submit("a", "default", raising(ZeroDivisionError())))

    run(0)
    assert sink.getvalue() == ""


@seeded()
async def test_a_job_that_ends_as_cancelled_is_an_error_and_not_a_cancelled_caller(harness: Harness) -> None:
    with pytest.raises(Exception, match="nobody cancelled it"):
        await harness.dispatcher.submit("a", "default", raising(asyncio.CancelledError()))
    assert await harness.dispatcher.submit("a", "default", number) == 1


@seeded()
async def test_each_job_runs_in_its_submitters_context(harness: Harness) -> None:
    async def read(_: Handler) -> str:
        return request.get()

    async def call(value: str) -> str:
        request.set(value)
        return await harness.dispatcher.submit("a", "default", read)

    asked = [f"request {n}" for n in range(5)]
    assert await asyncio.gather(*(asyncio.create_task(call(value)) for value in asked)) == asked
