"""Whatever is sent in error is refused with the right status and a sentence, and leaves nothing behind.

Every case reads all that is stored before and after: a refusal that has stored half of something is the worse bug.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.bad_input import CASES
from tests.acceptance.refusal import GHOST, Case, refused_well
from tests.acceptance.served import COMMAND, START_S, Served, environment, served

BODY_BYTES_MAX = 100_000
MAILBOX_SIZE = 2


class Place:
    """A server with one of everything, and a way to read all it has stored."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        human = {"label": "human", "value": "Name: Ada"}
        self.agent = self._made("/v1/agents/", name="Victim", model="kelpie/demo", memory_blocks=[human])
        self.human = self.http.get(f"/v1/agents/{self.agent}/core-memory/blocks/human").json()["id"]
        self.block = self._made("/v1/blocks/", label="human", value="another block of that label")
        self.other = self._made("/v1/blocks/", label="hobby", value="chess")
        self._patched(f"/v1/agents/{self.agent}/core-memory/blocks/attach/{self.other}")
        source = 'def nothing() -> str:\n    """Does nothing."""\n    return ""\n'
        self.tool = self._made("/v1/tools/", source_code=source)
        self.http.post(f"/v1/agents/{self.agent}/messages", json={"input": "hello"}).raise_for_status()

    def stored(self) -> dict[str, Any]:
        """Everything that can be read, but for how the agent's activation is doing."""
        agents = self._got("/v1/agents/?limit=0&show_hidden_agents=true&include=agent.blocks&include=agent.tools")
        for agent in agents:
            del agent["kelpie_status"]
        return {
            "agents": agents,
            "blocks": self._got("/v1/blocks/?limit=0&show_hidden_blocks=true"),
            "tools": self._got("/v1/tools/?limit=0"),
            "runs": self._got("/v1/runs/?limit=1000"),
            "steps": self._got("/v1/steps/?limit=0"),
            "messages": self._got(f"/v1/agents/{self.agent}/messages?limit=10000"),
        }

    def ask(self, case: Case) -> httpx.Response:
        ids = {name: getattr(self, name) for name in ("agent", "human", "block", "other", "tool")}
        body = case.content
        if case.json is not ...:
            body = json.dumps(case.json).encode()
        for name, value in ids.items():
            body = body.replace(f"<{name}>".encode(), value.encode()) if body is not None else None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        return self.http.request(case.method, case.path.format(**ids), content=body, headers=headers | case.headers)

    def _made(self, path: str, **body: Any) -> str:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    def _patched(self, path: str) -> None:
        self.http.patch(path).raise_for_status()

    def _got(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    bounds = {"KELPIE_BODY_BYTES_MAX": str(BODY_BYTES_MAX), "KELPIE_MAILBOX_SIZE": str(MAILBOX_SIZE)}
    with served(tmp_path_factory.mktemp("data"), **bounds) as running:
        yield running


@pytest.fixture(scope="module")
def place(server: Served) -> Iterator[Place]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        yield Place(http)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_bad_request_is_refused_and_stores_nothing(place: Place, case: Case) -> None:
    before = place.stored()
    answer = place.ask(case)
    refused_well(answer, case)
    assert place.stored() == before


def test_a_body_that_does_not_say_its_size_is_bounded_too(place: Place) -> None:
    before = place.stored()
    pieces = (b"x" * 1000 for _ in range(BODY_BYTES_MAX // 1000 + 1))
    answer = place.http.post("/v1/agents/", content=pieces, headers={"Content-Type": "application/json"})
    refused_well(answer, Case("", "", "", 413, says=(str(BODY_BYTES_MAX),)))
    assert place.stored() == before


@pytest.mark.parametrize("path", ["/v1/agents/", "/v1/blocks/", "/v1/tools/", "/v1/runs/"])
@pytest.mark.parametrize("cursor", ["bogus", f"agent-{GHOST}", "' OR 1=1 --", "é\u2028"])
def test_an_unknown_cursor_gives_the_first_page(place: Place, path: str, cursor: str) -> None:
    first = place.http.get(path, params={"limit": 1}).json()
    assert len(first) == 1
    for name in ("after", "before"):
        answer = place.http.get(path, params={"limit": 1, name: cursor})
        assert (answer.status_code, [one["id"] for one in answer.json()]) == (200, [one["id"] for one in first])


def test_nul_characters_are_left_out_of_what_is_stored(place: Place) -> None:
    made = place.http.post("/v1/blocks/", json={"label": "odd", "value": "a\0b", "metadata": {"k\0": ["\0v"]}}).json()
    found = place.http.get(f"/v1/blocks/{made['id']}").json()
    assert (found["value"], found["metadata"]) == ("ab", {"k": ["v"]})
    place.http.delete(f"/v1/blocks/{made['id']}").raise_for_status()


def test_a_stopped_agent_refuses_messages_until_it_is_started(place: Place) -> None:
    place.http.post(f"/v1/agents/{place.agent}/stop").raise_for_status()
    before = place.stored()
    for path in ("messages", "messages/stream"):
        answer = place.http.post(f"/v1/agents/{place.agent}/{path}", json={"input": "hello"})
        refused_well(answer, Case("", "", "", 409, says=("stopped",)))
    assert place.stored() == before
    place.http.post(f"/v1/agents/{place.agent}/start").raise_for_status()
    answer = place.http.post(f"/v1/agents/{place.agent}/messages", json={"input": "hello"})
    assert answer.json()["stop_reason"]["stop_reason"] == "end_turn"


async def test_a_full_mailbox_says_when_to_come_again(server: Served, place: Place) -> None:
    agent = place.http.post("/v1/agents/", json={"model": "kelpie/demo"}).json()["id"]
    slow = '!script [{"text": "slow", "wait_s": 2}]'
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as http:
        path = f"/v1/agents/{agent}/messages"
        first = asyncio.create_task(http.post(path, json={"input": slow}))
        async with asyncio.timeout(30):
            while not (await http.get("/v1/runs/", params={"active": True})).json():
                pass
        more = await asyncio.gather(*(http.post(path, json={"input": f"number {n}"}) for n in range(MAILBOX_SIZE + 4)))
        assert (await first).status_code == 200
        refused = [answer for answer in more if answer.status_code != 200]
        assert len(refused) == 4
        for answer in refused:
            refused_well(answer, Case("", "", "", 429))
            assert int(answer.headers["retry-after"]) >= 1
        stored = (await http.get(path, params={"limit": 1000})).json()
        runs = (await http.get("/v1/runs/", params={"agent_id": agent})).json()
    assert sum(one["message_type"] == "user_message" for one in stored) == 1 + MAILBOX_SIZE
    assert len(runs) == 1 + MAILBOX_SIZE and {run["status"] for run in runs} == {"completed"}


def test_an_address_that_cannot_be_listened_on_is_named(tmp_path: Path) -> None:
    settings = environment(tmp_path / "data", KELPIE_HOST="no.such.host.invalid")
    done = subprocess.run(COMMAND, env=settings, capture_output=True, text=True, timeout=START_S)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("kelpie: KELPIE_HOST: cannot listen on no.such.host.invalid")


def test_an_address_that_others_can_reach_asks_for_a_credential(tmp_path: Path) -> None:
    with served(tmp_path / "data", KELPIE_HOST="0.0.0.0") as server, httpx.Client(base_url=server.url) as http:
        assert http.get("/v1/agents/").status_code == 401
        (shown,) = re.findall(r"shown only once\): (\S+)", server.last_words())
        assert http.get("/v1/agents/", headers={"authorization": f"Bearer {shown}"}).status_code == 200
