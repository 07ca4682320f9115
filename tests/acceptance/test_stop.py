"""SIGTERM in the middle of a turn: one that needs longer than the drain is cut off and goes on after the next start."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.refusal import Case, refused_well
from tests.acceptance.served import served

WITHIN_S = 60.0
PAUSE_S = 0.05


def script(*lines: dict[str, Any]) -> str:
    return "!script " + json.dumps(lines)


async def until(http: httpx.AsyncClient, path: str, so: Any) -> Any:
    """Reads until what is read is as wanted."""
    async with asyncio.timeout(WITHIN_S):
        while not so(found := (await http.get(path)).json()):  # noqa: ASYNC110 - another process tells it no other way
            await asyncio.sleep(PAUSE_S)
    return found


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_turn_cut_off_by_a_stop_goes_on_after_the_start(tmp_path: Path, streaming: bool) -> None:
    remember = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "likes tea"}}
    text = script({"calls": [remember]}, {"text": "done", "wait_s": 4})
    with served(tmp_path / "data", KELPIE_DRAIN_SECONDS="1") as server:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=WITHIN_S) as http:
            blocks = [{"label": "human", "value": "Name: Ada"}]
            made = await http.post("/v1/agents/", json={"model": "kelpie/demo", "memory_blocks": blocks})
            agent = f"/v1/agents/{made.json()['id']}"
            path = f"{agent}/messages/stream" if streaming else f"{agent}/messages"
            told = asyncio.create_task(http.post(path, json={"input": text}))
            await until(http, f"{agent}/messages", lambda found: found[-1]["message_type"] == "tool_return_message")
            code = await asyncio.to_thread(server.stop)
            assert code == 0, server.last_words()
            (answer,) = await asyncio.gather(told, return_exceptions=True)
            assert "done" not in getattr(answer, "text", ""), "the client was given an answer that did not exist yet"
            if not streaming:
                assert isinstance(answer, httpx.Response), "an answer could still be given"
                refused_well(answer, Case("", "", "", 503, says=("again",)))
                # The turn goes on later: a client that repeats the message by itself would say it twice.
                assert answer.headers["x-should-retry"] == "false"
        server.start()
        async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=WITHIN_S) as http:
            await until(http, "/v1/runs/?active=true", lambda found: not found)
            runs = (await http.get("/v1/runs/")).json()
            assert [(run["status"], run["stop_reason"]) for run in runs] == [("completed", "end_turn")]
            kinds = [one["message_type"] for one in (await http.get(f"{agent}/messages")).json()]
            assert kinds == [
                "system_message", "user_message", "tool_call_message", "tool_return_message", "assistant_message",
            ]  # fmt: skip
            human = (await http.get(f"{agent}/core-memory/blocks/human")).json()
            assert human["value"].count("likes tea") == 1
