"""What a turn costs: wall time and server CPU per operation, against any Letta-compatible server.

    python bench/turn.py                     starts a Kelpie and a zero-latency model of its own
    python bench/turn.py --url http://…      measures a server that runs already (give --pid for its CPU, --model)

Prints JSON. The rows named `letta` are what Letta 0.16.8 cost on such a machine (2 cores).
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
LETTA: dict[str, dict[str, float]] = {
    "create_agent": {"cpu_ms": 53, "p50_ms": 69, "p99_ms": 100},
    "send_one_agent": {"cpu_ms": 300, "p50_ms": 329, "p99_ms": 1093},
    "send_64_agents": {"cpu_ms": 244, "p50_ms": 15876, "p99_ms": 24681, "per_s": 3.9},
    "send_200_agents_slow_model": {"cpu_ms": 219, "p50_ms": 41318, "p99_ms": 78216, "per_s": 4.5},
    "get_agent": {"cpu_ms": 30, "p50_ms": 37, "p99_ms": 69},
    "list_50_agents": {"cpu_ms": 263, "p50_ms": 275, "p99_ms": 373},
    "list_100_messages": {"cpu_ms": 54, "p50_ms": 66, "p99_ms": 93},
    "list_50_blocks": {"cpu_ms": 18, "p50_ms": 22, "p99_ms": 26},
    "health": {"cpu_ms": 1.4, "p50_ms": 1.3, "p99_ms": 4.6},
    "start_to_health_s": {"wall": 26},
    "idle_rss_mb": {"rss": 472},
}


class Server:
    """The server under test and, where we know its pid, what it uses."""

    def __init__(self, url: str, pid: int | None, model: str) -> None:
        self.pid = pid
        self.model = model
        self.http = httpx.AsyncClient(
            base_url=url,
            timeout=300,
            limits=httpx.Limits(max_connections=600),
            headers={"user-agent": "letta-client/1.12.1"},
        )

    def cpu_s(self) -> float:
        if self.pid is None:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float | None:
        if self.pid is None:
            return None
        line = next(s for s in Path(f"/proc/{self.pid}/status").read_text().splitlines() if s.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    async def call(self, method: str, path: str, **fields: Any) -> Any:
        answer = await self.http.request(method, path, **fields)
        answer.raise_for_status()
        return answer.json()

    async def new_agent(self) -> str:
        blocks = [{"label": "human", "value": "Name: Bob"}, {"label": "persona", "value": "I help."}]
        made = await self.call("POST", "/v1/agents/", json={"model": self.model, "memory_blocks": blocks})
        return made["id"]

    async def send(self, agent_id: str) -> None:
        await self.call("POST", f"/v1/agents/{agent_id}/messages", json={"input": "hello there"})


async def measure(server: Server, work: list[Callable[[], Awaitable[Any]]], together: bool = False) -> dict[str, float]:
    """Runs the work one after the other, or all at once."""
    times: list[float] = []

    async def timed(one: Callable[[], Awaitable[Any]]) -> None:
        started = time.perf_counter()
        await one()
        times.append((time.perf_counter() - started) * 1000)

    cpu, started = server.cpu_s(), time.perf_counter()
    if together:
        await asyncio.gather(*(timed(one) for one in work))
    else:
        for one in work:
            await timed(one)
    return _row(times, server.cpu_s() - cpu, time.perf_counter() - started)


def _row(times_ms: list[float], cpu_s: float, wall_s: float) -> dict[str, float]:
    ordered = sorted(times_ms)
    return {
        "n": len(ordered),
        "cpu_ms": round(cpu_s * 1000 / len(ordered), 3),
        "p50_ms": round(statistics.median(ordered), 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
        "per_s": round(len(ordered) / wall_s, 1),
    }


async def first_event_ms(server: Server, agent_id: str, tokens: bool) -> dict[str, float]:
    """From sending to the first frame that is not a ping."""
    times: list[float] = []
    for _ in range(30):
        started = time.perf_counter()
        body = {"input": "hello", "stream_tokens": tokens}
        async with server.http.stream("POST", f"/v1/agents/{agent_id}/messages/stream", json=body) as answer:
            first = True
            async for line in answer.aiter_lines():
                if first and line.startswith("data:") and '"ping"' not in line:
                    times.append((time.perf_counter() - started) * 1000)
                    first = False
    return {"p50_ms": round(statistics.median(times), 2), "max_ms": round(max(times), 2)}


async def one_after_the_other(server: Server) -> dict[str, Any]:
    out: dict[str, Any] = {}
    out["health"] = await measure(server, [lambda: server.call("GET", "/v1/health/")] * 200)
    out["create_agent"] = await measure(server, [server.new_agent] * 300)
    agent = await server.new_agent()
    await server.send(agent)
    parts = [await measure(server, [lambda: server.send(agent)] * 20) for _ in range(10)]
    out["send_one_agent"] = parts[-1] | {"n": 200, "cpu_ms": round(statistics.mean(p["cpu_ms"] for p in parts), 3)}
    # CPU time comes in ticks of 10 ms, so the first and last 20 turns are compared by their wall time too.
    out["turn_200_over_turn_20"] = {
        "wall": round(parts[-1]["p50_ms"] / parts[1]["p50_ms"], 2),
        "cpu": round(parts[-1]["cpu_ms"] / max(parts[1]["cpu_ms"], 0.001), 2),
    }
    out["first_event_steps"] = await first_event_ms(server, agent, tokens=False)
    out["first_event_tokens"] = await first_event_ms(server, agent, tokens=True)
    out["get_agent"] = await measure(server, [lambda: server.call("GET", f"/v1/agents/{agent}")] * 200)
    out["list_50_agents"] = await measure(server, [lambda: server.call("GET", "/v1/agents/?limit=50")] * 50)
    path = f"/v1/agents/{agent}/messages?limit=100"
    out["list_100_messages"] = await measure(server, [lambda: server.call("GET", path)] * 50)
    out["list_50_blocks"] = await measure(server, [lambda: server.call("GET", "/v1/blocks/?limit=50")] * 50)
    return out


class LeanClient:
    """A keep-alive connection that does no more than it must, so that the load costs little beside the server."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, agent_id: str) -> None:
        host, port = self._address.split(":")
        if self._streams is None:
            self._streams = await asyncio.open_connection(host, int(port))
        reader, writer = self._streams
        body = b'{"input":"hello there"}'
        head = (
            f"POST /v1/agents/{agent_id}/messages HTTP/1.1\r\nhost: {self._address}\r\ncontent-length: {len(body)}\r\n"
        )
        writer.write(
            head.encode() + b"content-type: application/json\r\nuser-agent: letta-client/1.12.1\r\n\r\n" + body
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        if b" 200 " not in answer[:15]:
            raise SystemExit(answer.decode())

    async def five_sends(self, agent_id: str, times: list[float]) -> None:
        for _ in range(5):
            started = time.perf_counter()
            await self.send(agent_id)
            times.append((time.perf_counter() - started) * 1000)


async def all_at_once(server: Server) -> dict[str, Any]:
    agents = [await server.new_agent() for _ in range(64)]
    for agent in agents:
        await server.send(agent)
    times: list[float] = []
    clients = [LeanClient(str(server.http.base_url).rstrip("/")) for _ in agents]
    cpu, started = server.cpu_s(), time.perf_counter()
    for _ in range(3):
        await asyncio.gather(*(client.five_sends(agent, times) for client, agent in zip(clients, agents, strict=True)))
    return {"send_64_agents": _row(times, server.cpu_s() - cpu, time.perf_counter() - started)}


async def slow_model(server: Server) -> dict[str, Any]:
    agents = [await server.new_agent() for _ in range(200)]
    work = [lambda a=agent: server.send(a) for agent in agents for _ in range(2)]
    return {"send_200_agents_slow_model": await measure(server, work, together=True)}


class Started:
    """A Kelpie of our own with its model, both gone at the end."""

    def __init__(self, delay_ms: float) -> None:
        self._model = subprocess.Popen(
            [sys.executable, str(HERE / "fake_model.py"), "--delay-ms", str(delay_ms)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._model.stdout is not None
        model_port = self._model.stdout.readline().strip()
        self._data = tempfile.TemporaryDirectory()
        port = _free_port()
        env = os.environ | {
            "KELPIE_DATA_DIR": self._data.name,
            "KELPIE_PORT": str(port),
            "KELPIE_HOST": "127.0.0.1",
            "KELPIE_LOG_LEVEL": "warning",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1",
            "OPENAI_API_KEY": "none",
        }
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kelpie.cli.main", "server", "start", "--foreground"], env=env
        )
        self.url = f"http://127.0.0.1:{port}"

    async def ready_s(self) -> float:
        async with httpx.AsyncClient(base_url=self.url) as http:
            while time.perf_counter() - self.started < 60:
                try:
                    (await http.get("/v1/health/")).raise_for_status()
                    return round(time.perf_counter() - self.started, 2)
                except httpx.HTTPError:
                    if self.process.poll() is not None:
                        raise SystemExit("the server did not start") from None
                    await asyncio.sleep(0.01)
        raise SystemExit("the server did not answer")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._model.terminate()
        self._data.cleanup()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


async def on_our_own() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for delay_ms, parts in ((0.0, (one_after_the_other, all_at_once)), (200.0, (slow_model,))):
        house = Started(delay_ms)
        try:
            ready = await house.ready_s()
            server = Server(house.url, house.process.pid, "openai/gpt-4o-mini")
            out.setdefault("start_to_health_s", {"wall": ready})
            out.setdefault("idle_rss_mb", {"rss": server.rss_mb()})
            for part in parts:
                out |= await part(server)
            out[f"rss_after_mb_{int(delay_ms)}"] = {"rss": server.rss_mb()}
            await server.http.aclose()
        finally:
            house.stop()
    return out


async def elsewhere(options: argparse.Namespace) -> dict[str, Any]:
    server = Server(options.url, options.pid, options.model)
    return await one_after_the_other(server) | await all_at_once(server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--model", default="openai/gpt-4o-mini")
    options = parser.parse_args()
    found = asyncio.run(elsewhere(options) if options.url else on_our_own())
    print(json.dumps({name: {"here": row, "letta": LETTA.get(name)} for name, row in found.items()}, indent=1))


if __name__ == "__main__":
    main()
