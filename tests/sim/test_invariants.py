"""Every invariant of the scenarios passes what is sound and names what is wrong."""

import json
from collections.abc import Callable

import pytest

from kelpie.sim.checks.client_history import Fate, History
from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.ports.disk import Disk
from kelpie.sim.ports.model_provider import SeenRequest
from kelpie.sim.scenarios.checks.invariants import (
    messages_are_in_order,
    outside_at_most_once,
    prompts_are_fresh,
    prompts_are_sound,
    remembered_once,
    repeats_double_nothing,
    turns_are_whole,
    views_are_current,
)
from kelpie.sim.scenarios.fixtures.clients import ClientAnswer
from kelpie.sim.scenarios.fixtures.edits import Edits
from tests.sim.test_checkers import IMAGE, add, message


@pytest.fixture
def disk() -> Disk:
    disk = Disk(IMAGE)
    disk.query("PRAGMA foreign_keys=OFF")
    return disk


@pytest.fixture
def history() -> History:
    return History(SimLoop())


def told(check: Callable[[], None]) -> str:
    with pytest.raises(Broken) as caught:
        check()
    return str(caught.value)


def said(history: History, token: str, called_s: float, returned_s: float) -> ClientAnswer:
    each = history.say("a", token)
    each.called_s, each.returned_s, each.fate = called_s, returned_s, Fate.acknowledged
    return ClientAnswer(each, status=200)


def a_run(disk: Disk, token: str, status: str = "completed", steps: int = 1) -> None:
    given = {"messages": [{"content": [{"type": "text", "text": f"{token}\nmore"}]}], "max_steps": 5}
    add(disk, "runs", id="r", agent_id="a", status=status, step_count=steps, input=json.dumps(given))


def test_messages_keep_their_order(disk: Disk, history: History) -> None:
    said(history, "tok-1-x", 0.0, 1.0)
    said(history, "tok-2-x", 2.0, 3.0)
    said(history, "tok-3-x", 2.5, 4.0)
    for seq, token in enumerate(("tok-1-x", "tok-3-x", "tok-2-x")):  # the last two were said at once
        message(disk, seq, "user", f"{token}\nremember")
    messages_are_in_order(disk, history)
    disk.query("UPDATE messages SET seq = 9 WHERE seq = 0")
    assert "keep their order" in told(lambda: messages_are_in_order(disk, history))


def test_a_turn_is_whole(disk: Disk, history: History) -> None:
    a_run(disk, "tok-1-x")
    message(disk, 1, "user", "tok-1-x\nmore", run_id="r")
    message(disk, 2, "assistant", "echo tok-1-x", run_id="r")
    turns_are_whole(disk)
    message(disk, 3, "assistant", "echo tok-1-x", run_id="r")
    assert "answered tok-1-x 2 times" in told(lambda: turns_are_whole(disk))
    disk.query("DELETE FROM messages WHERE role = 'user'")
    assert "tok-1-x is 0 times in" in told(lambda: turns_are_whole(disk))


def test_an_input_without_a_step_is_not_in_the_history(disk: Disk, history: History) -> None:
    a_run(disk, "tok-1-x", "failed", steps=0)
    turns_are_whole(disk)
    message(disk, 1, "user", "tok-1-x\nmore", run_id="r")
    assert "0 steps, tok-1-x is 1 times in" in told(lambda: turns_are_whole(disk))


@pytest.mark.parametrize(("status", "headers"), [(503, {}), (429, {}), (409, {}), (500, {"x-should-retry": "true"})])
def test_what_is_repeated_is_not_in_the_history(
    disk: Disk, history: History, status: int, headers: dict[str, str]
) -> None:
    heard = said(history, "tok-1-x", 0.0, 1.0)
    heard.status, heard.headers = status, headers
    repeats_double_nothing(disk, [heard])
    message(disk, 1, "user", "tok-1-x")
    assert "what an SDK repeats" in told(lambda: repeats_double_nothing(disk, [heard]))
    heard.headers = {"x-should-retry": "false"}
    repeats_double_nothing(disk, [heard])
    heard.status, heard.headers = 200, {}
    repeats_double_nothing(disk, [heard])


def test_an_append_is_remembered_once(disk: Disk) -> None:
    call = {"id": "c1", "name": "memory_insert", "arguments": json.dumps({"label": "human", "new_string": "tea"})}
    message(disk, 1, "assistant", tool_calls=json.dumps([call]))
    message(disk, 2, "tool", tool_returns=json.dumps([{"call_id": "c1", "ok": True}]))
    add(disk, "blocks", id="b", label="human", value="secret\ntea")
    add(disk, "agent_blocks", agent_id="a", block_id="b", label="human")
    remembered_once(disk, {"a": "secret"})
    for value in ("secret", "secret\ntea\ntea", "tea\nsecret\ncoffee"):
        disk.query("UPDATE blocks SET value = ?", value)
        assert "exactly once" in told(lambda: remembered_once(disk, {"a": "secret"}))


def test_a_prompt_is_a_sound_chat() -> None:
    user = {"role": "user", "content": "tok-1-x\nmore"}
    call = {"role": "assistant", "tool_calls": [{"id": "c1"}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    answer = {"role": "assistant", "content": "echo"}

    def shown(*messages: dict[str, object]) -> list[SeenRequest]:
        return [SeenRequest(0.0, {"messages": [{"role": "system", "content": ""}, *messages]})]

    prompts_are_sound(shown(user, call, result, answer))
    assert "answers no call" in told(lambda: prompts_are_sound(shown(user, call, result, result)))
    assert "were not answered" in told(lambda: prompts_are_sound(shown(user, call, answer)))
    assert "left open: ['c1']" in told(lambda: prompts_are_sound(shown(user, call)))
    assert "twice: ['tok-1-x']" in told(lambda: prompts_are_sound(shown(user, answer, user)))


def test_an_outside_call_takes_effect_at_most_once(disk: Disk) -> None:
    result = {"name": "outside", "ok": True, "text": "done m1"}
    message(disk, 1, "tool", tool_returns=json.dumps([result, {**result, "ok": False, "text": "Interrupted"}]))
    outside_at_most_once(disk, {"m1": 1, "m2": 1})
    assert "never runs twice" in told(lambda: outside_at_most_once(disk, {"m1": 1, "m2": 2}))
    assert "took effect" in told(lambda: outside_at_most_once(disk, {}))


def test_a_turn_that_was_wiped_out_need_not_be_whole(disk: Disk) -> None:
    a_run(disk, "tok-1-x")
    assert "tok-1-x is 0 times in" in told(lambda: turns_are_whole(disk))
    turns_are_whole(disk, {"tok-1-x"})


def test_a_live_agent_sees_what_is_stored(disk: Disk) -> None:
    add(disk, "agents", id="a", agent_type="letta_v1_agent")
    add(disk, "tools", id="t", name="square", json_schema=json.dumps({"description": "new"}))
    add(disk, "agent_tools", agent_id="a", tool_id="t")
    add(disk, "blocks", id="b", label="human", value="Bob")
    add(disk, "agent_blocks", agent_id="a", block_id="b", label="human")

    def shown(value: str, description: str, kind: str = "human") -> list[SeenRequest]:
        system = f"<{kind}>\n<value>\n{value}\n</value>\n</{kind}>"
        tools = [{"function": {"name": "square", "description": description}}]
        return [SeenRequest(0.0, {"user": "a", "messages": [{"role": "system", "content": system}], "tools": tools})]

    sound = shown("Bob", "new")
    views_are_current(disk, [*shown("Ann", "old"), *sound], ["a"])
    for stale in (shown("Ann", "new"), shown("Bob", "old"), shown("Bob", "new", "other")):
        assert "sees what is stored" in told(lambda stale=stale: views_are_current(disk, [*sound, *stale], ["a"]))
        views_are_current(disk, stale, [])
    disk.query("UPDATE agents SET agent_type = 'workflow_agent'")
    views_are_current(disk, shown("Ann", "new"), ["a"])


def test_a_prompt_is_not_older_than_the_last_edit() -> None:
    edits = Edits(SimLoop())
    edits.began("notice", "old")
    edit = edits.call("notice", "new")
    edit.called_s, edit.acknowledged_s = 1.0, 3.0
    for shown, began_s, seen_s in (("old", 0.5, 0.6), ("old", 2.0, 2.5), ("new", 2.0, 2.5), ("new", 4.0, 4.5)):
        edits.check("notice", shown, began_s, seen_s)
    for shown, began_s, seen_s in (("new", 0.5, 0.6), ("old", 3.0, 3.5), ("other", 2.0, 2.5), (None, 4.0, 4.5)):
        assert "not older" in told(lambda s=shown, b=began_s, e=seen_s: edits.check("notice", s, b, e))


def fresh(shown: str, status: str) -> Callable[[], None]:
    """A prompt whose chat tells of an append, with this value of the block."""
    call = {"id": "c", "function": {"name": "memory_insert", "arguments": '{"label": "human", "new_string": "tea"}'}}
    chat = [
        {"role": "system", "content": f"<human>\n<value>\n{shown}\n</value>\n</human>"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": json.dumps({"status": status, "message": "x"})},
    ]
    return lambda: prompts_are_fresh([SeenRequest(1.0, {"messages": chat, "user": "a"})])


def test_a_prompt_that_is_older_than_the_edit_it_tells_of() -> None:
    fresh("first\ntea", "OK")()
    fresh("first", "Failed")()
    assert "'tea' is in" in told(fresh("first\nteapot", "OK"))


def test_a_run_that_goes_on_with_calls_that_waited_asks_nothing_itself(disk: Disk) -> None:
    add(disk, "runs", id="r", agent_id="a", status="completed", step_count=1, input=json.dumps({"messages": []}))
    turns_are_whole(disk)
