"""Rules of schedules that a client sees only in special cases: what a change leaves alone, what a failure repeats, and
what a firing takes along.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ModelError, ModelFault, StorageError
from kelpie.core.triggers.schedules import UNSETTLED_MAX, Schedule
from kelpie.storage.triggers import firings as rows
from kelpie.triggers import delivery
from tests.server.rig import called, client_of, make_agent, open_rig
from tests.triggers.test_schedules_api import HOUR, NINE, HandClock, Rig

TEN, ELEVEN = "2026-03-02T10:00:00Z", "2026-03-02T11:00:00Z"
MINUTE = HOUR // 60
NO = ModelError(ModelFault.bad_request, "No.")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = HandClock(NINE)
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        yield Rig(kelpie, puppet, client, clock, (await make_agent(client))["id"])


async def _waits(rig: Rig, schedule: str, words: str) -> bool:
    return any(words in (each["error"] or "") for each in await rig.firings(schedule, status="waiting"))


async def test_a_turn_that_failed_after_a_step_is_not_said_again(rig: Rig) -> None:
    made = await rig.create(scheduled_time=TEN)
    rig.puppet.script += [called("nothing_of_this_name", "{}"), NO]
    await rig.go_to(NINE + HOUR)
    (dead,) = await rig.settled(made["id"], "dead")
    assert dead["attempts"] == 1 and "failed after 1 steps, so it is not tried again" in dead["error"]
    assert dead["next_attempt_time"] is None
    await rig.go_to(NINE + 5 * HOUR)
    later = await rig.create(scheduled_time="2026-03-02T14:00:05Z", message="later")
    await rig.go_to(NINE + 6 * HOUR)
    await rig.settled(later["id"], "done")
    assert await rig.said() == ["stand up", "later"]


async def test_a_change_of_something_else_does_not_skip_a_time_that_is_due(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="0 * * * *")
    rig.clock.at = NINE + HOUR + 5  # the scheduler has not looked yet
    changed = await rig.client.patch(f"{rig.base}/{made['id']}", json={"name": "new", "message": "newer words"})
    assert changed.json()["next_scheduled_time"] == TEN
    (done,) = await rig.settled(made["id"], "done")
    assert done["scheduled_time"] == TEN and await rig.said() == ["newer words"]


async def test_a_new_time_replaces_the_old_one(rig: Rig) -> None:
    made = await rig.create(scheduled_time=TEN)
    path = f"{rig.base}/{made['id']}"
    moved = (await rig.client.patch(path, json={"scheduled_time": ELEVEN})).json()
    assert (moved["next_scheduled_time"], moved["status"]) == (ELEVEN, "active")
    await rig.go_to(NINE + HOUR + MINUTE)
    other = await rig.create(scheduled_time="2026-03-02T10:01:30Z", message="other")
    await rig.go_to(NINE + HOUR + 2 * MINUTE)
    await rig.settled(other["id"], "done")
    assert await rig.firings(made["id"]) == []
    await rig.go_to(NINE + 2 * HOUR)
    await rig.settled(made["id"], "done")
    again = await rig.client.patch(path, json={"scheduled_time": TEN})
    assert again.status_code == 400 and "scheduled_time" in again.text
    renamed = await rig.client.patch(path, json={"name": "over"})  # its time is past, and is not given anew
    assert (renamed.status_code, renamed.json()["status"]) == (200, "completed")
    assert await rig.said() == ["other", "stand up"]


async def test_what_passed_during_a_pause_is_not_made_up_for(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="0 * * * *", missed_policy="run_all")
    path = f"{rig.base}/{made['id']}"
    await rig.client.patch(path, json={"paused": True})
    await rig.go_to(NINE + 3 * HOUR + MINUTE)
    assert (await rig.client.patch(path, json={"paused": False})).json()[
        "next_scheduled_time"
    ] == "2026-03-02T13:00:00Z"
    await rig.go_to(NINE + 4 * HOUR)
    await rig.settled(made["id"], "done")
    assert [each["scheduled_time"] for each in await rig.firings(made["id"])] == ["2026-03-02T13:00:00Z"]


async def test_conversations_of_others_are_refused_also_by_a_change(rig: Rig) -> None:
    other = (await make_agent(rig.client, name="other"))["id"]
    thread = (await rig.client.post("/v1/conversations/", params={"agent_id": other}, json={})).json()["id"]
    made = await rig.create(scheduled_time=TEN)
    body = {"message": "x", "scheduled_time": TEN, "conversation_id": thread}
    for answer in (
        await rig.client.post(rig.base, json=body),
        await rig.client.patch(f"{rig.base}/{made['id']}", json={"conversation_id": thread}),
    ):
        assert answer.status_code == 400 and "conversation of another agent" in answer.text
    assert (await rig.client.get(f"{rig.base}/{made['id']}")).json() == made


async def test_a_firing_is_said_in_its_conversation_and_takes_its_options_along(rig: Rig) -> None:
    thread = (await rig.client.post("/v1/conversations/", params={"agent_id": rig.agent}, json={})).json()["id"]
    messages = [{"role": "user", "content": "one", "name": "bob"}, {"role": "user", "content": "two"}]
    body = {"messages": messages, "scheduled_time": TEN, "conversation_id": thread, "max_steps": 1}
    more = {"callback_url": "http://callback.example/x", "include_return_message_types": ["assistant_message"]}
    made = (await rig.client.post(rig.base, json=body | more)).json()
    rig.puppet.script.append(called("nothing_of_this_name", "{}"))
    await rig.go_to(NINE + HOUR)
    (firing,) = await rig.settled(made["id"], "done")
    run = (await rig.client.get(f"/v1/runs/{firing['run_id']}")).json()
    assert (run["conversation_id"], run["callback_url"]) == (thread, more["callback_url"])
    assert (run["stop_reason"], run["background"]) == ("max_steps", True)
    assert run["metadata"]["firing_id"] == firing["id"]
    rows = (await rig.client.get(f"/v1/conversations/{thread}/messages?order=asc")).json()
    heard = [row for row in rows if row["message_type"] == "user_message"]
    assert [(row["content"], row["name"]) for row in heard] == [("one", "bob"), ("two", None)]
    assert len({row["otid"] for row in heard}) == 2 and await rig.said() == ["one", "two"]
    default = (await rig.client.get(f"/v1/conversations/{rig.agent}/messages?order=asc")).json()
    assert [row for row in default if row["message_type"] == "user_message"] == []


async def test_a_run_that_was_deleted_ends_its_firing(rig: Rig) -> None:
    made = await rig.create(scheduled_time=TEN)
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    await rig.go_to(NINE + HOUR)
    (running,) = await rig.settled(made["id"], "running")
    database, run_id = rig.kelpie.world.database, running["run_id"]
    found = await database.read(lambda tx: rows.find(tx, running["id"]))
    assert found is not None
    settled = await database.read(lambda tx: delivery.settle(tx, found, NINE))
    assert settled is None  # it goes on
    gate.set()
    await rig.settled(made["id"], "done")
    assert (await rig.client.delete(f"/v1/runs/{run_id}")).status_code == 200
    settled = await database.read(lambda tx: delivery.settle(tx, found, NINE))
    assert settled is not None and settled.status == "done" and "run was deleted" in (settled.error or "")


async def test_a_deleted_schedule_says_nothing_more(rig: Rig) -> None:
    made, other = await rig.create(scheduled_time=TEN), await rig.create(scheduled_time=ELEVEN, message="other")
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/stop")).status_code == 200
    await rig.go_to(NINE + HOUR)
    await rig.until(lambda: _waits(rig, made["id"], "is stopped"))
    assert (await rig.client.delete(f"{rig.base}/{made['id']}")).status_code == 200
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/start")).status_code == 200
    await rig.go_to(NINE + 2 * HOUR)
    await rig.settled(other["id"], "done")
    assert await rig.said() == ["other"] and (await rig.client.get("/v1/kelpie/firings?status=waiting")).json() == []


async def test_the_history_keeps_the_newest_firings_and_all_that_were_given_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "HISTORY_MAX", 2)
    made, other = await rig.create(recurrence_rule="0 * * * *"), await rig.create(recurrence_rule="0 * * * *")
    rig.puppet.script += [called("none", "{}"), NO, called("none", "{}"), NO]
    for hour in range(1, 6):
        await rig.go_to(NINE + hour * HOUR)
        await rig.until(lambda wanted=hour: _last_ended(rig, made["id"], wanted))
    for schedule in (made, other):
        left = [(each["status"], each["scheduled_time"][11:13]) for each in await rig.firings(schedule["id"])]
        assert sorted(left, key=lambda one: one[1]) == [("dead", "10"), ("done", "13"), ("done", "14")]


async def _last_ended(rig: Rig, schedule: str, hour: int) -> bool:
    found = [*await rig.firings(schedule), *(await rig.client.get("/v1/kelpie/firings?limit=100")).json()]
    last = [each for each in found if each["scheduled_time"][11:13] == f"{9 + hour:02}"]
    return len(last) == 3 and all(each["status"] in ("done", "dead") for each in last)


async def test_missed_times_that_are_made_up_for_leave_room_for_no_more_than_may_wait(tmp_path: Path) -> None:
    clock = HandClock(NINE)
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, clock, (await make_agent(client))["id"])
        made = await rig.create(recurrence_rule="0 * * * *", missed_policy="run_all", missed_max=20)
        gate = asyncio.Event()
        puppet.script.append(gate)
        await rig.go_to(NINE + (UNSETTLED_MAX + 3) * HOUR)
        await rig.settled(made["id"], "skipped", 3)
        found = await rig.firings(made["id"], limit=100)
        waiting = [each for each in found if each["status"] in ("waiting", "running")]
        skipped = [each for each in found if each["status"] == "skipped"]
        assert len(waiting) == UNSETTLED_MAX and len(found) == UNSETTLED_MAX + 3
        assert max(each["scheduled_time"] for each in waiting) < min(each["scheduled_time"] for each in skipped)
        gate.set()


async def test_a_firing_whose_write_fails_leaves_the_others_alone_and_comes_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await rig.create(scheduled_time=TEN, message=f"{number}") for number in range(3)]
    original, failed = delivery.deliver, list[str]()

    def deliver(tx: Any, schedule: Schedule, *rest: Any) -> Any:
        if schedule.id == made[0]["id"] and not failed:
            failed.append(schedule.id)
            raise StorageError("No.")
        return original(tx, schedule, *rest)

    monkeypatch.setattr(delivery, "deliver", deliver)
    await rig.go_to(NINE + HOUR)
    for each in made[1:]:
        await rig.settled(each["id"], "done")
    await rig.go_to(NINE + HOUR + 10)
    (late,) = await rig.settled(made[0]["id"], "done")
    assert late["scheduled_time"] == TEN and sorted(await rig.said()) == ["0", "1", "2"]


async def test_a_quota_and_a_full_queue_are_waited_for(tmp_path: Path) -> None:
    clock = HandClock(NINE)
    async with open_rig(tmp_path, clock=clock, mailbox_size=1) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, clock, (await make_agent(client))["id"])
        made = await rig.create(scheduled_time=TEN)
        gate = asyncio.Event()
        puppet.script.append(gate)
        body = {"messages": [{"role": "user", "content": "before"}]}
        for _ in range(2):
            assert (await client.post(f"/v1/agents/{rig.agent}/messages/async", json=body)).status_code == 200
            async with asyncio.timeout(10):
                await puppet.waiting.wait()
        await rig.go_to(NINE + HOUR)
        await rig.until(lambda: _waits(rig, made["id"], "already waiting"))
        gate.set()
        await rig.until(lambda: _said(rig, 2))
        path = "/v1/kelpie/quotas/org-00000000-0000-4000-8000-000000000000"
        assert (await client.put(path, json={"messages": 1})).status_code == 200
        await rig.go_to(NINE + HOUR + MINUTE)
        await rig.until(lambda: _waits(rig, made["id"], "quota"))
        assert (await client.put(path, json={"messages": 100})).status_code == 200
        await rig.go_to(NINE + 2 * HOUR)
        (done,) = await rig.settled(made["id"], "done")
        assert done["attempts"] == 3 and await rig.said() == ["before", "before", "stand up"]


async def _said(rig: Rig, count: int) -> bool:
    return len(await rig.said()) == count


async def test_firings_are_listed_and_queued_again_by_their_own_organization_alone(rig: Rig) -> None:
    made, other = await rig.create(scheduled_time=TEN), await rig.create(recurrence_rule="0 * * * *")
    rig.puppet.script += [called("none", "{}"), NO, called("none", "{}"), NO]
    await rig.go_to(NINE + HOUR)
    (dead,) = await rig.settled(made["id"], "dead")
    (its,) = await rig.settled(other["id"], "dead")
    organization = (await rig.client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await rig.client.post("/v1/admin/users/", json={"name": "u", "organization_id": organization["id"]})).json()
    stranger = {"user_id": user["id"]}
    path = f"/v1/kelpie/firings/{dead['id']}/requeue"
    assert (await rig.client.post(path, headers=stranger)).status_code == 404
    assert (await rig.client.get("/v1/kelpie/firings", headers=stranger)).json() == []
    everything = (await rig.client.get("/v1/kelpie/firings")).json()
    assert {each["id"] for each in everything} == {dead["id"], its["id"]}
    assert await rig.firings(made["id"]) == [dead] and await rig.firings(other["id"], status="done") == []
    again = (await rig.client.post(path)).json()
    assert (again["status"], again["attempts"]) == ("waiting", 0)
    (done,) = await rig.settled(made["id"], "done")
    assert (done["id"], done["error"]) == (dead["id"], None) and await rig.firings(other["id"]) == [its]


async def test_one_fired_by_hand_does_not_replace_a_time(rig: Rig) -> None:
    made = await rig.create(scheduled_time=TEN)
    path = f"{rig.base}/{made['id']}"
    assert (await rig.client.post(f"{path}/run")).status_code == 202
    await rig.settled(made["id"], "done")
    assert (await rig.client.get(path)).json()["next_scheduled_time"] == TEN
    await rig.go_to(NINE + HOUR)
    found = await rig.settled(made["id"], "done", 2)
    assert sorted(each["manual"] for each in found) == [False, True] and await rig.said() == ["stand up"] * 2


async def test_what_is_due_when_it_is_made_or_moved_does_not_wait_for_the_next_look(rig: Rig) -> None:
    rig.kelpie.runtime.scheduler.wake()
    await asyncio.sleep(0)
    made = await rig.create(scheduled_time="2026-03-02T09:00:00Z")
    await rig.settled(made["id"], "done")
    other = await rig.create(scheduled_time=TEN, message="moved")
    moved = await rig.client.patch(f"{rig.base}/{other['id']}", json={"scheduled_time": "2026-03-02T09:00:00Z"})
    assert moved.status_code == 200
    await rig.settled(other["id"], "done")
    assert await rig.said() == ["stand up", "moved"]


async def test_a_firing_waits_while_a_call_waits_for_a_person_and_is_said_after_it(rig: Rig) -> None:
    made = await rig.create(scheduled_time=TEN)
    tool = {"name": "lookup", "description": "d", "parameters": {"type": "object", "properties": {}}}
    rig.puppet.script.append(called("lookup", "{}"))
    path = f"/v1/agents/{rig.agent}/messages"
    asked = await rig.client.post(
        path, json={"messages": [{"role": "user", "content": "look"}], "client_tools": [tool]}
    )
    assert asked.json()["stop_reason"]["stop_reason"] == "requires_approval"
    await rig.go_to(NINE + HOUR)
    await rig.until(lambda: _waits(rig, made["id"], "approval"))
    (call,) = [
        one["tool_call"] for one in asked.json()["messages"] if one["message_type"] == "approval_request_message"
    ]
    answer = {"type": "tool", "tool_call_id": call["tool_call_id"], "tool_return": "found", "status": "success"}
    await rig.client.post(
        path, json={"messages": [{"type": "approval", "approvals": [answer]}], "client_tools": [tool]}
    )
    await rig.go_to(NINE + HOUR + MINUTE)
    (done,) = await rig.settled(made["id"], "done")
    assert done["attempts"] == 2 and await rig.said() == ["look", "stand up"]
