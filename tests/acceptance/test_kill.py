"""kill -9 in the middle of turns, again and again on the same data: what was acknowledged stays, nothing is doubled,
no turn hangs, no agent is bricked.

The moments are drawn from a seed, another one with every change of `src`. A failure names it; `KILL_SEED=<seed>` runs
those draws again.
"""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.ledger import Pupil, check, send
from tests.acceptance.scripted_model import HANDLE, ScriptedTurn, scripted_model
from tests.acceptance.served import PAUSE_S, Served
from tests.turns import first_seed, source

SEED = int(os.environ.get("KILL_SEED") or first_seed("kill", source()))
ROUNDS_WITH_SAME_AGENTS = 4  # then new ones begin, so that a long search does not drown in history
SENDERS_PER_AGENT = 2
WORK_S_MAX = 0.5  # how long turns go on before the kill, at most
QUIET_S = 30.0
SHARED = "notes"
WORDS = ("human", SHARED, "search", "missing")
MANNERS = ("whole", "steps", "tokens")


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.soak)])
async def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    with scripted_model() as model:
        server = Served(tmp_path / "data", OPENAI_BASE_URL=model, OPENAI_API_KEY="none", KELPIE_MODEL_ATTEMPTS="1")
        search = Search(server, random.Random(SEED))
        try:
            for number in range(rounds):
                await search.round(number)
            await search.check_all()
        except BaseException as error:
            error.add_note(f"KILL_SEED={SEED}, round {search.number} of {rounds}; the server said:")
            error.add_note(server.last_words())
            raise
        finally:
            server.close()
    assert search.acknowledged > rounds and search.cut_short > rounds, "the kills met no turns in flight"


class Search:
    """Rounds of work and kill on one data directory."""

    def __init__(self, server: Served, rng: random.Random) -> None:
        self.number = 0
        self._server = server
        self._rng = rng
        self._pupils: list[Pupil] = []
        self._former: list[list[Pupil]] = []
        self._turns = 0
        self._board = Board()

    @property
    def acknowledged(self) -> int:
        return self._count(True)

    @property
    def cut_short(self) -> int:
        return self._count(False)

    async def round(self, number: int) -> None:
        """Turns in flight, a kill, a start, and everything must be as it was told."""
        self.number = number
        if number == 0:
            self._server.start()
        if number % ROUNDS_WITH_SAME_AGENTS == 0:
            await self._new_pupils()
        async with self._client() as http:
            await self._work_until_killed(http)
        if self._rng.random() < 0.3:  # once more, while it starts or takes up what was left
            self._server.launch()
            await asyncio.sleep(self._rng.uniform(0.0, 1.5))
            self._server.kill()
        self._server.start()
        async with self._client() as http:
            await self._quiet(http)
            await self._board.check(http)
            await check(http, self._pupils, SHARED)
            await asyncio.gather(*(self._answers(http, pupil) for pupil in self._pupils))

    async def check_all(self) -> None:
        """At the end, all agents once more: what a later life did must not have touched the earlier ones."""
        async with self._client() as http:
            for pupils in (*self._former, self._pupils):
                await check(http, pupils, SHARED)

    async def _work_until_killed(self, http: httpx.AsyncClient) -> None:
        senders = [
            asyncio.create_task(self._keep_sending(http, pupil))
            for pupil in self._pupils
            for _ in range(SENDERS_PER_AGENT)
        ]
        senders.append(asyncio.create_task(self._board.keep_writing(http)))
        await asyncio.sleep(self._rng.uniform(0.0, WORK_S_MAX))
        self._server.kill()
        await asyncio.gather(*senders)

    async def _keep_sending(self, http: httpx.AsyncClient, pupil: Pupil) -> None:
        """One turn after the other until the server is gone."""
        while (await send(http, pupil, self._new_turn(), self._rng.choice(MANNERS))).acknowledged:
            pass

    async def _answers(self, http: httpx.AsyncClient, pupil: Pupil) -> None:
        sent = await send(http, pupil, self._new_turn(), self._rng.choice(MANNERS))
        assert sent.acknowledged, f"{pupil.id} does not answer after the restart"

    async def _quiet(self, http: httpx.AsyncClient) -> None:
        """Waits until no run is unfinished."""
        loop = asyncio.get_running_loop()
        end = loop.time() + QUIET_S
        while active := (await http.get("/v1/runs/", params={"active": True})).json():
            assert loop.time() < end, f"still unfinished {QUIET_S:.0f} s after the restart: {active}"
            await asyncio.sleep(PAUSE_S)

    async def _new_pupils(self) -> None:
        if self._pupils:
            self._former.append(self._pupils)
        async with self._client() as http:
            await self._board.hang_up(http)
            notes = await _made(http, "/v1/blocks/", label=SHARED, value="", limit=1_000_000)
            self._pupils = [
                await _new_pupil(http, notes["id"], demo, heartbeats)
                for demo in (False, True)
                for heartbeats in (False, True)
            ]

    def _new_turn(self) -> ScriptedTurn:
        self._turns += 1
        steps = [
            tuple(self._rng.choices(WORDS, weights=(5, 3, 1, 1), k=self._rng.randint(1, 2)))
            for _ in range(self._rng.randint(0, 3))
        ]
        return ScriptedTurn(f"t{self._turns}", tuple(steps))

    def _count(self, acknowledged: bool) -> int:
        groups = (*self._former, self._pupils)
        return sum(sent.acknowledged is acknowledged for pupils in groups for one in pupils for sent in one.sent)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self._server.url, trust_env=False, timeout=60)


class Board:
    """A block that a person edits all the while: the last edit that was acknowledged stays, or the one after it."""

    def __init__(self) -> None:
        self._path = ""
        self._sent = 0
        self._acknowledged = 0

    async def hang_up(self, http: httpx.AsyncClient) -> None:
        """Makes the block anew."""
        made = await _made(http, "/v1/blocks/", label="board", value="0")
        self._path = f"/v1/blocks/{made['id']}"
        self._sent = self._acknowledged = 0

    async def keep_writing(self, http: httpx.AsyncClient) -> None:
        """One edit after the other until the server is gone."""
        while True:
            self._sent += 1
            try:
                answer = await http.patch(self._path, json={"value": str(self._sent)})
            except httpx.TransportError:
                return
            assert answer.status_code == 200, answer.text
            self._acknowledged = self._sent

    async def check(self, http: httpx.AsyncClient) -> None:
        found = int((await http.get(self._path)).json()["value"])
        assert self._acknowledged <= found <= self._sent, f"{found}, not {self._acknowledged} to {self._sent}"
        self._acknowledged = found


async def _new_pupil(http: httpx.AsyncClient, notes_id: str, demo: bool, heartbeats: bool) -> Pupil:
    made = await _made(
        http,
        "/v1/agents/",
        model="kelpie/demo" if demo else HANDLE,
        agent_type="memgpt_agent" if heartbeats else "letta_v1_agent",
        memory_blocks=[{"label": "human", "value": "", "limit": 1_000_000}],
        block_ids=[notes_id],
        tools=["core_memory_append", "conversation_search"],
    )
    return Pupil(made["id"], demo, heartbeats)


async def _made(http: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()
