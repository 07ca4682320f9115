"""The context window as users of letta-client see it, over the wires of OpenAI and Anthropic, streamed and not."""

import json
from typing import Any

import pytest
from letta_client import APIStatusError

from tests.acceptance.sdk import every, got
from tests.acceptance.wire_model import HANDLES, WireModel

WINDOW = 2_500  # the model counts next to nothing, so that estimates shrink by a fifth
FILLER = "y" * 2_500


async def filled(client: Any, model: WireModel, handle: str, turns: int, **more: Any) -> Any:
    """An agent that was told so many long things."""
    agent = await got(
        client.agents.create(
            name="Full", model=handle, include_base_tools=False, system="Be brief.", context_window_limit=WINDOW, **more
        )
    )
    model.will()
    for number in range(turns):
        await got(client.agents.messages.create(agent.id, input=f"fact {number} {FILLER}"))
    return agent


def said(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"])


@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("streaming", [False, True])
async def test_room_is_made_before_the_answer(client: Any, model: WireModel, handle: str, streaming: bool) -> None:
    agent = await filled(client, model, handle, 4)
    model.will("They told me four facts.", "I know.")
    question = f"what do you know? {FILLER}"
    if streaming:  # the SDK's stream has no model for the event, which Letta sends all the same
        stream = client.agents.messages.create(agent.id, input=question, streaming=True, include_pings=False)
        found = [one for one in await every(await got(stream)) if one.message_type.endswith("_message")]
        assert [one.message_type for one in found] == ["user_message", "assistant_message"]
        packed = json.loads(found[0].content)
        assert packed["message"].endswith("They told me four facts.") and packed["type"] == "system_alert"
        stats, summary = packed["compaction_stats"], found[0]
        before, after = stats["context_tokens_before"], stats["context_tokens_after"]
    else:
        send = client.agents.messages.create(agent.id, input=question, include_compaction_messages=True)
        found = (await got(send)).messages
        assert [one.message_type for one in found] == ["event_message", "summary_message", "assistant_message"]
        event, summary, _ = found
        assert event.event_type == "compaction" and event.event_data["trigger"] == "context_window_exceeded"
        assert summary.summary == "They told me four facts."
        before, after = summary.compaction_stats.context_tokens_before, summary.compaction_stats.context_tokens_after
    assert after < before and found[-1].content == "I know."
    summing, answering = model.asked
    assert "fact 0" in said(summing) and "<transcript>" in said(summing) and not summing.get("tools")
    assert "They told me four facts." in said(answering) and "what do you know?" in said(answering)
    assert "fact 0" not in said(answering)
    rows = await every(await got(client.agents.messages.list(agent.id, limit=100)))
    texts = [str(getattr(row, "content", "")) for row in rows]
    assert sum(text.startswith("fact ") for text in texts) == 4, "the history keeps everything"
    assert any(
        '"system_alert"' in text and row.message_type == "user_message" for text, row in zip(texts, rows, strict=True)
    )
    seen = (await got(client.agents.retrieve(agent.id))).message_ids
    assert seen is not None and seen[1] == summary.id and len(seen) < 11


@pytest.mark.parametrize("handle", HANDLES)
async def test_a_context_is_compacted_on_request(client: Any, model: WireModel, handle: str) -> None:
    agent = await filled(client, model, handle, 2)
    with pytest.raises(APIStatusError) as refused:
        await got(client.agents.messages.compact(agent.id))
    assert refused.value.status_code == 400
    model.will("Two facts.")
    done = await got(client.agents.messages.compact(agent.id, compaction_settings={"mode": "all"}))
    assert (done.summary, done.num_messages_before, done.num_messages_after) == ("Two facts.", 5, 2)
    forked = await got(client.conversations.fork("default", agent_id=agent.id))
    again = await got(client.conversations.messages.compact(forked.id))
    assert (again.summary, again.num_messages_after) == ("Two facts.", 2)


async def test_settings_are_checked_when_they_are_written(client: Any) -> None:
    for wrong in ({"mode": "some"}, {"model": "none"}, {"sliding_window_percentage": 2}, {"clip_chars": 0}):
        with pytest.raises(APIStatusError) as refused:
            await got(client.agents.create(model=HANDLES[0], compaction_settings=wrong))
        assert refused.value.status_code in (400, 422) and next(iter(wrong)) in str(refused.value)
