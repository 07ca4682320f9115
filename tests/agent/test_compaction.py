"""Compaction in a turn: before a step, after it and when the provider refuses; what stays, and what never gets lost."""

import asyncio
import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kelpie.agent.compaction import plan
from kelpie.agent.compaction.compactor import CompactionResult, Compactor
from kelpie.agent.compaction.on_request import RUN_TYPE
from kelpie.agent.compaction.window_guard import Room, WindowGuard
from kelpie.agent.events.turn_events import Compacting
from kelpie.agent.prompt.summary import NOTHING_TOLD, read_summary
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.agent.turn.loop import Turn
from kelpie.agent.turn.stored_runs import StoredRuns
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.messages import MessageQuery, Role, Usage
from kelpie.core.conversations.runs import RunQuery, RunStatus, StepQuery, StopReason
from kelpie.core.errors import CallerError, InvalidInput, ModelError, ModelFault
from kelpie.core.paging import Page
from kelpie.core.permissions.budgets import Budget, SpentAmount
from kelpie.core.token_estimates import estimate, tokens_in
from kelpie.llm.provider.interface import ModelInfo, Reply
from kelpie.storage.runs import steps
from tests.agent.conftest import Rig, ScriptModel, ended, rows, says
from tests.agent.test_recovery import behind, until

NOTE = ("memory_insert", {"label": "human", "new_string": "x"})
OVERFLOW = ModelError(ModelFault.context_overflow, "too long")
DOWN = ModelError(ModelFault.server, "down")
WINDOW = 4_000


def asks_for_summary(request) -> bool:
    text = request.messages[-1].message.text
    return "<transcript>" in text or "removed from your context" in text


class CountingModel(ScriptModel):
    """Counts as the estimate does, and sums up with what `summaries` says next."""

    def __init__(self) -> None:
        super().__init__()
        self.summaries = []
        self.summing = []

    def describe(self, name):
        return ModelInfo(f"test/{name}", name, "test", "openai", 128_000, "test", 4096)

    async def stream(self, request):
        if asks_for_summary(request):
            self.summing.append(request)
            line = self.summaries.pop(0) if self.summaries else "a summary"
            line = line(request) if callable(line) else line
            if isinstance(line, ModelError):
                raise line
            yield line if isinstance(line, Reply) else says(line)
            return
        async for event in super().stream(request):
            tokens = estimate(request.system) + sum(tokens_in(weight(p.message)) for p in request.messages)
            if isinstance(event, Reply):
                reply = sum(estimate(part.text) for part in event.content)
                event = replace(event, usage=Usage(tokens, reply, tokens + reply))
            yield event


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path / "kelpie.db")
    made.model = CountingModel()
    await made.start()
    yield made
    await made.stop()


async def make(rig, window=WINDOW, **fields):
    new = NewAgent(include_base_tools=False, context_window_limit=window, system="Be brief.", **fields)
    return (await rig.kelpie.api().agents.create(new)).agent


async def context(rig, agent):
    view = await rig.kelpie.api().agents.get(agent.id)
    found = {m.id: m for m in await rig.kelpie.api().histories.messages(agent.id, MessageQuery(limit=None))}
    return [found[i] for i in view.message_ids]


async def fill(rig, agent, count, size=2_000):
    """So many turns of `size` bytes each."""
    for i in range(count):
        await rig.say(agent.id, f"fact {i} " + "y" * size)


def shown(request):
    return [p.message for p in request.messages]


async def test_what_a_summary_takes_is_a_step_that_the_budget_counts(rig):
    agent = await make(rig)
    rig.model.summaries = [replace(says("Facts."), usage=Usage(700, 7, 707))]
    await fill(rig, agent, 7)
    asked = len(rig.model.summing)
    assert asked == 1
    recorded = await rig.kelpie.api().runs.steps(StepQuery(Page(limit=100), agent_id=agent.id))
    assert [step.usage.total_tokens for step in recorded].count(707) == 1
    assert {step.model_handle for step in recorded} == {agent.model.handle}
    spent = await rig.kelpie.world.database.read(lambda tx: steps.spent_by(tx, agent.id))
    assert spent.tokens == sum(step.usage.total_tokens for step in recorded)


async def test_a_full_context_is_compacted_after_the_step(rig):
    agent = await make(rig)
    rig.model.summaries = ["Facts 0 and 1."]
    await fill(rig, agent, 6)
    rig.model.script = [says("z" * 2_500)]
    events = await rig.say(agent.id, "fact 6")

    began, (summary,) = (
        [e for e in events if isinstance(e, Compacting)],
        [r for r in rows(events) if r.role is Role.summary],
    )
    assert [e.trigger for e in began] == ["post_step_context_check"] and began[0].tokens > 0.9 * WINDOW
    assert [type(e).__name__ for e in events][-3:] == ["Compacting", "MessageCommitted", "TurnEnded"]
    seen = await context(rig, agent)
    assert [m.role for m in seen[:2]] == [Role.system, Role.summary] and seen[1].id == summary.id
    assert seen[2].role is Role.assistant and seen[-1].role is Role.assistant
    stats = read_summary(summary).stats
    assert stats is not None and stats["messages_count_before"] == 15 and stats["messages_count_after"] == len(seen)
    assert stats["context_tokens_after"] == ended(events).context_tokens < 0.7 * WINDOW < stats["context_tokens_before"]
    assert ended(events).stop_reason is StopReason.end_turn

    rig.model.script = [says("fine")]
    events = await rig.say(agent.id, "and now?")
    assert "Facts 0 and 1." in shown(rig.model.requests[-1])[0].text and rows(events)[-1].text == "fine"
    everything = await rig.kelpie.api().histories.messages(agent.id, MessageQuery(limit=None))
    assert sum(m.text.startswith("fact ") for m in everything) == 7, "the history keeps everything"


async def test_room_is_made_before_the_first_step(rig):
    agent = await make(rig)
    await fill(rig, agent, 5)
    await rig.kelpie.api().agents.update(agent.id, {"context_window_limit": 2_000})
    rig.model.summaries, rig.model.script = ["They told five facts."], [says("I know.")]
    events = await rig.say(agent.id, "what do you know?")
    assert [e.trigger for e in events if isinstance(e, Compacting)] == ["context_window_exceeded"]
    said = shown(rig.model.requests[-1])
    assert said[0].role is Role.summary and said[-1].text == "what do you know?"
    assert sum(map(weight, said)) < 2_000 * 4
    assert rows(events)[-1].text == "I know." and ended(events).error is None
    again = await rig.say(agent.id, "once more")
    assert not [e for e in again if isinstance(e, Compacting)], "made once, it is enough"


async def test_a_refused_prompt_is_shortened_and_asked_again(rig):
    agent = await make(rig, window=100_000)
    await fill(rig, agent, 6)
    rig.model.script = [OVERFLOW, OVERFLOW, says("at last")]
    events = await rig.say(agent.id, "short question")
    assert rows(events)[-1].text == "at last" and ended(events).stop_reason is StopReason.end_turn
    sizes = [sum(map(weight, shown(request))) for request in rig.model.requests[-3:]]
    assert sizes[0] > sizes[1] > sizes[2]
    assert shown(rig.model.requests[-1])[-1].text == "short question"


async def test_a_provider_that_always_refuses_ends_the_turn_with_its_words(rig):
    agent = await make(rig)
    await fill(rig, agent, 2)
    rig.model.script = [OVERFLOW] * 10
    before = len(rig.model.requests)
    events = await rig.say(agent.id, "hello?")
    assert ended(events).error is OVERFLOW and ended(events).stop_reason is StopReason.llm_api_error
    assert len(rig.model.requests) - before <= 4
    rig.model.script = [says("better")]
    assert rows(await rig.say(agent.id, "again"))[-1].text == "better"


async def test_a_long_turn_keeps_its_question_and_every_call_its_result(rig):
    agent = await make(rig, tools=("memory_insert", "conversation_search"))
    await fill(rig, agent, 2)
    search = ("conversation_search", {"query": "fact", "limit": 5})
    rig.model.script = [says("", search, search) for _ in range(12)] + [says("done")]
    events = await rig.say(agent.id, "the question")
    assert rows(events)[-1].text == "done" and any(isinstance(e, Compacting) for e in events)
    for request in rig.model.requests:
        said = shown(request)
        calls = [call.id for m in said for call in m.tool_calls]
        results = [result.call_id for m in said for result in m.tool_returns]
        assert sorted(calls) == sorted(results)
    assert all(any(m.text == "the question" for m in shown(r)) for r in rig.model.requests[-12:])


@pytest.mark.parametrize("mode", ["all", "sliding_window", "self_compact_all"])
async def test_a_turn_that_goes_on_after_a_compaction_keeps_its_question(rig, mode):
    agent = await make(rig, tools=("memory_insert", "conversation_search"), compaction_settings={"mode": mode})
    await fill(rig, agent, 6)
    rig.model.script = [says("z" * 2_500, ("conversation_search", {"query": "fact", "limit": 1})), says("done")]
    events = await rig.say(agent.id, "the question")
    assert [e.trigger for e in events if isinstance(e, Compacting)][:1] == ["post_step_context_check"]
    assert rows(events)[-1].text == "done" and len(rig.model.summing) == 1
    assert [m.text for m in shown(rig.model.requests[-1]) if m.role is Role.user][-1:] == ["the question"]
    assert any(m.text == "the question" for m in await context(rig, agent)), "and it is stored so"


@pytest.mark.parametrize("failures", [[DOWN] * 9, [""] * 9, ["long " * 50_000] * 9])
async def test_without_a_usable_summary_the_turn_is_answered_all_the_same(rig, failures):
    agent = await make(rig)
    await fill(rig, agent, 6)
    await rig.kelpie.api().agents.update(agent.id, {"context_window_limit": 2_000})
    rig.model.summaries, rig.model.script = list(failures), [says("still here")]
    events = await rig.say(agent.id, "are you there?")
    assert rows(events)[-1].text == "still here"
    seen = await context(rig, agent)
    assert seen[1].role is Role.summary and sum(map(weight, seen[1:])) < 2_000 * 4
    if failures[0] != "long " * 50_000:
        assert read_summary(seen[1]).text == NOTHING_TOLD


async def test_a_summariser_that_never_answers_is_given_up_and_the_turn_goes_on(rig, monkeypatch):
    monkeypatch.setattr(plan, "SUMMING_UP_S", 0.05)
    agent, stream = await make(rig), rig.model.stream

    async def silent(request):
        if asks_for_summary(request):
            await asyncio.Event().wait()
        async for event in stream(request):
            yield event

    await fill(rig, agent, 6)
    await rig.kelpie.api().agents.update(agent.id, {"context_window_limit": 2_000})
    rig.model.stream, rig.model.script = silent, [says("still here")]
    async with asyncio.timeout(30):
        events = await rig.say(agent.id, "are you there?")
    assert rows(events)[-1].text == "still here"
    seen = await context(rig, agent)
    assert seen[1].role is Role.summary and read_summary(seen[1]).text == NOTHING_TOLD


async def test_what_an_earlier_summary_told_is_not_lost_with_the_summariser(rig):
    agent = await make(rig)
    rig.model.summaries = ["The safe opens with 4711.", *[DOWN] * 20]
    await fill(rig, agent, 16)
    seen = await context(rig, agent)
    assert read_summary(seen[1]).text == f"The safe opens with 4711.\n\n{NOTHING_TOLD}"


async def test_another_model_sums_up_and_the_agents_own_stands_in_for_it(rig):
    settings = {"model": "test/small", "model_settings": {"temperature": 0.2}, "prompt": "Sum up.", "clip_chars": 450}
    agent = await make(rig, compaction_settings=settings)
    await fill(rig, agent, 6)
    rig.model.summaries = [DOWN, "z" * 1_000]
    await fill(rig, agent, 1)
    first, second = rig.model.summing
    assert (first.model, first.temperature, first.system) == ("small", 0.2, "Sum up.")
    assert (second.model, second.system) == ("script", "Sum up.") and not second.tools
    summary = read_summary((await context(rig, agent))[1]).text
    assert summary.startswith("z") and len(summary) < 550 and "omitted" in summary


async def test_with_a_provider_that_is_not_there_the_agents_own_model_sums_up(rig):
    agent = await make(rig, compaction_settings={"model": "nowhere/model"})
    await fill(rig, agent, 7)
    assert [request.model for request in rig.model.summing] == ["script"]


async def test_an_acknowledged_prompt_comes_before_the_transcript(rig):
    agent = await make(rig, compaction_settings={"prompt_acknowledgement": True, "prompt": "Sum up."})
    await fill(rig, agent, 7)
    said = shown(rig.model.summing[0])
    assert [m.role for m in said] == [Role.user, Role.assistant, Role.user] and said[0].text == "Sum up."


@pytest.mark.parametrize("mode", ["self_compact_all", "self_compact_sliding_window"])
async def test_an_agent_sums_itself_up_with_its_own_prompt_and_tools(rig, mode):
    agent = await make(rig, window=WINDOW + 12, tools=("memory_insert",), compaction_settings={"mode": mode})
    await fill(rig, agent, 7)
    (request,) = rig.model.summing
    assert request.system.startswith("Be brief.") and request.tool_choice == "none"
    assert [tool.name for tool in request.tools] == ["memory_insert"]
    assert shown(request)[0].text.startswith("fact 0")
    seen = await context(rig, agent)
    assert len(seen) == 2 if mode == "self_compact_all" else len(seen) > 3


async def test_modes_fall_back_on_each_other(rig):
    agent = await make(rig, compaction_settings={"mode": "self_compact_all"})
    rig.model.summaries = [DOWN, "", "by transcript"]
    await fill(rig, agent, 7)
    kinds = ["<transcript>" in request.messages[-1].message.text for request in rig.model.summing]
    assert kinds == [False, False, True]
    assert read_summary((await context(rig, agent))[1]).text == "by transcript"


async def test_a_history_longer_than_the_summarisers_window_goes_in_pieces(rig):
    rig.model.describe = lambda name: ModelInfo(
        f"test/{name}", name, "test", "openai", 2_000 if name == "small" else 128_000, "test", 400
    )
    agent = await make(rig, window=40_000, compaction_settings={"model": "test/small", "mode": "all"})
    rig.model.summaries = [lambda request, i=i: f"part {i}" for i in range(30)]
    await fill(rig, agent, 10, size=15_000)
    told = [request.messages[-1].message.text for request in rig.model.summing]
    assert len(told) > 3 and all(estimate(text) < 2_000 for text in told)
    assert "<summary_so_far>\npart 0\n" in told[1] and "<summary_so_far>" not in told[0]
    assert read_summary((await context(rig, agent))[1]).text == f"part {len(told) - 1}"


async def test_every_piece_of_a_summary_is_counted(rig):
    agent = await make(rig)
    rig.model.summaries = [OVERFLOW, *(replace(says(f"piece {i}"), usage=Usage(100, 7, 107)) for i in range(9))]
    await fill(rig, agent, 7)
    told = len(rig.model.summing) - 1
    assert told > 1
    recorded = await rig.kelpie.api().runs.steps(StepQuery(Page(limit=100), agent_id=agent.id))
    assert [step.usage.total_tokens for step in recorded].count(107 * told) == 1


@pytest.mark.parametrize(
    "first",
    [
        ["", "", "short"],  # empty: asked again in another mode
        ["long " * 50_000, "short"],  # no shorter than what it stands for
        [OVERFLOW, "one", OVERFLOW, *"abcdef"],  # refused after a piece
        [""] * 9,
    ],
)
async def test_what_came_to_nothing_is_counted_as_well(rig, first):
    """Whoever asks for a summary pays for each reply, whatever becomes of it."""
    agent = await make(rig)
    replied = []

    def reply(text):
        def says_so(_request):
            replied.append(107)
            return replace(says(text), usage=Usage(100, 7, 107))

        return text if isinstance(text, ModelError) else says_so

    rig.model.summaries = [reply(text) for text in first]
    await fill(rig, agent, 7)
    recorded = await rig.kelpie.api().runs.steps(StepQuery(Page(limit=100), agent_id=agent.id))
    used = [step.usage for step in recorded]
    of_summaries = [each.total_tokens for each in used if each.completion_tokens * 100 == each.prompt_tokens * 7]
    assert replied and sum(of_summaries) == sum(replied)
    assert {step.model_handle for step in recorded} == {agent.model.handle}


async def test_pieces_that_are_refused_are_halved(rig):
    agent = await make(rig)
    rig.model.summaries = [OVERFLOW, *(f"piece {i}" for i in range(9))]
    await fill(rig, agent, 7)
    sizes = [len(request.messages[-1].message.text) for request in rig.model.summing]
    assert len(sizes) > 2 and max(sizes[1:]) < sizes[0] / 1.5
    assert read_summary((await context(rig, agent))[1]).text == f"piece {len(sizes) - 2}"


async def test_instructions_that_alone_are_too_long_are_told_as_such(rig):
    agent = await make(rig, window=1_000)
    await rig.kelpie.api().agents.update(agent.id, {"system": "z" * 20_000})
    rig.model.requests.clear()
    events = await rig.say(agent.id, "hi")
    assert ended(events).stop_reason is StopReason.context_window_overflow_in_system_prompt
    assert "context window" in str(ended(events).error) and not rig.model.requests
    await rig.kelpie.api().agents.update(agent.id, {"system": "short"})
    assert ended(await rig.say(agent.id, "hi")).stop_reason is StopReason.end_turn


async def test_an_input_that_alone_is_too_long_is_still_sent(rig):
    agent = await make(rig)
    rig.model.script = [says("long!")]
    events = await rig.say(agent.id, "w" * 100_000)
    assert rows(events)[0].text == "long!" and ended(events).stop_reason is StopReason.end_turn
    assert [m.role for m in await context(rig, agent)] == [Role.system, Role.summary]


async def test_a_history_that_is_emptied_while_it_is_summed_up_stays_empty(rig):
    agent = await make(rig)
    await fill(rig, agent, 6)

    async def empty():
        await rig.kelpie.api().histories.reset(agent.id, False)

    class Resetting(CountingModel):
        async def stream(self, request):
            if asks_for_summary(request):
                await empty()
            async for event in super().stream(request):
                yield event

    rig.model.__class__ = Resetting
    events = await rig.say(agent.id, "fact 7 " + "y" * 2_000)
    assert ended(events).stop_reason is StopReason.end_turn
    assert [m.role for m in await context(rig, agent)] == [Role.system, Role.user, Role.assistant]
    rig.model.__class__ = CountingModel
    await rig.say(agent.id, "hello")
    assert [m.text[:6] for m in shown(rig.model.requests[-1])] == ["fact 7", "ok", "hello"]


async def test_a_turn_after_a_restart_sees_the_summary(rig):
    agent = await make(rig)
    rig.model.summaries = ["Facts."]
    await fill(rig, agent, 7)
    model = rig.model
    await rig.stop()
    rig.model = model
    await rig.start()
    await rig.say(agent.id, "back?")
    said = shown(rig.model.requests[-1])
    assert said[0].role is Role.summary and said[-1].text == "back?"


# --- on request -------------------------------------------------------------------------------------------------------


async def compact(rig, agent, **given) -> CompactionResult:
    return await rig.kelpie.api().context_windows.compact(agent.id, given or None)


async def test_a_context_is_compacted_on_request(rig):
    agent = await make(rig, window=100_000)
    await fill(rig, agent, 6, size=5)
    rig.model.summaries = ["It began."]
    done = await compact(rig, agent)
    assert (done.summary, done.before, done.after) == ("It began.", 13, 11)
    seen = await context(rig, agent)
    assert [m.role for m in seen[:3]] == [Role.system, Role.summary, Role.assistant] and len(seen) == 11
    assert (seen[1].run_id, seen[1].step_id, seen[1].otid) == (None, None, None) and read_summary(seen[1]).stats is None
    everything = await compact(rig, agent, mode="all")
    assert (everything.before, everything.after) == (11, 2)
    again = await compact(rig, agent)
    assert (again.summary, again.before, again.after) == (everything.summary, 2, 2)


async def spent(rig, agent) -> SpentAmount:
    return await rig.kelpie.world.database.read(lambda tx: steps.spent_by(tx, agent.id))


async def test_what_a_compaction_on_request_costs_is_counted_and_held_to_the_budget(rig):
    agent = await make(rig, window=100_000)
    await fill(rig, agent, 6, size=5)
    before = await spent(rig, agent)
    done = await compact(rig, agent)
    assert done.step is not None and done.step.usage.total_tokens > 0
    after = await spent(rig, agent)
    assert (after.tokens - before.tokens, after.calls - before.calls) == (done.step.usage.total_tokens, 1)
    (run,) = [run for run in await rig.kelpie.api().runs.page(RunQuery()) if run.metadata.get("run_type") == RUN_TYPE]
    assert (run.status, run.usage, run.step_count) == (RunStatus.completed, done.step.usage, 1)
    await rig.kelpie.api().agents.update(agent.id, {"budget": Budget(tokens=after.tokens)})
    summed_up = len(rig.model.summing)
    with pytest.raises(CallerError, match="budget is used up"):
        await compact(rig, agent, mode="all")
    assert len(rig.model.summing) == summed_up
    await rig.kelpie.api().agents.update(agent.id, {"budget": Budget(tokens=after.tokens + 1)})
    assert (await compact(rig, agent, mode="all")).after == 2
    assert ended(await rig.say(agent.id, "more")).stop_reason is StopReason.insufficient_credits


async def test_a_compaction_after_the_end_of_a_background_turn_is_held_to_the_budget(rig):
    agent = await make(rig, budget=Budget(tokens=1_000_000))
    rig.model.summaries = [replace(says("Facts."), usage=Usage(999_990, 10, 1_000_000))]
    await fill(rig, agent, 6)
    rig.model.script = [says("z" * 2_500)]
    run = await behind(rig, agent.id, "fact 6")

    async def is_compacted():
        return rig.model.summing and (await spent(rig, agent)).tokens > 1_000_000

    await until(is_compacted)
    assert (await rig.kelpie.api().runs.get(run.id)).status is RunStatus.completed
    assert ended(await rig.say(agent.id, "more")).stop_reason is StopReason.insufficient_credits


async def test_a_turn_that_was_interrupted_goes_on_before_its_context_is_compacted(rig, monkeypatch):
    agent, order = await make(rig, window=100_000), []
    await fill(rig, agent, 6)
    resume, carry_out = StoredRuns.resume, Compactor.carry_out

    async def resumed(stored, conversation):
        await resume(stored, conversation)
        order.append(f"resumed '{conversation}'")

    async def carried_out(*given):
        order.append("compacted")
        return await carry_out(*given)

    monkeypatch.setattr(StoredRuns, "resume", resumed)
    monkeypatch.setattr(Compactor, "carry_out", carried_out)
    await compact(rig, agent)
    assert order == ["resumed ''", "compacted"]


async def test_a_short_history_is_not_compacted_on_request(rig):
    agent = await make(rig)
    with pytest.raises(CallerError, match="failed to reduce the number of messages"):
        await compact(rig, agent)
    await fill(rig, agent, 3, size=5)
    with pytest.raises(CallerError, match="failed to reduce the number of messages"):
        await compact(rig, agent)
    with pytest.raises(InvalidInput, match="mode"):
        await compact(rig, agent, mode="some")
    assert not rig.model.summing


async def test_on_request_a_summariser_that_fails_is_told_and_nothing_changes(rig):
    agent = await make(rig)
    await fill(rig, agent, 6, size=5)
    before = await context(rig, agent)
    rig.model.summaries = [DOWN] * 9
    with pytest.raises(ModelError, match="down"):
        await compact(rig, agent)
    assert await context(rig, agent) == before


def live_turns() -> list[Turn]:
    return [each for each in gc.get_objects() if isinstance(each, Turn)]


async def test_a_turn_that_had_to_make_room_leaves_no_ring_behind(rig):
    """What hangs in a ring stays until a full collection, which a server hardly ever makes."""
    agent = await make(rig)
    gc.collect()
    gc.disable()
    try:
        others = live_turns()
        while not rig.model.summing:
            await rig.say(agent.id, "word " * 400)
        left = live_turns()
    finally:
        gc.enable()
    assert len(left) == len(others)


def test_a_prompt_that_is_refused_again_and_again_ends_the_turn():
    """Whatever else would let the turn go on: here its history is about to be read again each time."""
    conversation = SimpleNamespace(context=None)
    guard = WindowGuard(None, None, None, conversation, None)
    rooms = [asyncio.run(guard.make_room(None, OVERFLOW, ())) for _ in range(4)]
    assert rooms == [Room.retry, Room.retry, Room.retry, Room.none]
    guard.counted(Usage())
    assert asyncio.run(guard.make_room(None, OVERFLOW, ())) is Room.retry, "a reply begins the count anew"
