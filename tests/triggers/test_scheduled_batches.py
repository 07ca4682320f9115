"""Scheduled batches: each message of a firing has a turn of its own, in order, and the firing tells how they went."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ModelError, ModelFault
from kelpie.triggers import scheduled_batch
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said
from tests.triggers.test_schedules_api import HOUR, NINE, HandClock, Rig

TEN = "2026-03-02T10:00:00Z"
FAILURE = ModelError(ModelFault.bad_request, "No.")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = HandClock(NINE)
    async with open_rig(tmp_path, clock=clock) as (kelpie, puppet), client_of(kelpie) as client:
        yield Rig(kelpie, puppet, client, clock, (await make_agent(client))["id"])


async def _scheduled(rig: Rig, *texts: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    answer = await rig.client.post(rig.base, json={"messages": messages, "batch": True, "scheduled_time": TEN} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _batch(rig: Rig, firing: dict[str, Any]) -> dict[str, Any]:
    return (await rig.client.get(f"/v1/agents/{rig.agent}/messages/batch/{firing['batch_id']}")).json()


async def test_each_message_has_a_turn_of_its_own_in_order(rig: Rig) -> None:
    made = await _scheduled(rig, "one", "two", "three")
    assert made["batch"] is True and (await rig.client.get(f"{rig.base}/{made['id']}")).json() == made
    await rig.go_to(NINE + HOUR)
    (firing,) = await rig.settled(made["id"], "done")
    assert (firing["run_id"], firing["error"], firing["attempts"]) == (None, None, 1)
    batch = await _batch(rig, firing)
    assert [each["status"] for each in batch["results"]] == ["completed"] * 3
    assert len({each["run_id"] for each in batch["results"]}) == 3
    assert await rig.said() == ["one", "two", "three"] and len(rig.puppet.asked) == 3


async def test_each_turn_takes_the_options_of_the_schedule_along(rig: Rig) -> None:
    thread = (await rig.client.post("/v1/conversations/", params={"agent_id": rig.agent}, json={})).json()["id"]
    options = {"callback_url": "http://callback.example/x", "include_return_message_types": ["assistant_message"]}
    made = await _scheduled(rig, "one", "two", conversation_id=thread, max_steps=1, **options)
    rig.puppet.script.append(called("nothing_of_this_name", "{}"))
    await rig.go_to(NINE + HOUR)
    (firing,) = await rig.settled(made["id"], "done")
    batch = await _batch(rig, firing)
    assert batch["callback_url"] == options["callback_url"]
    ends = [(await rig.client.get(f"/v1/runs/{each['run_id']}")).json() for each in batch["results"]]
    assert [(run["stop_reason"], run["conversation_id"]) for run in ends] == [
        ("max_steps", thread),
        ("end_turn", thread),
    ]
    types = [run["request_config"]["include_return_message_types"] for run in ends]
    assert types == [options["include_return_message_types"]] * 2


async def test_without_it_all_messages_have_one_turn(rig: Rig) -> None:
    made = await _scheduled(rig, "one", "two", batch=False)
    await rig.go_to(NINE + HOUR)
    (firing,) = await rig.settled(made["id"], "done")
    assert (firing["batch_id"], len(rig.puppet.asked)) == (None, 1) and await rig.said() == ["one", "two"]
    changed = await rig.client.patch(f"{rig.base}/{made['id']}", json={"batch": True})
    assert changed.json()["batch"] is True
    assert (await rig.client.patch(f"{rig.base}/{made['id']}", json={"name": "x"})).json()["batch"] is True


async def test_a_message_that_fails_leaves_the_others_alone_and_the_firing_says_so(rig: Rig) -> None:
    made = await _scheduled(rig, "one", "two", "three")
    rig.puppet.script.append(FAILURE)
    await rig.go_to(NINE + HOUR)
    (firing,) = await rig.settled(made["id"], "done")
    assert firing["error"].startswith("1 of 3 messages failed: ")
    assert await rig.said() == ["two", "three"]


async def test_it_is_tried_again_as_long_as_the_agent_heard_nothing(rig: Rig) -> None:
    made = await _scheduled(rig, "one", "two")
    rig.puppet.script += [FAILURE, FAILURE]
    await rig.go_to(NINE + HOUR)
    (waiting,) = await rig.settled(made["id"], "waiting")
    assert waiting["error"].startswith("2 of 2 messages failed: ")
    await rig.go_to(NINE + 2 * HOUR)
    (done,) = await rig.settled(made["id"], "done")
    assert (done["attempts"], done["error"]) == (2, None) and await rig.said() == ["one", "two"]


async def test_a_stopped_agent_and_too_many_batches_are_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await _scheduled(rig, "one", "two")
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/stop")).status_code == 200
    await rig.go_to(NINE + HOUR)
    (waiting,) = await rig.settled(made["id"], "waiting")
    assert "is stopped" in waiting["error"]
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/start")).status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(scheduled_batch, "ACTIVE_MAX", 0)
        await rig.go_to(NINE + HOUR + HOUR // 60)
        await rig.until(lambda: _waits_for(rig, made["id"], "batches have not ended"))
    await rig.go_to(NINE + 2 * HOUR)
    await rig.settled(made["id"], "done")
    assert await rig.said() == ["one", "two"]
    assert len((await rig.client.get("/v1/kelpie/batches")).json()) == 1


async def _waits_for(rig: Rig, schedule: str, words: str) -> bool:
    return any(words in (each["error"] or "") for each in await rig.firings(schedule))


async def test_a_cancelled_batch_and_a_deleted_one_end_the_firing(rig: Rig) -> None:
    made = await _scheduled(rig, "one", "two")
    rig.puppet.script.append(asyncio.Event())
    await rig.go_to(NINE + HOUR)
    (running,) = await rig.settled(made["id"], "running")
    base = f"/v1/agents/{rig.agent}/messages/batch/{running['batch_id']}"
    assert (await rig.client.post(f"{base}/cancel")).json()["status"] == "cancelled"
    await rig.settled(made["id"], "cancelled")
    assert await rig.said() == []


async def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    clock, puppet = HandClock(NINE), Puppet()
    async with open_rig(tmp_path, clock=clock, puppet=puppet) as (kelpie, _), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, clock, (await make_agent(client))["id"])
        made = await _scheduled(rig, *(f"{n}" for n in range(6)))
        puppet.script += [said("fine"), asyncio.Event()]
        await rig.go_to(NINE + HOUR)
        await rig.until(lambda: _asked(puppet, 2))
        await kelpie.stop(0.0)
    async with open_rig(tmp_path, clock=clock) as (kelpie, _), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, clock, rig.agent)
        (done,) = await rig.settled(made["id"], "done")
        assert done["attempts"] == 1 and await rig.said() == [f"{n}" for n in range(6)]


async def _asked(puppet: Puppet, count: int) -> bool:
    return len(puppet.asked) == count
