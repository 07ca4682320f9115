"""Rules of webhooks: whose a delivery is, where it is said, and what an agent that cannot take it answers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kelpie.triggers import webhooks
from kelpie.triggers.webhook_text import ALERTS_MAX, FIELDS_MAX
from kelpie.triggers.webhooks import DELIVERY_HEADERS
from tests.server.rig import client_of, make_agent, open_rig
from tests.triggers.test_webhooks_api import ALERT, OWNER, PASSWORD, Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path, password=PASSWORD) as (kelpie, _), client_of(kelpie) as client:
        client.headers.update(OWNER)
        agent = (await make_agent(client))["id"]
        del client.headers["Authorization"]
        yield Rig(client, agent)


async def test_two_webhooks_hear_the_same_delivery_each(rig: Rig) -> None:
    hooks = [await rig.create(name=name) for name in ("one", "two")]
    headers = {"Webhook-Id": "m1"}
    runs = [(await rig.deliver(hook, json={"n": 1}, headers=headers)).json()["run_id"] for hook in hooks]
    again = [(await rig.deliver(hook, json={"n": 1}, headers=headers)).json()["run_id"] for hook in hooks]
    assert runs[0] != runs[1] and again == runs
    await rig.heard(runs[0])
    texts = await rig.heard(runs[1])
    assert ["webhook 'one'" in texts[0], "webhook 'two'" in texts[1], len(texts)] == [True, True, 2]


async def test_every_header_that_names_a_delivery_counts_and_the_first_of_them_decides(rig: Rig) -> None:
    assert len(DELIVERY_HEADERS) == 8
    hook = await rig.create()
    runs: list[str] = []
    for number, name in enumerate(DELIVERY_HEADERS):
        headers = {name.title(): f"id-{number}"}
        first, again = [(await rig.deliver(hook, json={}, headers=headers)).json()["run_id"] for _ in range(2)]
        assert first == again, name
        runs.append(first)
        await rig.heard(first)
    assert len(set(runs)) == len(runs)
    both = {"x-delivery-id": "id-0", "idempotency-key": "new"}
    new = (await rig.deliver(hook, json={}, headers=both)).json()["run_id"]
    assert new not in runs and (await rig.deliver(hook, json={}, headers=both)).json()["run_id"] == new


async def test_it_is_said_in_the_conversation_of_the_webhook(rig: Rig) -> None:
    rig.client.headers.update(OWNER)
    agent = {"agent_id": rig.agent}
    threads = [(await rig.client.post("/v1/conversations/", params=agent, json={})).json()["id"] for _ in range(2)]
    other = (await make_agent(rig.client, name="other"))["id"]
    stray = (await rig.client.post("/v1/conversations/", params={"agent_id": other}, json={})).json()["id"]
    hook = await rig.create(conversation_id=threads[0])
    path = f"{rig.base}/{hook['id']}"
    for refused in (
        await rig.client.post(rig.base, json={"name": "x", "conversation_id": stray}),
        await rig.client.patch(path, json={"conversation_id": stray}),
    ):
        assert refused.status_code == 400 and "conversation of another agent" in refused.text
    headers = {"Idempotency-Key": "k"}
    first = (await rig.deliver(hook, json={"n": 1}, headers=headers)).json()["run_id"]
    await rig.heard(first)
    assert (await rig.deliver(hook, json={"n": 1}, headers=headers)).json()["run_id"] == first
    assert (await rig.client.patch(path, json={"conversation_id": threads[1]})).json()["conversation_id"] == threads[1]
    await rig.heard((await rig.deliver(hook, json={"n": 2})).json()["run_id"])
    for number, thread in enumerate(threads, 1):
        rows = (await rig.client.get(f"/v1/conversations/{thread}/messages?order=asc")).json()
        (text,) = [row["content"] for row in rows if row["message_type"] == "user_message"]
        assert f'"n": {number}' in text
    await rig.client.delete(f"/v1/conversations/{threads[1]}")
    lost = await rig.deliver(hook, json={"n": 3})  # nobody would hear it
    assert lost.status_code == 409 and "conversation of this webhook was deleted" in lost.text
    await rig.client.patch(path, json={"conversation_id": None})
    assert (await rig.deliver(hook, json={"n": 3})).status_code == 202


async def test_a_change_keeps_what_it_does_not_name(rig: Rig) -> None:
    hook = await rig.create(instructions="Say it.")
    path = f"{rig.base}/{hook['id']}"
    await rig.deliver(hook, json={})
    before = (await rig.client.get(path, headers=OWNER)).json()
    after = (await rig.client.patch(path, json={"name": "new"}, headers=OWNER)).json()
    same = {name: value for name, value in before.items() if name not in ("name", "updated_at")}
    assert same.items() <= after.items() and after["name"] == "new" and after["updated_at"] > before["updated_at"]
    assert before["last_used_at"] is not None and before["updated_at"] == hook["updated_at"]
    assert (await rig.client.patch(path, json={"instructions": None}, headers=OWNER)).json()["instructions"] is None
    assert (await rig.deliver(hook, json={})).status_code == 202


async def test_the_number_of_webhooks_is_limited(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "HOOKS_MAX", 2)
    first, _ = await rig.create(), await rig.create()
    refused = await rig.client.post(rig.base, json={"name": "x"}, headers=OWNER)
    assert refused.status_code == 409 and "2 webhooks" in refused.text
    assert (await rig.client.delete(f"{rig.base}/{first['id']}", headers=OWNER)).status_code == 200
    await rig.create()


async def test_a_delivery_to_a_stopped_agent_is_refused_and_taken_when_it_comes_again(rig: Rig) -> None:
    hook, headers = await rig.create(), {"Idempotency-Key": "k"}
    rig.client.headers.update(OWNER)
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/stop")).status_code == 200
    refused = await rig.deliver(hook, json={"n": 1}, headers=headers)
    assert refused.status_code == 409 and "stopped" in refused.text
    assert (await rig.client.get(f"{rig.base}/{hook['id']}")).json()["last_used_at"] is None
    assert (await rig.client.post(f"/v1/agents/{rig.agent}/start")).status_code == 200
    taken = await rig.deliver(hook, json={"n": 1}, headers=headers)
    assert len(await rig.heard(taken.json()["run_id"])) == 1


async def test_a_deleted_webhook_takes_nothing_and_leaves_the_others(rig: Rig) -> None:
    first, second = await rig.create(), await rig.create(name="second")
    assert (await rig.deliver(first, json={})).status_code == (await rig.deliver(second, json={})).status_code == 202
    assert (await rig.client.delete(f"{rig.base}/{first['id']}", headers=OWNER)).status_code == 200
    assert (await rig.deliver(first, json={})).status_code == 401
    assert (await rig.deliver(second, json={})).status_code == 202
    listed = (await rig.client.get(rig.base, headers=OWNER)).json()
    assert [each["id"] for each in listed] == [second["id"]]


async def test_many_alerts_and_large_forms_are_bounded(rig: Rig) -> None:
    hook = await rig.create()
    alerts: list[Any] = [{"status": "firing", "labels": {"alertname": f"A{number}"}} for number in range(60)]
    many = {**ALERT, "alerts": [*alerts, "no alert"], "truncatedAlerts": 3}
    (text,) = await rig.heard((await rig.deliver(hook, json=many)).json()["run_id"])
    assert "Alertmanager: 60 firing" in text and text.count(" is firing\n") == ALERTS_MAX == 50
    assert "13 more alerts are not shown." in text and "- A49 " in text and "- A50 " not in text
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    large = await rig.deliver(hook, content="&".join(f"a{n}=1" for n in range(FIELDS_MAX + 1)), headers=form)
    assert large.status_code == 400 and "more than 1000 fields" in large.text
    blank = (await rig.deliver(hook, content="a=&b=2", headers=form)).json()["run_id"]
    assert (await rig.heard(blank))[1].endswith("\n\na: \nb: 2")
    bom = await rig.deliver(hook, content=b'\xef\xbb\xbf{"a": 1}', headers={"Content-Type": "application/vnd.x+json"})
    assert (await rig.heard(bom.json()["run_id"]))[2].endswith('\n\n{\n  "a": 1\n}')
    guess = await rig.deliver(hook, content="[not json", headers={"Content-Type": "text/plain"})
    assert (await rig.heard(guess.json()["run_id"]))[3].endswith("\n\n[not json")
