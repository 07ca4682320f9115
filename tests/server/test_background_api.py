"""Background runs over HTTP: stored streams, sends that nobody waits for, callbacks, and sends that come again."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client.types.agents.letta_streaming_response import LettaPing
from sqlalchemy import update

from kelpie.agent.events import event_recorder
from kelpie.agent.maintenance import run_callbacks
from kelpie.agent.turn.recovery import TAKEN_UP_MAX
from kelpie.app import Kelpie
from kelpie.core.access.callers import DEFAULT_CALLER
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.errors import ModelError, ModelFault, StorageError
from kelpie.core.ids import AgentId, RunId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.storage import tables
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.runs import callbacks, runs
from kelpie.storage.runs import events as run_events
from kelpie.storage.runs.callbacks import DueCallback
from kelpie.storage.runs.input import RunInput
from kelpie.world.clock import SystemClock
from kelpie.world.database import Tx
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said

OTID = "6f6a2f2e-0000-4000-8000-00000000abcd"


@pytest.fixture
async def agent(client: httpx.AsyncClient) -> str:
    made = await make_agent(client, memory_blocks=[{"label": "human", "value": "Bob"}])
    return made["id"]


def frames_of(answer: httpx.Response) -> list[Any]:
    """The data of each frame; [DONE] stands as it is, and an error frame is marked."""
    assert answer.status_code == 200, answer.text
    found: list[Any] = []
    for frame in answer.text.strip().split("\n\n"):
        name, _, data = frame.rpartition("data: ")
        found.append(data if data == "[DONE]" else json.loads(data) | ({"event": "error"} if name else {}))
    return found


async def stream(client: httpx.AsyncClient, agent: str, text: str = "hi", **fields: Any) -> list[Any]:
    body = {"input": text, "background": True, **fields}
    return frames_of(await client.post(f"/v1/agents/{agent}/messages/stream", json=body))


async def resume(client: httpx.AsyncClient, run_id: str, **body: Any) -> list[Any]:
    return frames_of(await client.post(f"/v1/runs/{run_id}/stream", json=body))


async def run_when(client: httpx.AsyncClient, run_id: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            run = (await client.get(f"/v1/runs/{run_id}")).json()
            if fits(run):
                return run
            await asyncio.sleep(0.01)


async def ended(client: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    return await run_when(client, run_id, lambda run: run["status"] not in ("created", "running"))


async def test_a_resumed_stream_is_the_stream_that_was_told(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [called("memory_insert", '{"label": "human", "new_string": "tea"}'), said("one two three")]
    told = await stream(client, agent, stream_tokens=True)
    assert [frame["message_type"] for frame in told[:-1]] == [
        "ping",
        "tool_call_message",
        "tool_return_message",
        *["assistant_message"] * 3,
        "stop_reason",
        "usage_statistics",
    ]
    assert told[-1] == "[DONE]" and told[-3]["stop_reason"] == "end_turn"
    assert [frame["seq_id"] for frame in told[:-3]] == [1, 2, 3, 4, 5, 6]
    assert all("seq_id" not in frame and "run_id" not in frame for frame in told[-3:-1])
    run_id = told[0]["run_id"]
    assert {frame["run_id"] for frame in told[:-3]} == {run_id}
    assert await resume(client, run_id) == told
    assert await resume(client, run_id, starting_after=3) == told[3:]
    assert await resume(client, run_id, starting_after=6, include_pings=False) == told[6:]
    assert await resume(client, run_id, include_pings=False, batch_size=2, poll_interval=0.1) == told[1:]
    assert LettaPing.model_validate(told[0]).seq_id == 1
    run = (await client.get(f"/v1/runs/{run_id}")).json()
    assert (run["status"], run["background"], run["stop_reason"]) == ("completed", True, "end_turn")


async def test_in_steps_the_messages_come_whole_and_once(client: httpx.AsyncClient, puppet: Puppet, agent: str) -> None:
    puppet.script += [said("whole")]
    told = await stream(client, agent)
    assert [frame.get("content") for frame in told[1:2]] == ["whole"] and len(told) == 5
    listed = (await client.get(f"/v1/agents/{agent}/messages")).json()
    assert listed[-1] | {"seq_id": 2} == told[1]


async def test_several_readers_come_at_any_time_and_see_the_same(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    gate = asyncio.Event()
    puppet.script += [gate, said("a b c d")]
    first = asyncio.create_task(stream(client, agent, stream_tokens=True))
    async with asyncio.timeout(20):
        await puppet.waiting.wait()
    (run,) = (await client.get("/v1/runs/", params={"agent_id": agent, "active": True})).json()
    assert run["status"] == "running"
    others = [asyncio.create_task(resume(client, run["id"], starting_after=n)) for n in (0, 1, 3)]
    await asyncio.sleep(0)
    gate.set()
    told = await first
    assert [await other for other in others] == [told, told[1:], told[3:]]


async def test_only_background_runs_can_be_read_again(client: httpx.AsyncClient, kelpie: Kelpie, agent: str) -> None:
    await client.post(f"/v1/agents/{agent}/messages", json={"input": "x"})
    (run,) = (await client.get("/v1/runs/", params={"agent_id": agent})).json()
    answer = await client.post(f"/v1/runs/{run['id']}/stream", json={})
    assert answer.status_code == 400 and "background" in answer.json()["detail"]
    unknown = "run-00000000-0000-4000-8000-000000000001"
    assert (await client.post(f"/v1/runs/{unknown}/stream", json={})).status_code == 404
    for bad in ({"starting_after": -1}, {"starting_after": "x"}, {"batch_size": 0}):
        assert (await client.post(f"/v1/runs/{unknown}/stream", json=bad)).status_code == 422


class LateClock(SystemClock):
    late_s = 0.0

    def now(self) -> int:
        return super().now() + int(self.late_s * MICROS_PER_SECOND)


async def test_after_its_time_a_stream_is_gone_and_swept(tmp_path: Path) -> None:
    clock = LateClock()
    async with open_rig(tmp_path, clock=clock, stream_kept_s=60.0) as (kelpie, _), client_of(kelpie) as client:
        made = await make_agent(client)
        run_id = (await stream(client, made["id"]))[0]["run_id"]
        clock.late_s = 59.0
        assert len(await resume(client, run_id)) == 5
        clock.late_s = 3600.0
        answer = await client.post(f"/v1/runs/{run_id}/stream", json={})
        assert answer.status_code == 410 and run_id in answer.json()["detail"]
        assert await kelpie.world.database.read(lambda tx: run_events.needs_cleanup(tx, clock.now()))
        await kelpie._cleanup.clean_up()  # pyright: ignore[reportPrivateUsage]
        assert not await kelpie.world.database.read(lambda tx: run_events.after(tx, run_id, 0, 10))
        assert (await client.get(f"/v1/runs/{run_id}")).json()["status"] == "completed"


async def test_a_model_that_fails_ends_the_stream_with_its_error_each_time(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [ModelError(ModelFault.rate_limit, "Slow down.", detail="429", hint="Wait.")]
    told = await stream(client, agent)
    assert told[1] == {"message_type": "stop_reason", "stop_reason": "llm_api_error"}
    assert told[2]["error_type"] == "llm_rate_limit" and told[2]["event"] == "error" and told[2]["hint"] == "Wait."
    assert told[3] == "[DONE]" and told[2]["seq_id"] == 3
    assert await resume(client, told[0]["run_id"]) == told
    assert (await client.get(f"/v1/runs/{told[0]['run_id']}")).json()["status"] == "failed"


async def test_an_async_send_is_a_run_at_once_and_answered_later(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("later")]
    answer = await client.post(f"/v1/agents/{agent}/messages/async", json={"input": "when you can"})
    run = answer.json()
    assert answer.status_code == 200 and run["status"] == "created" and run["background"]
    assert run["metadata"] == {"run_type": "send_message_async", "lettuce": None} and run["completed_at"] is None
    over = await ended(client, run["id"])
    assert over["status"] == "completed" and over["metadata"] == run["metadata"]
    messages = (await client.get(f"/v1/runs/{run['id']}/messages")).json()
    assert [message["content"] for message in messages] == ["when you can", "later"]
    assert [frame["content"] for frame in (await resume(client, run["id"]))[1:2]] == ["later"]
    refused = {"input": "x", "background": True}
    assert (await client.post(f"/v1/agents/{agent}/messages/async", json=refused)).status_code == 422


@asynccontextmanager
async def bell(*statuses: int) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server that takes callbacks with these statuses, the last one from then on."""
    rung: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        rung.append(json.loads(await reader.readexactly(length)))
        status = statuses[min(len(rung), len(statuses)) - 1]
        writer.write(f"HTTP/1.1 {status} X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/done", rung


async def test_a_callback_comes_after_the_end_and_is_tried_again(tmp_path: Path) -> None:
    async with (
        bell(302, 204) as (url, rung),
        open_rig(tmp_path, callback_private=True) as (kelpie, _),
        client_of(kelpie) as client,
    ):
        made = await make_agent(client)
        body = {"input": "x", "callback_url": url}
        run = (await client.post(f"/v1/agents/{made['id']}/messages/async", json=body)).json()
        assert run["callback_url"] == url and run["callback_sent_at"] is None
        told = await run_when(client, run["id"], lambda run: run["callback_status_code"] == 204)
        assert len(rung) == 2 and rung[0] == rung[1]
        assert rung[0] == {
            "run_id": run["id"],
            "status": "completed",
            "completed_at": rung[0]["completed_at"],
            "metadata": {"run_type": "send_message_async", "lettuce": None},
        }
        assert told["callback_sent_at"] is not None and told["callback_error"] is None


async def test_a_callback_that_could_not_be_read_or_recorded_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails for a moment does not end it."""
    fails = ["read", "record"]
    body_of, record = run_callbacks._body, callbacks.record_attempt

    def body(tx: Tx, owed: DueCallback) -> dict[str, Any] | None:
        if "read" in fails:
            fails.remove("read")
            raise StorageError("The disk fails.")
        return body_of(tx, owed)

    def record_attempt(*given: Any) -> None:
        if "record" in fails:
            fails.remove("record")
            raise StorageError("The disk fails.")
        record(*given)

    monkeypatch.setattr(run_callbacks, "LOOK_S", 0.01)
    monkeypatch.setattr(run_callbacks, "_body", body)
    monkeypatch.setattr(callbacks, "record_attempt", record_attempt)
    async with (
        bell(204) as (url, rung),
        open_rig(tmp_path, callback_private=True) as (kelpie, _),
        client_of(kelpie) as client,
    ):
        made = await make_agent(client)
        body_sent = {"input": "x", "callback_url": url}
        run = (await client.post(f"/v1/agents/{made['id']}/messages/async", json=body_sent)).json()
        await run_when(client, run["id"], lambda run: run["callback_status_code"] == 204)
        assert [each["run_id"] for each in rung] == [run["id"]] * 2 and not fails


async def test_a_callback_is_sent_once_while_its_receiver_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, sent = asyncio.Event(), list[str]()

    async def post(_client: Any, _url: str, body: dict[str, Any]) -> tuple[int, None]:
        sent.append(body["run_id"])
        await gate.wait()
        return 204, None

    monkeypatch.setattr(run_callbacks, "_post", post)
    async with open_rig(tmp_path, callback_private=True) as (kelpie, _), client_of(kelpie) as client:
        made = await make_agent(client)
        path, ids = f"/v1/agents/{made['id']}/messages/async", list[str]()
        for number in range(3):  # the end of each is a reason to look for callbacks that are due
            body = {"input": f"{number}", "callback_url": "http://127.0.0.1:1/done"}
            ids.append((await client.post(path, json=body)).json()["id"])
            await run_when(client, ids[-1], lambda run: run["status"] == "completed" and run["id"] in sent)
        gate.set()
        for run_id in ids:
            await run_when(client, run_id, lambda run: run["callback_status_code"] == 204)
        assert sorted(sent) == sorted(ids)


async def test_a_callback_that_nobody_takes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_callbacks, "WAITS_S", (0.01, 0.01))
    async with (
        bell(500, 404, 302, 204) as (url, rung),
        open_rig(tmp_path, callback_private=True) as (kelpie, _),
        client_of(kelpie) as client,
    ):
        made = await make_agent(client)
        body = {"input": "x", "callback_url": url}
        run = (await client.post(f"/v1/agents/{made['id']}/messages/async", json=body)).json()
        told = await run_when(client, run["id"], lambda run: run["callback_status_code"] == 302)
        assert len(rung) == 3 and told["callback_error"] == "answered with status 302"
        due = await kelpie.world.database.read(lambda tx: callbacks.due(tx, 2**62, 10, 10))
        assert due == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/none",
        "http://localhost/x",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "http://metadata.google.internal/",
        "https://me:secret@example.com/",
        "ftp://example.com/",
        "nonsense",
    ],
)
async def test_a_callback_into_a_private_network_is_refused(client: httpx.AsyncClient, agent: str, url: str) -> None:
    answer = await client.post(f"/v1/agents/{agent}/messages/async", json={"input": "x", "callback_url": url})
    assert answer.status_code == 400 and "callback_url" in answer.json()["detail"]
    assert (await client.get("/v1/runs/", params={"agent_id": agent})).json() == []


async def test_a_name_that_leads_inside_is_refused_when_it_is_looked_up(
    client: httpx.AsyncClient, kelpie: Kelpie, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bell(204) as (url, rung):
        port = url.rpartition(":")[2]
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def rebound(host: Any, *args: Any, **fields: Any) -> Any:
            return await real("127.0.0.1" if host == "inside.example" else host, *args, **fields)

        monkeypatch.setattr(loop, "getaddrinfo", rebound)
        body = {"input": "x", "callback_url": f"http://inside.example:{port}"}
        run = (await client.post(f"/v1/agents/{agent}/messages/async", json=body)).json()
        told = await run_when(client, run["id"], lambda run: bool(run["callback_error"]))
        assert "not a public address" in told["callback_error"] and rung == [] and told["status"] == "completed"


async def test_the_same_messages_under_the_same_ids_are_one_run(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("once"), said("again")]
    body = {"background": True, "messages": [{"role": "user", "content": "hi", "otid": OTID}]}
    path = f"/v1/agents/{agent}/messages/stream"
    first = frames_of(await client.post(path, json=body))
    assert frames_of(await client.post(path, json=body)) == first
    again = (await client.post(f"/v1/agents/{agent}/messages/async", json={"messages": body["messages"]})).json()
    assert again["id"] == first[0]["run_id"] and len(puppet.asked) == 1
    other = {"background": True, "messages": [{"role": "user", "content": "another", "otid": OTID}]}
    assert frames_of(await client.post(path, json=other))[1]["content"] == "again"


async def test_what_failed_is_tried_again_under_the_same_id(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [ModelError(ModelFault.server, "Broken."), said("now")]
    body = {"background": True, "messages": [{"role": "user", "content": "hi", "otid": OTID}]}
    path = f"/v1/agents/{agent}/messages/stream"
    assert frames_of(await client.post(path, json=body))[1]["stop_reason"] == "llm_api_error"
    assert frames_of(await client.post(path, json=body))[1]["content"] == "now"


async def test_a_conversation_is_followed_by_run_otid_or_what_is_under_way(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    conversation = (await client.post("/v1/conversations/", params={"agent_id": agent}, json={})).json()["id"]
    path = f"/v1/conversations/{conversation}"
    assert (await client.post(f"{path}/stream", json={})).status_code == 400
    gate = asyncio.Event()
    puppet.script += [gate, said("here")]
    body = {"background": True, "messages": [{"role": "user", "content": "hi", "otid": OTID}]}
    first = asyncio.create_task(client.post(f"{path}/messages", json=body))
    async with asyncio.timeout(20):
        await puppet.waiting.wait()
    busy = await client.post(f"{path}/messages", json={"input": "me too", "background": True})
    assert busy.status_code == 409 and busy.json()["run_id"].startswith("run-")
    readers = [asyncio.create_task(client.post(f"{path}/stream", json=b)) for b in ({}, {"otid": OTID})]
    again = asyncio.create_task(client.post(f"{path}/messages", json=body))
    await asyncio.sleep(0.05)
    gate.set()
    told = frames_of(await first)
    assert told[1]["content"] == "here"
    assert [frames_of(await each) for each in (*readers, again)] == [told] * 3
    run_id = told[0]["run_id"]
    assert frames_of(await client.post(f"{path}/stream", json={"run_id": run_id})) == told
    default = {"agent_id": agent, "run_id": run_id, "starting_after": 1}
    assert frames_of(await client.post("/v1/conversations/default/stream", json=default)) == told[1:]
    assert (await client.post("/v1/conversations/default/stream", json={"agent_id": agent})).status_code == 400
    assert (await client.post(f"{path}/stream", json={"otid": "unknown"})).status_code == 400


async def test_what_waits_for_a_stopped_agent_ends_with_the_reason(
    client: httpx.AsyncClient, kelpie: Kelpie, puppet: Puppet, agent: str
) -> None:
    gate = asyncio.Event()
    puppet.script += [gate, said("first")]
    path = f"/v1/agents/{agent}/messages/async"
    runs = [(await client.post(path, json={"input": text})).json() for text in ("one", "two")]
    async with asyncio.timeout(20):
        await puppet.waiting.wait()
    stopping = asyncio.create_task(kelpie.api().agents.stop(agent))
    await asyncio.sleep(0)
    gate.set()
    await stopping
    assert (await ended(client, runs[0]["id"]))["status"] == "completed"
    refused = await ended(client, runs[1]["id"])
    assert refused["status"] == "failed" and "stopped" in refused["metadata"]["error"]["message"]
    told = await resume(client, runs[1]["id"])
    assert told[1]["stop_reason"] == "error" and told[2]["event"] == "error" and told[-1] == "[DONE]"
    assert (await client.post(path, json={"input": "three"})).status_code == 409


async def test_only_so_many_wait(tmp_path: Path) -> None:
    async with open_rig(tmp_path, mailbox_size=2) as (kelpie, puppet), client_of(kelpie) as client:
        gate = asyncio.Event()
        puppet.script += [gate]
        path = f"/v1/agents/{(await make_agent(client))['id']}/messages/async"
        statuses = []
        for number in range(5):
            answer = await client.post(path, json={"input": str(number)})
            statuses.append(answer.status_code)
            async with asyncio.timeout(20):
                await puppet.waiting.wait()
        assert statuses == [200, 200, 200, 429, 429] and int(answer.headers["retry-after"]) >= 1
        gate.set()
        for run in (await client.get("/v1/runs/", params={"order": "asc"})).json():
            assert (await ended(client, run["id"]))["status"] == "completed"


@pytest.mark.parametrize("bound", ["EVENTS_MAX", "CHARS_MAX"])
async def test_a_stream_that_is_too_long_says_so_and_the_run_goes_on(
    client: httpx.AsyncClient, puppet: Puppet, agent: str, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(event_recorder, bound, 3 if bound == "EVENTS_MAX" else 3 * 210)
    puppet.script += [said("a b c d e f g h"), said("next")]
    told = await stream(client, agent, stream_tokens=True)
    assert [frame["content"] for frame in told[1:4]] == ["a", "b", "c"]
    assert told[4] == {"message_type": "stop_reason", "stop_reason": "error"}
    assert (told[5]["event"], told[5]["error_type"], told[6]) == ("error", "stream_incomplete", "[DONE]")
    run_id = told[0]["run_id"]
    assert run_id in told[5]["message"] and (await ended(client, run_id))["status"] == "completed"
    assert await resume(client, run_id) == told
    messages = (await client.get(f"/v1/runs/{run_id}/messages")).json()
    assert messages[-1]["content"] == "a b c d e f g h"
    assert (await stream(client, agent))[1]["content"] == "next"


@pytest.mark.parametrize(("taken_up", "status"), [(TAKEN_UP_MAX - 1, "completed"), (TAKEN_UP_MAX, "failed")])
async def test_a_run_that_never_gets_to_its_end_is_given_up(
    client: httpx.AsyncClient, kelpie: Kelpie, agent: str, taken_up: int, status: str
) -> None:
    run = Run(kelpie.world.ids.new(RunId), AgentId(agent), RunStatus.created, kelpie.world.clock.now(), background=True)
    given = RunInput((NewMessage(Role.user, (Text("hard"),)),), 5)

    def write(tx: Tx) -> None:
        runs.open_run(tx, run, DEFAULT_CALLER.organization_id, given, NOBODY)
        values = {"status": "running", "taken_up": taken_up}
        tx.execute(update(tables.runs).where(tables.runs.c.id == run.id).values(values))

    await kelpie.world.database.transact(write)
    answer = await client.post(f"/v1/agents/{agent}/messages", json={"input": "and me?"})
    assert answer.status_code == 200
    found = await ended(client, run.id)
    assert found["status"] == status
    told = await resume(client, run.id)
    if status == "failed":
        assert found["metadata"]["error"]["type"] == "gave_up"
        assert [frame.get("stop_reason") or frame.get("event") for frame in told[1:3]] == ["error", "error"]
        assert "resumed too many times" in told[2]["message"] and told[3] == "[DONE]"
    else:
        assert told[-3]["stop_reason"] == "end_turn"


async def test_the_end_of_a_stream_names_the_run_of_the_companion_each_time(client: httpx.AsyncClient) -> None:
    made = await make_agent(client, enable_sleeptime=True, memory_blocks=[{"label": "human", "value": "Bob"}])
    group = made["managed_group"]
    manager = {"manager_type": "sleeptime", "manager_agent_id": made["id"], "sleeptime_agent_frequency": 1}
    changed = await client.patch(f"/v1/groups/{group['id']}", json={"manager_config": manager})
    assert changed.status_code == 200, changed.text
    told = await stream(client, made["id"])
    (run_id,) = told[-2]["run_ids"]
    run = await ended(client, run_id)
    assert run["agent_id"] in group["agent_ids"] and run["background"]
    assert await resume(client, told[0]["run_id"]) == told
