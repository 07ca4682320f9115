"""What idle schedules cost: a server with very many of them next to one with none, in one run.

    python bench/schedules.py                       with 100,000 schedules, 30 seconds of idling
    python bench/schedules.py --schedules 10000 --seconds 10

Prints JSON. Both servers have the same agents and idle at the same time. For each: `start_s` and `start_cpu_s` from
the start of the process after `kill -9` to a healthy answer, `idle_cpu_ms` of CPU while idling and `idle_rss_mb` of
memory at its end, and `create` one schedule, in CPU and wall milliseconds of the server (median of batches that the
two take turns in). The schedules are recurring ones, due within the next year but not during the run. All but the
first are copied in the database while the server is down. The model is bench/fake_model.py.
"""

import argparse
import asyncio
import json
import sqlite3
import sys
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from load.server import LeanClient, Server, Started, cpu_s, measure

AGENT_MAX = 1_000  # schedules that an agent can have
ROUNDS = 7
BATCH = 20
SETTLE_S = 5.0  # after the start, before the idling begins
YEAR_US = 365 * 24 * 3600 * 1_000_000
NO_MODEL = {"KELPIE_EMBEDDING_DIR": str(Path(__file__).parent)}  # no work behind the requests
BODY = {"message": "Write the weekly report.", "recurrence_rule": "0 9 1 1 *", "timezone": "Europe/Berlin"}


class Subject:
    """A server with agents; the last of them is for schedules that are made through the API."""

    def __init__(self) -> None:
        self.house = Started(0, None, NO_MODEL)
        self.agents: list[str] = []

    async def prepare(self, agents: int, schedules: int) -> dict[str, float]:
        """Fills it, starts it again, and returns what that start cost."""
        await self.house.ready_s()
        client = LeanClient(self.house.url)
        for number in range(agents):
            made = await client.call("POST", "/v1/agents/", {"name": f"agent {number}", "model": "openai/gpt-4o-mini"})
            self.agents.append(json.loads(made)["id"])
        if schedules:
            await client.call("POST", f"/v1/agents/{self.agents[0]}/schedule", BODY)
        self.house.kill_and_restart(lambda: self._copy(schedules))
        start_s = await self.house.ready_s()
        cost = {"start_s": start_s, "start_cpu_s": round(cpu_s(self.house.process.pid), 2)}
        self.server = Server(self.house.url, self.house.process.pid, "openai/gpt-4o-mini")
        return cost

    def _copy(self, schedules: int) -> None:
        """Copies the one schedule that there is until there are so many, spread over agents and over a year."""
        if not schedules:
            return
        with sqlite3.connect(self.house.database_file) as db:
            found = db.execute("SELECT * FROM schedules")
            names = [column[0] for column in found.description]
            first = dict(zip(names, found.fetchone(), strict=True))
            rows = [tuple((first | self._differing(first, number)).values()) for number in range(1, schedules)]
            db.executemany(f"INSERT INTO schedules ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", rows)
        db.close()

    def _differing(self, first: dict[str, Any], number: int) -> dict[str, Any]:
        next_at = first["created_at"] + 3600 * 1_000_000 + number * (YEAR_US // 200_000)
        return {"id": f"schedule-{uuid.uuid4()}", "agent_id": self.agents[number // AGENT_MAX], "next_at": next_at}

    async def create(self) -> dict[str, float]:
        client = LeanClient(self.house.url)
        path = f"/v1/agents/{self.agents[-1]}/schedule"
        return await measure(self.server, [lambda: client.call("POST", path, BODY) for _ in range(BATCH)])


async def run(schedules: int, seconds: float) -> dict[str, Any]:
    subjects = {"none": Subject(), "many": Subject()}
    agents = schedules // AGENT_MAX + 2
    try:
        found: dict[str, dict[str, Any]] = {}
        for name, subject in subjects.items():
            found[name] = await subject.prepare(agents, schedules if name == "many" else 0)
        await asyncio.sleep(SETTLE_S)
        before = {name: subject.server.cpu_s() for name, subject in subjects.items()}
        started = time.perf_counter()
        await asyncio.sleep(seconds)
        idled_s = time.perf_counter() - started
        for name, subject in subjects.items():
            found[name]["idle_cpu_ms"] = round((subject.server.cpu_s() - before[name]) * 1000, 1)
            found[name]["idle_rss_mb"] = subject.server.rss_mb()
        batches: dict[str, list[dict[str, float]]] = {name: [] for name in subjects}
        for number in range(ROUNDS):
            for name in list(subjects) if number % 2 else list(reversed(subjects)):
                batches[name].append(await subjects[name].create())
    finally:
        for subject in subjects.values():
            subject.house.stop()
    for name, rows in batches.items():
        found[name]["create"] = {what: round(median(row[what] for row in rows), 2) for what in ("cpu_ms", "p50_ms")}
    return {"schedules": schedules, "agents": agents, "idled_s": round(idled_s, 1), **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    print(json.dumps(asyncio.run(run(asked.schedules, asked.seconds)), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
