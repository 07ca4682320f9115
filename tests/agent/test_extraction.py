"""Facts from conversations: found behind the turns, written once, held to the budget, and never in anybody's way."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kelpie.agent.events.turn_events import TurnEnded
from kelpie.agent.facts import extractor, model_answer
from kelpie.agent.facts.fact_commit import RUN_TYPE, FactCommit
from kelpie.agent.facts.model_prompt import FORM
from kelpie.agent.facts.model_question import Reading
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.conversations.runs import RunQuery, StopReason
from kelpie.core.errors import InvalidInput, ModelError, ModelFault, NotFound
from kelpie.core.ids import AgentId, FactId, MessageId
from kelpie.core.memory.facts import Fact, FactQuery, FactSearch, FactSettings
from kelpie.core.permissions.budgets import Budget
from kelpie.core.permissions.quotas import Quota
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.llm.provider.interface import Event, Request
from kelpie.memory.facts import Facts
from kelpie.storage.agents import agents
from kelpie.storage.conversations import fact_progress
from kelpie.world.ids import RandomIds
from tests.agent.conftest import MODEL, Rig, ScriptModel, ended, says

DEADLINE_S = 60.0
ON = FactSettings()


def fact(value: str, attribute: str = "lives in", subject: str = "user", **more: Any) -> dict[str, Any]:
    return {
        "subject": subject, "attribute": attribute, "value": value, "statement": f"{subject} {attribute} {value}",
        "one_value": True, "valid_from": None, "valid_until": None, "confidence": 0.9, "sources": [1],
        "replaces": None, "link": None,
    } | more  # fmt: skip


def found(*facts: dict[str, Any], entities: list[dict[str, Any]] | None = None) -> str:
    return json.dumps({"entities": entities or [], "facts": list(facts)})


class Listener(ScriptModel):
    """Answers questions for facts from a script of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str | ModelError] = []
        self.questions: list[Request] = []
        self.silent = False

    async def stream(self, request: Request):
        if request.options.get("response_format") != FORM:
            async for event in super().stream(request):
                yield event
            return
        self.questions.append(request)
        if self.silent:
            await asyncio.Event().wait()
        line = self.answers.pop(0) if self.answers else found()
        if isinstance(line, ModelError):
            raise line
        event: Event = says(line)
        yield event


@pytest.fixture
async def ears(tmp_path):
    made = Rig(tmp_path / "kelpie.db")
    made.model = Listener()
    await made.start()
    yield made
    await made.stop()


def heard(rig: Rig) -> Listener:
    assert isinstance(rig.model, Listener)
    return rig.model


async def agent(rig: Rig, facts: FactSettings | None = ON, **fields: Any) -> AgentId:
    return (await rig.kelpie.api().agents.create(NewAgent(name="a", facts=facts, **fields))).agent.id


async def until(holds: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while not (value := await holds()):  # noqa: ASYNC110 - what is waited for is in the database
            await asyncio.sleep(0.005)
    return value


async def state(rig: Rig, agent_id: AgentId):
    return await rig.kelpie.world.database.read(lambda tx: fact_progress.get(tx, agent_id))


async def looked(rig: Rig, agent_id: AgentId, times: int) -> None:
    async def enough() -> bool:
        now = await state(rig, agent_id)
        return now is not None and now.extractions >= times

    await until(enough)


def door(rig: Rig) -> Facts:
    return rig.kelpie.api().facts


async def all_facts(rig: Rig, agent_id: AgentId):
    return [each.fact for each in await door(rig).select(agent_id, FactQuery())]


async def told(rig: Rig, agent_id: AgentId, text: str, *answers: str | ModelError) -> None:
    before = await state(rig, agent_id)
    assert before is not None
    heard(rig).answers += answers
    assert ended(await rig.say(agent_id, text)).stop_reason is StopReason.end_turn
    await looked(rig, agent_id, before.extractions + 1)


async def test_what_is_true_now_comes_first_and_what_was_true_then_is_found(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    then = ears.kelpie.world.clock.now()
    await told(ears, agent_id, "I moved to Oslo.", found(fact("Oslo", statement="user moved to Oslo")))
    question = heard(ears).questions[1].messages[0].message.text
    assert "user | lives in | Berlin" in question and "I moved to Oslo." in question
    assert "I live in Berlin." not in question, "nothing is looked at twice"
    search = await door(ears).search(agent_id, FactSearch("where does the user live"))
    assert [(each.fact.value, each.current) for each in search.found] == [("Oslo", True), ("Berlin", False)]
    oslo, berlin = (each.fact for each in search.found)
    assert (oslo.supersedes, berlin.superseded_by, oslo.link) == (berlin.id, oslo.id, "update")
    assert (search.mode, search.lacking) == ("fts", "no embedding model is configured")
    past = await door(ears).search(agent_id, FactSearch("where does the user live", at=then))
    assert [each.fact.value for each in past.found] == ["Berlin"]
    assert len(oslo.sources) == 1 and oslo.sources != berlin.sources


async def test_one_that_has_it_off_is_never_looked_at(ears: Rig):
    for settings in (None, FactSettings(enabled=False)):
        agent_id = await agent(ears, settings)
        await ears.say(agent_id, "I live in Berlin.")
        assert await state(ears, agent_id) is None
    assert not await ears.kelpie.world.database.read(lambda tx: fact_progress.due(tx, 2**60, 10))
    assert not heard(ears).questions


async def test_switching_it_on_looks_at_what_is_said_from_then_on(ears: Rig):
    agent_id = await agent(ears, None)
    await ears.say(agent_id, "before")
    await ears.kelpie.api().agents.update(agent_id, {"facts": FactSettings(every_turns=2)})
    await ears.say(agent_id, "one")
    assert not await ears.kelpie.world.database.read(lambda tx: fact_progress.due(tx, 2**60, 10))
    await ears.say(agent_id, "two")
    await looked(ears, agent_id, 1)
    [question] = heard(ears).questions
    text = question.messages[0].message.text
    assert "before" not in text and "user: one" in text and "user: two" in text
    await ears.kelpie.api().agents.update(agent_id, {"facts": None})
    assert (await ears.kelpie.api().agents.get(agent_id)).agent.facts is None and await state(ears, agent_id) is None


async def test_a_model_that_is_not_there_is_refused(ears: Rig):
    with pytest.raises(InvalidInput, match=r"kelpie_facts\.model"):
        await agent(ears, FactSettings(model="test/nothing"))


async def test_an_answer_that_cannot_be_read_is_asked_for_once_more_and_then_given_up(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", "Sure! Here are the facts:", found(fact("Berlin")))
    assert [each.value for each in await all_facts(ears, agent_id)] == ["Berlin"]
    repair = heard(ears).questions[1].messages
    assert len(repair) == 3 and "could not be read" in repair[2].message.text
    await told(ears, agent_id, "I moved to Oslo.", "{}", '{"entities": [], "facts": [3]}')
    now = await state(ears, agent_id)
    assert now is not None and (now.skipped, now.failures) == (1, 0)
    assert "could not be used" in str(now.last_error)
    await told(ears, agent_id, "I have a dog.", found(fact("a dog", "pet")))
    now = await state(ears, agent_id)
    assert now is not None and now.last_error is None
    assert {each.value for each in await all_facts(ears, agent_id)} == {"Berlin", "a dog"}


async def test_a_model_that_fails_is_asked_again_later_and_nothing_is_lost(ears: Rig, monkeypatch):
    monkeypatch.setattr(extractor, "RETRY_S", 0.001)
    monkeypatch.setattr(extractor, "LOOK_EVERY_S", 0.01)
    agent_id = await agent(ears)
    failures = [ModelError(ModelFault.server, "down")] * 3
    await told(ears, agent_id, "I live in Berlin.", *failures, found(fact("Berlin")))
    assert [each.value for each in await all_facts(ears, agent_id)] == ["Berlin"]
    now = await state(ears, agent_id)
    assert now is not None and (now.failures, now.skipped, now.last_error) == (0, 0, None)


async def test_what_a_model_refuses_again_and_again_is_left_out(ears: Rig, monkeypatch):
    monkeypatch.setattr(extractor, "RETRY_S", 0.0)
    monkeypatch.setattr(extractor, "LOOK_EVERY_S", 0.005)
    agent_id = await agent(ears)
    refusals = [ModelError(ModelFault.bad_request, "not about that")] * (extractor.REFUSED_MAX + 1)
    heard(ears).answers += refusals
    await ears.say(agent_id, "something that a filter does not like")

    async def skipped() -> bool:
        now = await state(ears, agent_id)
        return now is not None and now.skipped == 1

    await until(skipped)
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    assert [each.value for each in await all_facts(ears, agent_id)] == ["Berlin"]


async def test_what_an_unreadable_answer_has_cost_is_not_forgotten(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", "no JSON", ModelError(ModelFault.server, "down"))
    now = await state(ears, agent_id)
    assert now is not None and (now.skipped, now.failures) == (1, 0)
    doors = ears.kelpie.api()
    (run,) = [run for run in await doors.runs.page(RunQuery()) if run.metadata.get("run_type") == RUN_TYPE]
    assert run.usage.total_tokens > 0


async def test_a_model_that_hangs_keeps_nobody_waiting(ears: Rig):
    heard(ears).silent = True
    agent_id = await agent(ears)
    await ears.say(agent_id, "I live in Berlin.")

    async def asked() -> bool:
        return bool(heard(ears).questions)

    await until(asked)
    assert ended(await ears.say(agent_id, "still there?")).stop_reason is StopReason.end_turn


async def test_what_it_costs_counts_and_a_budget_that_is_used_up_stops_it(ears: Rig):
    agent_id = await agent(ears, budget=Budget(tokens=40))
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    listed = await ears.kelpie.api().runs.page(RunQuery(agent_ids=(agent_id,)))
    [run] = [run for run in listed if run.metadata.get("run_type") == RUN_TYPE]
    assert (run.usage.total_tokens, run.step_count, run.status) == (15, 1, "completed")
    assert ended(await ears.say(agent_id, "I moved to Oslo.")).stop_reason is StopReason.end_turn  # 45 of 40 are spent

    async def hindered() -> Any:
        now = await state(ears, agent_id)
        return now and now.last_error

    assert await until(hindered) == "The agent's budget is used up."
    assert len(heard(ears).questions) == 1
    end = ended(await ears.say(agent_id, "more?"))
    assert isinstance(end, TurnEnded) and end.stop_reason is StopReason.insufficient_credits


async def test_a_paused_agent_learns_nothing_until_it_is_awake(ears: Rig):
    agent_id, clock = await agent(ears), ears.kelpie.world.clock
    now = clock.now()
    database = ears.kelpie.world.database
    await database.transact(lambda tx: agents.pause(tx, agent_id, now, now + 3600 * MICROS_PER_SECOND))
    await ears.say(agent_id, "I live in Berlin.")

    async def hindered() -> Any:
        found = await state(ears, agent_id)
        return found and found.last_error

    assert await until(hindered) == "The agent is paused."
    assert not heard(ears).questions
    await database.transact(lambda tx: agents.pause(tx, agent_id, now - 10, now - 1))
    await ears.kelpie.api().agents.update(agent_id, {"facts": ON})  # and looks at once
    heard(ears).answers.append(found(fact("Berlin")))
    await ears.say(agent_id, "Good morning.")
    await looked(ears, agent_id, 1)
    assert [each.value for each in await all_facts(ears, agent_id)] == ["Berlin"]


async def test_it_goes_on_where_it_was_after_a_restart(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    heard(ears).silent = True
    await ears.say(agent_id, "I moved to Oslo.")
    await ears.stop()
    heard(ears).silent = False
    heard(ears).answers.append(found(fact("Oslo")))
    await ears.start()
    await looked(ears, agent_id, 2)
    assert sorted(each.value for each in await all_facts(ears, agent_id)) == ["Berlin", "Oslo"]


async def test_an_emptied_history_begins_anew_and_the_facts_stay(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    await ears.kelpie.api().histories.reset(agent_id, add_default_initial=True)
    await told(ears, agent_id, "I moved to Oslo.", found(fact("Oslo")))
    assert sorted(each.value for each in await all_facts(ears, agent_id)) == ["Berlin", "Oslo"]


async def test_entities_are_one_by_whatever_name(ears: Rig):
    agent_id = await agent(ears)
    bob = {"name": "Robert", "kind": "person", "aliases": ["Bob"]}
    await told(ears, agent_id, "Bob is ill.", found(fact("ill", "health", "Robert"), entities=[bob]))
    again = {"name": "bob", "kind": "person", "aliases": ["Bobby"]}
    await told(ears, agent_id, "He is well.", found(fact("well", "health", "Bob"), entities=[again]))
    [entity] = await door(ears).entities(agent_id, 10, 0)
    assert (entity.name, set(entity.aliases)) == ("Robert", {"Bob", "Bobby"})
    by_name = await door(ears).select(agent_id, FactQuery(entity="BOBBY", at=ears.kelpie.world.clock.now()))
    assert [(each.fact.subject, each.fact.value) for each in by_name] == [("Robert", "well")]


async def test_many_values_are_true_at_once_where_they_can_be(ears: Rig):
    agent_id = await agent(ears)
    for food in ("pizza", "sushi", "Pizza"):
        await told(ears, agent_id, f"I like {food}.", found(fact(food, "likes", one_value=False)))
    facts = {each.fact.value: (each.current, each.fact.seen) for each in await door(ears).select(agent_id, FactQuery())}
    assert facts == {"pizza": (True, 2), "sushi": (True, 1)}


async def test_what_the_model_says_it_replaces_is_replaced_under_another_name(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    moved = fact("Oslo", "home town", replaces=1, link="contradiction", valid_from="2020-05-01")
    await told(ears, agent_id, "No, I never lived there, it was Oslo since May 2020.", found(moved))
    [now] = await door(ears).select(agent_id, FactQuery(at=ears.kelpie.world.clock.now()))
    assert (now.fact.value, now.fact.attribute, now.fact.link) == ("Oslo", "lives in", None)
    berlin = next(each for each in await all_facts(ears, agent_id) if each.value == "Berlin")
    assert berlin.superseded_by == now.fact.id and berlin.valid_until == berlin.valid_from, "it was never so"


async def test_a_deleted_fact_gives_its_place_back_and_is_not_found(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    await told(ears, agent_id, "I moved to Oslo.", found(fact("Oslo")))
    oslo = next(each for each in await all_facts(ears, agent_id) if each.value == "Oslo")
    await door(ears).remove(agent_id, oslo.id)
    search = await door(ears).search(agent_id, FactSearch("lives Oslo Berlin"))
    assert [(each.fact.value, each.current) for each in search.found] == [("Berlin", True)]
    with pytest.raises(NotFound):
        await door(ears).remove(agent_id, oslo.id)


async def test_nothing_is_left_of_a_deleted_agent(ears: Rig):
    agent_id = await agent(ears)
    await told(
        ears, agent_id, "I live in Berlin.", found(fact("Berlin"), entities=[{"name": "Berlin", "kind": "city"}])
    )
    await ears.kelpie.api().agents.delete(agent_id)

    def left(tx: Any) -> int:
        tables = ("facts", "fact_sources", "entities", "fact_states")
        count = sum(tx.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() for table in tables)
        return count + tx.exec_driver_sql("SELECT count(*) FROM search_items WHERE kind = 'fact'").scalar()

    assert await ears.kelpie.world.database.read(left) == 0


async def test_the_tool_finds_what_is_true_now_and_then(ears: Rig):
    agent_id = await agent(ears, tools=("fact_search",))
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin", valid_from="2020-01-01")))
    await told(ears, agent_id, "I moved to Oslo in 2022.", found(fact("Oslo", valid_from="2022-01-01")))
    for arguments, expected in (({}, ["Oslo", "Berlin"]), ({"at": "2021-06-01"}, ["Berlin"])):
        ears.model.script += [says("", ("fact_search", {"query": "lives", **arguments})), says("There.")]
        await ears.say(agent_id, "Where do I live?")
        result = next(m for m in reversed(ears.model.requests[-1].messages) if m.message.tool_returns)
        text = result.message.tool_returns[0].text
        results = json.loads(json.loads(text)["message"])["results"]
        assert [each["statement"].split()[-1] for each in results] == expected
        assert results[0]["current"] is True


@pytest.mark.parametrize("text", ["", "no", "[]", "{]", '{"facts": []}', '{"facts": {}, "entities": []}'])
def test_what_is_not_of_the_form_is_unreadable(text: str):
    with pytest.raises(model_answer.UnreadableAnswer):
        model_answer.read(text)


def test_entries_that_say_nothing_are_left_out_and_all_is_bounded():
    odd = [{}, {"subject": "a"}, fact("x" * 9999, confidence="sure", sources="all", link="maybe", replaces=True)]
    heard = model_answer.read("```json\n" + json.dumps({"entities": [{"name": 7}] * 99, "facts": odd}) + "\n```")
    assert len(heard.entities) == model_answer.ENTITIES_MAX and heard.entities[0].name == "7"
    [kept] = heard.facts
    assert (len(kept.value), kept.confidence, kept.sources, kept.link, kept.replaces) == (500, 0.5, (), None, None)


async def hindered_by(rig: Rig, agent_id: AgentId) -> str:
    """Why the extraction is put off, once it is."""

    async def error() -> str | None:
        now = await state(rig, agent_id)
        return now and now.last_error

    return await until(error)


async def test_the_first_fact_of_an_attribute_says_whether_it_has_several_values(ears: Rig):
    agent_id = await agent(ears)
    await told(ears, agent_id, "I like pizza.", found(fact("pizza", "likes", one_value=False)))
    await told(ears, agent_id, "I like sushi.", found(fact("sushi", "likes", one_value=True)))
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin", one_value=True)))
    await told(ears, agent_id, "And in Oslo.", found(fact("Oslo", one_value=False)))
    now = await door(ears).select(agent_id, FactQuery(at=ears.kelpie.world.clock.now()))
    assert sorted(each.fact.value for each in now) == ["Oslo", "pizza", "sushi"]


async def test_an_agent_that_was_stopped_learns_nothing(ears: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extractor, "LOOK_EVERY_S", 0.01)
    agent_id = await agent(ears, FactSettings(every_turns=2))
    await ears.say(agent_id, "I live in Berlin.")
    await ears.kelpie.world.database.transact(lambda tx: tx.exec_driver_sql("UPDATE agents SET stopped = 1"))
    await ears.kelpie.api().agents.update(agent_id, {"facts": ON})
    ears.kelpie.runtime.turn_dependencies.fact_extractor.wake()
    assert await hindered_by(ears, agent_id) == "The agent is stopped."
    assert not heard(ears).questions


async def test_an_agent_with_as_many_facts_as_may_be_learns_no_more(ears: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extractor, "FACTS_MAX", 1)
    agent_id = await agent(ears)
    await told(ears, agent_id, "I live in Berlin.", found(fact("Berlin")))
    await ears.say(agent_id, "I moved to Oslo.")
    assert "already has 1 facts" in await hindered_by(ears, agent_id)
    assert len(heard(ears).questions) == 1


async def test_a_name_that_is_another_entitys_is_not_taken_over(ears: Rig):
    agent_id = await agent(ears)
    robert = {"name": "Robert", "kind": "person", "aliases": ["Bob"]}
    await told(ears, agent_id, "Bob is ill.", found(entities=[robert]))
    await told(ears, agent_id, "Alice is well.", found(entities=[{"name": "Alice", "kind": "person"}]))
    await told(ears, agent_id, "Alice!", found(entities=[{"name": "Alice", "kind": "", "aliases": ["Bob", "Al"]}]))
    known = {one.name: (one.kind, one.aliases) for one in await door(ears).entities(agent_id, 10, 0)}
    assert known == {"Alice": ("person", ("Al",)), "Robert": ("person", ("Bob",))}


async def test_a_search_gives_no_more_facts_than_it_was_asked_for(ears: Rig):
    agent_id = await agent(ears)
    for city in ("Berlin", "Oslo", "Rome"):
        await told(ears, agent_id, f"I live in {city}.", found(fact(city)))
    search = await door(ears).search(agent_id, FactSearch("lives in Berlin", limit=2))
    assert search.found[0].fact.value == "Rome" and len(search.found) == 2, "what is true now first"


async def test_what_is_said_in_a_turn_that_runs_is_not_read_yet(ears: Rig):
    agent_id = await agent(ears, FactSettings(every_turns=3))
    for text in ("one", "two"):
        await ears.say(agent_id, text)
    database, now = ears.kelpie.world.database, await state(ears, agent_id)
    assert now is not None

    def texts(tx: Any) -> list[str]:
        return [message.text for message in fact_progress.messages_since(tx, now, 100) if message.role == "user"]

    def is_due(tx: Any) -> bool:
        tx.exec_driver_sql("UPDATE fact_states SET every_turns = 2")
        found = bool(fact_progress.due(tx, 2**60, 10))
        tx.exec_driver_sql("UPDATE fact_states SET every_turns = 3")
        return found

    assert await database.read(texts) == ["one", "two"] and await database.transact(is_due)
    newest = "(SELECT run_id FROM messages WHERE role = 'user' ORDER BY seq DESC LIMIT 1)"
    await database.transact(lambda tx: tx.exec_driver_sql(f"UPDATE runs SET status = 'running' WHERE id = {newest}"))
    assert await database.read(texts) == ["one"] and not await database.transact(is_due)


async def test_what_was_read_before_a_reset_is_not_learnt_after_it(ears: Rig):
    agent_id = await agent(ears)
    before = await state(ears, agent_id)
    assert before is not None and before.through
    database = ears.kelpie.world.database
    await database.transact(lambda tx: fact_progress.rewind(tx, agent_id))
    await database.transact(lambda tx: fact_progress.set_through(tx, agent_id, before.through))
    assert not await database.transact(lambda tx: fact_progress.change(tx, before, before))


async def test_an_hourly_limit_of_tokens_stops_the_extraction(ears: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extractor, "LOOK_EVERY_S", 0.01)
    agent_id = await agent(ears, FactSettings(every_turns=2))
    await ears.say(agent_id, "I live in Berlin.")
    await ears.kelpie.api().agents.update(agent_id, {"facts": ON, "quota": Quota(tokens=1)})
    ears.kelpie.runtime.turn_dependencies.fact_extractor.wake()
    assert await hindered_by(ears, agent_id) == "The agent has used up its tokens for this hour."
    assert not heard(ears).questions


async def test_a_model_that_says_nothing_is_asked_again_with_words_and_room(ears: Rig):
    agent_id = await agent(ears, max_tokens=40)
    await told(ears, agent_id, "I live in Berlin.", "", found(fact("Berlin")))
    first, second = heard(ears).questions
    assert [one.message.text for one in second.messages[1:]][:1] == ["(nothing)"], "no provider takes an empty message"
    assert (first.max_tokens, second.max_tokens) == (4096, 4096), "the agent's own limit is for what it says"
    assert [each.value for each in await all_facts(ears, agent_id)] == ["Berlin"]


async def test_an_entity_of_the_same_answer_is_known_by_its_other_names(ears: Rig):
    agent_id = await agent(ears)
    robert = {"name": "Robert", "kind": "person", "aliases": ["Bob"]}
    bob = {"name": "Bob", "kind": "", "aliases": ["Bobby"]}
    answer = found(fact("ill", "health", "Bobby"), entities=[robert, bob])
    await told(ears, agent_id, "Bob is ill.", answer)
    [entity] = await door(ears).entities(agent_id, 10, 0)
    assert (entity.name, set(entity.aliases)) == ("Robert", {"Bob", "Bobby"})
    assert [each.subject for each in await all_facts(ears, agent_id)] == ["Robert"]


def stated(**said: Any):
    """What a fact becomes that was found in two messages, beside one known fact."""
    ann: Any = SimpleNamespace(id="agent-1", timezone="UTC")
    world: Any = SimpleNamespace(ids=RandomIds())
    nothing: Any = None
    talk = tuple(
        Message(MessageId(f"message-{n}"), ann.id, Role.user, n * MICROS_PER_SECOND, (Text("x"),)) for n in (5, 7)
    )
    known = Fact(
        FactId("fact-1"), ann.id, "user", "home", "Rome", "s", valid_from=1, recorded_at=1, seen_at=1, exclusive=False
    )
    reading = Reading(model_answer.ExtractedFacts(), talk, (known,), ())
    heard_fact = model_answer.read(found(fact("Oslo", **said))).facts[0]
    return FactCommit(world, nothing)._stated_fact(ann, reading, heard_fact, 99 * MICROS_PER_SECOND)


def test_a_fact_is_as_old_as_the_first_message_that_states_it():
    times = {
        (): 7,  # no message is named: it is of the last one
        (2, 1): 5,
        (2, 3, 0): 7,  # only one of these is there
        (-1,): 7,
    }
    for sources, second in times.items():
        made = stated(sources=list(sources)).fact
        assert (made.valid_from, made.seen_at, made.recorded_at) == (
            second * MICROS_PER_SECOND,
            second * MICROS_PER_SECOND,
            99 * MICROS_PER_SECOND,
        ), sources
    assert stated(sources=[2, 3, 1]).fact.sources == ("message-7", "message-5")


def test_a_fact_that_replaces_a_known_one_is_of_its_attribute_and_kind():
    for number in (None, 0, 2, -1):
        other = stated(replaces=number, one_value=True)
        assert (other.instead_of, other.fact.attribute, other.fact.exclusive) == (None, "lives in", True), number
    same = stated(replaces=1, one_value=True)
    assert (same.instead_of, same.fact.attribute, same.fact.exclusive, same.fact.value) == (
        "fact-1",
        "home",
        False,
        "Oslo",
    )


async def test_facts_wait_for_the_price_of_the_model_that_finds_them(ears: Rig, monkeypatch: pytest.MonkeyPatch):
    agent_id = await agent(ears)
    prices, asked = ears.kelpie.runtime.turn_dependencies.fact_extractor._models.prices, []

    def of(handle: str) -> None:
        asked.append(handle)

    monkeypatch.setattr(type(prices), "of", lambda _, handle: of(handle))
    extraction = ears.kelpie.runtime.turn_dependencies.fact_extractor
    view = await ears.kelpie.api().agents.get(agent_id)
    for settings, handle in ((ON, MODEL), (FactSettings(model="test/other"), "test/other")):
        priced = replace(view.agent, facts=settings, budget=Budget(micros=10))
        assert handle in str(await extraction._unpriced(priced)) and asked == [handle]
        asked.clear()
    assert await extraction._unpriced(replace(view.agent, budget=Budget(tokens=10))) is None
    assert not asked
