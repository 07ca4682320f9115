"""A reply tells what went over the wire for it, and the same can be had without asking."""

import json

import orjson

from kelpie.llm.demo.provider import DemoProvider
from kelpie.llm.provider.interface import PayloadProvider, Reply
from tests.llm.fakes import DONE, answer, asking, chunk, completion, events, fake, provider
from tests.llm.local_fakes import local_fake, local_server, ndjson, ollama, shown
from tests.llm.test_local_ollama import line

HELLO = completion({"role": "assistant", "content": "hello"})


async def test_what_was_sent_and_what_came_back() -> None:
    async with fake() as server:
        server.behaviours.append(answer(HELLO))
        async with provider(server) as chat:
            (reply,) = [event async for event in chat.stream(asking("hi"))]
            shown_before = await chat.payload(asking("hi"))
    assert isinstance(reply, Reply) and reply.exchanged is not None
    assert json.loads(reply.exchanged.sent) == server.heard[0].body
    assert reply.exchanged.received is not None and orjson.loads(reply.exchanged.received) == HELLO
    assert shown_before == reply.exchanged.sent


async def test_a_stream_comes_back_in_no_single_piece() -> None:
    async with fake() as server:
        server.behaviours.append(events(chunk({"content": "hello"}), chunk({}, finish="stop"), DONE))
        async with provider(server) as chat:
            *_, reply = [event async for event in chat.stream(asking("hi", deltas=True))]
    assert isinstance(reply, Reply) and reply.exchanged is not None and reply.exchanged.received is None
    assert json.loads(reply.exchanged.sent)["stream"] is True


async def test_ollama_shows_what_it_would_send_and_asks_for_no_larger_window_by_it() -> None:
    async with local_fake() as server:
        ollama(server, qwen3__8b=shown())
        server.at("POST /api/chat", ndjson(line(content="hello"), line(True)))
        async with local_server(server.url) as local:
            await local.payload(asking("x" * 60_000, model="qwen3:8b"))  # only looked at
            small = await local.payload(asking("hi", model="qwen3:8b"))
            *_, reply = [event async for event in local.stream(asking("hi", model="qwen3:8b"))]
    assert isinstance(reply, Reply) and reply.exchanged is not None and reply.exchanged.sent == small


async def test_the_demo_shows_what_it_is_given() -> None:
    demo = DemoProvider()
    assert isinstance(demo, PayloadProvider)
    assert json.loads(await demo.payload(asking("hi")))["messages"][-1] == {"role": "user", "content": "hi"}
