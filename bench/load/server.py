"""The server under test: how it is asked, what CPU it uses, and a Kelpie of our own with its model."""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

FAKE_MODEL = Path(__file__).parent.parent / "fake_model.py"
SDK = "letta-client/1.12.1"
OTHER = "bench"  # any client that is not an SDK 1.x
FAKE_BARE = Path(__file__).parent.parent / "fake_bare.py"


class LeanClient:
    """A keep-alive connection that does no more than it must, so that the load costs little beside the server."""

    def __init__(self, url: str, user_id: str | None = None, agent: str = SDK) -> None:
        """With a user, its requests are those of the user's organization. `agent` is the name of the client program: an
        SDK 1.x gets agents without their blocks and tools, all others get them with everything."""
        self._address = url.removeprefix("http://").rstrip("/")
        self._user = f"user-agent: {agent}\r\n" + ("" if user_id is None else f"user_id: {user_id}\r\n")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None) -> bytes:
        """The body of the answer; ends the measurement for anything but a 200."""
        if self._streams is None or self._streams[0].at_eof():  # the server ends connections that rest too long
            host, port = self._address.split(":")
            self._streams = await asyncio.open_connection(host, int(port), limit=2**20)
        reader, writer = self._streams
        sent = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._address}\r\ncontent-length: {len(sent)}\r\n"
            "accept: */*\r\naccept-encoding: identity\r\nconnection: keep-alive\r\n"
            f"content-type: application/json\r\n{self._user}\r\n"
        )
        writer.write(head.encode() + sent)
        answer = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if not lengths:
            raise SystemExit(f"an answer without Content-Length cannot be measured: {answer.decode()}")
        found = await reader.readexactly(int(lengths[0].split(b":")[1]))
        if b" 200 " not in answer[:15]:
            raise SystemExit(f"{answer.decode()}{found.decode()}")
        return found

    async def send(self, agent_id: str) -> None:
        await self.call("POST", f"/v1/agents/{agent_id}/messages", {"input": "hello there"})


def cpu_s(pid: int) -> float:
    """Of all threads of a process, to the nanosecond where the kernel counts them, else in ticks of 10 ms."""
    try:
        tasks = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(text.split()[0]) for text in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """The server under test and, where we know its pid, what it uses."""

    def __init__(self, url: str, pid: int | None, model: str) -> None:
        self.url = url.rstrip("/")
        self.pid = pid
        self.model = model
        self.lean = LeanClient(url)
        self.plain = LeanClient(url, agent=OTHER)
        self.http = httpx.AsyncClient(
            base_url=url,
            timeout=300,
            limits=httpx.Limits(max_connections=600),
            headers={"user-agent": "letta-client/1.12.1"},
        )

    def cpu_s(self) -> float:
        return 0.0 if self.pid is None else cpu_s(self.pid)

    def rss_mb(self) -> float | None:
        if self.pid is None:
            return None
        line = next(s for s in Path(f"/proc/{self.pid}/status").read_text().splitlines() if s.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    async def new_agent(self, window: int | None = None) -> str:
        """With a window of its own, or with the model's."""
        blocks = [{"label": "human", "value": "Name: Bob"}, {"label": "persona", "value": "I help."}]
        body = {"model": self.model, "memory_blocks": blocks} | ({"context_window_limit": window} if window else {})
        made = await self.lean.call("POST", "/v1/agents/", body)
        return json.loads(made)["id"]

    async def get(self, path: str) -> bytes:
        return await self.lean.call("GET", path)

    async def get_whole(self, path: str) -> bytes:
        """As a client that is no SDK 1.x: agents come with their blocks and tools."""
        return await self.plain.call("GET", path)

    async def send(self, agent_id: str) -> None:
        await self.lean.send(agent_id)


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
    return row(times, server.cpu_s() - cpu, time.perf_counter() - started)


def row(times_ms: list[float], cpu_s: float, wall_s: float) -> dict[str, float]:
    return {
        "n": len(times_ms),
        "cpu_ms": round(cpu_s * 1000 / len(times_ms), 3),
        **quantiles(times_ms),
        "per_s": round(len(times_ms) / wall_s, 1),
    }


def quantiles(times_ms: list[float]) -> dict[str, float]:
    ordered = sorted(times_ms)
    return {
        "p50_ms": round(statistics.median(ordered), 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
    }


class Started:
    """A Kelpie of our own with its model, both gone at the end; from another checkout when its folder is given."""

    def __init__(
        self,
        delay_ms: float,
        tree: Path | None = None,
        settings: Mapping[str, str] | None = None,
        data: Path | None = None,
    ) -> None:
        """`data` is a data directory that stays; without one it is new and is deleted at the end."""
        self.model, model_port = telling([str(FAKE_MODEL), "--delay-ms", str(delay_ms)])
        self.model_url = f"http://127.0.0.1:{model_port}/v1"
        self._temporary = tempfile.TemporaryDirectory() if data is None else None
        self._data = data or Path(self._temporary.name if self._temporary else "")
        self.database_file = self._data / "kelpie.db"
        port = _free_port()
        env = os.environ | {
            "KELPIE_DATA_DIR": str(self._data),
            "KELPIE_PORT": str(port),
            "KELPIE_HOST": "127.0.0.1",
            "OPENAI_BASE_URL": self.model_url,
            "OPENAI_API_KEY": "none",
            **(settings or {}),
        }
        if tree is not None:
            env["PYTHONPATH"] = str(tree / "src")  # goes before what is installed
        self._env = env
        self.url = f"http://127.0.0.1:{port}"
        self._start()

    def _start(self) -> None:
        self.started = time.perf_counter()
        with (self._data / "bench.log").open("a") as log:  # a line for every request, as by default
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kelpie.cli.main", "server", "start", "--foreground"], env=self._env, stderr=log
            )

    def kill_and_restart(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Ends the server with `kill -9`, does something to its data, and starts it on them."""
        self.process.kill()
        self.process.wait(30)
        meanwhile()
        self._start()

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
        self.model.terminate()
        self.model.wait(30)
        if self._temporary is not None:
            self._temporary.cleanup()


class StartedBare:
    """A bare server before the model of a house; it sends prompts of the size of the newest that the model has seen."""

    def __init__(self, house: Started) -> None:
        asked = httpx.get(house.model_url.replace("/v1", "/asked")).json()
        size = str(asked["body_bytes"])
        self.process, port = telling([str(FAKE_BARE), "--model-url", house.model_url, "--body-bytes", size])
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def telling(arguments: list[str]) -> tuple[subprocess.Popen[str], int]:
    """A process of our own, and the port that it tells."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
