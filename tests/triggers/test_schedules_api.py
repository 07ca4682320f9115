"""Schedules over HTTP: stored and read back, fired at their times, tried again, given up and queued again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.triggers.schedules import ATTEMPTS_MAX, SCHEDULES_MAX, UNSETTLED_MAX, Schedule
from kelpie.triggers import schedules as resource
from kelpie.triggers.scheduler import Scheduler
from tests.server.rig import Puppet, client_of, make_agent, open_rig

DEADLINE_S = 30.0
NINE = int(datetime(2026, 3, 2, 9, 0, tzinfo=UTC).timestamp()) * MICROS_PER_SECOND  # a Monday
HOUR = 3600 * MICROS_PER_SECOND
ALL_OF_THEM = ("/v1/kelpie/schedules", "/v1/kelpie/firings")


class HandClock:
    """A wall clock that the test sets."""

    def __init__(self, at: Micros) -> None:
        self.at = at

    def now(self) -> Micros:
        self.at += 1
        return self.at

    def monotonic_ns(self) -> int:
        return self.at * 1000


class Rig:
    def __init__(self, kelpie: Kelpie, puppet: Puppet, client: httpx.AsyncClient, clock: HandClock, agent: str) -> None:
        self.kelpie, self.puppet, self.client, self.clock, self.agent = kelpie, puppet, client, clock, agent
        self.base = f"/v1/agents/{agent}/schedule"

    async def create(self, **body: Any) -> dict[str, Any]:
        answer = await self.client.post(self.base, json={"message": "stand up"} | body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def go_to(self, at: Micros) -> None:
        """Sets the clock and lets the scheduler look at it."""
        self.clock.at = at
        self.kelpie.runtime.scheduler.wake()

    async def firings(self, schedule: str, **query: Any) -> list[dict[str, Any]]:
        return (await self.client.get(f"{self.base}/{schedule}/firings", params=query)).json()

    async def said(self) -> list[str]:
        rows = (await self.client.get(f"/v1/agents/{self.agent}/messages?limit=1000&order=asc")).json()
        return [row["content"] for row in rows if row["message_type"] == "user_message"]

    async def until(self, found: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if value := await found():
                    return value
                await asyncio.sleep(0.01)

    async def settled(self, schedule: str, status: str, count: int = 1) -> list[dict[str, Any]]:
        async def look() -> list[dict[str, Any]] | None:
            found = [each for each in await self.firings(schedule) if each["status"] == status]
            return found if len(found) >= count else None

        return await self.until(look)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = HandClock(NINE)
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        yield Rig(kelpie, puppet, client, clock, (await make_agent(client))["id"])


async def test_a_schedule_is_read_back_as_it_was_made_in_both_shapes(rig: Rig) -> None:
    ours = await rig.create(recurrence_rule="30 9 * * 1-5", timezone="Europe/Berlin", name="standup", max_steps=3)
    assert ours["next_scheduled_time"] == "2026-03-03T08:30:00Z" and ours["status"] == "active"
    assert ours["schedule"] == {"type": "recurring", "cron_expression": "30 9 * * 1-5"}
    assert ours["message"]["messages"] == [{"type": "message", "role": "user", "content": "stand up"}]
    body = {"messages": [{"role": "user", "content": "hi"}], "schedule": {"scheduled_at": (NINE + HOUR) / 1000}}
    theirs = (await rig.client.post(rig.base, json=body)).json()
    assert (theirs["schedule_type"], theirs["next_scheduled_at"]) == ("one-time", "2026-03-02T10:00:00Z")
    for made in (ours, theirs):
        assert (await rig.client.get(f"{rig.base}/{made['id']}")).json() == made
    listed = (await rig.client.get(rig.base)).json()
    assert listed == {"scheduled_messages": [theirs, ours], "has_next_page": False}
    first = (await rig.client.get(rig.base, params={"limit": "1"})).json()
    rest = (await rig.client.get(rig.base, params={"limit": "1", "after": theirs["id"]})).json()
    assert (first["has_next_page"], rest) == (True, {"scheduled_messages": [ours], "has_next_page": False})
    assert (await rig.client.delete(f"{rig.base}/{ours['id']}")).json() == {"success": True}
    assert (await rig.client.get(f"{rig.base}/{ours['id']}")).status_code == 404


async def test_it_fires_at_its_time_once_and_then_at_the_next(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="0 * * * *", message="the hour")
    assert await rig.said() == []
    await rig.go_to(NINE + HOUR + 5)
    (firing,) = await rig.settled(made["id"], "done")
    assert (firing["scheduled_time"], firing["attempts"], firing["manual"]) == ("2026-03-02T10:00:00Z", 1, False)
    run = (await rig.client.get(f"/v1/runs/{firing['run_id']}")).json()
    assert (run["status"], run["metadata"]["schedule_id"]) == ("completed", made["id"])
    assert await rig.said() == ["the hour"]
    await rig.go_to(NINE + 2 * HOUR)
    await rig.settled(made["id"], "done", 2)
    assert await rig.said() == ["the hour"] * 2
    now = (await rig.client.get(f"{rig.base}/{made['id']}")).json()
    assert (now["next_scheduled_time"], now["last_scheduled_time"]) == ("2026-03-02T12:00:00Z", "2026-03-02T11:00:00Z")


async def test_a_single_time_is_over_after_it_fired(rig: Rig) -> None:
    made = await rig.create(scheduled_time="2026-03-02T09:30:00", timezone="UTC")
    await rig.go_to(NINE + HOUR // 2)
    await rig.settled(made["id"], "done")
    now = (await rig.client.get(f"{rig.base}/{made['id']}")).json()
    assert (now["status"], now["next_scheduled_time"]) == ("completed", None)


async def test_what_was_scheduled_survives_a_restart_and_what_was_missed_is_made_up_for_once(tmp_path: Path) -> None:
    clock = HandClock(NINE)
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        agent = (await make_agent(client))["id"]
        made = await Rig(kelpie, puppet, client, clock, agent).create(recurrence_rule="0 * * * *")
    clock.at = NINE + 5 * HOUR + HOUR // 2
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, clock, agent)
        (done,) = await rig.settled(made["id"], "done")
        assert done["scheduled_time"] == "2026-03-02T14:00:00Z"
        (skipped,) = await rig.settled(made["id"], "skipped")
        assert skipped["scheduled_time"] == "2026-03-02T13:00:00Z" and "No server was running" in skipped["error"]
        assert await rig.said() == ["stand up"]


async def test_a_clock_that_is_set_back_fires_nothing_twice_and_goes_on(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="*/10 * * * *")
    await rig.go_to(NINE + HOUR)
    await rig.settled(made["id"], "done")
    await rig.go_to(NINE + HOUR - HOUR // 12)  # 9:55
    at = await rig.until(lambda: _next(rig, made["id"], "2026-03-02T10:00:00Z"))
    assert at
    await rig.go_to(NINE + HOUR + 1)
    await rig.until(lambda: _next(rig, made["id"], "2026-03-02T10:10:00Z"))
    assert len(await rig.firings(made["id"], status="done")) == 1
    await rig.go_to(NINE + HOUR + HOUR // 6)
    await rig.settled(made["id"], "done", 2)


async def test_a_schedule_stays_paused_when_the_clock_is_set_back(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="*/10 * * * *")
    await rig.go_to(NINE + HOUR)
    await rig.settled(made["id"], "done")
    path = f"{rig.base}/{made['id']}"
    assert (await rig.client.patch(path, json={"paused": True})).status_code == 200
    await rig.go_to(NINE + HOUR - HOUR // 12)  # 9:55

    async def follows() -> Any:
        shown = (await rig.client.get(path)).json()
        return shown if shown["last_scheduled_time"] < "2026-03-02T10:00" else None

    shown = await rig.until(follows)
    assert (shown["status"], shown["next_scheduled_time"]) == ("paused", None)
    resumed = (await rig.client.patch(path, json={"paused": False})).json()
    assert resumed["next_scheduled_time"] == "2026-03-02T10:00:00Z"


async def test_what_was_made_by_a_clock_that_was_ahead_does_not_wait_for_it(rig: Rig) -> None:
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/stop")).status_code == 200
    await rig.go_to(NINE + 24 * HOUR)
    made = await rig.create(recurrence_rule="*/10 * * * *")
    single = await rig.create(scheduled_time="2026-03-03T09:00:00Z")
    assert made["next_scheduled_time"] == "2026-03-03T09:10:00Z"
    (waiting,) = await rig.settled(single["id"], "waiting")
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/start")).status_code == 200
    await rig.go_to(NINE)
    await rig.until(lambda: _next(rig, made["id"], "2026-03-02T09:10:00Z"))
    (done,) = await rig.settled(single["id"], "done")
    assert (done["id"], done["attempts"]) == (waiting["id"], 2)
    assert (await rig.client.get(f"{rig.base}/{made['id']}")).json()["last_scheduled_time"] is None


async def _next(rig: Rig, schedule: str, wanted: str) -> bool:
    return (await rig.client.get(f"{rig.base}/{schedule}")).json()["next_scheduled_time"] == wanted


async def test_it_can_be_changed_paused_and_fired_by_hand(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="0 * * * *", name="a")
    path = f"{rig.base}/{made['id']}"
    paused = (await rig.client.patch(path, json={"paused": True, "message": "new", "missed_policy": "skip"})).json()
    assert (paused["status"], paused["next_scheduled_time"], paused["name"]) == ("paused", None, "a")
    await rig.go_to(NINE + 3 * HOUR)
    by_hand = await rig.client.post(f"{path}/run")
    assert by_hand.status_code == 202 and by_hand.json()["manual"] is True
    await rig.settled(made["id"], "done")
    assert await rig.said() == ["new"]
    resumed = (await rig.client.patch(path, json={"paused": False, "timezone": "Asia/Kolkata", "name": None})).json()
    assert (resumed["status"], resumed["timezone"], resumed["name"]) == ("active", "Asia/Kolkata", None)
    assert resumed["next_scheduled_time"] == "2026-03-02T12:30:00Z"
    once = (await rig.client.patch(path, json={"scheduled_time": "2026-03-02T13:00:00Z"})).json()
    assert (once["schedule_type"], once["recurrence_rule"]) == ("one-time", None)
    assert (await rig.client.get(path)).json() == once


async def test_a_stopped_agent_gets_it_later_and_a_dead_firing_can_be_queued_again(rig: Rig) -> None:
    made = await rig.create(scheduled_time="2026-03-02T10:00:00Z")
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/stop")).status_code == 200
    at = NINE + HOUR
    for attempt in range(1, ATTEMPTS_MAX):
        await rig.go_to(at)
        (waiting,) = await rig.until(lambda wanted=attempt: _tried(rig, made["id"], wanted))
        assert waiting["status"] == "waiting" and "is stopped" in waiting["error"]
        at = int(datetime.fromisoformat(waiting["next_attempt_time"]).timestamp() * MICROS_PER_SECOND)
    await rig.go_to(at)
    (dead,) = await rig.settled(made["id"], "dead")
    assert [each["id"] for each in (await rig.client.get("/v1/kelpie/firings?status=dead")).json()] == [dead["id"]]
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/start")).status_code == 200
    again = await rig.client.post(f"/v1/kelpie/firings/{dead['id']}/requeue")
    assert (again.status_code, again.json()["attempts"]) == (202, 0)
    await rig.settled(made["id"], "done")
    assert await rig.said() == ["stand up"]
    refused = await rig.client.post(f"/v1/kelpie/firings/{dead['id']}/requeue")
    assert refused.status_code == 409 and "only a dead firing" in refused.text


async def _tried(rig: Rig, schedule: str, attempts: int) -> list[dict[str, Any]] | None:
    found = await rig.firings(schedule)
    return found if [each["attempts"] for each in found] == [attempts] else None


async def test_a_turn_that_failed_before_its_first_step_is_tried_again_and_said_once(rig: Rig) -> None:
    made = await rig.create(scheduled_time="2026-03-02T10:00:00Z")
    rig.puppet.script.append(ModelError(ModelFault.bad_request, "No."))
    await rig.go_to(NINE + HOUR)
    (waiting,) = await rig.settled(made["id"], "waiting")
    assert "The turn failed" in waiting["error"]
    await rig.go_to(NINE + 2 * HOUR)
    (done,) = await rig.settled(made["id"], "done")
    assert done["attempts"] == 2 and await rig.said() == ["stand up"]


async def test_a_cancelled_run_is_not_tried_again(rig: Rig) -> None:
    made = await rig.create(scheduled_time="2026-03-02T10:00:00Z")
    rig.puppet.script.append(asyncio.Event())
    await rig.go_to(NINE + HOUR)
    async with asyncio.timeout(DEADLINE_S):
        await rig.puppet.waiting.wait()
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/messages/cancel")).status_code == 200
    await rig.settled(made["id"], "cancelled")


async def test_firings_that_pile_up_are_skipped(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="* * * * *")
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/stop")).status_code == 200
    for minute in range(1, UNSETTLED_MAX + 2):
        await rig.go_to(NINE + minute * HOUR // 60 + 1)
        await rig.until(lambda wanted=minute: _counted(rig, made["id"], wanted))
    (skipped,) = await rig.firings(made["id"], status="skipped")
    assert "have not ended" in skipped["error"]


async def _counted(rig: Rig, schedule: str, count: int) -> bool:
    return len(await rig.firings(schedule)) == count


async def test_a_deleted_conversation_ends_a_firing_with_the_reason(rig: Rig) -> None:
    made = (await rig.client.post("/v1/conversations/", params={"agent_id": rig.agent}, json={})).json()
    schedule = await rig.create(scheduled_time="2026-03-02T10:00:00Z", conversation_id=made["id"])
    assert schedule["conversation_id"] == made["id"]
    await rig.client.delete(f"/v1/conversations/{made['id']}")
    await rig.go_to(NINE + HOUR)
    (dead,) = await rig.settled(schedule["id"], "dead")
    assert "conversation was deleted" in dead["error"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"message": "x"}, "schedule"),
        ({"recurrence_rule": "0 9 * * *"}, "messages"),
        ({"message": "x", "recurrence_rule": "9 o'clock"}, "recurrence_rule"),
        ({"message": "x", "recurrence_rule": "0 9 * * *", "timezone": "Mars"}, "timezone"),
        ({"message": "x", "scheduled_time": "2020-01-01T00:00:00Z"}, "scheduled_time"),
        ({"message": "x", "scheduled_time": "soon"}, "scheduled_time"),
        ({"message": "x", "schedule_type": "recurring"}, "recurrence_rule"),
        ({"message": "x", "schedule_type": "recurring", "scheduled_time": "2030-01-01T00:00:00Z"}, "scheduled_time"),
        ({"message": "x", "schedule": {}}, "schedule"),
        ({"message": "x", "schedule": {"scheduled_at": 1, "cron_expression": "0 9 * * *"}}, "schedule.cron_expression"),
        ({"message": "x", "messages": [{"role": "user", "content": "y"}], "recurrence_rule": "0 9 * * *"}, "message"),
        ({"messages": [], "recurrence_rule": "0 9 * * *"}, "messages"),
        ({"message": "x", "recurrence_rule": "0 9 * * *", "conversation_id": "conv-1"}, "conv"),
        ({"message": "x", "recurrence_rule": "0 9 * * *", "missed_max": 0}, "missed_max"),
    ],
)
async def test_a_wrong_schedule_is_refused_with_the_field(rig: Rig, body: dict[str, Any], field: str) -> None:
    answer = await rig.client.post(rig.base, json=body)
    assert 400 <= answer.status_code < 500 and field in answer.text, answer.text
    assert (await rig.client.get(rig.base)).json()["scheduled_messages"] == []


async def test_the_number_of_schedules_is_limited(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SCHEDULES_MAX == 1000
    monkeypatch.setattr(resource, "SCHEDULES_MAX", 2)
    for _ in range(2):
        await rig.create(recurrence_rule="0 9 * * *")
    refused = await rig.client.post(rig.base, json={"message": "x", "recurrence_rule": "0 9 * * *"})
    assert refused.status_code == 409 and "2 schedules" in refused.text


async def test_schedules_go_with_their_agent(rig: Rig) -> None:
    made = await rig.create(recurrence_rule="0 * * * *")
    assert (await rig.client.delete(f"/v1/agents/{rig.agent}")).status_code == 200
    await rig.go_to(NINE + 2 * HOUR)
    assert (await rig.client.get(f"{rig.base}/{made['id']}")).status_code == 404
    assert (await rig.client.get("/v1/kelpie/schedules")).json() == []
    assert (await rig.client.get("/v1/kelpie/firings")).json() == []


async def test_a_server_that_stops_finishes_what_it_is_firing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, held, let = HandClock(NINE), asyncio.Event(), asyncio.Event()
    original = Scheduler._fire

    async def fire(self: Scheduler, schedule: Schedule) -> None:
        held.set()
        await let.wait()
        await original(self, schedule)

    monkeypatch.setattr(Scheduler, "_fire", fire)
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, clock, (await make_agent(client))["id"])
        made = [await rig.create(scheduled_time="2026-03-02T10:00:00Z", message=f"{n}") for n in range(3)]
        await rig.go_to(NINE + HOUR)
        async with asyncio.timeout(DEADLINE_S):
            await held.wait()
            stopping = asyncio.create_task(kelpie.stop(DEADLINE_S))
            await asyncio.sleep(0)
            let.set()
            await stopping
    monkeypatch.setattr(Scheduler, "_fire", None)  # nothing is left to fire
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, clock, rig.agent)
        for each in made:
            (firing,) = await rig.settled(each["id"], "done")
            assert firing["attempts"] == 1
        assert sorted(await rig.said()) == ["0", "1", "2"]


async def test_a_key_for_an_agent_and_another_organization_see_no_other_schedules(rig: Rig) -> None:
    other = (await make_agent(rig.client, name="other"))["id"]
    mine, own = await rig.create(recurrence_rule="0 * * * *"), f"/v1/agents/{other}/schedule"
    project = (await rig.client.post("/v1/projects", json={"name": "one"})).json()["id"]
    await rig.client.post(f"/v1/projects/{project}/agents", json={"agent_id": other})
    for scope in ({"agent_ids": [other]}, {"project_ids": [project]}):
        key = (await rig.client.post("/v1/kelpie/keys", json={"name": "k"} | scope)).json()["key"]
        bound = {"Authorization": f"Bearer {key}"}
        body = {"message": "x", "recurrence_rule": "0 * * * *"}
        made = (await rig.client.post(own, json=body, headers=bound)).json()
        listed = (await rig.client.get(own, headers=bound)).json()["scheduled_messages"]
        assert [each["id"] for each in listed][:1] == [made["id"]]
        for path in (rig.base, f"{rig.base}/{mine['id']}", f"{rig.base}/{mine['id']}/firings", *ALL_OF_THEM):
            assert (await rig.client.get(path, headers=bound)).status_code == 403, path
        stray = f"{own}/{mine['id']}"
        assert (await rig.client.get(stray, headers=bound)).status_code == 404
        assert (await rig.client.patch(stray, json={"paused": True}, headers=bound)).status_code == 404
        assert (await rig.client.post(f"{stray}/run", headers=bound)).status_code == 404
        assert (await rig.client.delete(stray, headers=bound)).status_code == 404
    organization = (await rig.client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await rig.client.post("/v1/admin/users/", json={"name": "u", "organization_id": organization["id"]})).json()
    headers = {"user_id": user["id"]}
    for path in (rig.base, f"{rig.base}/{mine['id']}", f"{rig.base}/{mine['id']}/firings"):
        assert (await rig.client.get(path, headers=headers)).status_code == 404, path
    foreign = await rig.client.post(rig.base, json={"message": "x", "recurrence_rule": "0 * * * *"}, headers=headers)
    assert foreign.status_code == 404
    assert [(await rig.client.get(path, headers=headers)).json() for path in ALL_OF_THEM] == [[], []]
    assert (await rig.client.get(f"{rig.base}/{mine['id']}")).json() == mine


async def test_two_changes_at_once_keep_both(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await rig.create(recurrence_rule="0 * * * *")
    path, read, go_on = f"{rig.base}/{made['id']}", asyncio.Event(), asyncio.Event()
    original = resource.Schedules._prepared

    async def prepared(self: resource.Schedules, *arguments: Any) -> Any:
        if not read.is_set():
            read.set()
            await go_on.wait()
        return await original(self, *arguments)

    monkeypatch.setattr(resource.Schedules, "_prepared", prepared)
    async with asyncio.timeout(DEADLINE_S):
        first = asyncio.create_task(rig.client.patch(path, json={"name": "renamed"}))
        await read.wait()
        await rig.client.patch(path, json={"max_steps": 7, "message": "new"})
        go_on.set()
        await first
    after = (await rig.client.get(path)).json()
    assert (after["name"], after["message"]["max_steps"]) == ("renamed", 7)
    assert [each["content"] for each in after["message"]["messages"]] == ["new"]


async def test_many_schedules_of_the_same_second_are_all_fired_once(rig: Rig) -> None:
    ids = [(await rig.create(scheduled_time="2026-03-02T10:00:00Z", message=f"{n}"))["id"] for n in range(60)]
    await rig.go_to(NINE + HOUR)
    await rig.until(lambda: _all_done(rig, len(ids)))
    assert sorted(await rig.said(), key=int) == [f"{n}" for n in range(60)]


async def _all_done(rig: Rig, count: int) -> bool:
    return len((await rig.client.get("/v1/kelpie/firings?status=done&limit=200")).json()) == count
