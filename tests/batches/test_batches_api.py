"""Batches over HTTP: checked as a whole, run in order or at once, resumed after a restart, each with its outcomes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.batches import batches as resource
from kelpie.batches import runner
from kelpie.core.conversations.batches import KEPT, PARALLEL_MAX
from kelpie.core.errors import ModelError, ModelFault
from kelpie.storage.runs import batches
from tests.server.rig import Puppet, check_message, client_of, make_agent, open_rig, said

DEADLINE_S = 30.0


class Rig:
    def __init__(self, kelpie: Kelpie, puppet: Puppet, client: httpx.AsyncClient, agent: str) -> None:
        self.kelpie, self.puppet, self.client, self.agent = kelpie, puppet, client, agent
        self.base = f"/v1/agents/{agent}/messages/batch"

    async def send(self, messages: list[Any], status: int = 200, query: str = "", **body: Any) -> dict[str, Any]:
        answer = await self.client.post(f"{self.base}{query}", json={"messages": messages} | body, timeout=DEADLINE_S)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, batch: str) -> dict[str, Any]:
        return (await self.client.get(f"{self.base}/{batch}")).json()

    async def said(self, agent: str | None = None) -> list[str]:
        rows = (await self.client.get(f"/v1/agents/{agent or self.agent}/messages?limit=1000&order=asc")).json()
        return [row["content"] for row in rows if row["message_type"] == "user_message"]

    async def until(self, found: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if value := await found():
                    return value
                await asyncio.sleep(0.01)

    async def ended(self, batch: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            shown = await self.get(batch)
            return shown if shown["percentage"] == 100 and shown["completed_at"] else None

        return await self.until(look)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path, callback_private=True) as (kelpie, puppet), client_of(kelpie) as client:
        yield Rig(kelpie, puppet, client, (await make_agent(client))["id"])


def _statuses(batch: dict[str, Any]) -> list[str]:
    return [each["status"] for each in batch["results"]]


async def test_messages_run_in_order_and_each_has_its_answer(rig: Rig) -> None:
    rig.puppet.script.extend(said(f"answer {n}") for n in range(12))
    items = [f"question {n}" for n in range(10)]
    items += [{"content": "question 10"}, {"messages": [{"role": "user", "content": "question 11"}]}]  # type: ignore[list-item]
    batch = await rig.send(items)
    assert batch["percentage"] == 100 and batch["status"] == "completed" and batch["total"] == 12
    assert _statuses(batch) == ["completed"] * 12
    assert await rig.said() == [f"question {n}" for n in range(12)]
    for number, result in enumerate(batch["results"]):
        (answer,) = [each for each in result["messages"] if each["message_type"] == "assistant_message"]
        check_message(answer)
        assert answer["content"] == f"answer {number}" and result["index"] == number
        assert result["usage"]["total_tokens"] == 12 and result["stop_reason"]["stop_reason"] == "end_turn"
        run = (await rig.client.get(f"/v1/runs/{result['run_id']}")).json()
        assert (run["status"], run["metadata"]["batch_id"]) == ("completed", batch["batch_id"])
    assert await rig.get(batch["batch_id"]) == batch


async def test_an_item_that_fails_leaves_the_others_alone(rig: Rig) -> None:
    rig.puppet.script.extend([said("one"), ModelError(ModelFault.bad_request, "No."), said("three")])
    batch = await rig.send(["1", "2", "3"], 207)
    assert _statuses(batch) == ["completed", "failed", "completed"]
    assert (batch["status"], batch["failed"], batch["percentage"]) == ("completed", 1, 100)
    failed = batch["results"][1]
    assert failed["error"] == "No." and failed["messages"] == []
    assert await rig.said() == ["1", "3"]


async def test_parallel_items_run_in_forks_up_to_five_at_once(rig: Rig) -> None:
    await rig.client.post(f"/v1/agents/{rig.agent}/messages", json={"input": "before"})
    gates = [asyncio.Event() for _ in range(PARALLEL_MAX)]
    rig.puppet.script.extend(gates)
    sending = asyncio.create_task(rig.send([f"{n}" for n in range(8)], parallel=True))
    await rig.until(lambda: _asked(rig, 1 + PARALLEL_MAX))
    running = (await rig.client.get("/v1/kelpie/batches")).json()[0]
    shown = await rig.get(running["batch_id"])
    assert _statuses(shown) == ["running"] * PARALLEL_MAX + ["waiting"] * 3
    for gate in gates:
        gate.set()
    batch = await sending
    threads = [each["conversation_id"] for each in batch["results"]]
    assert len(set(threads)) == 8 and all(thread.startswith("conv-") for thread in threads)
    for number, thread in enumerate(threads):
        heard = (await rig.client.get(f"/v1/conversations/{thread}/messages?order=asc")).json()
        texts = [each["content"] for each in heard if each["message_type"] == "user_message"]
        assert texts == ["before", f"{number}"]


async def _asked(rig: Rig, count: int) -> bool:
    return len(rig.puppet.asked) >= count


async def test_items_wait_for_their_turn_and_other_messages_get_through(rig: Rig) -> None:
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    made = await rig.send([f"{n}" for n in range(9)], 202, "?background=true")
    await rig.until(lambda: _asked(rig, 1))
    assert _statuses(await rig.get(made["batch_id"])) == ["running"] + ["waiting"] * 8
    normal = asyncio.create_task(rig.client.post(f"/v1/agents/{rig.agent}/messages", json={"input": "hello"}))
    gate.set()
    assert (await normal).status_code == 200
    await rig.ended(made["batch_id"])
    heard = await rig.said()
    assert [each for each in heard if each != "hello"] == [f"{n}" for n in range(9)] and "hello" in heard


async def test_a_client_that_waits_too_long_gets_the_batch_as_it_is_and_it_goes_on(rig: Rig) -> None:
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    batch = await rig.send(["1", "2"], 202, "?wait_s=0")
    assert batch["percentage"] == 0 and batch["completed_at"] is None
    gate.set()
    assert _statuses(await rig.ended(batch["batch_id"])) == ["completed", "completed"]


async def test_a_client_that_vanishes_does_not_stop_its_batch(rig: Rig) -> None:
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    sending = asyncio.create_task(rig.send(["1", "2"]))
    await rig.until(lambda: _asked(rig, 1))
    sending.cancel()
    gate.set()
    (listed,) = (await rig.client.get("/v1/kelpie/batches")).json()
    assert _statuses(await rig.ended(listed["batch_id"])) == ["completed", "completed"]


async def test_a_batch_goes_on_after_a_restart(tmp_path: Path) -> None:
    puppet = Puppet()
    async with open_rig(tmp_path, puppet=puppet) as (kelpie, _), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, (await make_agent(client))["id"])
        first = await rig.send(["0"])
        puppet.script.append(asyncio.Event())
        made = await rig.send([f"{n}" for n in range(1, 8)], 202, "?background=true")
        await rig.until(lambda: _asked(rig, 2))
        await kelpie.stop(0.0)
    puppet = Puppet()
    async with open_rig(tmp_path, puppet=puppet) as (kelpie, _), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, rig.agent)
        batch = await rig.ended(made["batch_id"])
        assert _statuses(batch) == ["completed"] * 7
        assert await rig.said() == [f"{n}" for n in range(8)]
        assert await rig.get(first["batch_id"]) == first


async def test_a_batch_that_is_sent_again_under_its_ids_runs_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RUNNING_S", 3600.0)  # its end is noticed without another look
    items = [{"content": f"{n}", "otid": f"mine-{n}"} for n in range(3)]
    first, again = await rig.send(items), await rig.send(items, query="?wait_s=300")
    assert first["batch_id"] != again["batch_id"]
    assert [each["run_id"] for each in again["results"]] == [each["run_id"] for each in first["results"]]
    assert await rig.said() == ["0", "1", "2"] and len(rig.puppet.asked) == 3
    await rig.send(["between"])
    assert _statuses(await rig.send(items)) == ["completed"] * 3
    assert await rig.said() == ["0", "1", "2", "between"]


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_request_with_an_idempotency_key_makes_one_batch(rig: Rig, parallel: bool) -> None:
    body, headers = {"messages": ["0", "1", "2"], "parallel": parallel}, {"Idempotency-Key": "monday"}
    answers = await asyncio.gather(*(rig.client.post(rig.base, json=body, headers=headers) for _ in range(3)))
    assert [each.status_code for each in answers] == [200] * 3
    assert answers[0].json() == answers[1].json() == answers[2].json()
    assert len(rig.puppet.asked) == 3 and len((await rig.client.get("/v1/kelpie/batches")).json()) == 1
    other = await rig.client.post(rig.base, json={"messages": ["3"]}, headers=headers)
    assert other.status_code == 409 and "Idempotency-Key was used for another batch" in other.text
    second = (await make_agent(rig.client, name="two"))["id"]
    for agent in (second, second):
        answer = await rig.client.post(f"/v1/agents/{agent}/messages/batch", json=body, headers=headers)
        assert answer.status_code == 200 and answer.json()["batch_id"] != answers[0].json()["batch_id"]
    requests = {"requests": [{"agent_id": rig.agent, "input": "hello"}]}
    jobs = [(await rig.client.post("/v1/messages/batches", json=requests, headers=headers)).json() for _ in range(2)]
    assert jobs[0]["id"] == jobs[1]["id"]


async def test_a_cancelled_batch_sends_nothing_more(rig: Rig) -> None:
    rig.puppet.script.append(asyncio.Event())
    made = await rig.send([f"{n}" for n in range(8)], 202, "?background=true")
    await rig.until(lambda: _asked(rig, 1))
    cancelled = (await rig.client.post(f"{rig.base}/{made['batch_id']}/cancel")).json()
    assert cancelled["status"] == "cancelled" and _statuses(cancelled) == ["cancelled"] * 8
    again = await rig.client.post(f"{rig.base}/{made['batch_id']}/cancel")
    assert again.status_code == 409 and "already cancelled" in again.text
    assert len(rig.puppet.asked) == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": ["x"] * 101}, "messages"),
        ({"messages": ["fine", {"role": "user"}]}, "messages"),
        ({"messages": ["fine", {"input": "x", "messages": [{"role": "user", "content": "y"}]}]}, "messages"),
        ({"messages": ["fine", {"content": "a", "otid": "1"}, {"content": "b", "otid": "1"}]}, "messages.2.otid"),
        ({"messages": ["fine", {"input": "x", "override_model": "fake/none-such"}]}, "model"),
        ({"messages": ["fine", {"messages": [{"type": "approval", "approve": True}]}]}, "messages.1"),
        ({"messages": ["fine"], "conversation_id": "conv-1"}, "conv"),
    ],
)
async def test_a_wrong_batch_is_refused_as_a_whole(rig: Rig, body: dict[str, Any], field: str) -> None:
    if "none-such" in json.dumps(body):
        body["messages"][1]["override_model"] = "other/none-such"
    answer = await rig.client.post(rig.base, json=body)
    assert 400 <= answer.status_code < 500 and field in answer.text, answer.text
    assert await rig.said() == [] and (await rig.client.get("/v1/kelpie/batches")).json() == []


async def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    async with open_rig(tmp_path, mailbox_size=2) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, (await make_agent(client))["id"])
        gate = asyncio.Event()
        puppet.script.append(gate)
        for number in range(3):
            body = {"messages": [{"role": "user", "content": f"before {number}"}]}
            assert (await client.post(f"/v1/agents/{rig.agent}/messages/async", json=body)).status_code == 200
            await rig.until(lambda: _asked(rig, 1))
        made = await rig.send(["0", "1", "2"], 202, "?background=true")
        await rig.until(lambda: _waits_for_room(rig, made["batch_id"]))
        gate.set()
        assert _statuses(await rig.ended(made["batch_id"])) == ["completed"] * 3
        assert (await rig.said())[-3:] == ["0", "1", "2"]


async def _waits_for_room(rig: Rig, batch: str) -> bool:
    return any("already waiting" in (each["error"] or "") for each in (await rig.get(batch))["results"])


async def test_a_quota_is_waited_for(rig: Rig) -> None:
    organization = "org-00000000-0000-4000-8000-000000000000"
    path = f"/v1/kelpie/quotas/{organization}"
    assert (await rig.client.put(path, json={"messages": 1})).status_code == 200
    made = await rig.send(["1", "2"], 202, "?background=true")
    await rig.until(lambda: _waits_for_quota(rig, made["batch_id"]))
    assert (await rig.client.put(path, json={"messages": 1000})).status_code == 200
    rig.kelpie.runtime.batch_runner.wake()
    assert _statuses(await rig.ended(made["batch_id"])) == ["completed", "completed"]


async def _waits_for_quota(rig: Rig, batch: str) -> bool:
    return any("quota" in (each["error"] or "").lower() for each in (await rig.get(batch))["results"])


async def test_a_stopped_agent_and_a_deleted_one_end_the_items(rig: Rig) -> None:
    other = (await make_agent(rig.client, name="two"))["id"]
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/stop")).status_code == 200
    stopped = await rig.send(["1", "2"], 207)
    assert _statuses(stopped) == ["failed"] * 2 and "is stopped" in stopped["results"][0]["error"]
    assert stopped["status"] == "failed"
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    requests = [{"agent_id": other, "messages": [{"role": "user", "content": f"{n}"}]} for n in range(7)]
    made = (await rig.client.post("/v1/messages/batches", json={"requests": requests})).json()
    await rig.until(lambda: _asked(rig, 1))
    deleting = asyncio.create_task(rig.client.delete(f"/v1/agents/{other}"))  # waits for the turn
    await rig.until(lambda: _is_gone(rig, other))
    gate.set()
    assert (await deleting).status_code == 200
    rig.kelpie.runtime.batch_runner.wake()
    done = await rig.until(lambda: _any_ended(rig, made["id"]))
    assert set(_statuses(done)) == {"failed"} and "deleted" in done["results"][-1]["error"]


async def _is_gone(rig: Rig, agent: str) -> bool:
    return (await rig.client.get(f"/v1/agents/{agent}")).status_code == 404


async def _any_ended(rig: Rig, batch: str) -> dict[str, Any] | None:
    shown = (await rig.client.get(f"/v1/kelpie/batches/{batch}")).json()
    return shown if shown["completed_at"] else None


async def test_lettas_batches_for_several_agents(rig: Rig) -> None:
    other = (await make_agent(rig.client, name="two"))["id"]
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    requests = [
        {"agent_id": rig.agent, "messages": [{"role": "user", "content": "hi"}]},
        {"agent_id": other, "input": "yo"},
    ]
    made = (await rig.client.post("/v1/messages/batches", json={"requests": requests})).json()
    assert made["id"].startswith("job-") and (made["job_type"], made["status"]) == ("batch", "created")
    assert [each["id"] for each in (await rig.client.get("/v1/messages/batches")).json()] == [made["id"]]
    gate.set()
    done = await rig.until(lambda: _job_ended(rig, made["id"]))
    assert done["status"] == "completed" and done["metadata"]["completed"] == 2
    assert (await rig.client.get("/v1/messages/batches")).json() == []
    assert (await rig.client.get(f"/v1/jobs/{made['id']}")).json() == done
    path = f"/v1/messages/batches/{made['id']}/messages"
    rows = (await rig.client.get(path)).json()["messages"]
    assert sorted(row["role"] for row in rows) == ["assistant", "assistant", "user", "user"]
    own = (await rig.client.get(path, params={"agent_id": other, "order": "asc"})).json()["messages"]
    assert [row["content"][0]["text"] for row in own] == ["yo", "ok"]
    rest = (await rig.client.get(path, params={"agent_id": other, "order": "asc", "after": own[0]["id"]})).json()
    assert [row["id"] for row in rest["messages"]] == [own[1]["id"]]
    empty = await rig.client.post("/v1/messages/batches", json={"requests": []})
    assert empty.status_code == 400 and "Empty list of batch_requests passed in!" in empty.text
    unknown = "job-00000000-0000-4000-8000-000000000001"
    assert (await rig.client.get(f"/v1/messages/batches/{unknown}")).status_code == 404
    assert (await rig.client.patch(f"/v1/messages/batches/{made['id']}/cancel")).status_code == 409


async def _job_ended(rig: Rig, job: str) -> dict[str, Any] | None:
    shown = (await rig.client.get(f"/v1/messages/batches/{job}")).json()
    return shown if shown["completed_at"] else None


async def test_the_callback_tells_the_end(rig: Rig) -> None:
    got: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        got.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/done"
        requests = [{"agent_id": rig.agent, "input": "hi"}]
        body = {"requests": requests, "callback_url": url}
        made = (await rig.client.post("/v1/messages/batches", json=body)).json()
        told = await rig.until(lambda: _told(rig, made["id"]))
    assert told["callback_status_code"] == 204 and told["callback_error"] is None
    assert got == [{"job_id": made["id"], "status": "completed", "completed_at": got[0]["completed_at"]}]


async def _told(rig: Rig, job: str) -> dict[str, Any] | None:
    shown = (await rig.client.get(f"/v1/messages/batches/{job}")).json()
    return shown if shown["callback_sent_at"] else None


async def test_a_callback_to_a_private_address_is_refused(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        rig = Rig(kelpie, puppet, client, (await make_agent(client))["id"])
        body = {"requests": [{"agent_id": rig.agent, "input": "hi"}], "callback_url": "http://127.0.0.1:9/x"}
        refused = await client.post("/v1/messages/batches", json=body)
        assert refused.status_code == 400 and "private network" in refused.json()["detail"]
        assert (await client.get("/v1/jobs/")).json() == []


async def test_agents_are_created_and_deleted_in_batches(rig: Rig) -> None:
    body = {"agents": [{"name": "a"}, {"name": "b", "model": "other/none"}, {"name": "c", "tags": ["x"]}]}
    made = await rig.client.post("/v1/agents/batch", json=body)
    assert made.status_code == 207 and (made.json()["succeeded"], made.json()["failed"]) == (2, 1)
    results = made.json()["results"]
    assert [each["status"] for each in results] == ["created", "failed", "created"]
    assert results[1]["error"]["status"] == 404 and "other/none" in results[1]["error"]["message"]
    assert (await rig.client.get(f"/v1/agents/{results[0]['id']}")).json()["name"] == "a"
    whole = await rig.client.post("/v1/agents/batch", json={"agents": [{"name": "d"}]})
    assert whole.status_code == 200
    missing = "agent-00000000-0000-4000-8000-000000000009"
    ids = [results[0]["id"], missing]
    gone = await rig.client.request("DELETE", "/v1/agents/batch", json={"ids": ids})
    assert gone.status_code == 207
    assert [each["status"] for each in gone.json()["results"]] == ["deleted", "failed"]
    rest = f"{results[2]['id']},{whole.json()['results'][0]['id']}"
    by_query = await rig.client.delete("/v1/agents/batch", params={"ids": rest})
    assert by_query.status_code == 200 and by_query.json()["succeeded"] == 2
    assert [each["id"] for each in (await rig.client.get("/v1/agents/")).json()] == [rig.agent]
    assert (await rig.client.delete("/v1/agents/batch")).status_code == 400
    wrong = await rig.client.post("/v1/agents/batch", json={"agents": [{"name": "e"}, {"name": 5}]})
    assert wrong.status_code == 422 and len((await rig.client.get("/v1/agents/")).json()) == 1


async def test_keys_and_organizations_keep_to_their_own(rig: Rig) -> None:
    batch = await rig.send(["1"])
    other = (await make_agent(rig.client, name="two"))["id"]
    assert (await rig.client.get(f"/v1/agents/{other}/messages/batch/{batch['batch_id']}")).status_code == 404
    organization = (await rig.client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await rig.client.post("/v1/admin/users/", json={"name": "u", "organization_id": organization["id"]})).json()
    headers = {"user_id": user["id"]}
    for path in (
        f"{rig.base}/{batch['batch_id']}",
        f"/v1/messages/batches/{batch['batch_id']}",
        f"/v1/messages/batches/{batch['batch_id']}/messages",
        f"/v1/kelpie/batches/{batch['batch_id']}",
    ):
        assert (await rig.client.get(path, headers=headers)).status_code == 404, path
    assert (await rig.client.get("/v1/kelpie/batches", headers=headers)).json() == []
    for scope in ({"agent_ids": [other]}, {"project_ids": [(await _project(rig, other))["id"]]}):
        key = (await rig.client.post("/v1/kelpie/keys", json={"name": "k"} | scope)).json()["key"]
        bound = {"Authorization": f"Bearer {key}"}
        mine = await rig.client.post(f"/v1/agents/{other}/messages/batch", json={"messages": ["2"]}, headers=bound)
        own = f"/v1/agents/{other}/messages/batch/{mine.json()['batch_id']}"
        assert (await rig.client.get(own, headers=bound)).json()["completed"] == 1
        for path in (
            f"{rig.base}/{batch['batch_id']}",
            "/v1/kelpie/batches",
            f"/v1/kelpie/batches/{batch['batch_id']}",
        ):
            assert (await rig.client.get(path, headers=bound)).status_code == 403, path
        stray = f"/v1/agents/{other}/messages/batch/{batch['batch_id']}"
        assert (await rig.client.get(stray, headers=bound)).status_code == 404
        assert (await rig.client.post(f"{stray}/cancel", headers=bound)).status_code == 404
        assert (await rig.client.post(rig.base, json={"messages": ["3"]}, headers=bound)).status_code == 403
    foreign = {"requests": [{"agent_id": rig.agent, "input": "hi"}]}
    assert (await rig.client.post("/v1/messages/batches", json=foreign, headers=headers)).status_code == 404


async def _project(rig: Rig, agent: str) -> dict[str, Any]:
    project = (await rig.client.post("/v1/projects", json={"name": "one"})).json()
    await rig.client.post(f"/v1/projects/{project['id']}/agents", json={"agent_id": agent})
    return project


async def test_the_number_of_batches_is_limited_and_old_ones_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "ACTIVE_MAX", 1)
    gate = asyncio.Event()
    rig.puppet.script.append(gate)
    first = await rig.send(["1"], 202, "?background=true")
    refused = await rig.client.post(rig.base, json={"messages": ["2"]})
    assert refused.status_code == 409 and "1 batches have not ended" in refused.text
    gate.set()
    await rig.ended(first["batch_id"])
    later = rig.kelpie.world.clock.now() + KEPT
    database = rig.kelpie.world.database
    assert not await database.read(lambda tx: batches.needs_cleanup(tx, later - KEPT - KEPT))
    await database.transact(lambda tx: batches.clean_up(tx, later))
    assert (await rig.client.get(f"{rig.base}/{first['batch_id']}")).status_code == 404
    assert await rig.said() == ["1"]


async def test_items_come_in_pages_with_what_was_asked_and_answered(rig: Rig) -> None:
    gate = asyncio.Event()
    rig.puppet.script.extend([said("first answer"), ModelError(ModelFault.bad_request, "broken"), gate])
    sent = await rig.send(["one", "two <b>", "three", "x" * 5000], 202, "?background=true")
    await rig.until(lambda: _true(rig.puppet.waiting.is_set()))
    base = f"/v1/kelpie/batches/{sent['batch_id']}/items"
    first = (await rig.client.get(base, params={"limit": 2})).json()
    assert [(each["index"], each["status"], each["input"]) for each in first] == [
        (0, "completed", "one"),
        (1, "failed", "two <b>"),
    ]
    assert (first[0]["output"], first[0]["error"]) == ("first answer", None)
    assert first[1]["output"] is None and "broken" in first[1]["error"]
    assert {each["agent_id"] for each in first} == {rig.agent}
    rest = (await rig.client.get(base, params={"after": 1})).json()
    assert [(each["index"], each["status"], len(each["input"])) for each in rest] == [
        (2, "running", 5),
        (3, "waiting", 2000),
    ]
    gate.set()
    await rig.ended(sent["batch_id"])
    done = (await rig.client.get(base, params={"after": 2})).json()
    assert [(each["status"], each["output"]) for each in done] == [("completed", "ok")]
    whole = (await rig.client.get(base.removesuffix("/items"))).json()
    brief = (await rig.client.get(base.removesuffix("/items"), params={"results": False})).json()
    assert len(whole.pop("results")) == 4 and brief == whole
    assert (await rig.client.get(base, params={"limit": 0})).status_code == 422
    assert (await rig.client.get(base.replace(sent["batch_id"], "job-" + "0" * 8))).status_code in (404, 422)


async def _true(value: bool) -> bool:
    return value
