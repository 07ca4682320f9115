"""Webhooks over HTTP: made, used by programs without a key, repeated, switched off and renewed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.triggers.webhook_text import TEXT_CHARS_MAX
from tests.server.rig import client_of, make_agent, open_rig

DEADLINE_S = 30.0
PASSWORD = "a-password-for-tests"
OWNER = {"Authorization": f"Bearer {PASSWORD}"}
ALERT: dict[str, Any] = {
    "version": "4",
    "status": "firing",
    "receiver": "kelpie",
    "groupLabels": {"alertname": "DiskFull"},
    "externalURL": "http://alertmanager.example",
    "truncatedAlerts": 2,
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "DiskFull", "instance": "db1", "severity": "page"},
            "annotations": {"summary": "The disk of db1 is full.", "runbook": "http://runbook.example"},
            "startsAt": "2026-03-02T09:00:00Z",
            "generatorURL": "http://prometheus.example/graph",
        },
        {
            "status": "resolved",
            "labels": {"alertname": "DiskFull", "instance": "db2"},
            "endsAt": "2026-03-02T09:05:00Z",
        },
    ],
}


class Rig:
    """A protected server: programs that deliver have no key."""

    def __init__(self, client: httpx.AsyncClient, agent: str) -> None:
        self.client, self.agent, self.base = client, agent, f"/v1/agents/{agent}/hooks"

    async def create(self, **body: Any) -> dict[str, Any]:
        answer = await self.client.post(self.base, json={"name": "alerts"} | body, headers=OWNER)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def deliver(self, hook: dict[str, Any], **request: Any) -> httpx.Response:
        return await self.client.post(hook["path"], **request)

    async def heard(self, run_id: str) -> list[str]:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if (await self.client.get(f"/v1/runs/{run_id}", headers=OWNER)).json()["status"] == "completed":
                    break
                await asyncio.sleep(0.01)
        rows = (await self.client.get(f"/v1/agents/{self.agent}/messages?limit=100&order=asc", headers=OWNER)).json()
        return [row["content"] for row in rows if row["message_type"] == "user_message"]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path, password=PASSWORD) as (kelpie, _), client_of(kelpie) as client:
        client.headers.update(OWNER)
        agent = (await make_agent(client))["id"]
        del client.headers["Authorization"]
        yield Rig(client, agent)


async def test_a_delivery_wakes_the_agent_and_its_record_shows_no_token(rig: Rig) -> None:
    hook = await rig.create(instructions="Say what happened.")
    answer = await rig.deliver(hook, json={"event": "build", "ok": False})
    assert answer.status_code == 202, answer.text
    (text,) = await rig.heard(answer.json()["run_id"])
    assert "webhook 'alerts'" in text and "Say what happened." in text and '"event": "build"' in text
    shown = (await rig.client.get(f"{rig.base}/{hook['id']}", headers=OWNER)).json()
    assert shown["last_used_at"] is not None and "token" not in shown
    listed = (await rig.client.get(rig.base, headers=OWNER)).json()
    assert listed == (await rig.client.get("/v1/kelpie/hooks", headers=OWNER)).json() == [shown]
    assert hook["token"] not in str(listed)


async def test_a_delivery_that_comes_again_is_one_message(rig: Rig) -> None:
    hook = await rig.create()
    headers = {"X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}
    first = (await rig.deliver(hook, json={"n": 1}, headers=headers)).json()
    again = (await rig.deliver(hook, json={"n": 1, "retry": True}, headers=headers)).json()
    other = (await rig.deliver(hook, json={"n": 1}, headers={"Idempotency-Key": "other"})).json()
    assert again["run_id"] == first["run_id"] != other["run_id"]
    assert len(await rig.heard(other["run_id"])) == 2


async def test_alerts_of_alertmanager_are_sentences(rig: Rig) -> None:
    answer = await rig.deliver(await rig.create(), json=ALERT)
    (text,) = await rig.heard(answer.json()["run_id"])
    assert "Alertmanager: 2 firing (alertname=DiskFull)" in text
    assert "- DiskFull is firing\n  The disk of db1 is full.\n  labels: instance=db1, severity=page" in text
    assert "annotations: runbook=http://runbook.example" in text and "source: http://prometheus.example/graph" in text
    assert "- DiskFull is resolved" in text and "until: 2026-03-02T09:05:00Z" in text
    assert "2 more alerts are not shown." in text and "{" not in text


async def test_other_bodies_are_readable_too(rig: Rig) -> None:
    hook = await rig.create()
    form = await rig.deliver(hook, data={"text": "hello world", "user": "ada"})
    plain = await rig.deliver(hook, content="just text", headers={"Content-Type": "text/plain"})
    empty = await rig.deliver(hook, content=b"")
    long = await rig.deliver(hook, content="x" * (TEXT_CHARS_MAX + 10))
    texts = await rig.heard(long.json()["run_id"])
    assert empty.status_code == form.status_code == plain.status_code == 202
    assert texts[0].endswith("text: hello world\nuser: ada") and texts[1].endswith("just text")
    assert texts[3].endswith("[The rest was cut off.]")


@pytest.mark.parametrize(
    ("content", "kind", "status", "words"),
    [
        (b"\xff\xfe", "application/octet-stream", 400, "UTF-8"),
        (b"{broken", "application/json", 400, "not valid JSON"),
        (b"a\0b", "text/plain", 400, "NUL"),
        (b"x" * 300_000, "text/plain", 413, "KELPIE_HOOK_BYTES_MAX"),
        (b"[" * 100 + b"]" * 100, "application/json", 400, "nested deeper"),
    ],
)
async def test_what_cannot_be_read_is_refused(rig: Rig, content: bytes, kind: str, status: int, words: str) -> None:
    hook = await rig.create()
    answer = await rig.deliver(hook, content=content, headers={"Content-Type": kind})
    assert answer.status_code == status and words in answer.text, answer.text


async def test_a_token_is_good_for_its_webhook_and_nothing_else(rig: Rig) -> None:
    hook = await rig.create()
    bearer = {"Authorization": f"Bearer {hook['token']}"}
    for method, path in (
        ("GET", "/v1/agents/"), ("GET", f"/v1/agents/{rig.agent}"), ("POST", f"/v1/agents/{rig.agent}/messages"),
        ("GET", rig.base), ("DELETE", f"{rig.base}/{hook['id']}"), ("GET", "/v1/blocks/"), ("POST", "/mcp"),
        ("GET", "/v1/kelpie/hooks"), ("GET", "/v1/health/none"),
    ):  # fmt: skip
        answer = await rig.client.request(method, path, headers=bearer)
        assert answer.status_code == 403, f"{method} {path}: {answer.status_code}"
    for wrong in ("x", PASSWORD, hook["token"][:-1] + "x", "kelpie-hook_" + "0" * 32 + "_" + "A" * 43):
        answer = await rig.client.post(f"/v1/hooks/{wrong}", json={})
        assert answer.status_code in (401, 404) and wrong not in answer.text
    assert (await rig.client.get(hook["path"])).status_code == 405


async def test_a_webhook_is_switched_off_renewed_and_deleted(rig: Rig) -> None:
    hook = await rig.create()
    path = f"{rig.base}/{hook['id']}"
    off = await rig.client.patch(path, json={"enabled": False, "name": "quiet"}, headers=OWNER)
    assert (off.json()["enabled"], off.json()["name"]) == (False, "quiet")
    refused = await rig.deliver(hook, json={})
    assert refused.status_code == 403 and "switched off" in refused.text
    await rig.client.patch(path, json={"enabled": True}, headers=OWNER)
    renewed = (await rig.client.post(f"{path}/renew", headers=OWNER)).json()
    assert renewed["id"] == hook["id"] and renewed["token"] != hook["token"]
    assert (await rig.deliver(hook, json={})).status_code == 401
    assert (await rig.deliver(renewed, json={})).status_code == 202
    assert (await rig.client.delete(path, headers=OWNER)).json() == {"success": True}
    assert (await rig.deliver(renewed, json={})).status_code == 401
    assert (await rig.client.get(path, headers=OWNER)).status_code == 404


async def test_it_goes_with_its_agent_and_tokens_are_not_logged(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    hook = await rig.create()
    assert (await rig.client.delete(f"/v1/agents/{rig.agent}", headers=OWNER)).status_code == 200
    assert (await rig.deliver(hook, json={})).status_code in (401, 404)
    out, err = capfd.readouterr()
    assert hook["token"] not in out + err


async def test_it_is_refused_with_the_field(rig: Rig) -> None:
    empty = await rig.client.post(rig.base, json={"name": ""}, headers=OWNER)
    assert empty.status_code == 422 and "name" in empty.text
    other = await rig.client.post(rig.base, json={"name": "a", "conversation_id": "conv-x"}, headers=OWNER)
    assert other.status_code == 400 and "conv" in other.text


async def test_a_key_for_an_agent_sees_its_webhooks_and_no_others(rig: Rig) -> None:
    hook = await rig.create()
    rig.client.headers.update(OWNER)
    other = (await make_agent(rig.client, name="other"))["id"]
    theirs = (await rig.client.post(f"/v1/agents/{other}/hooks", json={"name": "theirs"})).json()
    key = (await rig.client.post("/v1/kelpie/keys", json={"name": "k", "agent_ids": [other]})).json()["key"]
    del rig.client.headers["Authorization"]
    bound = {"Authorization": f"Bearer {key}"}
    listed = (await rig.client.get(f"/v1/agents/{other}/hooks", headers=bound)).json()
    assert [each["id"] for each in listed] == [theirs["id"]] and "token" not in listed[0]
    for path in (rig.base, f"{rig.base}/{hook['id']}", "/v1/kelpie/hooks", f"/v1/kelpie/hooks/{hook['id']}"):
        assert (await rig.client.get(path, headers=bound)).status_code == 403, path
    assert (await rig.client.get(f"/v1/agents/{other}/hooks/{hook['id']}", headers=bound)).status_code == 404
    refused = await rig.client.post(f"/v1/agents/{other}/hooks", json={"name": "more"}, headers=bound)
    assert refused.status_code == 403  # its token would outlive the key


async def test_an_empty_name_is_refused_in_words(rig: Rig) -> None:
    answer = await rig.client.post(rig.base, json={"name": ""}, headers=OWNER)
    assert answer.status_code == 422 and "name: must not be empty." in answer.text


async def test_an_unknown_address_says_what_to_do(rig: Rig) -> None:
    for token in ("x", f"kelpie-hook_{'0' * 32}_{'A' * 43}"):
        answer = await rig.client.post(f"/v1/hooks/{token}", json={})
        assert answer.status_code in (401, 404), answer.text
    assert "use the address that was shown last" in (await rig.client.post("/v1/hooks/x", json={})).text
