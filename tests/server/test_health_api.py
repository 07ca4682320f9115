"""Health and recent log lines, as the dashboard shows them."""

from pathlib import Path

import httpx

from kelpie.observe import logs
from kelpie.observe.recent_lines import RecentLines
from tests.server.rig import client_of, make_agent, open_rig


async def test_health_says_what_waits_and_how_searches_work(client: httpx.AsyncClient) -> None:
    told = (await client.get("/v1/kelpie/health")).json()
    assert told["ready"] and told["why_not_ready"] is None
    assert told["queue"] == {
        "waiting": {"runs": 0, "oldest_seconds": None},
        "running": {"runs": 0, "oldest_seconds": None},
    }
    assert told["search"]["degraded"] is (told["search"]["remedy"] is not None)
    agent = await make_agent(client)
    await client.post(f"/v1/agents/{agent['id']}/stop")
    assert (await client.get("/v1/kelpie/health")).json()["ready"]


async def test_the_operator_reads_recent_lines_without_secrets(client: httpx.AsyncClient) -> None:
    logs.get("test").error("test_line", "A line of this test", api_key="sk-secret-of-this-test", number=7)
    told = (await client.get("/v1/kelpie/logs", params={"contains": "A LINE OF THIS TEST"})).json()
    line = told["lines"][-1]["line"]
    assert (line["code"], line["number"], line["level"]) == ("test_line", 7, "error")
    assert "sk-secret-of-this-test" not in str(told)
    again = (await client.get("/v1/kelpie/logs", params={"after": told["last"]})).json()
    assert again == {"lines": [], "last": told["last"]}
    assert (await client.get("/v1/kelpie/logs", params={"level": "loud"})).status_code in (400, 422)


def test_only_the_newest_lines_are_kept_and_none_is_given_twice() -> None:
    lines = RecentLines(3)
    for place in range(5):
        lines.add("info", f"line {place}")
    assert [line.text for line in lines.after(0)] == ["line 2", "line 3", "line 4"]
    assert [line.text for line in lines.after(4)] == ["line 4"]
    assert lines.after(5) == []
    assert len(lines.after(99)) == 3, "a reader that knew an earlier process starts anew"


async def test_a_key_reads_health_without_the_disk_and_no_log(tmp_path: Path) -> None:
    async with open_rig(tmp_path, password="open sesame") as (kelpie, _), client_of(kelpie) as client:
        operator = {"Authorization": "Bearer open sesame"}
        made = await client.post("/v1/kelpie/keys", json={"name": "all", "scopes": ["admin"]}, headers=operator)
        key = {"Authorization": f"Bearer {made.json()['key']}"}
        told = (await client.get("/v1/kelpie/health", headers=key)).json()
        assert told["ready"] and told["disk"] is None
        assert (await client.get("/v1/kelpie/logs", headers=operator)).status_code == 200
        for headers, status in ((key, 403), ({}, 401)):
            assert (await client.get("/v1/kelpie/logs", headers=headers)).status_code == status
