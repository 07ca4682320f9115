"""MCP servers that others wrote, in the hands of an agent: stdio servers in the real sandbox, the others over HTTP.

Server and model are processes of their own and shared by all tests of this file; each test makes its agent.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.served import Served, served
from tests.acceptance.wire_model import OPENAI, WireModel, wires
from tests.mcp.installed import EVERYTHING, FETCH, FILESYSTEM, HERE, MCP_1, NODE, free_port, listening, require
from tests.mcp.plain_sandbox import PROGRAM
from tests.parts import lacks
from tests.turns import in_turns

pytestmark = pytest.mark.usefixtures("sandboxed")

DEADLINE_S = 120.0
PAUSE_S = 0.1
PYTHON = str(Path(sys.executable).resolve())
SITE = str(Path(httpx.__file__).parents[1])
FIRST, SECOND = HERE / "sdk_server_1.py", HERE / "sdk_server_2.py"
WITHOUT_NODE = {"PATH": "/nowhere"}  # with Node.js, the fetch server installs packages of npm when it is first called
TREES = (str(HERE), SITE, str(MCP_1), str(FETCH))  # granted to stdio servers: they see nothing else of their programs


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that a server may write to: cells are other users than root."""
    made = tmp_path_factory.mktemp("files")
    made.chmod(0o777)
    (made / "note.txt").write_text("sails")
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: WireModel, files: Path) -> Iterator[Served]:
    require(EVERYTHING, FILESYSTEM, MCP_1, FETCH)
    settings = {
        "KELPIE_MCP_PRIVATE": "true",
        "KELPIE_MCP_DIRECTORIES": ",".join((*TREES, str(files))),
        "KELPIE_EGRESS_PRIVATE": "true",
        "KELPIE_SANDBOX_PACKAGES": "true",
    }
    with served(tmp_path_factory.mktemp("data"), **wires(model.url), **settings) as running:
        yield running


class Ports:
    """Servers over HTTP, each started when a test asks for its port: several workers share this file."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self._found: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        if name not in self._found:
            port = free_port()
            command, env = self._server(name, str(port))
            self._found[name] = self._running.enter_context(listening(command, port, env))
        return self._found[name]

    def _server(self, name: str, port: str) -> tuple[tuple[str | Path, ...], dict[str, str]]:
        old = {"PYTHONPATH": str(MCP_1)}
        return {
            "everything": ((NODE, EVERYTHING, "streamableHttp"), {"PORT": port}),
            "everything_sse": ((NODE, EVERYTHING, "sse"), {"PORT": port}),
            "first_http": ((sys.executable, FIRST, "streamable-http", port), old),
            "first_sse": ((sys.executable, FIRST, "sse", port), old),
            "second_http": ((sys.executable, SECOND, "streamable-http", port), {}),
        }[name]


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    with ExitStack() as running:
        yield Ports(running)


class Hand:
    """What the tests do by hand: register servers, make agents, and read what became of their calls."""

    def __init__(self, http: httpx.Client, model: WireModel) -> None:
        self.http = http
        self.model = model

    def register(self, name: str, **config: Any) -> dict[str, str]:
        """The ids of the tools of a new server, by their names on it."""
        made = self.http.post("/v1/mcp-servers/", json={"server_name": name, "config": config})
        assert made.status_code == 200, made.text
        self.id = made.json()["id"]
        refreshed = self.http.patch(f"/v1/mcp-servers/{self.id}/refresh")
        assert refreshed.status_code == 200, refreshed.text
        tools = self.http.get(f"/v1/mcp-servers/{self.id}/tools").json()
        return {tool["name"].removeprefix(f"{name}__"): tool["id"] for tool in tools}

    def stdio(self, name: str, *command: str | Path, env: dict[str, str] | None = None, **options: Any) -> Any:
        granted = [{"path": tree} for tree in TREES] + options.pop("directories", [])
        return self.register(
            name,
            mcp_server_type="stdio",
            command=str(command[0]),
            args=list(map(str, command[1:])),
            env=env,
            kelpie_options={"directories": granted, **options},
        )

    def over_http(self, name: str, port: int, kind: str = "streamable_http", path: str = "/mcp") -> dict[str, str]:
        return self.register(name, mcp_server_type=kind, server_url=f"http://127.0.0.1:{port}{path}")

    def version(self, name: str) -> str:
        found = {each["server_name"]: each for each in self.http.get("/v1/kelpie/mcp-servers").json()}
        return found[name]["protocol_version"]

    def name_of(self, tool_id: str) -> str:
        return self.http.get(f"/v1/tools/{tool_id}").json()["name"]

    def agent(self, *tool_ids: str) -> str:
        body = {"model": OPENAI, "include_base_tools": False, "tool_ids": tool_ids}
        made = self.http.post("/v1/agents/", json=body)
        assert made.status_code == 200, made.text
        return made.json()["id"]

    def turn(self, agent: str, **body: Any) -> list[dict[str, Any]]:
        told = self.http.post(f"/v1/agents/{agent}/messages", json=body or {"input": "go"})
        assert told.status_code == 200, told.text
        return told.json()["messages"]

    def calls(self, *wanted: tuple[str, dict[str, Any]]) -> list[tuple[str, str]]:
        """Status and text of calls that a model makes one after the other, in one turn."""
        names = [(self.name_of(tool_id), arguments) for tool_id, arguments in wanted]
        self.model.will(*([each] for each in names), "done")
        messages = self.turn(self.agent(*dict.fromkeys(tool_id for tool_id, _ in wanted)))
        assert messages[-1]["content"] == "done"
        returned = [each for each in messages if each["message_type"] == "tool_return_message"]
        return [(each["status"], each["tool_return"]) for each in returned]

    def until_ended(self, task_id: str) -> dict[str, Any]:
        return self._until(lambda: self.http.get(f"/v1/kelpie/mcp-tasks/{task_id}").json(), lambda it: it["run_id"])

    def until_told(self, agent: str, words: str) -> None:
        self._until(lambda: self.http.get(f"/v1/agents/{agent}/messages").text, lambda text: words in text)

    def _until(self, read: Callable[[], Any], holds: Callable[[Any], Any]) -> Any:
        end = time.monotonic() + DEADLINE_S
        while not holds(found := read()):
            assert time.monotonic() < end, found
            time.sleep(PAUSE_S)
        return found


@pytest.fixture(scope="module")
def hand(server: Served, model: WireModel) -> Iterator[Hand]:
    with httpx.Client(base_url=server.url, timeout=DEADLINE_S, trust_env=False) as http:
        yield Hand(http, model)


def test_everything_over_three_transports_in_one_conversation(hand: Hand, ports: Ports) -> None:
    program = hand.stdio("program", "node", EVERYTHING, "stdio", memory_mb=1024)
    web = hand.over_http("web", ports["everything"])
    old = hand.over_http("old", ports["everything_sse"], "sse", "/sse")
    assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= program.keys()
    assert program.keys() - {"simulate-research-query"} <= web.keys() | old.keys()
    assert (hand.version("program"), hand.version("web"), hand.version("old")) == ("2025-11-25",) * 3
    steps = {"duration": 0.2, "steps": 2}
    found = hand.calls(
        (program["echo"], {"message": "by pipe"}),
        (web["echo"], {"message": "by http"}),
        (old["echo"], {"message": "by sse"}),
        (program["get-sum"], {"a": 20, "b": 22}),
        (web["trigger-long-running-operation"], steps),
        (old["get-structured-content"], {"location": "Chicago"}),
        (program["get-tiny-image"], {}),
        (program["get-sum"], {"a": "x", "b": 1}),
    )
    assert [status for status, _ in found] == ["success"] * 7 + ["error"]
    texts = [text for _, text in found]
    assert texts[0].endswith("by pipe") and texts[1].endswith("by http") and texts[2].endswith("by sse")
    assert "42" in texts[3] and "completed" in texts[4].lower() and "temperature" in texts[5]


def test_the_filesystem_server_reaches_what_it_is_granted_and_nothing_else(hand: Hand, files: Path) -> None:
    tools = hand.stdio("disk", "node", FILESYSTEM, files, "/etc", directories=[{"path": str(files), "writable": True}])
    found = hand.calls(
        (tools["read_text_file"], {"path": str(files / "note.txt")}),
        (tools["write_file"], {"path": str(files / "new.txt"), "content": "skis"}),
        (tools["list_directory"], {"path": str(files)}),
        (tools["read_text_file"], {"path": "/etc/shadow"}),
        (tools["read_text_file"], {"path": str(Path(__file__))}),
    )
    assert [status for status, _ in found] == ["success"] * 3 + ["error"] * 2
    assert "sails" in found[0][1] and "note.txt" in found[2][1]
    assert (files / "new.txt").read_text() == "skis"


class Tea(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html><body><article><p>Tea is made of leaves.</p></article></body></html>")

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def page() -> Iterator[str]:
    """The host and port of a web page. In a cell 127.0.0.1 is the cell itself; its neighbour is asked for by proxy."""
    web = ThreadingHTTPServer(("127.0.0.2", 0), Tea)
    serving = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield f"127.0.0.2:{web.server_port}"
    web.shutdown()
    web.server_close()
    serving.join()


def test_the_fetch_server_has_the_network_that_it_is_granted(hand: Hand, page: str) -> None:
    env = {"PYTHONPATH": f"{FETCH}:{SITE}", **WITHOUT_NODE}
    command = (PYTHON, "-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips")
    granted = hand.stdio("fetch", *command, env=env, egress=[page])
    refused = hand.stdio("shut", *command, env=env)
    found = hand.calls(*((tools["fetch"], {"url": f"http://{page}/tea"}) for tools in (granted, refused)))
    assert found[0][0] == "success", found
    assert "Tea is made of leaves." in found[0][1]
    assert found[1][0] == "error" and "Tea is made" not in found[1][1]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("first", "2025-11-25"),
        ("first_http", "2025-11-25"),
        ("first_sse", "2025-11-25"),
        ("second", "2026-07-28"),
        ("second_http", "2026-07-28"),
    ],
)
def test_servers_of_the_python_sdk(hand: Hand, ports: Ports, name: str, version: str) -> None:
    if name == "first":
        tools = hand.stdio(name, PYTHON, FIRST, "stdio", env={"PYTHONPATH": f"{MCP_1}:{SITE}"})
    elif name == "second":
        tools = hand.stdio(name, PYTHON, SECOND, "stdio", env={"PYTHONPATH": SITE})
    elif name == "first_sse":
        tools = hand.over_http(name, ports["first_sse"], "sse", "/sse")
    else:
        tools = hand.over_http(name, ports[name])
    assert hand.version(name) == version
    found = hand.calls((tools["add"], {"a": 2, "b": 3}), (tools["walk"], {"steps": 2}))
    assert [status for status, _ in found] == ["success", "success"]
    assert "5" in found[0][1] and "arrived" in found[1][1]
    asked(hand, tools["greet"])


def asked(hand: Hand, tool_id: str) -> None:
    """A question of the server waits for a person, and the call goes on with the answer."""
    agent = hand.agent(tool_id)
    hand.model.will([(hand.name_of(tool_id), {})], "done")
    request = hand.turn(agent)[-1]
    assert request["message_type"] == "approval_request_message"
    (question,) = request["tool_call"]["kelpie_questions"]
    assert question["message"] == "What is your name?"
    call_id = request["tool_call"]["tool_call_id"]
    ruling = {"type": "approval", "tool_call_id": call_id, "approve": True, "arguments": {"name": "Ada"}}
    messages = hand.turn(agent, messages=[{"type": "approval", "approvals": [ruling]}])
    assert messages[-1]["content"] == "done"
    assert any("Hello Ada" in json.dumps(each) for each in messages)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where no package can be had."""
    place = str(tmp_path_factory.mktemp("pip"))
    command = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, "mcp-server-fetch==2026.10.24")
    if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode:
        lacks("index", "pip download failed")


def _npx(hand: Hand, files: Path) -> None:
    grants: Any = {"kelpie_options": {"directories": [{"path": str(files)}]}}
    package = "@modelcontextprotocol/server-filesystem@2026.8.31"
    npx = hand.register("npx", mcp_server_type="stdio", command="npx", args=["-y", package, str(files)], **grants)
    [(status, text)] = hand.calls((npx["read_text_file"], {"path": str(files / "note.txt")}))
    assert status == "success" and "sails" in text


def _uvx(hand: Hand, _files: Path) -> None:
    uvx = hand.register("uvx", mcp_server_type="stdio", command="uvx", args=["mcp-server-fetch==2026.10.24"])
    [(status, _)] = hand.calls((uvx["fetch"], {"url": "https://example.com/"}))
    assert status == "error", "no host is granted to it"


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("installs", in_turns("npx and uvx", {"npx": _npx, "uvx": _uvx}, 2))
def test_npx_and_uvx_install_a_server_once_and_run_it_without_a_network(
    hand: Hand, files: Path, installs: Callable[[Hand, Path], None]
) -> None:
    installs(hand, files)


def test_a_program_that_fails_in_the_sandbox_fails_its_call_and_not_the_turn(hand: Hand) -> None:
    tools = hand.stdio("faulty", "python3", "-c", PROGRAM, "ok", read_seconds=2)
    wrong = ("crash", "garbage", "big", "hang")
    found = hand.calls(*((tools[name], {}) for name in wrong), (tools["add"], {"a": 1, "b": 1}))
    assert [status for status, _ in found] == ["error"] * 4 + ["success"]
    assert "its program has ended: out of luck" in found[0][1] and "instead of messages" in found[1][1]
    assert "larger than the limit" in found[2][1] and "did not answer within 2 s" in found[3][1]


def test_a_program_cannot_leave_the_sandbox(hand: Hand, server: Served, files: Path) -> None:
    source = Path(HERE / "escape_program.py").read_text()
    kept = {"directories": [{"path": str(files)}]}
    config: Any = {"mcp_server_type": "stdio", "command": "python3", "args": ["-c", source], "kelpie_options": kept}
    one, other = hand.register("one", **config), hand.register("other", **config)
    port = int(server.url.rpartition(":")[2])
    aims = {
        "server": server.pid,
        "ports": [port, int(hand.model.url.rpartition(":")[2])],
        "secrets": [str(server.data_dir / "kelpie.db"), str(server.data_dir / "kelpie.pid"), str(Path(__file__))],
        "granted": str(files / "stolen"),
    }
    found = hand.calls(
        (one["attack"], aims), (one["forge"], {}), (one["echo"], {}), (one["kept"], {}), (other["kept"], {})
    )
    assert [status for status, _ in found] == ["success"] * 5
    told: dict[str, list[str]] = json.loads(found[0][1])
    assert {name: got for name, got in told.items() if any("got " in each for each in got)} == {}
    assert told["own environment"] == told["processes"] == told["abstract sockets"] == []
    assert [text for _, text in found[1:3]] == ["done", "echo"], "what it forges is nobody's answer"
    assert "kept" not in found[4][1], "its scratch directory is its own"
    assert not (files / "stolen").exists()


def test_the_first_call_of_everything_may_ask_a_person(hand: Hand, ports: Ports) -> None:
    tools = hand.over_http("asks", ports["everything"])
    change = {"mcp_server_type": "streamable_http", "server_url": None, "kelpie_options": {"read_seconds": 29}}
    anew = hand.http.patch(f"/v1/mcp-servers/{hand.id}", json={"config": change})
    assert anew.status_code == 200, anew.text  # so that the call connects
    asks = tools["trigger-elicitation-request"]
    agent = hand.agent(asks)
    hand.model.will([(hand.name_of(asks), {})], "I have it")
    (request,) = [each for each in hand.turn(agent) if each["message_type"] == "approval_request_message"]
    ruling = {"type": "approval", "tool_call_id": request["tool_call"]["tool_call_id"], "approve": True}
    given = [{**ruling, "arguments": {"name": "Ada"}}]
    told = hand.turn(agent, messages=[{"type": "approval", "approvals": given}])
    (returned,) = [each for each in told if each["message_type"] == "tool_return_message"]
    assert returned["status"] == "success" and "Ada" in returned["tool_return"]
    assert told[-1]["content"] == "I have it"


def test_tasks_of_everything_come_back_as_messages(hand: Hand, ports: Ports) -> None:
    tool = hand.over_http("tasks", ports["everything"])["simulate-research-query"]
    agent = hand.agent(tool)
    for ambiguous, said in ((False, "Research Report: sails"), (True, "User cancelled - using default interpretation")):
        hand.model.will([(hand.name_of(tool), {"topic": "sails", "ambiguous": ambiguous})], "It runs", "It ended")
        assert hand.turn(agent)[-1]["content"] == "It runs"
        task = hand.until_ended(hand.http.get("/v1/kelpie/mcp-tasks").json()[0]["id"])
        assert task["status"] == "completed" and ("It asked a person" in (task["status_message"] or "")) <= ambiguous
        hand.until_told(agent, said)
