"""A turn that cannot be stored, as users of letta-client see it: it never ends as if it were answered.

The database loses the table of steps while the server runs, so the commit of a step fails, and gets it back afterwards;
or its disk is full, or its file is deleted.
"""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, InternalServerError

from tests.acceptance.sdk import TIMEOUT_S, sdk_client
from tests.acceptance.served import Served, served, wait_for

HALF = '!script [{"calls": [{"name": "memory_insert", "arguments": {"label": "human", "new_string": "tea"}}]}, '
HALF += '{"text": "never stored", "wait_s": 1.0}]'
MODES = pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])
PLACES = pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data"), KELPIE_LOG_LEVEL="error") as running:
        yield running


@pytest.fixture
def agent(server: Served) -> str:
    body = {"name": "Unlucky", "model": "kelpie/demo", "memory_blocks": [{"label": "human", "value": "Ada"}]}
    return _asked(server, "POST", "/v1/agents/", body).json()["id"]


def _asked(server: Served, method: str, path: str, body: Any = None) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as http:
        return http.request(method, f"{server.url}{path}", json=body)


def _alter(server: Served, statement: str) -> None:
    path: Path = server.data_dir / "kelpie.db"
    with closing(sqlite3.connect(path, timeout=TIMEOUT_S, isolation_level=None)) as database:
        database.execute(statement)


@contextmanager
def trouble(server: Served) -> Iterator[None]:
    """While it lasts, no step can be stored."""
    _alter(server, "ALTER TABLE steps RENAME TO steps_away")
    try:
        yield
    finally:
        _alter(server, "ALTER TABLE steps_away RENAME TO steps")


def _frames(answer: httpx.Response) -> list[tuple[str, Any]]:
    """Each frame with the name of its event."""
    assert answer.status_code == 200, answer.text
    found: list[tuple[str, Any]] = []
    for frame in answer.text.strip().split("\n\n"):
        name, _, data = frame.rpartition("data: ")
        found.append((name.strip(), data if data == "[DONE]" else json.loads(data)))
    return found


def _is_well(server: Served, agent: str) -> None:
    """The agent answers again, and its history has nothing that was not stored."""
    answer = _asked(server, "POST", f"/v1/agents/{agent}/messages", {"input": "well?"})
    assert answer.status_code == 200 and answer.json()["stop_reason"]["stop_reason"] == "end_turn", answer.text


@MODES
@PLACES
def test_a_stream_that_cannot_be_stored_ends_with_the_error_of_storage(
    server: Served, agent: str, tokens: bool, background: bool
) -> None:
    body = {"input": '!script [{"text": "said to nobody"}]', "stream_tokens": tokens, "background": background}
    with trouble(server):
        answer = _asked(server, "POST", f"/v1/agents/{agent}/messages/stream", body)
    told = _frames(answer)
    (_, stop), (name, error), done = told[-3:]
    assert stop == {"message_type": "stop_reason", "stop_reason": "error"}
    assert (name, error["message_type"], error["error_type"]) == ("event: error", "error_message", "storage_error")
    assert done == ("", "[DONE]")
    assert [frame["message_type"] for _, frame in told if frame != "[DONE]"].count("stop_reason") == 1
    _is_well(server, agent)
    if background:  # the lane goes on with it first
        run_id = told[0][1]["run_id"]
        assert error["run_id"] == run_id
        assert _asked(server, "GET", f"/v1/runs/{run_id}").json()["status"] == "completed"
        again = _frames(_asked(server, "POST", f"/v1/runs/{run_id}/stream", {}))
        assert again[-3][1] == {"message_type": "stop_reason", "stop_reason": "end_turn"}


@MODES
@PLACES
async def test_the_client_raises_it_after_the_stop_reason(
    server: Served, agent: str, tokens: bool, background: bool
) -> None:
    seen: list[Any] = []

    async def read(client: Any) -> None:
        asked = {"input": "hi", "stream_tokens": tokens, "background": background}
        async for frame in await client.agents.messages.stream(agent, **asked):
            seen.append(frame)

    async with sdk_client("async", server.url) as client:
        with trouble(server), pytest.raises(APIStatusError, match="storage_error"):
            await read(client)
    assert [frame.stop_reason for frame in seen if frame.message_type == "stop_reason"] == ["error"]


def test_an_answer_that_cannot_be_stored_may_be_asked_for_again(server: Served, agent: str) -> None:
    with trouble(server):
        answer = _asked(server, "POST", f"/v1/agents/{agent}/messages", {"input": "hi"})
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
    assert answer.headers.get("x-should-retry") != "false"
    _is_well(server, agent)
    listed = _asked(server, "GET", f"/v1/agents/{agent}/messages").json()
    assert [one["content"] for one in listed if one["message_type"] == "user_message"] == ["well?"]


async def test_the_client_gets_a_server_error(server: Served, agent: str) -> None:
    async with sdk_client("async", server.url) as client:
        with trouble(server), pytest.raises(InternalServerError) as raised:
            await client.agents.messages.create(agent, input="hi")
    assert raised.value.status_code == 503


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_turn_that_is_stored_by_half_is_not_asked_for_again(
    server: Served, agent: str, streaming: bool
) -> None:
    path = f"/v1/agents/{agent}/messages" + ("/stream" if streaming else "")
    asked = asyncio.create_task(asyncio.to_thread(_asked, server, "POST", path, {"input": HALF}))
    await asyncio.to_thread(wait_for, "the first step is stored", lambda: _has_noted(server, agent), TIMEOUT_S)
    with trouble(server):
        answer = await asked
    if streaming:
        (_, stop), (_, error), _ = _frames(answer)[-3:]
        assert (stop["stop_reason"], error["error_type"]) == ("error", "storage_error")
    else:
        assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "false")
    assert "end_turn" not in answer.text
    _is_well(server, agent)


def _has_noted(server: Served, agent: str) -> bool:
    listed = _asked(server, "GET", f"/v1/agents/{agent}/messages").json()
    return any(one["message_type"] == "tool_return_message" for one in listed)


@pytest.mark.needs("sandbox")
def test_on_a_full_disk_requests_fail_and_work_again_once_there_is_space(tmp_path: Path) -> None:
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    disk = ("--dev-bind", "/", "/", "--size", str(24 << 20), "--tmpfs", str(tmp_path))
    done = subprocess.run(
        (bwrap, *disk, "--", sys.executable, "-m", "tests.acceptance.full_disk", str(tmp_path)),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_after_its_file_was_deleted_a_server_stores_nothing_and_says_how_to_go_on(tmp_path: Path) -> None:
    with served(tmp_path / "data", KELPIE_LOG_LEVEL="error") as server:
        agent = _asked(server, "POST", "/v1/agents/", {"name": "Gone", "model": "kelpie/demo"}).json()["id"]
        assert _asked(server, "POST", f"/v1/agents/{agent}/messages", {"input": "kept"}).status_code == 200
        (server.data_dir / "kelpie.db").unlink()
        answer = _asked(server, "POST", f"/v1/agents/{agent}/messages", {"input": "lost"})
        assert answer.status_code == 503 and "was deleted while the server was running" in answer.text
        ready = _asked(server, "GET", "/v1/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert _asked(server, "GET", "/v1/health/").status_code == 200
        server.stop()
        assert "database_rescued" in server.last_words()
        (server.data_dir / "kelpie.db.rescued1").rename(server.data_dir / "kelpie.db")
        server.start()
        listed = _asked(server, "GET", f"/v1/agents/{agent}/messages").json()
        assert [one["content"] for one in listed if one["message_type"] == "user_message"] == ["kept"]
