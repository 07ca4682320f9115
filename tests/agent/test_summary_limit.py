"""The limit on a summary: what its model may write, and that the context fits its window whatever it wrote."""

from dataclasses import replace

import pytest

from kelpie.agent.compaction.plan import FULL
from kelpie.agent.compaction.summary_limit import ENDS_HERE, summary_limit
from kelpie.agent.prompt.summary import NOTHING_TOLD, read_summary, summary_row, summary_weight
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.agents.compaction_settings import CompactionStats, Trigger
from kelpie.core.conversations.messages import Reasoning, Role
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.ids import AgentId, MessageId, RunId
from kelpie.core.token_estimates import BYTES_PER_TOKEN
from kelpie.llm.provider.interface import ModelInfo
from tests.agent.conftest import says
from tests.agent.test_compaction import context, fill, make, rig

__all__ = ["rig"]

SMALL = 900  # tokens: the row of a summary takes a sizable part of it
LONG = {
    "plain": "long " * 20_000,
    "escaped": '"\\\n' * 5_000,
    "wide": "\N{PINEAPPLE}" * 5_000,
    "control": "\x01" * 5_000,
}


def described(**facts):
    return lambda name: ModelInfo(f"test/{name}", name, "test", "openai", 128_000, "test", **facts)


async def compacted(rig, agent, size=400):
    """Talks until the context is compacted; returns what is in it then."""
    while not rig.model.summing:
        await fill(rig, agent, 1, size)
    return await context(rig, agent)


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("window", [SMALL, 4_000])
async def test_a_context_fits_its_window_whatever_the_summary_is(rig, text, window):
    agent = await make(rig, window=window)
    rig.model.summaries = [text]
    seen = await compacted(rig, agent, window // 2)
    beside = len(rig.model.requests[-1].system)
    assert sum(map(weight, seen[1:])) + beside <= FULL * window * BYTES_PER_TOKEN
    told = read_summary(seen[1]).text
    assert "characters omitted" in told and told.startswith(text[:20].lstrip()), "it is cut, and says so"
    stats = read_summary(seen[1]).stats
    assert stats is not None and stats["context_tokens_after"] <= FULL * window


async def test_a_model_may_write_no_more_than_the_summary_may_have(rig):
    rig.model.describe = described(max_tokens=None)  # as local servers do
    agent = await make(rig, window=SMALL)
    await compacted(rig, agent)
    (request,) = rig.model.summing
    assert 100 <= request.max_tokens <= 0.25 * SMALL
    assert request.messages[-1].message.text.rstrip().endswith("words.")
    large = await make(rig, window=100_000, compaction_settings={"clip_chars": 8_000})
    rig.model.summing.clear()
    await compacted(rig, large, 30_000)
    assert [request.max_tokens for request in rig.model.summing] == [2_000]
    assert not rig.model.summing[0].messages[-1].message.text.rstrip().endswith("words.")


async def test_the_model_of_the_summary_keeps_its_own_limit(rig):
    rig.model.describe = described(max_tokens=150)
    agent = await make(rig, window=SMALL)
    await compacted(rig, agent)
    assert [request.max_tokens for request in rig.model.summing] == [150]


async def test_a_call_leaves_room_for_its_answer_in_the_window_of_its_model(rig):
    agent = await make(rig, window=40_000, compaction_settings={"model": "test/small", "mode": "all"})
    rig.model.describe = lambda name: replace(described(max_tokens=None)(name), context_window=3_000)
    await fill(rig, agent, 9, size=15_000)
    for request in rig.model.summing:
        asked = len(request.system) + sum(weight(each.message) for each in request.messages)
        assert 64 <= request.max_tokens <= max(3_000 - asked // 3, 64)


async def test_a_summary_that_reached_its_limit_says_so(rig):
    agent = await make(rig, window=SMALL)
    rig.model.summaries = [replace(says("It began with"), finish_reason="length")]
    seen = await compacted(rig, agent)
    assert read_summary(seen[1]).text == f"It began with\n{ENDS_HERE}"


async def test_a_model_that_thinks_gets_room_for_its_thoughts(rig):
    rig.model.describe = described(max_tokens=None, reasoning=True)
    agent = await make(rig, window=SMALL)
    await compacted(rig, agent)
    assert rig.model.summing[0].max_tokens > 8_000


async def test_a_model_that_only_thought_is_asked_once_more_with_more_room(rig):
    rig.model.describe = described(max_tokens=None)
    agent = await make(rig, window=SMALL)
    thought = replace(says(""), content=(Reasoning("Hm."),), finish_reason="length")
    rig.model.summaries = [thought, "At last."]
    seen = await compacted(rig, agent)
    first, second = rig.model.summing
    assert first.max_tokens <= 0.25 * SMALL and second.max_tokens > 8_000
    assert read_summary(seen[1]).text == "At last."
    rig.model.summing.clear()
    rig.model.summaries = [thought] * 9
    seen = await compacted(rig, agent)
    assert len(rig.model.summing) <= 4 and NOTHING_TOLD in read_summary(seen[1]).text


def test_the_weight_of_a_summary_is_never_less_than_that_of_its_row():
    run = Run(RunId("run-1"), AgentId("agent-1"), RunStatus.running, 0)
    for trigger in Trigger:
        for text in ("", "short", *LONG.values()):
            stats = CompactionStats(trigger.value, 1_000_000, 900_000, 2_000_000, 9_999, 9_999)
            row = summary_row(run, MessageId("message-1"), text, stats, 0, None)
            assert row.role is Role.summary
            assert 0 <= summary_weight(text) - weight(row) < 40


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_text_is_cut_until_its_row_fits(text):
    for room in (60, 100, 1_000, 10_000):
        limit = summary_limit(50_000, summary_weight("") + room, 9_000, 1.0)
        assert summary_weight(limit.fitted(text)) <= limit.weight
    assert summary_limit(50_000, 10**6, 9_000, 1.0).fitted(text[:100]) == text[:100]
    assert len(summary_limit(50_000, 0, 9_000, 1.0).fitted(text)) < 60, "nothing but the note"
