"""How control moves between the modules of `kelpie` while a real server does one thing, from a trace of its calls.

    python bench/call_paths.py                           all paths
    python bench/call_paths.py --path message search     some of them
    python bench/call_paths.py --calls                   also lists every distinct call, in order of its first time

Prints JSON. The paths:

    message      POST /v1/agents/{id}/messages: one call of archival_memory_insert, then one answer
    background   the same over POST /v1/agents/{id}/messages/stream with `background` and `stream_tokens`
    sandbox      POST /v1/agents/{id}/messages: one call of a custom tool in its sandbox, then one answer
    search       GET /v1/agents/{id}/archival-memory/search over 20 passages
    start        the start of a server whose data directory holds nothing unfinished
    recovery     the start of a server after `kill -9` within a turn, until the turn has ended, without the calls (the
                 same calling and called function) that `start` makes as well

Nothing is replaced: the server is the command `kelpie server start --foreground` in a process of its own, with SQLite
in a temporary directory, sandboxes where this machine has them, and a model behind HTTP (bench/fake_model.py). The
agent is hot except after a start. Each path runs five times; the run with the fewest entries is printed, because
background work of the server can only add to a run. Workers that the server started before are left out.

How the counts are made. Only functions in the files of the package `kelpie` count; frames of the standard library and
of other packages are looked through. What runs while a module is imported does not count.

    entry            a function starts, and its nearest caller within `kelpie` is in another module, or there is none
                     (the event loop or a thread started it). A coroutine or generator that goes on after it waited is
                     no entry.
    modules          modules that were visited: one of its functions started, went on, or stood on the stack as caller
    calls            all entries
    from_loop        entries without a caller within `kelpie`
    re_entries       entries into a module that was visited before. As an entry comes from elsewhere, control has left
                     the module since.
    back_calls       re-entries into a module that stands on the stack already: A calls B, and B calls back into A
    package_changes  entries whose caller is in another top-level package
    depth_max        the largest number of module changes on one stack, plus one
    distinct         the same without repetition: each pair of calling and called function counts once. This is nearest
                     to what a reader of the source follows, for whom a loop over ten messages is one call. Re-entries
                     are the calls into a module but one.
    distinct_without_leaves  of the distinct calls, those of functions that themselves lead to another module. A leaf
                     (the clock, a new id, a field of a record, one SQL statement) goes down and comes straight back.
    back_and_forth   the modules with the most re-entries of each kind
    started_by_loop  the outermost functions on the stack, each with its entries; the background work of the server
                     shows here
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import ne
from pathlib import Path
from typing import Any, Self

import httpx

from load.server import FAKE_MODEL, telling

TRACED = Path(__file__).parent / "load" / "traced_server.py"
READY_S = 120.0
POLL_S = 0.02
QUIET_S = 0.5  # a request is over when the server has started no function for so long
WAIT_MS = 700  # of the model, in the turn that is killed and in the same turn when it goes on
START_QUIET_S = QUIET_S + 2 * WAIT_MS / 1000  # shorter than the pauses of background work
MODEL = "openai/gpt-4o-mini"
TOP = 15
TOOL = '''
def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b
'''

Records = list[dict[str, Any]]


class Traced:
    """A server that records its calls, on a data directory that outlives it."""

    def __init__(self, data_dir: str, model_url: str, *, record: bool = False) -> None:
        self._note = Path(data_dir) / "kelpie.pid"
        env = {name: value for name, value in os.environ.items() if not name.startswith(("KELPIE_", "OPENAI_"))} | {
            "KELPIE_DATA_DIR": data_dir,
            "KELPIE_HOST": "127.0.0.1",
            "KELPIE_PORT": "0",
            "KELPIE_LOG_LEVEL": "warning",
            "OPENAI_BASE_URL": model_url,
            "OPENAI_API_KEY": "none",
        }
        options = ["--record"] if record else []
        self._process = subprocess.Popen(
            [sys.executable, str(TRACED), *options, "server", "start", "--foreground"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.http = httpx.Client(timeout=READY_S, trust_env=False)

    def wait(self) -> Self:
        """Until the server has noted its address, which it does once it serves."""
        started = time.monotonic()
        while time.monotonic() - started < READY_S and self._process.poll() is None:
            pid, _, url = self._note.read_text().strip().partition("\n") if self._note.exists() else ("", "", "")
            if url and pid == str(self._process.pid):
                self.http.base_url = url
                return self
            time.sleep(POLL_S)
        raise SystemExit("the server did not start")

    def __enter__(self) -> Self:
        return self.wait()

    def __exit__(self, *_: object) -> None:
        """Stops the server, unless it was killed."""
        self._process.terminate()
        self._process.wait(READY_S)
        self.http.close()

    def records(self, work: Callable[[], object]) -> Records:
        """What the server does for this work."""
        self._command("record")
        work()
        return self.end(QUIET_S)

    def end(self, quiet_s: float) -> Records:
        """What was recorded until the server started no function for so long."""
        found = self._command(f"end {quiet_s}")
        if found is None:
            raise SystemExit("the server did not come to rest")
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.http.post(path, json=body)
        if answer.status_code != httpx.codes.OK:
            raise SystemExit(f"POST {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def new_agent(self, **fields: Any) -> str:
        blocks = [{"label": "human", "value": "Name: Bob"}, {"label": "persona", "value": "I help."}]
        return self.post("/v1/agents/", {"model": MODEL, "memory_blocks": blocks, **fields})["id"]

    def _command(self, line: str) -> Records | None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def insert(number: int) -> str:
    """A message upon which the model inserts a passage."""
    return f'!call archival_memory_insert {{"content": "Fact {number}: the heron eats {number} fish a day."}}'


def message(server: Traced, repeats: int) -> list[Records]:
    agent = server.new_agent(tools=["archival_memory_insert"])

    def send(number: int) -> None:
        told = server.post(f"/v1/agents/{agent}/messages", {"input": insert(number)})["messages"]
        _expect(told, "success")

    send(0)
    send(1)
    return [server.records(lambda number=number: send(number)) for number in range(2, repeats + 2)]


def background(server: Traced, repeats: int) -> list[Records]:
    agent = server.new_agent(tools=["archival_memory_insert"])

    def send(number: int) -> None:
        body = {"input": insert(number), "background": True, "stream_tokens": True, "include_pings": False}
        answer = server.http.post(f"/v1/agents/{agent}/messages/stream", json=body)
        if answer.status_code != httpx.codes.OK or "data: [DONE]" not in answer.text:
            raise SystemExit(f"the stream did not end well: {answer.status_code} {answer.text}")

    send(0)
    send(1)
    return [server.records(lambda number=number: send(number)) for number in range(2, repeats + 2)]


def sandbox(server: Traced, repeats: int) -> list[Records]:
    tool = server.post("/v1/tools/", {"source_code": TOOL})["id"]
    agent = server.new_agent(tool_ids=[tool])

    def send() -> None:
        told = server.post(f"/v1/agents/{agent}/messages", {"input": '!call add {"a": 1, "b": 2}'})["messages"]
        _expect(told, "success")

    send()
    send()
    return [server.records(send) for _ in range(repeats)]


def search(server: Traced, repeats: int) -> list[Records]:
    agent = server.new_agent()
    for number in range(20):
        server.post(f"/v1/agents/{agent}/archival-memory", {"text": f"Fact {number}: the heron eats {number} fish."})

    def find() -> None:
        path = f"/v1/agents/{agent}/archival-memory/search"
        found = server.http.get(path, params={"query": "what does the heron eat", "top_k": 5})
        if found.status_code != httpx.codes.OK or not found.json()["count"]:
            raise SystemExit(f"GET {path}: {found.status_code} {found.text}")

    find()
    find()
    return [server.records(find) for _ in range(repeats)]


SERVED: dict[str, Callable[[Traced, int], list[Records]]] = {
    "message": message,
    "background": background,
    "sandbox": sandbox,
    "search": search,
}
PATHS = (*SERVED, "start", "recovery")


def start(model_url: str) -> Records:
    """A second start of a server that was stopped in order, after one turn."""
    with tempfile.TemporaryDirectory() as data_dir:
        with Traced(data_dir, model_url) as first:
            agent = first.new_agent(tools=["archival_memory_insert"])
            first.post(f"/v1/agents/{agent}/messages", {"input": insert(0)})
        with Traced(data_dir, model_url, record=True) as second:
            return second.end(START_QUIET_S)


def recovery(model_url: str) -> Records:
    """A start after a server was killed when a turn had committed its tool call and waited for the answer."""
    with tempfile.TemporaryDirectory() as data_dir:
        with Traced(data_dir, model_url) as first:
            agent = first.new_agent(tools=["archival_memory_insert"])
            first.post(f"/v1/agents/{agent}/messages", {"input": insert(0)})
            body = {"input": f"{insert(1)} wait_ms={WAIT_MS}", "background": True}
            with first.http.stream("POST", f"/v1/agents/{agent}/messages/stream", json=body) as stream:
                if not any("tool_return_message" in line for line in stream.iter_lines()):
                    raise SystemExit("the turn ended before the server was killed")
                first.kill()
        with Traced(data_dir, model_url, record=True) as second:
            found = second.end(START_QUIET_S)
            runs = second.http.get("/v1/runs/", params={"agent_id": agent}).json()
    if [run["status"] for run in runs] != ["completed"] * 2:
        raise SystemExit(f"the turn was not taken up again: {runs}")
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that started for a caller in another module, or for none. Both are named `module:function`."""

    called: str
    caller: str | None
    stack: tuple[str, ...]  # of modules, the called one first

    @property
    def changes_package(self) -> bool:
        return self.caller is not None and _package(self.caller) != _package(self.called)

    @property
    def goes_back(self) -> bool:
        """Whether the called module stands on the stack already."""
        return self.stack[0] in self.stack[1:]


def entry(record: dict[str, Any]) -> Entry | None:
    """The entry that a record is, if it is one."""
    stack: list[list[str]] = record.get("stack", [])
    if not stack or (len(stack) > 1 and stack[1][0] == record["module"]):
        return None
    caller = ":".join(stack[1]) if len(stack) > 1 else None
    return Entry(":".join(stack[0]), caller, tuple(module for module, _ in stack))


def beyond(records: Records, known: list[Records]) -> Records:
    """The entries of a run that make calls which none of the known runs makes."""
    made = {(each.caller, each.called) for run in known for each in map(entry, run) if each is not None}
    found = ((record, entry(record)) for record in records)
    return [record for record, each in found if each is not None and (each.caller, each.called) not in made]


def counts(records: Records, *, with_calls: bool) -> dict[str, Any]:
    """The figures of one run, by the rules above."""
    visited: set[str] = set()
    again: Counter[str] = Counter()
    passing: set[str] = set()  # functions that were on the stack of an entry
    started: Counter[str] = Counter()
    entries: list[Entry] = []
    for record in records:
        visited.update(module for module, _ in record.get("stack", [])[1:])
        if (found := entry(record)) is not None:
            entries.append(found)
            again[record["module"]] += record["module"] in visited
            passing.update(":".join(function) for function in record["stack"][1:])
            started[":".join(record["stack"][-1])] += 1
        visited.add(record["module"])
    distinct = Counter((each.caller, each.called) for each in entries)
    inner = [pair for pair in distinct if pair[1] in passing]
    return {
        "modules": len(visited),
        "modules_per_package": dict(Counter(map(_package, visited)).most_common()),
        "calls": len(entries),
        "from_loop": sum(each.caller is None for each in entries),
        "re_entries": again.total(),
        "back_calls": sum(each.goes_back for each in entries),
        "package_changes": sum(each.changes_package for each in entries),
        "depth_max": max((1 + sum(map(ne, each.stack, each.stack[1:])) for each in entries), default=0),
        "distinct": {
            "calls": len(distinct),
            "re_entries": _beyond_first(distinct).total(),
            "back_calls": len({(each.caller, each.called) for each in entries if each.goes_back}),
        },
        "distinct_without_leaves": {
            "modules": len({_module(called) for _, called in inner}),
            "calls": len(inner),
            "re_entries": _beyond_first(inner).total(),
        },
        "back_and_forth": {
            "all": _most(again),
            "back_calls": _most(Counter(each.stack[0] for each in entries if each.goes_back)),
            "distinct": _most(_beyond_first(distinct)),
            "distinct_without_leaves": _most(_beyond_first(inner)),
        },
        "started_by_loop": dict(started.most_common()),
    } | ({"distinct_calls": [f"{a or '(loop)'} -> {b} x{n}" for (a, b), n in distinct.items()]} if with_calls else {})


def _beyond_first(calls: Iterable[tuple[str | None, str]]) -> Counter[str]:
    """Per module, the calls into it but one."""
    per_module = Counter(_module(called) for _, called in calls)
    return Counter({module: count - 1 for module, count in per_module.items()})


def _most(counted: Counter[str]) -> dict[str, int]:
    return {module: count for module, count in counted.most_common(TOP) if count}


def _module(function: str) -> str:
    return function.partition(":")[0]


def _package(name: str) -> str:
    package, dot, _ = _module(name).partition(".")
    return package if dot else "(top)"


def _expect(messages: list[dict[str, Any]], status: str) -> None:
    returned = [each for each in messages if each["message_type"] == "tool_return_message"]
    if [each["status"] for each in returned] != [status] or messages[-1]["message_type"] != "assistant_message":
        raise SystemExit(f"the turn went another way: {messages}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", nargs="*", default=PATHS, choices=PATHS, metavar="PATH")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", action="store_true")
    options = parser.parse_args()
    model, port = telling([str(FAKE_MODEL)])
    model_url = f"http://127.0.0.1:{port}/v1"
    found: dict[str, list[Records]] = {}
    try:
        with tempfile.TemporaryDirectory() as data_dir, Traced(data_dir, model_url) as server:
            for name in (name for name in SERVED if name in options.path):
                found[name] = SERVED[name](server, options.repeats)
        if {"start", "recovery"} & {*options.path}:
            found["start"] = [start(model_url) for _ in range(options.repeats)]
        if "recovery" in options.path:
            killed = [recovery(model_url) for _ in range(options.repeats)]
            found["recovery"] = [beyond(each, found["start"]) for each in killed]
    finally:
        model.terminate()
        model.wait(30)
    out = {name: [counts(each, with_calls=options.calls) for each in runs] for name, runs in found.items()}
    print(json.dumps({name: min(runs, key=lambda run: run["calls"]) for name, runs in out.items()}, indent=1))


if __name__ == "__main__":
    main()
