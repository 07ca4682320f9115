"""Runs and steps: their filters, what people say of them, what went over the wire."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from letta_client.types import ProviderTrace, Step
from letta_client.types.agents import Run

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.conversations.runs import RunQuery, StepQuery
from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.ids import OrganizationId, StepId, UserId
from kelpie.llm.provider.interface import ExchangeRecord
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said

STRANGERS = Caller(
    UserId("user-11111111-0000-4000-8000-000000000001"), OrganizationId("org-11111111-0000-4000-8000-000000000001")
)


async def ids_of(client: httpx.AsyncClient, path: str, **params: Any) -> list[str]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()]


async def sent(client: httpx.AsyncClient, agent_id: str) -> str:
    """The id of the run that a message made."""
    await client.post(f"/v1/agents/{agent_id}/messages", json={"input": "hi"})
    return (await client.get("/v1/runs/", params={"agent_id": agent_id, "limit": 1})).json()[0]["id"]


async def test_run_filters(client: httpx.AsyncClient, puppet: Puppet) -> None:
    one = await make_agent(client, project_id="p1", base_template_id="family")
    two = await make_agent(client, name="two")
    first = await sent(client, one["id"])
    puppet.script.extend([called("conversation_search", '{"query": "x"}'), said("done")])
    tooled = await sent(client, one["id"])
    puppet.script.append(ModelError(ModelFault.bad_request, "no"))
    failed = await sent(client, two["id"])
    every = [failed, tooled, first]
    tool = next(t["id"] for t in one["tools"] if t["name"] == "conversation_search")

    assert await ids_of(client, "/v1/runs/") == every
    assert await ids_of(client, "/v1/runs/", agent_ids=[one["id"], two["id"]]) == every
    assert await ids_of(client, "/v1/runs/", agent_ids=[one["id"]]) == [tooled, first]
    assert await ids_of(client, "/v1/runs/", statuses=["failed", "cancelled"]) == [failed]
    assert await ids_of(client, "/v1/runs/", stop_reason="end_turn") == [tooled, first]
    assert await ids_of(client, "/v1/runs/", conversation_id="default") == every
    nowhere = "conv-00000000-0000-4000-8000-0000000000ff"
    assert await ids_of(client, "/v1/runs/", conversation_id=nowhere) == []
    assert await ids_of(client, "/v1/runs/", active=True) == [] == await ids_of(client, "/v1/runs/active")
    assert await ids_of(client, "/v1/runs/", background=True) == []
    assert await ids_of(client, "/v1/runs/", after=failed, limit=1) == [tooled]
    assert (await client.get("/v1/runs/", params={"statuses": "bogus"})).status_code == 400

    internal = "/v1/_internal_runs/"
    assert await ids_of(client, internal, run_id=tooled) == [tooled]
    assert await ids_of(client, internal, step_count=2) == [tooled]
    assert await ids_of(client, internal, step_count=1, step_count_operator="lte") == [failed, first]
    assert await ids_of(client, internal, step_count=1, step_count_operator="gte") == [tooled, first]
    assert await ids_of(client, internal, tools_used=[tool, "tool-none"]) == [tooled]
    assert await ids_of(client, internal, project_id="p1") == [tooled, first]
    assert await ids_of(client, internal, template_family="family") == [tooled, first]
    assert await ids_of(client, internal, duration_value=0, duration_operator="gt") == every
    assert await ids_of(client, internal, duration_value=0, duration_operator="eq") == []
    slowest = await ids_of(client, internal, order_by="duration", limit=1)
    assert await ids_of(client, internal, duration_percentile=100) == slowest
    assert await ids_of(client, internal, duration_percentile=0) == every
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert await ids_of(client, internal, start_date=later) == []
    assert await ids_of(client, internal, end_date=later, ascending=True) == [first, tooled, failed]
    assert (await client.get(internal, params={"duration_value": 3})).status_code == 400


async def test_what_a_run_did(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client, project_id="p1")
    tool = next(t["id"] for t in agent["tools"] if t["name"] == "conversation_search")
    puppet.script.extend(
        [
            called("conversation_search", '{"query": "x"}', "call_1"),
            called("conversation_search", '{"query": "y"}', "call_2"),
            called("no_such_tool", "{}", "call_3"),
        ]
    )
    run = await sent(client, agent["id"])
    Run.model_validate((await client.get(f"/v1/runs/{run}")).json())
    metrics = (await client.get(f"/v1/runs/{run}/metrics")).json()
    assert metrics["tools_used"] == [tool] and metrics["num_steps"] == 4
    steps = (await client.get(f"/v1/runs/{run}/steps", params={"order": "asc"})).json()
    assert [s["stop_reason"] for s in steps] == [None, None, None, "end_turn"]
    assert {s["model_endpoint"] for s in steps} == {"http://fake.example/v1"}
    assert {s["project_id"] for s in steps} == {"p1"}
    spans = (await client.get(f"/v1/runs/{run}/trace")).json()
    assert [span["name"] for span in spans] == ["run", *["step"] * 4]
    assert {span["parent_span_id"] for span in spans[1:]} == {run} and spans[0]["duration_ns"] > 0
    assert len((await client.get(f"/v1/runs/{run}/trace", params={"limit": 2})).json()) == 2
    plain = await sent(client, agent["id"])
    assert (await client.get(f"/v1/runs/{plain}/metrics")).json()["tools_used"] is None
    await client.delete(f"/v1/runs/{run}")
    assert await ids_of(client, "/v1/_internal_runs/", tools_used=[tool]) == []


async def test_what_people_think_of_a_step(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent = await make_agent(client, project_id="p1")
    await sent(client, agent["id"])
    await sent(client, agent["id"])
    newer, older = await ids_of(client, "/v1/steps/")
    path = f"/v1/steps/{older}"
    judged = (await client.patch(f"{path}/feedback", json={"feedback": "positive", "tags": ["good", "fast"]})).json()
    Step.model_validate(judged)
    assert (judged["feedback"], judged["tags"]) == ("positive", ["good", "fast"])
    assert (await client.get(path)).json() == judged
    assert await ids_of(client, "/v1/steps/", tags=["fast", "slow"]) == [older]
    assert await ids_of(client, "/v1/steps/", feedback="positive") == [older]
    assert await ids_of(client, "/v1/steps/", has_feedback=True) == [older]
    assert await ids_of(client, "/v1/steps/", has_feedback=False) == [newer]
    back = (await client.patch(f"{path}/feedback", json={"feedback": None})).json()
    assert (back["feedback"], back["tags"]) == (None, ["good", "fast"])
    await client.patch(f"{path}/feedback", json={"feedback": "negative", "tags": []})
    assert await ids_of(client, "/v1/steps/", tags=["fast"]) == []
    assert (await client.patch(f"{path}/transaction/t-1")).json()["tid"] == "t-1"
    assert (await client.patch(f"{path}/feedback", json={"feedback": "meh"})).status_code == 422
    assert (await client.get(path)).json()["feedback"] == "negative"

    assert await ids_of(client, "/v1/steps/", project_id="p1", model="model") == [newer, older]
    assert await ids_of(client, "/v1/steps/", project_id="p2") == []
    assert await ids_of(client, "/v1/steps/", trace_ids=["t"]) == []
    hour = timedelta(hours=1)
    assert await ids_of(client, "/v1/steps/", start_date=(datetime.now(UTC) + hour).isoformat()) == []
    assert await ids_of(client, "/v1/steps/", end_date=(datetime.now(UTC) - hour).isoformat()) == []
    assert await ids_of(client, "/v1/steps/", after=newer) == [older] and await ids_of(client, "/v1/steps/", limit=1)

    theirs = kelpie.api(STRANGERS).runs
    assert await theirs.steps(StepQuery()) == [] and await theirs.page(RunQuery()) == []
    assert (await client.get("/v1/steps/step-00000000-0000-4000-8000-0000000000ff/messages")).json() == []


def wired(text: str, sent: bytes, received: bytes | None) -> Any:
    return replace(said(text), exchanged=ExchangeRecord(sent, received))


async def test_what_went_over_the_wire(tmp_path: Path) -> None:
    async with (
        open_rig(tmp_path, trace_steps=100, trace_bytes_max=40) as (kelpie, puppet),
        client_of(kelpie) as client,
    ):
        agent = await make_agent(client, tags=["t"])
        puppet.script.append(wired("whole", b'{"model":"m"}', b'{"id":"r"}'))
        puppet.script.append(wired("streamed", b'{"model":"' + b"x" * 100 + b'"}', None))
        puppet.script.append(said("no wire"))
        for _ in range(3):
            await sent(client, agent["id"])
        plain, streamed, whole = await ids_of(client, "/v1/steps/")

        trace = (await client.get(f"/v1/steps/{whole}/trace")).json()
        ProviderTrace.model_validate(trace)
        assert trace["request_json"] == {"model": "m"} and trace["response_json"] == {"id": "r"}
        assert trace["step_id"] == whole and trace["agent_tags"] == ["t"] and trace["call_type"] == "agent_step"
        assert trace == (await client.get(f"/v1/telemetry/{whole}")).json()

        cut = (await client.get(f"/v1/steps/{streamed}/trace")).json()
        assert cut["request_json"]["cut_off"] and cut["request_json"]["bytes"] == 112
        assert len(cut["request_json"]["beginning"]) == 40
        assert cut["response_json"]["messages"][0]["content"] == "streamed"
        assert (await client.get(f"/v1/steps/{plain}/trace")).json() is None
        unknown = "step-00000000-0000-4000-8000-0000000000ff"
        assert (await client.get(f"/v1/steps/{unknown}/trace")).status_code == 404
        assert (await kelpie.api(Caller()).runs.trace(StepId(whole))) is not None


async def test_nothing_is_kept_of_the_wire_if_it_is_not_wanted(tmp_path: Path) -> None:
    async with open_rig(tmp_path, trace_steps=0) as (kelpie, puppet), client_of(kelpie) as client:
        agent = await make_agent(client)
        puppet.script.append(wired("whole", b"{}", b"{}"))
        await sent(client, agent["id"])
        (step,) = await ids_of(client, "/v1/steps/")
        assert (await client.get(f"/v1/steps/{step}/trace")).json() is None
        told = (await client.get(f"/v1/kelpie/steps/{step}/prompt")).json()
        assert told["parts"] == [] and "KELPIE_TRACE_STEPS" in told["why_not"]


async def test_runs_are_listed_by_state_cost_and_age(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client, name="counted")
    puppet.script.append(wired("whole", b'{"messages": [{"role": "user", "content": "x"}]}', b"{}"))
    await sent(client, agent["id"])
    (shown,) = (await client.get("/v1/kelpie/runs", params={"agent_id": agent["id"]})).json()
    assert (shown["agent_name"], shown["status"], shown["step_count"]) == ("counted", "completed", 1)
    assert (shown["stuck"], shown["recoveries"]) == (False, 0)
    one = (await client.get(f"/v1/kelpie/runs/{shown['id']}")).json()
    assert one["journal"][0]["kind"] == "open" and one["input"][0]["role"] == "user"
    listed: dict[str, int] = {}
    for state in ("active", "stuck", "recovered", "completed", "failed", "cancelled"):
        listed[state] = len((await client.get("/v1/kelpie/runs", params={"state": state})).json())
    assert listed == {"active": 0, "stuck": 0, "recovered": 0, "completed": 1, "failed": 0, "cancelled": 0}
    dear = await client.get("/v1/kelpie/runs", params={"cost_usd_min": 1})
    old = await client.get("/v1/kelpie/runs", params={"created_before": "2020-01-01T00:00:00Z"})
    assert dear.json() == old.json() == []
    (step,) = await ids_of(client, "/v1/steps/")
    prompt = (await client.get(f"/v1/kelpie/steps/{step}/prompt")).json()
    assert [(part["kind"], part["text"]) for part in prompt["parts"]] == [("user", "x")] and prompt["why_not"] is None
