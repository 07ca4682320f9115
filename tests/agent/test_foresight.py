"""What tools want to know before their commit. A model that hangs or fails costs them the meaning, never the turn."""

import asyncio
import json

import pytest

from kelpie.agent.tool_calls import execution as call_execution
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.messages import ApprovalDecision, MessageQuery, NewMessage, Role, Text
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.memory.passages import NewPassage, PassageQuery
from kelpie.core.tools.tools import NewTool
from kelpie.memory import embeddings
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import ended, rows, says
from tests.agent.embedding_rig import EmbeddingRig
from tests.agent.test_recovery import SOURCE, behind, run_is, until

INSERT, SEARCH, RECALL = "archival_memory_insert", "archival_memory_search", "conversation_search"
WAIT_S = 60.0


@pytest.fixture
async def rig(tmp_path):
    made = await EmbeddingRig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


def results(events):
    return [result for row in rows(events) for result in row.tool_returns]


def read(result):
    assert result.ok, result.text
    return json.loads(result.text)


async def told(rig, agent_id, *called):
    """Has the agent make calls in one reply, and gives their results."""
    rig.model.script = [says("", *called), says("done")]
    events = await rig.say(agent_id, "go")
    assert ended(events).stop_reason is StopReason.end_turn
    return results(events)


async def test_what_is_stored_is_found_by_meaning_at_once(rig):
    agent = await rig.agent(INSERT, SEARCH)
    await told(rig, agent, (INSERT, {"content": "the kitten sleeps on the sofa"}))
    await told(rig, agent, (INSERT, {"content": "the car is red"}))
    (result,) = await told(rig, agent, (SEARCH, {"query": "moggy", "top_k": 1}))
    found = read(result)
    assert found["search_mode"] == "hybrid" and "by words and by meaning" in found["message"]
    assert [one["content"] for one in found["results"]] == ["the kitten sleeps on the sofa"]
    (result,) = await told(rig, agent, (SEARCH, {"query": "car", "top_k": 1}))
    assert [one["content"] for one in read(result)["results"]] == ["the car is red"]


async def test_pages_are_of_one_ranking(rig):
    agent = await rig.agent(SEARCH)
    archives = rig.kelpie.api().archives
    for number in range(30):
        await archives.remember(agent, NewPassage(f"cat number {number}"))
    seen = []
    for page in range(8):
        (result,) = await told(rig, agent, (SEARCH, {"query": "feline number", "top_k": 4, "page": page}))
        seen += [one["content"] for one in read(result)["results"]]
    assert len(seen) == len(set(seen)) == 30


async def test_what_was_said_is_found_by_words_at_once_and_by_meaning_when_embedded(rig):
    agent = await rig.agent(RECALL)
    await rig.say(agent, "my kitten is called Miezi")
    await rig.say(agent, "the weather is fine")
    (result,) = await told(rig, agent, (RECALL, {"query": "Miezi"}))
    found = read(result)
    assert found["results"][0]["content"] == "my kitten is called Miezi"
    await rig.embed_all()
    (result,) = await told(rig, agent, (RECALL, {"query": "moggy", "limit": 1}))
    found = read(result)
    assert found["search_mode"] == "hybrid"
    assert [one["content"] for one in found["results"]] == ["my kitten is called Miezi"]


async def test_what_is_said_with_the_search_is_not_found_by_it(rig):
    agent = await rig.agent(RECALL, tool_rules=(ToolRule("requires_approval", RECALL),))
    rig.model.script = [says("I look for zebras", (RECALL, {"query": "zebras"})), says("none")]
    await rig.say(agent, "what about zebras?")  # stored before the call is answered
    (row,) = [m for m in await rig.kelpie.api().histories.messages(agent, MessageQuery()) if m.tool_calls]
    answer = SendRequest((), answers=(ApprovalDecision(row.tool_calls[0].id, True),))
    events = [event async for event in (await rig.kelpie.api().sending.send(agent, answer)).events()]
    assert read(results(events)[0])["results"] == []


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
async def test_without_vectors_words_count_and_the_result_says_so(rig, monkeypatch, trouble):
    agent = await rig.agent(INSERT, SEARCH, RECALL)
    await told(rig, agent, (INSERT, {"content": "the kitten sleeps"}))
    await rig.embed_all()
    monkeypatch.setattr(embeddings, "LOOK_S", 0.02)
    monkeypatch.setattr(embeddings, "STORE_S", 0.02)
    if trouble == "hangs":
        rig.model.held = asyncio.Event()
    else:
        rig.model.broken = True
    stored, by_words, said = await told(
        rig,
        agent,
        (INSERT, {"content": "the kitten purrs"}),
        (SEARCH, {"query": "kitten"}),
        (RECALL, {"query": "go"}),
    )
    assert stored.ok
    found = read(by_words)
    assert {one["content"] for one in found["results"]} == {"the kitten sleeps", "the kitten purrs"}
    why = "did not answer within" if trouble == "hangs" else "the model is broken"
    for result in (found, read(said)):
        assert result["search_mode"] == "full_text" and why in result["message"]
    rig.model.held, rig.model.broken = None, False
    await rig.embed_all()  # and what is missing is made up for
    (result,) = await told(rig, agent, (SEARCH, {"query": "moggy"}))
    assert len(read(result)["results"]) == 2


async def test_many_searches_of_one_reply_wait_no_longer_together(rig, monkeypatch):
    agent = await rig.agent(INSERT, SEARCH)
    await told(rig, agent, (INSERT, {"content": "the kitten sleeps"}))
    monkeypatch.setattr(call_execution, "PRECOMPUTE_S", 0.05)
    rig.model.held = asyncio.Event()
    async with asyncio.timeout(WAIT_S):  # by themselves ten would take a hundred seconds
        given = await told(rig, agent, *((SEARCH, {"query": "kitten"}) for _ in range(10)))
    assert len(given) == 10 and all("nothing came within" in read(each)["message"] for each in given)


async def _held(rig, agent, *called):
    """A turn whose call waits for a vector."""
    rig.model.script = [says("", *called)]
    rig.model.held, rig.model.asked = asyncio.Event(), asyncio.Event()
    turn = await rig.kelpie.api().sending.send(agent, SendRequest((NewMessage(Role.user, (Text("go"),)),)))
    async with asyncio.timeout(WAIT_S):
        await rig.model.asked.wait()
    return turn


async def _cancelled(rig, agent):
    async with asyncio.timeout(WAIT_S):
        await rig.kelpie.api().cancellations.of_agent(agent, None)


async def _goes_on(rig, agent):
    rig.model.held, rig.model.script = None, [says("hello")]
    assert rows(await rig.say(agent, "hi"))[-1].text == "hello"


async def _stored(rig, agent):
    found = await rig.kelpie.api().archives.search_of_agent(agent, PassageQuery("", 50))
    return [each.passage.text for each in found.found]


async def test_a_cancelled_turn_does_not_wait_for_a_vector(rig):
    agent = await rig.agent(INSERT)
    turn = await _held(rig, agent, (INSERT, {"content": "the kitten sleeps"}))
    await _cancelled(rig, agent)
    events = [event async for event in turn.events()]
    assert ended(events).stop_reason is StopReason.cancelled
    assert await _stored(rig, agent) == []
    (run,) = await rig.kelpie.api().runs.page(RunQuery())
    assert run.status is RunStatus.cancelled and run.usage.total_tokens == 15, "what was asked for is paid for"
    await _goes_on(rig, agent)


async def test_cancelled_while_an_approved_call_waits_for_a_vector_it_is_not_made(rig):
    agent = await rig.agent(INSERT, tool_rules=(ToolRule("requires_approval", INSERT),))
    rig.model.script = [says("", (INSERT, {"content": "the kitten sleeps"}))]
    assert ended(await rig.say(agent, "go")).stop_reason is StopReason.requires_approval
    approve = SendRequest((), answers=(ApprovalDecision("call_0", True),))
    rig.model.held, rig.model.asked = asyncio.Event(), asyncio.Event()
    turn = await rig.kelpie.api().sending.send(agent, approve)
    async with asyncio.timeout(WAIT_S):
        await rig.model.asked.wait()
    await _cancelled(rig, agent)
    assert ended([event async for event in turn.events()]).stop_reason is StopReason.cancelled
    assert await _stored(rig, agent) == []
    given = [
        result
        for row in await rig.kelpie.api().histories.messages(agent, MessageQuery())
        for result in row.tool_returns
    ]
    assert [(result.call_id, result.ok) for result in given] == [("call_0", False)]
    await _goes_on(rig, agent)


async def test_after_a_crash_what_is_left_is_stored_once_and_with_its_meaning(tmp_path):
    began, never = asyncio.Event(), asyncio.Event()

    async def outside(tool, call, arguments):
        began.set()
        await never.wait()
        return Outcome("done")

    rig = EmbeddingRig(tmp_path / "kelpie.db")
    rig.external = outside
    await rig.start()
    await rig.kelpie.api().tools.create(NewTool(SOURCE))
    agent = await rig.agent("outside", INSERT, SEARCH)
    rig.model.script = [says("", ("outside", {"x": "y"}), (INSERT, {"content": "the kitten sleeps"}))]
    await behind(rig, agent, "go")
    async with asyncio.timeout(WAIT_S):
        await began.wait()
    await rig.stop()
    rig.model.script = [says("noted")]
    await rig.start()

    await until(lambda: run_is(rig, RunStatus.completed))
    assert await _stored(rig, agent) == ["the kitten sleeps"]
    (result,) = await told(rig, agent, (SEARCH, {"query": "moggy"}))
    assert [one["content"] for one in read(result)["results"]] == ["the kitten sleeps"]
    await rig.stop()
