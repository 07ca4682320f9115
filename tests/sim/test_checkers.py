"""Every checker passes a sound disk and names what is wrong with a broken one."""

import json
from collections.abc import Callable

import pytest

from kelpie.sim.checks.client_history import Fate, History
from kelpie.sim.checks.invariants import (
    AT_REST,
    Fence,
    acknowledged_once,
    answers_belong,
    context_is_whole,
    histories_are_whole,
    journal_is_a_chain,
    no_leaks,
    one_label_per_agent,
    one_result_per_call,
    runs_ended,
)
from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.ports.disk import Disk, schema_image
from kelpie.sim.ports.model_provider import SeenRequest
from kelpie.storage.tables import metadata

Check = Callable[[Disk, History], None]
IMAGE = schema_image(metadata.create_all)


@pytest.fixture
def disk() -> Disk:
    disk = Disk(IMAGE)
    disk.query("PRAGMA foreign_keys=OFF")
    return disk


@pytest.fixture
def history() -> History:
    return History(SimLoop())


def add(disk: Disk, table: str, **values: object) -> None:
    """Inserts a row, filling the columns that do not matter here."""
    for _, column, kind, required, _, _ in disk.query(f"PRAGMA table_info({table})"):
        if required and column not in values:
            values[column] = "[]" if kind == "JSON" else 0 if kind in ("BIGINT", "INTEGER", "BOOLEAN") else ""
    names = ", ".join(f'"{name}"' for name in values)
    disk.query(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", *values.values())


def message(disk: Disk, seq: int, role: str, text: str = "", **values: object) -> None:
    content = json.dumps([{"type": "text", "text": text}])
    add(disk, "messages", id=f"m{seq}", agent_id="a", seq=seq, role=role, content=content, **values)


def says(check: Check, disk: Disk, history: History) -> str:
    with pytest.raises(Broken) as caught:
        check(disk, history)
    return str(caught.value)


def test_a_sound_disk_passes_every_check(disk: Disk, history: History) -> None:
    said = history.say("a", "tok-1-x")
    history.answered(said, Fate.acknowledged, "end_turn", ("echo tok-1-x",))
    history.answered(history.say("a", "tok-2-x"), Fate.failed)
    message(disk, 1, "user", "hello tok-1-x")
    message(disk, 2, "assistant", tool_calls=json.dumps([{"id": "c1"}]))
    message(disk, 3, "tool", tool_returns=json.dumps([{"call_id": "c1"}]))
    message(disk, 4, "assistant", "echo tok-1-x")
    for step in range(3):
        add(disk, "journal", agent_id="a", turn_id="t", step=step, epoch=1)
    add(disk, "blocks", id="b", label="human", version=7, value="v")
    for version in (6, 7):
        add(disk, "block_history", block_id="b", version=version, value="v")
    add(disk, "agent_blocks", agent_id="a", label="human", block_id="b")
    add(disk, "context", agent_id="a", conversation_id="", position=0, message_id="m1")
    add(disk, "runs", id="r", agent_id="a", status="completed", stop_reason="end_turn")
    for check in AT_REST:
        check(disk, history)


def test_a_lost_and_a_doubled_message(disk: Disk, history: History) -> None:
    said = history.say("a", "tok-1-x")
    acknowledged_once(disk, history)  # of unknown fate: may be missing
    history.answered(said, Fate.acknowledged)
    assert "lost: tok-1-x" in says(acknowledged_once, disk, history)
    message(disk, 1, "user", "tok-1-x")
    acknowledged_once(disk, history)
    message(disk, 2, "user", "tok-1-x")
    assert "duplicated: tok-1-x" in says(acknowledged_once, disk, history)


def test_an_answer_to_somebody_else_and_one_that_was_never_kept(disk: Disk, history: History) -> None:
    said = history.say("a", "tok-1-x")
    history.answered(said, Fate.acknowledged, "end_turn", ("echo tok-2-x",))
    assert "tok-1-x was answered with 'echo tok-2-x'" in says(answers_belong, disk, history)
    said.answers[:] = ["echo tok-1-x"]
    assert "not on the disk" in says(answers_belong, disk, history)
    message(disk, 1, "assistant", "echo tok-1-x")
    answers_belong(disk, history)


def test_calls_and_results(disk: Disk, history: History) -> None:
    message(disk, 1, "assistant", tool_calls=json.dumps([{"id": "c1"}]))
    assert "0 results" in says(one_result_per_call, disk, history)
    message(disk, 2, "tool", tool_returns=json.dumps([{"call_id": "c1"}]))
    one_result_per_call(disk, history)
    message(disk, 3, "tool", tool_returns=json.dumps([{"call_id": "c1"}]))
    assert "2 results" in says(one_result_per_call, disk, history)


def test_calls_that_wait_for_somebodys_word(disk: Disk, history: History) -> None:
    message(disk, 1, "approval", tool_calls=json.dumps([{"id": "c1"}]), run_id="r")
    add(disk, "runs", id="r", agent_id="a", status="completed", stop_reason="requires_approval")
    add(disk, "context", agent_id="a", conversation_id="", position=1, message_id="m1")
    assert "0 results" in says(one_result_per_call, disk, history)
    add(disk, "approvals", agent_id="a", conversation_id="", message_id="m1")
    one_result_per_call(disk, history)
    message(disk, 2, "user", "went on")
    add(disk, "context", agent_id="a", conversation_id="", position=2, message_id="m2")
    assert "went on after m1" in says(one_result_per_call, disk, history)


def test_a_run_that_left_calls_waiting_and_ended_for_another_reason(disk: Disk, history: History) -> None:
    message(disk, 1, "approval", tool_calls=json.dumps([{"id": "c1"}]), run_id="r")
    add(disk, "runs", id="r", agent_id="a", status="completed", stop_reason="end_turn")
    add(disk, "context", agent_id="a", conversation_id="", position=1, message_id="m1")
    add(disk, "approvals", agent_id="a", conversation_id="", message_id="m1")
    assert "ended with end_turn" in says(one_result_per_call, disk, history)


def test_a_result_that_nobody_asked_for(disk: Disk, history: History) -> None:
    message(disk, 1, "tool", tool_returns=json.dumps([{"call_id": "c9"}]))
    assert "nobody made" in says(one_result_per_call, disk, history)


def test_a_gap_in_the_journal_and_an_epoch_that_goes_back(disk: Disk, history: History) -> None:
    add(disk, "journal", agent_id="a", turn_id="t", step=0, epoch=2)
    add(disk, "journal", agent_id="a", turn_id="t", step=2, epoch=2)
    assert "[0, 2]" in says(journal_is_a_chain, disk, history)
    add(disk, "journal", agent_id="a", turn_id="t", step=1, epoch=1)
    assert "epochs [2, 1, 2]" in says(journal_is_a_chain, disk, history)


def test_a_block_under_another_label(disk: Disk, history: History) -> None:
    add(disk, "blocks", id="b", label="human")
    add(disk, "agent_blocks", agent_id="a", label="persona", block_id="b")
    assert "labelled 'human' under 'persona'" in says(one_label_per_agent, disk, history)


def test_a_history_with_a_gap_and_one_that_ends_elsewhere(disk: Disk, history: History) -> None:
    add(disk, "blocks", id="b", label="human", version=3, value="v")
    assert "b has the versions []" in says(histories_are_whole, disk, history)
    add(disk, "block_history", block_id="b", version=1, value="v")
    assert "b is not (1, 'v')" in says(histories_are_whole, disk, history)
    add(disk, "block_history", block_id="b", version=3, value="v")
    assert "b has the versions [1, 3]" in says(histories_are_whole, disk, history)
    add(disk, "block_history", block_id="b", version=2, value="v")
    histories_are_whole(disk, history)
    disk.query("UPDATE blocks SET value = 'other'")
    assert "b is not (3, 'v')" in says(histories_are_whole, disk, history)


def test_a_context_that_shows_what_is_not_there(disk: Disk, history: History) -> None:
    add(disk, "context", agent_id="a", conversation_id="", position=0, message_id="gone")
    assert "gone" in says(context_is_whole, disk, history)


@pytest.mark.parametrize(
    ("status", "reason", "seen"),
    [
        ("running", None, "still running"),
        ("completed", None, "without one"),
        ("completed", "error", "because of error"),
        ("failed", "end_turn", "because of end_turn"),
    ],
)
def test_a_run_that_did_not_end_properly(
    disk: Disk, history: History, status: str, reason: str | None, seen: str
) -> None:
    add(disk, "runs", id="r", agent_id="a", status=status, stop_reason=reason)
    assert seen in says(runs_ended, disk, history)


def test_a_fence_that_goes_back(disk: Disk) -> None:
    fence = Fence()
    add(disk, "agent_head", agent_id="a", epoch=1, version=5)
    fence(disk)
    disk.query("UPDATE agent_head SET version = 6")
    fence(disk)
    disk.query("UPDATE agent_head SET version = 5")
    with pytest.raises(Broken, match="never goes back"):
        fence(disk)


def test_a_prompt_that_holds_the_secret_of_another() -> None:
    secrets = {"a": "likes tea", "b": "likes rum"}
    marks = {"i am a": "a", "i am b": "b"}
    fine = SeenRequest(0.0, {"messages": [{"role": "system", "content": "i am a. likes tea"}]})
    leak = SeenRequest(1.0, {"messages": [{"role": "system", "content": "i am b. likes tea"}]})
    no_leaks([fine], secrets, marks)
    with pytest.raises(Broken, match="likes tea"):
        no_leaks([fine, leak], secrets, marks)
