"""A session: the steps of a file, played against the real server in the simulation, and the text of all answers."""

import asyncio
import json
import re
import shlex
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from difflib import unified_diff
from functools import partial
from io import StringIO
from typing import Any

from kelpie.agent.journal import commits
from kelpie.core.errors import CommitUnknown, StorageBusy
from kelpie.core.settings.settings import Settings
from kelpie.observe import logs
from kelpie.sim.loop.errors import SimError
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.schedules import Fifo
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.network.http_client import Response, SimClient
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.ports.disk import Disk, schema_image
from kelpie.sim.runs.machine import LLM_HOST, Machine
from kelpie.sim.runs.sim_world import SimWorld
from kelpie.sim.scenarios.fixtures.external_service import HOST, ExternalService
from kelpie.sim.scenarios.fixtures.journal_faults import JournalPoints
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, boot, schema
from kelpie.sim.scenarios.records.secrets import boot_with_key_file
from kelpie.world.database import Tx
from tests.snapshots import cell_code, invariants
from tests.snapshots.cell_code import CellCode
from tests.snapshots.mcp_host import McpHost
from tests.snapshots.names import GRID_S, Names
from tests.snapshots.provider_host import ProviderHost
from tests.snapshots.text import STRING_MAX, Text
from tests.snapshots.trouble import ChosenFaults, DatabaseTrouble
from tests.snapshots.web_host import WebHost

VIRTUAL_S_MAX = 400 * 24 * 3600.0
PICKS_MAX = 5_000_000
PATIENCE_S = 3 * 3600.0
KEY_FILE = "key file"  # a command: the server stores its encryption keys, and can change them
CELLS = "cells"  # a command: custom tools run in cells, as `code` says
_REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (\S+)\s*(.*)", re.DOTALL)
# After these the server is as before.
_READS = re.compile(r"(quietly )?GET |(as|code|database|fault|give|host|keep|mcp|model|provider|sql|web|with) ")
_HEADERS = ("content-length", "date", "server", "cache-control", "x-request-id", "vary")
_USUAL = ("content-type", "application/json")
_PAUSE = re.compile(r"^: pause (\d+)\n", re.MULTILINE)
_IN_DOUBT = "  log warning commit_outcome_unknown"
_images: list[bytes] = []


@dataclass(frozen=True, slots=True)
class Step:
    """A comment, or a command with the lines it was written on."""

    comment: str
    command: str


class NoStep(Exception):
    """A command that no session knows, or that does not fit here."""


def steps(text: str) -> list[Step]:
    """The steps of a file; what was recorded between them is left out."""
    found: list[Step] = []
    comment: list[str] = []
    command: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("> "):
            command.append(line[2:])
            continue
        if command:
            found.append(Step("\n".join(comment), "\n".join(command)))
            comment, command = [], []
        if line.startswith("# "):
            comment.append(line)
    return found


@contextmanager
def _doubtful_commits() -> Iterator[None]:
    """Every commit of a turn is refused once, after all of its work; then it is stored, and nobody hears of it."""
    transact, refused = JournalPoints.transact, set[Callable[[Tx], Any]]()

    async def told(self: JournalPoints, fn: Callable[[Tx], Any]) -> Any:
        if fn.__module__ != commits.__name__:
            return await transact(self, fn)
        if fn not in refused:
            refused.add(fn)
            await transact(self, partial(_refuse, fn))
        await transact(self, fn)
        self._database._in_doubt()
        raise CommitUnknown("The answer was lost.")

    JournalPoints.transact = told  # type: ignore[method-assign]
    try:
        yield
    finally:
        JournalPoints.transact = transact  # type: ignore[method-assign]


def _refuse(fn: Callable[[Tx], Any], tx: Tx) -> None:
    fn(tx)
    raise StorageBusy("The database is locked.")


def play(text: str, *, restarts: bool = False, doubtful: bool = False) -> str:
    """The text with everything recorded anew. With `restarts` the power is cut after every step; with `doubtful`
    every commit of a turn is refused once and then stored without an answer, and the warnings of that are left out.

    Raises NoStep for a command that is wrong, and SimError for what a simulation raises.
    """
    if not _images:
        _images.append(schema_image(schema))
    told: list[str] = []
    disk = Disk(_images[0])
    logged = StringIO()
    database = DatabaseTrouble()

    async def main(loop: SimLoop) -> None:
        faults = ChosenFaults(loop)
        world = SimWorld(lambda _: faults, disk)
        await _Session(world, logged, steps(text), faults, database, restarts=restarts).play(told)

    loop = SimLoop(0, Fifo(), picks_max=PICKS_MAX, virtual_s_max=VIRTUAL_S_MAX)
    with _logs_in(logged), _doubtful_commits() if doubtful else nullcontext(), database.installed():
        outcome = simulate(main, loop)
    disk.close()
    outcome.get()
    if loop.unhandled:
        raise SimError(f"nobody handled: {loop.unhandled[0]}")
    played = "\n".join(told) + "\n"
    return without_doubt(played) if doubtful else played


def without_doubt(text: str) -> str:
    """The text without the warnings of commits of unknown outcome."""
    return text.replace(f"{_IN_DOUBT}\n", "")


@contextmanager
def _logs_in(sink: StringIO) -> Iterator[None]:
    before = logs._lines
    logs.configure("warning", sink)
    try:
        yield
    finally:
        logs._lines = before


class _Session:
    def __init__(
        self,
        world: SimWorld,
        logged: StringIO,
        todo: Sequence[Step],
        faults: ChosenFaults,
        database: DatabaseTrouble,
        *,
        restarts: bool,
    ) -> None:
        self._todo = todo
        self._faults = faults
        self._database = database
        self._logged = logged
        self._restarts = restarts
        self._names = Names()
        self._text = Text(self._names)
        self._world = world
        self._machine: Machine
        self._client: SimClient
        self._as: dict[str, str] = {}
        self._once: dict[str, str] = {}
        self._under_way: dict[str, asyncio.Task[list[str]]] = {}
        self._kept: dict[str, bytes] = {}
        self._replies: deque[tuple[int, str]] = deque()
        self._thinks_s = deque([0.0])
        self._prompts = _Prompts(self._text)
        self._received: list[str] = []
        self._mcp: dict[str, McpHost] = {}
        self._web: dict[str, WebHost] = {}
        self._providers: dict[str, ProviderHost] = {}
        self._code = CellCode(self._hear, self._text)

    async def play(self, told: list[str]) -> None:
        settings, self._todo = _settings(self._todo, told)
        wanted = {step.command for step in self._todo}
        way = boot_with_key_file if KEY_FILE in wanted else cell_code.boot if CELLS in wanted else boot
        self._machine = Machine(self._world, way, settings)
        if CELLS in wanted:
            self._world.code = self._code
        self._client = self._machine.client("tester")
        outside = ExternalService(self._world.loop, self._world.faults, self._machine.crash)
        self._world.internet.host(HOST, outside)
        self._world.internet.host(LLM_HOST, self._model)
        await self._machine.up()
        for step in self._todo:
            await self._next_moment()
            told += ["", *([step.comment] if step.comment else []), *(f"> {line}" for line in step.command.split("\n"))]
            told += [f"  {line}" for line in await self._do(step.command)]
            await asyncio.sleep(GRID_S / 2)
            told += [f"  {line}" for line in self._happened()]
            if self._under_way or _READS.match(step.command):
                continue
            if self._restarts:
                await self._machine.restart()
            else:
                invariants.hold(self._machine)
        await self._next_moment()
        told += ["", *self._rows()]
        if not self._restarts:
            await invariants.hold_at_the_end(self._machine)
        await self._machine.stop()

    async def _next_moment(self) -> None:
        late = self._world.loop.time() % GRID_S
        await asyncio.sleep(GRID_S - late if late else 0)

    async def _do(self, command: str) -> list[str]:
        if _REQUEST.match(command):
            return await self._ask(command)
        word, _, rest = command.partition(" ")
        match word:
            case "as":
                self._as = {} if rest == "nobody" else {"authorization": f"Bearer {self._names.meant(rest)}"}
            case "with":
                for header in rest.split("\n"):
                    name, _, value = header.strip().partition(": ")
                    self._once[name.lower()] = self._names.meant(value)
            case "wait":
                await asyncio.sleep(float(rest))
            case "restart":
                await self._machine.restart()
            case "off":
                await self._off(float(rest))
            case "model":
                self._tell_model(rest)
            case "host":
                self._host(rest)
            case "provider":
                self._provider(rest)
            case "key" | "cells" if command in (KEY_FILE, CELLS):
                pass  # the server has done so from the start
            case "code":
                name, _, told = rest.partition(" ")
                self._code.tell(name, json.loads(self._names.meant(told)))
            case "mcp":
                self._tell_mcp(rest)
            case "web":
                self._tell_web(rest)
            case "meanwhile":
                name, _, request = rest.partition(" ")
                self._under_way[name] = asyncio.ensure_future(self._do(request))
                await asyncio.sleep(1.0)
            case "finish":
                return await self._under_way.pop(rest)
            case "drop":
                self._under_way.pop(rest).cancel()
            case "fault":
                self._faults.choose_next(rest)
            case "database":
                self._database.arrange(rest)
            case "times" | "together":
                number, _, request = rest.partition(" ")
                return await self._often(int(number), request, together=word == "together")
            case "upload":
                return await self._upload(rest)
            case "raw":
                return await self._raw(rest)
            case "quietly":
                return (await self._ask(rest))[:1]
            case "keep":
                name, _, request = rest.partition(" ")
                return (await self._ask(request, keep=name))[:1]
            case "give":
                name, _, request = rest.partition(" ")
                return await self._ask(request, give=name)
            case "sql":
                return [self._text.line(list(row)) for row in self._machine.disk.query(rest)]
            case _:
                raise NoStep(f"No session knows the command '{command}'.")
        return []

    async def _off(self, seconds: float) -> None:
        """Cuts the power for some time."""
        if self._machine._supervisor is not None:
            self._machine._supervisor.cancel()
            self._machine._supervisor = None
        self._machine.crash()
        await asyncio.sleep(seconds)
        await self._machine.up()

    async def _ask(self, command: str, *, keep: str = "", give: str = "") -> list[str]:
        """The answer to a request; `keep` names its body for later, `give` the body of the request."""
        found = _REQUEST.match(self._names.meant(command))
        assert found is not None
        method, path, body = found.groups()
        if give:
            return await self._answer(method, path, self._kept[give])
        with suppress(json.JSONDecodeError):
            json.loads(body or "null")
            return await self._answer(method, path, body.encode() or None, keep)
        raise NoStep(f"The body is no JSON: {body}")

    async def _often(self, number: int, request: str, *, together: bool) -> list[str]:
        """The same request one after the other, or all at once; equal answers are counted."""
        answers: list[list[str]] = []  # in the order in which they came, which at once need not be that of the requests

        async def ask() -> None:
            answers.append(await self._ask(request))

        if together:
            await asyncio.gather(*(ask() for _ in range(number)))
        else:
            for _ in range(number):
                await ask()
        counts = Counter("\n".join(answer) for answer in answers)
        return [line for answer, count in counts.items() for line in (f"{count} times:", *answer.split("\n"))]

    async def _raw(self, rest: str) -> list[str]:
        """A request whose body is no JSON."""
        method, path, text = (*self._names.meant(rest).split(" ", 2), "")[:3]
        return await self._answer(method, path, text.replace("\\n", "\n").encode())

    async def _upload(self, rest: str) -> list[str]:
        path, name, *content = shlex.split(self._names.meant(rest))
        text = " ".join(content).replace("\\n", "\n")
        head = f'--form\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        self._once["content-type"] = "multipart/form-data; boundary=form"
        return await self._answer("POST", path, f"{head}{text}\r\n--form--\r\n".encode())

    async def _answer(self, method: str, path: str, body: bytes | None, keep: str = "") -> list[str]:
        headers, self._once = {**self._as, **self._once}, {}
        try:
            answer = await self._client.request(method, path, body, headers=headers, timeout_s=PATIENCE_S)
        except ConnectionLost:  # the power failed, or the server refused to go on
            return ["the connection broke"]
        if keep:
            self._kept[keep] = answer.body
        return self._answered(answer)

    def _answered(self, answer: Response) -> list[str]:
        kind = answer.headers.get("content-type", "")
        unusual = [each for each in answer.headers.items() if each[0] not in _HEADERS and each != _USUAL]
        told = (f"{key}={self._names.shown(value)}" for key, value in unusual)
        head = [" ".join([str(answer.status), *told])]
        if "event-stream" in kind:
            return head + [self._event(line) for line in answer.body.decode().splitlines() if line]
        if "json" in kind:
            return head + self._text.json(answer.json())
        return head + [self._names.shown(line) for line in answer.body.decode(errors="replace").splitlines()]

    def _event(self, line: str) -> str:
        field, _, value = line.partition(": ")
        if field != "data" or not value.startswith("{"):
            return self._names.shown(line)
        return f"data: {self._text.line(json.loads(value))}"

    def _tell_model(self, rest: str) -> None:
        verb, _, told = rest.partition(" ")
        if verb == "thinks":  # several times are for one reply each, and the last stays
            self._thinks_s = deque(map(float, told.split()))
        elif verb == "replies":
            status, _, body = told.partition(" ")
            self._replies.append((int(status), self._names.meant(body)))
        else:
            raise NoStep(f"A model 'thinks' or 'replies', and not: '{rest}'.")

    async def _model(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        await asyncio.sleep(self._thinks_s.popleft() if len(self._thinks_s) > 1 else self._thinks_s[0])
        if self._replies and asked.path.endswith("/chat/completions"):
            status, body = self._replies.popleft()
            self._prompts.seen(json.loads(asked.body))
            await answer.start(status, {"content-type": "application/json"})
            await answer.send(body.encode())
            return
        if asked.path.endswith("/chat/completions"):
            self._prompts.seen(json.loads(asked.body))
        await self._machine.llm(asked, answer)

    def _host(self, rest: str) -> None:
        name, status, body = (*rest.split(" ", 2), "{}")[:3]

        async def receive(asked: OutgoingRequest, answer: OutgoingResponse) -> None:
            content: Any = asked.body.decode(errors="replace")
            with suppress(json.JSONDecodeError):
                content = json.loads(content)
            line = f"{name} received {asked.method} {self._names.shown(asked.path)}"
            self._received += [line, *(f"  {inner}" for inner in self._text.json(content))]
            await answer.start(int(status), {"content-type": "application/json"})
            await answer.send(body.encode())

        self._world.internet.host(name, receive)

    def _provider(self, rest: str) -> None:
        """A model provider that records with which key it is asked for what. It has the scripted model, or always gives
        the same answer: JSON, or the lines of a stream with `\\n` between them, where `: pause 30` is half a minute. A
        list of answers is played by `tests/snapshots/provider_host.py`."""
        name, _, told = rest.partition(" ")
        if told.startswith("["):
            if name not in self._providers:
                self._providers[name] = ProviderHost(name, self._hear, self._text)
            self._providers[name].tell(json.loads(told))
            self._world.internet.host(name, self._providers[name])
            return
        status, _, given = told.partition(" ")
        streams = given.startswith(("data:", "event:"))

        async def receive(asked: OutgoingRequest, answer: OutgoingResponse) -> None:
            key = asked.headers.get("authorization") or asked.headers.get("x-api-key") or asked.headers.get("api-key")
            self._received.append(f"{name} received {asked.method} {asked.path}, key: {key}")
            body = json.loads(asked.body or "{}")
            if not told:
                self._received += [f"  model: {body['model']}"] if "model" in body else []
                await self._machine.llm(asked, answer)
                return
            self._received += [f"  {line}" for line in self._text.json(body)] if body else []
            kind = "text/event-stream" if streams else "application/json"
            await answer.start(int(status), {"content-type": kind})
            pieces = _PAUSE.split(given.replace("\\n", "\n")) if streams else [given]
            for piece, pause_s in zip(pieces[::2], [*pieces[1::2], "0"], strict=True):
                await answer.send(piece.encode())
                await asyncio.sleep(float(pause_s))

        self._world.internet.host(name, receive)

    def _hear(self, line: str) -> None:
        self._received.append(line)

    def _tell_mcp(self, rest: str) -> None:
        name, _, told = rest.partition(" ")
        if name not in self._mcp:
            self._mcp[name] = McpHost()
            self._world.internet.host(name, self._mcp[name])
        self._mcp[name].tell(json.loads(self._names.meant(told)))

    def _tell_web(self, rest: str) -> None:
        name, _, told = rest.partition(" ")
        if name not in self._web:
            self._web[name] = WebHost()
            self._world.internet.host(name, self._web[name])
        self._web[name].tell(json.loads(told))

    def _web_requests(self) -> list[str]:
        lines: list[str] = []
        for name, host in self._web.items():
            seen, host.received = host.received, []
            for line, headers, body in seen:
                lines += [f"{name} received {line}"]
                lines += [f"  with {self._text.line(headers)}"] if headers else []
                lines += [f"  {body}"] if body else []
        return lines

    def _mcp_calls(self) -> list[str]:
        lines: list[str] = []
        for name, host in self._mcp.items():
            seen, host.received = host.received, []
            for method, told, headers in seen:
                lines += [f"{name} received {method} {self._text.line(told)}"]
                lines += [f"  with {self._text.line(headers)}"] if headers else []
        return lines

    def _happened(self) -> list[str]:
        """What the server has asked of others since the last look."""
        received, self._received = [*self._received, *self._mcp_calls(), *self._web_requests()], []
        lines = [json.loads(line) for line in self._logged.getvalue().splitlines()]
        self._logged.seek(0)
        self._logged.truncate()
        return [*self._prompts.news(), *received, *(f"log {line['level']} {line['code']}" for line in lines)]

    def _rows(self) -> list[str]:
        disk = self._machine.disk
        tables = [name for (name,) in disk.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        counts = {name: disk.query(f'SELECT COUNT(*) FROM "{name}"')[0][0] for name in tables}
        return [f"rows: {', '.join(f'{name} {count}' for name, count in counts.items() if count)}"]


class _Prompts:
    """What the model was asked: of each request the messages that it was not asked before."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._asked: list[Mapping[str, Any]] = []
        self._known: set[str] = set()
        self._system: dict[str, list[str]] = {}  # the last one of each kind, by its first line
        self._tools: list[Any] = []

    def seen(self, body: Mapping[str, Any]) -> None:
        self._asked.append(body)

    def news(self) -> list[str]:
        asked, self._asked = self._asked, []
        return [line for body in asked for line in self._of(body)]

    def _of(self, body: Mapping[str, Any]) -> list[str]:
        lines: list[str] = []
        for message in body["messages"]:
            if message["role"] == "system" and isinstance(message["content"], str):
                lines += [f"    {line}" for line in self._changed(message["content"])]
                continue
            line = self._text.line(message)
            if line not in self._known:
                self._known.add(line)
                lines.append(f"    {line}")
        options = {key: value for key, value in body.items() if key not in ("messages", "tools", "stream_options")}
        tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
        told = {**options, **({"tools": tools} if tools != self._tools else {})}
        self._tools = tools
        return [f"the model is asked with {len(body['messages'])} messages, {self._text.line(told)}", *lines]

    def _changed(self, content: str) -> list[str]:
        system = self._text.line(content)[1:-1].replace("\\n", "\n").split("\n")
        before, self._system[system[0]] = self._system.get(system[0], []), system
        changed = list(unified_diff(before, system, n=0, lineterm=""))
        return [_cut(line) for line in changed[2:] if not line.startswith("@@")]


def _cut(line: str) -> str:
    return line if len(line) <= STRING_MAX else f"{line[:STRING_MAX]} ... ({len(line)} characters)"


def _settings(todo: Sequence[Step], told: list[str]) -> tuple[Settings, Sequence[Step]]:
    """The settings that the first steps name."""
    settings = replace(SETTINGS, trace_steps=100)
    known = {field.name for field in fields(Settings)}
    for at, step in enumerate(todo):
        word, _, rest = step.command.partition(" ")
        name, _, value = rest.partition("=")
        if word != "setting":
            return settings, todo[at:]
        if name not in known:
            raise NoStep(f"There is no setting '{name}'.")
        given = json.loads(value)
        settings = replace(settings, **{name: tuple(given) if isinstance(given, list) else given})
        told += [*([""] if told else []), *([step.comment] if step.comment else []), f"> {step.command}"]
    return settings, ()
