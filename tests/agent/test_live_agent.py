"""What is kept of an agent in memory: which conversations, what a change makes of them, and what one turn sets."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kelpie.agent.definition import loaded_agent
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live import reload
from kelpie.agent.live.live_agent import IDLE_LANES_MAX, LiveAgent, LiveConversation, chooser
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.live.reload import catch_up, current_permissions, enter
from kelpie.agent.prompt.context import Context
from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.conversations.conversations import Conversation
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.errors import NotFound, StorageBusy
from kelpie.core.ids import AgentId, ConversationId, RunId
from kelpie.core.permissions.budgets import SpentAmount
from kelpie.core.permissions.policies import NO_POLICY, Policy
from kelpie.core.permissions.quotas import Quota, QuotaUse
from kelpie.llm.routing.models import Models
from kelpie.storage.agents.ownership_fence import Claim, Node
from kelpie.world.database import Database, Tx

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
DAY = 24 * 3600 * 1_000_000
PLAIN = ModelChoice("test/plain", 1000, settings={"response_format": {"type": "json_object"}, "seed": 7})
THINKING = ModelChoice("test/thinking", 2000, settings={"thinking": {"type": "enabled", "budget_tokens": 1024}})


def agent(**fields: Any) -> Agent:
    return Agent(AGENT, "ann", AgentType.memgpt_agent, "Be brief.", PLAIN, 0, 0, **fields)


def conversation(name: str, **fields: Any) -> Conversation:
    return Conversation(ConversationId(name), AGENT, 0, 0, **fields)


def own_model(known: Agent, own: Conversation) -> Agent:
    return known if own.model is None else replace(known, model=THINKING)


def live_conversation(name: str = "", **fields: Any) -> LiveConversation:
    own = conversation(name, **fields) if name else None
    return LiveConversation(name, AgentSnapshot(agent(), (), (), own), own_model, Context([]))


def live_agent(*names: str) -> LiveAgent:
    live = LiveAgent(Claim(AGENT, 1, Node("here", 1)), live_conversation())
    for name in names:
        live.add(live_conversation(name))
    return live


def names(live: LiveAgent) -> list[str]:
    return [each.conversation for each in live.conversations()]


def used(live: LiveAgent, name: str) -> None:
    found = live.find(name)
    assert found is not None
    with live.using(found):
        pass


# --- which conversations are kept ------------------------------------------------------------------------------------


def test_the_longest_unused_conversations_go_and_the_default_one_stays() -> None:
    most = [f"conv-{number}" for number in range(IDLE_LANES_MAX)]
    live = live_agent(*most)
    used(live, "")
    used(live, most[0])
    assert names(live) == ["", *most[1:], most[0]]
    live.add(live_conversation("conv-new"))
    used(live, "conv-new")
    assert names(live) == ["", *most[2:], most[0], "conv-new"]
    assert live.find(most[1]) is None and live.find(most[0]) is not None and live.find("") is live.main


def test_a_conversation_is_not_unloaded_under_any_of_its_turns() -> None:
    live = live_agent("conv-busy")
    busy = live.find("conv-busy")
    assert busy is not None
    with ExitStack() as outer:
        outer.enter_context(live.using(busy))
        with live.using(busy):
            pass
        for number in range(IDLE_LANES_MAX + 3):
            name = f"conv-{number}"
            live.add(live_conversation(name))
            used(live, name)
        assert live.find("conv-busy") is busy and len(names(live)) == IDLE_LANES_MAX + 2, "who is busy takes no place"
    assert busy.users == 0 and names(live)[-1] == "conv-busy"


def test_a_turn_that_breaks_leaves_its_conversation() -> None:
    live = live_agent("conv-1")
    found = live.find("conv-1")
    assert found is not None
    with pytest.raises(StorageBusy), live.using(found):
        raise StorageBusy("no")
    assert found.users == 0


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_change_is_news_to_all_but_the_conversation_that_has_read_it_already() -> None:
    live = live_agent("conv-1", "conv-2")
    knows, other = live.find("conv-1"), live.find("conv-2")
    assert knows is not None and other is not None
    live.touch(knows=knows)
    assert (live.main.stale, knows.stale, other.stale, live.touches) == (True, False, True, 1)
    assert all(each.context is not None for each in live.conversations())
    live.touch()
    live.touch(knows=knows)
    assert knows.stale, "what else has changed before is not forgotten by what it knows"
    assert live.touches == 3


def test_a_history_that_changed_is_read_again_everywhere_and_so_is_the_usage() -> None:
    live = live_agent("conv-1")
    live.spent[0], live.calls_used = SpentAmount(1, 2, 3), (0, QuotaUse(1))
    live.forget_contexts()
    assert all((each.stale, each.context, each.forgotten) == (True, None, 1) for each in live.conversations())
    assert (live.touches, live.recorded, live.spent, live.calls_used) == (1, 1, {}, None)


def test_the_context_is_read_again_only_if_the_model_is_shown_it_in_another_form() -> None:
    found = live_conversation()
    before = found.context
    found.renew(replace(found.loaded, agent=replace(agent(), name="bea")))
    assert found.context is before and found.agent.name == "bea"
    found.renew(replace(found.loaded, agent=replace(agent(), model=THINKING)))
    assert found.context is None


# --- a conversation's own model, and a turn's ------------------------------------------------------------------------


def test_what_one_turn_sets_ends_with_it_and_the_form_of_the_history_with_both() -> None:
    found = live_conversation()
    before, system = found.frame(0), found.frame(0).system
    with found.overridden(TurnOverrides(model=THINKING, system="Another.")):
        assert found.agent.model is THINKING and found.context is None
        assert found.frame(0).system.startswith("Another.") and found.frame(0).agent.model is THINKING
        found.context = Context([])
    assert found.override is None and found.agent.model is PLAIN and found.context is None
    assert found.frame(0).system == system and found.frame(0) is not before
    found.context = Context([])
    with found.overridden(TurnOverrides(instructions="Hurry.")):
        assert found.context is not None, "the history looks the same to this model"
        assert found.frame(0).system.startswith(system) and "Hurry." in found.frame(0).system
    assert found.context is not None and found.frame(0).system == system


def test_the_response_format_of_a_turn_stands_in_for_that_of_the_models_settings() -> None:
    found, form = live_conversation(), {"type": "text"}
    with found.overridden(TurnOverrides(response_format=form)):
        assert found.agent.response_format == form and found.agent.model.settings == {"seed": 7}
    assert found.agent.response_format is None and found.agent.model.settings == PLAIN.settings


def test_the_model_of_a_conversation_follows_what_is_read_anew() -> None:
    found = live_conversation("conv-1")
    assert found.agent.model is PLAIN
    found.renew(replace(found.loaded, conversation=conversation("conv-1", model="test/thinking")))
    assert found.agent.model is THINKING and found.context is None
    with found.overridden(TurnOverrides(model=PLAIN)):
        assert found.agent.model is PLAIN
    assert found.agent.model is THINKING


def test_a_model_whose_provider_is_gone_is_named_all_the_same() -> None:
    models = SimpleNamespace(of=lambda _organization: SimpleNamespace(known=lambda _handle: None))
    choose = chooser(cast(Models, models), 1000)
    assert choose(agent(), conversation("conv-1")).model is PLAIN
    assert choose(agent(), conversation("conv-1", model="gone/model")).model == replace(PLAIN, handle="gone/model")


def test_the_frame_is_made_anew_on_the_next_day_and_for_what_is_read_anew() -> None:
    found = live_conversation()
    first = found.frame(DAY - 1)
    assert found.frame(0) is first
    assert found.frame(DAY) is not first and found.frame(DAY).system != first.system
    second = found.frame(DAY)
    found.renew(replace(found.loaded, agent=replace(agent(), system="Be kind.")))
    assert found.frame(DAY) is not second and "Be kind." in found.frame(DAY).system


def test_permissions_are_made_anew_for_another_policy_of_the_server_and_for_what_is_read_anew() -> None:
    found, other = live_conversation(), Policy(quota=Quota(tool_calls=1))
    first = found.permissions(NO_POLICY)
    assert found.permissions(NO_POLICY) is first and first.quota.tool_calls is None
    assert found.permissions(other).quota.tool_calls == 1
    found.renew(replace(found.loaded, policy=Policy(quota=Quota(tool_calls=3))))
    assert found.permissions(NO_POLICY).quota.tool_calls == 3


# --- reading what has changed ----------------------------------------------------------------------------------------


class Reads:
    """A database of one answer; `beside` happens while it is read."""

    def __init__(self, answer: Any, beside: Callable[[], None] = lambda: None) -> None:
        self.answer = answer
        self.beside = beside
        self.count = 0

    async def read(self, fn: Callable[[Tx], Any]) -> Any:
        self.count += 1
        self.beside()
        return fn(cast(Tx, None)) if self.answer is None else self.answer


def database(reads: Reads) -> Database:
    return cast(Database, reads)


@pytest.mark.parametrize("edited", [False, True])
async def test_a_conversation_that_was_read_beside_an_edit_is_read_once_more(edited: bool) -> None:
    live = live_agent()
    reads = Reads(AgentSnapshot(agent(), (), (), conversation("conv-1")), live.touch if edited else lambda: None)
    found = await enter(database(reads), live, "conv-1")
    assert found.stale == edited and live.find("conv-1") is found and found.choose is own_model
    assert await enter(database(reads), live, "conv-1") is found and reads.count == 1
    assert await enter(database(reads), live, "") is live.main and reads.count == 1


async def test_what_changes_while_it_is_read_is_read_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit, a history that was changed, and a model that is shown the history in another form."""
    live = live_agent()
    found, before = live.main, live.main.loaded
    position = JournalPosition(live.claim, Run(RunId("run-1"), AGENT, RunStatus.running, 0))
    found.reread()
    contexts = [Context([]) for _ in range(4)]
    reads = Reads(None)
    beside: list[Callable[[], None]] = [live.touch, live.forget_contexts, lambda: None, lambda: None]
    snapshots = [before, before, replace(before, agent=replace(agent(), model=THINKING))]

    async def read(_fn: Callable[[Tx], Any]) -> Any:
        wanted, reads.count = found.context is None, reads.count + 1
        beside[reads.count - 1]()
        return snapshots[min(reads.count, 3) - 1], contexts[reads.count - 1] if wanted else None

    monkeypatch.setattr(reads, "read", read)
    context = await catch_up(database(reads), found, position)
    assert reads.count == 4 and context is contexts[3] and found.context is context
    assert not found.stale and found.agent.model is THINKING


@contextmanager
def refreshed(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], AgentSnapshot]) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(loaded_agent, "refresh", lambda _tx, _known: answer())
        yield


async def test_the_permissions_of_an_agent_that_changed_are_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    live = live_agent()
    strict = replace(live.main.loaded, policy=Policy(quota=Quota(wall_s=2)))
    live.touch()
    reads = Reads(None)
    with refreshed(monkeypatch, lambda: strict):
        found = await current_permissions(database(reads), NO_POLICY, live, live.main, 5)
    assert found.quota.wall_s == 2 and live.main.stale, "all else is read before the model is asked"
    assert live.main.permissions(NO_POLICY).quota.wall_s is None


async def test_permissions_that_change_while_they_are_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    live, loaded = live_agent(), live_agent().main.loaded
    limits = [1, 2, 3]
    live.touch()
    reads = Reads(None, lambda: live.touch() if len(limits) > 1 else None)
    with refreshed(monkeypatch, lambda: replace(loaded, policy=Policy(quota=Quota(wall_s=limits.pop(0))))):
        found = await current_permissions(database(reads), NO_POLICY, live, live.main, 5)
    assert found.quota.wall_s == 3 and reads.count == 3
    reads.beside = live.touch
    with (
        refreshed(monkeypatch, lambda: loaded),
        pytest.raises(StorageBusy, match=r"permissions of agent-.* kept changing"),
    ):
        await current_permissions(database(reads), NO_POLICY, live, live.main, 5)
    assert reads.count == 3 + reload.RELOADS_MAX


async def test_an_agent_that_is_gone_has_the_permissions_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    live = live_agent()
    live.touch()

    def gone() -> AgentSnapshot:
        raise NotFound("Agent", AGENT)

    with refreshed(monkeypatch, gone):
        found = await current_permissions(database(Reads(None)), NO_POLICY, live, live.main, 5)
    assert found is live.main.permissions(NO_POLICY)


# --- pauses ----------------------------------------------------------------------------------------------------------


def test_a_pause_that_is_over_is_kept_no_longer_and_its_first_moment_counts() -> None:
    at = SimpleNamespace(wall=100, passed=0)
    pauses = Pauses(cast(Any, SimpleNamespace(now=lambda: at.wall, monotonic_ns=lambda: at.passed * 1000)))
    resting = agent(paused_at=100, paused_until=200)
    assert pauses.until(resting) == 200
    at.wall = 199
    assert pauses.until(resting) == 200
    at.wall = 200
    assert pauses.until(resting) is None and not pauses._ends  # pyright: ignore[reportPrivateUsage]
    at.wall, at.passed = 150, 200  # set back: how much of the pause is left counts from here
    assert pauses.until(resting) == 200
    at.passed = 249
    assert pauses.until(resting) == 200
    at.passed = 250
    assert pauses.until(resting) is None
