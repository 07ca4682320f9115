"""Rules of batches: what is the same and what is not, who waits for whom, and what a batch leaves alone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.conversations.batches import UNSENT
from kelpie.core.errors import ModelError, ModelFault
from tests.batches.test_batches_api import Rig
from tests.server.rig import called, client_of, make_agent, open_rig, said
from tests.triggers.test_schedules_api import HOUR, NINE, HandClock

BACKGROUND = "?background=true"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        yield Rig(kelpie, puppet, client, (await make_agent(client))["id"])


def _statuses(batch: dict[str, Any]) -> list[str]:
    return [each["status"] for each in batch["results"]]


def _answers(batch: dict[str, Any]) -> list[list[str]]:
    return [
        [one["content"] for one in each["messages"] if one["message_type"] == "assistant_message"]
        for each in batch["results"]
    ]


async def _asked(rig: Rig, count: int) -> bool:
    return len(rig.puppet.asked) >= count


async def _job(rig: Rig, job: str) -> dict[str, Any] | None:
    shown = (await rig.client.get(f"/v1/kelpie/batches/{job}")).json()
    return shown if shown["completed_at"] else None


async def test_the_same_text_several_times_is_answered_each_time(rig: Rig) -> None:
    rig.puppet.script.extend(said(f"{number}") for number in range(6))
    batch = await rig.send(["dice"] * 3)
    assert _answers(batch) == [["0"], ["1"], ["2"]] and len({each["run_id"] for each in batch["results"]}) == 3
    second = await rig.send(["dice"] * 3)
    assert _answers(second) == [["3"], ["4"], ["5"]] and await rig.said() == ["dice"] * 6


async def test_agents_do_not_wait_for_each_other_and_each_keeps_its_order(rig: Rig) -> None:
    other = (await make_agent(rig.client, name="two"))["id"]
    gate = rig.puppet.held["slow"] = asyncio.Event()
    requests = [{"agent_id": rig.agent, "input": "slow"}]
    requests += [{"agent_id": each, "input": f"{n}"} for n in range(3) for each in (other, rig.agent)]
    made = (await rig.client.post("/v1/messages/batches", json={"requests": requests})).json()["id"]
    await rig.until(lambda: _others_done(rig, made))
    shown = (await rig.client.get(f"/v1/kelpie/batches/{made}")).json()
    assert _statuses(shown) == ["running", "completed", "waiting", "completed", "waiting", "completed", "waiting"]
    assert (shown["completed"], shown["percentage"], shown["status"]) == (3, 42, "running")
    gate.set()
    done = await rig.until(lambda: _job(rig, made))
    assert (done["status"], done["completed"], done["percentage"]) == ("completed", 7, 100)
    assert await rig.said() == ["slow", "0", "1", "2"] and await rig.said(other) == ["0", "1", "2"]


async def _others_done(rig: Rig, job: str) -> bool:
    return (await rig.client.get(f"/v1/kelpie/batches/{job}")).json()["completed"] == 3


async def test_a_cancelled_batch_keeps_what_was_done_and_leaves_other_batches_alone(rig: Rig) -> None:
    other = (await make_agent(rig.client, name="two"))["id"]
    gates = [asyncio.Event(), asyncio.Event()]
    rig.puppet.script.extend([said("done"), gates[0]])
    first = await rig.send(["0", "1", "2"], 202, BACKGROUND)
    await rig.until(lambda: _asked(rig, 2))
    rig.puppet.script.append(gates[1])
    path = f"/v1/agents/{other}/messages/batch"
    second = (await rig.client.post(f"{path}{BACKGROUND}", json={"messages": ["a", "b"]})).json()["batch_id"]
    await rig.until(lambda: _asked(rig, 3))
    cancelled = (await rig.client.post(f"{rig.base}/{first['batch_id']}/cancel")).json()
    assert _statuses(cancelled) == ["completed", "cancelled", "cancelled"] and cancelled["status"] == "cancelled"
    assert (cancelled["completed"], cancelled["failed"], cancelled["cancelled"]) == (1, 0, 2)
    assert _answers(cancelled)[0] == ["done"] and await rig.said() == ["0"]
    open_ones = (await rig.client.get("/v1/kelpie/batches?active=true")).json()
    assert [each["batch_id"] for each in open_ones] == [second]
    gates[1].set()
    done = await rig.until(lambda: _job(rig, second))
    assert _statuses(done) == ["completed"] * 2 and await rig.said(other) == ["a", "b"]
    assert (await rig.client.post(f"{path}/{second}/cancel")).status_code == 409
    assert (await rig.client.get(f"{path}/{first['batch_id']}")).status_code == 404  # it is another agent's


async def test_a_deleted_conversation_ends_its_items_with_the_reason(rig: Rig) -> None:
    thread = (await rig.client.post("/v1/conversations/", params={"agent_id": rig.agent}, json={})).json()["id"]
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    made = await rig.send(["0", "1", "2"], 202, BACKGROUND, conversation_id=thread)
    await rig.until(lambda: _asked(rig, 1))
    assert (await rig.client.delete(f"/v1/conversations/{thread}")).status_code == 200
    gate.set()
    done = await rig.ended(made["batch_id"])
    assert [each["error"] for each in done["results"]][1:] == ["The conversation was deleted."] * 2
    assert done["failed"] + done["cancelled"] == 3 and len(rig.puppet.asked) == 1
    assert _statuses(await rig.send(["3"])) == ["completed"]


async def test_a_batch_goes_into_its_conversation_and_parallel_items_begin_like_it(rig: Rig) -> None:
    thread = (await rig.client.post("/v1/conversations/", params={"agent_id": rig.agent}, json={})).json()["id"]
    batch = await rig.send(["one", "two"], conversation_id=thread)
    assert {each["conversation_id"] for each in batch["results"]} == {thread}
    forked = await rig.send(["three", "four"], parallel=True, conversation_id=thread)
    for text, result in zip(("three", "four"), forked["results"], strict=True):
        rows = (await rig.client.get(f"/v1/conversations/{result['conversation_id']}/messages?order=asc")).json()
        heard = [row["content"] for row in rows if row["message_type"] == "user_message"]
        assert heard == ["one", "two", text]
    rows = (await rig.client.get(f"/v1/conversations/{thread}/messages?order=asc")).json()
    assert [row["content"] for row in rows if row["message_type"] == "user_message"] == ["one", "two"]
    listed = (await rig.client.get("/v1/conversations/", params={"agent_id": rig.agent})).json()
    assert [each["id"] for each in listed] == [thread]  # the forks are hidden


async def test_other_agents_conversations_are_refused(rig: Rig) -> None:
    other = (await make_agent(rig.client, name="two"))["id"]
    thread = (await rig.client.post("/v1/conversations/", params={"agent_id": other}, json={})).json()["id"]
    answer = await rig.client.post(rig.base, json={"messages": ["x"], "conversation_id": thread})
    assert answer.status_code == 400 and "conversation of another agent" in answer.text
    assert (await rig.client.get("/v1/kelpie/batches")).json() == []


async def test_an_item_takes_its_options_along(rig: Rig) -> None:
    rig.puppet.script.append(called("nothing_of_this_name", "{}"))
    batch = await rig.send([{"input": "one", "max_steps": 1}, "two"])
    assert [each["stop_reason"]["stop_reason"] for each in batch["results"]] == ["max_steps", "end_turn"]
    runs = [(await rig.client.get(f"/v1/runs/{each['run_id']}")).json() for each in batch["results"]]
    assert all(run["metadata"]["run_type"] == "batch" and run["background"] for run in runs)


async def test_a_turn_that_failed_after_a_step_is_told_as_it_is(rig: Rig) -> None:
    rig.puppet.script.extend([called("nothing_of_this_name", "{}"), ModelError(ModelFault.bad_request, "No.")])
    batch = await rig.send(["one", "two"], 207)
    assert _statuses(batch) == ["failed", "completed"] and await rig.said() == ["one", "two"]
    kinds = [one["message_type"] for one in batch["results"][0]["messages"]]
    assert "tool_call_message" in kinds and "user_message" not in kinds


async def test_items_that_nobody_takes_for_a_day_have_failed(tmp_path: Path) -> None:
    clock = HandClock(NINE)
    async with open_rig(tmp_path, clock=clock, mailbox_size=1) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, (await make_agent(client))["id"])
        gate = asyncio.Event()
        puppet.script.append(gate)
        for number in range(2):
            body = {"messages": [{"role": "user", "content": f"before {number}"}]}
            assert (await client.post(f"/v1/agents/{rig.agent}/messages/async", json=body)).status_code == 200
            await rig.until(lambda: _asked(rig, 1))
        old = await rig.send(["old"], 202, BACKGROUND)
        await rig.until(lambda: _has_error(rig, old["batch_id"], "already waiting"))
        clock.at += UNSENT - HOUR
        new = await rig.send(["new"], 202, BACKGROUND)
        await rig.until(lambda: _has_error(rig, new["batch_id"], "already waiting"))
        assert _statuses(await rig.get(old["batch_id"])) == ["waiting"]
        clock.at += 2 * HOUR
        kelpie.runtime.batch_runner.wake()
        done = await rig.ended(old["batch_id"])
        assert _statuses(done) == ["failed"] and "within a day" in done["results"][0]["error"]
        gate.set()
        assert _statuses(await rig.ended(new["batch_id"])) == ["completed"]
        assert await rig.said() == ["before 0", "before 1", "new"]


async def _has_error(rig: Rig, batch: str, words: str) -> bool:
    return any(words in (each["error"] or "").lower() for each in (await rig.get(batch))["results"])


async def test_a_key_of_one_organization_says_nothing_about_another(rig: Rig) -> None:
    organization = (await rig.client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await rig.client.post("/v1/admin/users/", json={"name": "u", "organization_id": organization["id"]})).json()
    stranger, key = {"user_id": user["id"]}, {"Idempotency-Key": "monday"}
    agent = (await rig.client.post("/v1/agents/", json={"name": "one"}, headers=stranger)).json()["id"]
    mine = {"requests": [{"agent_id": rig.agent, "input": "hello"}]}
    theirs = {"requests": [{"agent_id": agent, "input": "hello"}]}
    first = await rig.client.post("/v1/messages/batches", json=mine, headers=key)
    second = await rig.client.post("/v1/messages/batches", json=theirs, headers=key | stranger)
    assert first.status_code == second.status_code == 200 and first.json()["id"] != second.json()["id"]
    refused = await rig.client.post("/v1/messages/batches", json=mine, headers=stranger)
    assert refused.status_code == 404  # another organization's agent
    path = f"/v1/kelpie/batches/{first.json()['id']}"
    for method, each in (("GET", path), ("POST", f"{path}/cancel"), ("GET", f"{path}/items")):
        assert (await rig.client.request(method, each, headers=stranger)).status_code == 404, each
    assert len((await rig.client.get("/v1/kelpie/batches", headers=stranger)).json()) == 1


async def test_a_run_that_was_deleted_leaves_its_outcome(rig: Rig) -> None:
    batch = await rig.send(["one", "two"])
    assert (await rig.client.delete(f"/v1/runs/{batch['results'][0]['run_id']}")).status_code == 200
    shown = await rig.get(batch["batch_id"])
    assert _statuses(shown) == ["completed"] * 2 and _answers(shown)[1] == ["ok"]
    assert await rig.said() == ["one", "two"]
