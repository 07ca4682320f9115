"""Very many schedules that are due in the same second, and large batches with a kill -9 in the middle.

A few of each here, as many as an operator can have under `make soak`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.scripted_model import HANDLE, scripted_model
from tests.acceptance.served import Served

DEADLINE_S = 300.0
CLIENTS = 16
CREATION_S = 0.03  # of a schedule, about
PAGE = 100
PARALLEL = 2  # the agent that gets a parallel batch
ENDED = ("completed", "failed", "cancelled")


@asynccontextmanager
async def _connected(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=DEADLINE_S) as client:
        yield client


async def _until(look: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.05)


async def _agents(client: httpx.AsyncClient, count: int) -> list[str]:
    made = [await client.post("/v1/agents/", json={"name": f"a{n}", "model": HANDLE}) for n in range(count)]
    return [each.json()["id"] for each in made]


async def _said(client: httpx.AsyncClient, agent: str) -> list[str]:
    path = f"/v1/agents/{agent}/messages?limit=1000&order=asc&include_return_message_types=user_message"
    return [each["content"] for each in (await client.get(path)).json()]


async def _firings(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        after = {"after": found[-1]["id"]} if found else {}
        page = (await client.get("/v1/kelpie/firings", params={"limit": PAGE} | after)).json()
        found += page
        if len(page) < PAGE:
            return found


@pytest.mark.parametrize(("agents", "each"), [(3, 10), pytest.param(50, 20, marks=pytest.mark.soak)])
async def test_schedules_that_are_due_in_the_same_second_all_fire_once(tmp_path: Path, agents: int, each: int) -> None:
    with scripted_model() as model:
        server = Served(tmp_path / "data", OPENAI_BASE_URL=model, OPENAI_API_KEY="none")
        try:
            server.start()
            async with _connected(server) as client:
                await _fire_at_once(client, agents, each)
        finally:
            server.close()


async def _fire_at_once(client: httpx.AsyncClient, agents: int, each: int) -> None:
    *known, visited = await _agents(client, agents + 1)
    due = datetime.now(UTC) + timedelta(seconds=2 + agents * each * CREATION_S)
    missing = iter([(agent, f"[turn {n}-{number}: say]") for number in range(each) for n, agent in enumerate(known)])

    async def create() -> None:
        for agent, text in missing:
            body = {"message": text, "scheduled_time": due.isoformat()}
            answer = await client.post(f"/v1/agents/{agent}/schedule", json=body)
            assert answer.status_code == 200, answer.text

    await asyncio.gather(*(create() for _ in range(CLIENTS)))

    async def all_done() -> bool:
        states = Counter(one["status"] for one in await _firings(client))
        return states["done"] == agents * each

    waited: list[float] = []
    waiting = asyncio.ensure_future(_until(all_done))
    while not waiting.done():
        waited.append(await _ask(client, visited, f"[turn visit-{len(waited)}: say]"))
    await waiting
    took = (datetime.now(UTC) - due).total_seconds()
    firings = await _firings(client)
    assert len(firings) == len({one["schedule_id"] for one in firings}) == agents * each
    assert {one["attempts"] for one in firings} == {1}
    for n, agent in enumerate(known):
        assert Counter(await _said(client, agent)) == Counter(f"[turn {n}-{number}: say]" for number in range(each))
    assert len(await _said(client, visited)) == len(waited)
    print(f"\n{agents * each} schedules: {took:.1f} s, {len(waited)} messages beside, {max(waited):.2f} s at most")


async def _ask(client: httpx.AsyncClient, agent: str, text: str) -> float:
    """Seconds until another client gets its answer."""
    started = time.monotonic()
    answer = await client.post(f"/v1/agents/{agent}/messages", json={"input": text})
    assert answer.status_code == 200, answer.text
    assert (await client.get("/v1/health/")).status_code == 200
    return time.monotonic() - started


@pytest.mark.parametrize("items", [8, pytest.param(100, marks=pytest.mark.soak)])
async def test_batches_go_on_after_a_kill(tmp_path: Path, items: int) -> None:
    with scripted_model() as model:
        server = Served(tmp_path / "data", OPENAI_BASE_URL=model, OPENAI_API_KEY="none")
        try:
            server.start()
            async with _connected(server) as client:
                agents = await _agents(client, 3)
                batches = await _send(client, agents, items)
                await _until(lambda: _is_halfway(client, batches))
            server.kill()
            server.start()
            started = time.monotonic()
            async with _connected(server) as client:
                await _until(lambda: _have_ended(client, batches))
                print(f"\n{len(batches)} batches of {items}: {time.monotonic() - started:.1f} s after the kill")
                await _check(client, agents, batches, items)
        finally:
            server.close()


def _texts(name: str, items: int) -> list[str]:
    return [f"[turn {name}-{number}: say]" for number in range(items)]


async def _send(client: httpx.AsyncClient, agents: list[str], items: int) -> list[str]:
    """An ordered batch for each of two agents, a parallel one for the third, and Letta's for all of them."""
    made: list[str] = []
    for name, agent in enumerate(agents):
        body = {"messages": _texts(f"b{name}", items), "parallel": name == PARALLEL}
        answer = await client.post(f"/v1/agents/{agent}/messages/batch?background=true", json=body)
        made.append(answer.json()["batch_id"])
    requests = [{"agent_id": agents[n % 3], "input": text} for n, text in enumerate(_texts("l", items))]
    made.append((await client.post("/v1/messages/batches", json={"requests": requests})).json()["id"])
    return made


async def _shown(client: httpx.AsyncClient, batches: list[str]) -> list[dict[str, Any]]:
    return [(await client.get(f"/v1/kelpie/batches/{each}")).json() for each in batches]


async def _is_halfway(client: httpx.AsyncClient, batches: list[str]) -> bool:
    return sum(each["percentage"] for each in await _shown(client, batches)) >= 100


async def _have_ended(client: httpx.AsyncClient, batches: list[str]) -> bool:
    return all(each["status"] in ENDED for each in await _shown(client, batches))


async def _check(client: httpx.AsyncClient, agents: list[str], batches: list[str], items: int) -> None:
    shown = await _shown(client, batches)
    for each in shown:
        assert [result["status"] for result in each["results"]] == ["completed"] * items, each
    letta = _texts("l", items)
    for name, agent in enumerate(agents):
        heard = await _said(client, agent)
        own = [text for text in heard if text.startswith(f"[turn b{name}-")]
        sent = _texts(f"b{name}", items)
        assert sorted(own) == sorted(sent) if name == PARALLEL else own == sent
        assert [text for text in heard if text.startswith("[turn l-")] == letta[name::3]
    forks = [result["conversation_id"] for result in shown[PARALLEL]["results"]]
    assert len(set(forks)) == items and None not in forks
