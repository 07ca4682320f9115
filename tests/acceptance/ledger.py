"""What clients were told, held against what the server has: nothing lost, nothing twice, nothing half.

A `Ledger` is filled by senders while servers live and die under them, and checked through the API when all is quiet.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import httpx

from tests.acceptance.scripted_model import ScriptedTurn

# Preview frames of a token stream are no promise; these are only sent once they are committed.
_COMMITTED = ("tool_return_message",)
_NO_MESSAGE = ("ping", "stop_reason", "usage_statistics")


@dataclass
class Sent:
    """One message that a client sent; `seen` are the messages it was shown as committed."""

    turn: ScriptedTurn
    otid: str
    acknowledged: bool = False
    seen: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Pupil:
    """An agent under test, and how it is spoken to."""

    id: str
    demo: bool
    heartbeats: bool
    sent: list[Sent] = field(default_factory=list)

    def text(self, turn: ScriptedTurn) -> str:
        return turn.demo_text(self.heartbeats) if self.demo else turn.text


async def send(http: httpx.AsyncClient, pupil: Pupil, turn: ScriptedTurn, manner: str) -> Sent:
    """Sends a turn and notes what came back: "whole", or streamed as "steps" or "tokens".

    A connection that breaks is not an error: then the message stays unacknowledged.
    """
    sent = Sent(turn, f"otid-{turn.name}")
    pupil.sent.append(sent)
    message = {"role": "user", "content": pupil.text(turn), "otid": sent.otid}
    body = {"messages": [message], "use_assistant_message": False}
    path = f"/v1/agents/{pupil.id}/messages"
    try:
        if manner == "whole":
            answer = await http.post(path, json=body)
            assert answer.status_code == 200, f"{turn.name}: {answer.status_code} {answer.text}"
            told = answer.json()
            sent.seen, reason = told["messages"], told["stop_reason"]["stop_reason"]
        else:
            reason = await _stream(http, f"{path}/stream", body | {"stream_tokens": manner == "tokens"}, sent)
    except httpx.TransportError:
        return sent
    assert reason in ("end_turn", "tool_rule"), f"{turn.name} ended with {reason}"
    sent.acknowledged = True
    return sent


async def _stream(http: httpx.AsyncClient, path: str, body: dict[str, Any], sent: Sent) -> str | None:
    reason = None
    async with http.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, f"{sent.turn.name}: {answer.status_code}"
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            frame = json.loads(line.removeprefix("data: "))
            assert frame["message_type"] != "error_message", f"{sent.turn.name}: {frame}"
            reason = frame.get("stop_reason", reason)
            kinds = _COMMITTED if body["stream_tokens"] else (frame["message_type"],)
            if frame["message_type"] in kinds and frame["message_type"] not in _NO_MESSAGE:
                sent.seen.append(frame)
    return reason


class Books:
    """What the server says about one agent, read in one go."""

    def __init__(self, messages: list[dict[str, Any]], runs: list[dict[str, Any]], agent: Mapping[str, Any]) -> None:
        self.messages = messages
        self.runs = {run["id"]: run for run in runs}
        self.blocks = {block["label"]: block["value"] for block in agent["blocks"]}
        self.context = agent["message_ids"]
        self.calls = [call for message in self.of("tool_call_message") for call in message["tool_calls"]]
        self.results = [result for message in self.of("tool_return_message") for result in message["tool_returns"]]
        self.kept = self._kept()
        self.answers = self._answers()
        self.inputs = Counter(message["otid"] for message in self.of("user_message"))
        self.by_key = {_key(message): message for message in messages}

    def of(self, message_type: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["message_type"] == message_type]

    def _kept(self) -> Counter[tuple[str, str]]:
        """Label and token of every append that is recorded as done."""
        done = {result["tool_call_id"] for result in self.results if result["status"] == "success"}
        appended = [call for call in self.calls if call["name"] == "core_memory_append"]
        arguments = [json.loads(call["arguments"]) for call in appended if call["tool_call_id"] in done]
        return Counter((one["label"], one["content"]) for one in arguments)

    def _answers(self) -> Counter[str]:
        said = [message["content"] for message in self.of("assistant_message")]
        by_tool = [
            json.loads(call["arguments"]).get("message") for call in self.calls if call["name"] == "send_message"
        ]
        return Counter([*said, *by_tool])


async def read_books(http: httpx.AsyncClient, agent_id: str) -> Books:
    async def get(path: str, **query: Any) -> Any:
        answer = await http.get(path, params=query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    whole = {"limit": 10_000, "order": "asc", "use_assistant_message": False}
    messages = await get(f"/v1/agents/{agent_id}/messages", **whole)
    runs = await get("/v1/runs/", agent_id=agent_id, limit=1000)
    return Books(messages, runs, await get(f"/v1/agents/{agent_id}", include="agent.blocks"))


async def check(http: httpx.AsyncClient, pupils: list[Pupil], shared: str) -> None:
    """Every promise for every agent; `shared` is the label of the block they all write to. Raises AssertionError."""
    noted: Counter[str] = Counter()
    shared_value = ""
    for pupil in pupils:
        books = await read_books(http, pupil.id)
        check_history(pupil, books)
        check_runs(books)
        for sent in pupil.sent:
            check_turn(sent, books)
        kept = books.kept
        mine = Counter(token for label, token in kept.elements() if label != shared)
        assert _lines(books.blocks["human"]) == mine, f"{pupil.id}: the block and its recorded edits differ"
        noted += Counter(token for label, token in kept.elements() if label == shared)
        shared_value = books.blocks[shared]
    assert _lines(shared_value) == noted, "the shared block and its recorded edits differ"


def check_history(pupil: Pupil, books: Books) -> None:
    """No message twice, every call answered once, one turn at a time, and the model sees all of it."""
    keys = Counter(_key(message) for message in books.messages)
    assert not _repeated(keys), f"{pupil.id}: twice in the history: {_repeated(keys)}"
    called = Counter(call["tool_call_id"] for call in books.calls)
    answered = Counter(result["tool_call_id"] for result in books.results)
    assert called == answered, f"{pupil.id}: calls and results differ: {called - answered} {answered - called}"
    assert not _repeated(called), f"{pupil.id}: called twice: {_repeated(called)}"
    turns = Counter(run_id for run_id, _ in groupby(books.messages, key=lambda message: message["run_id"]))
    assert not _repeated(turns), f"{pupil.id}: turns lie across each other: {_repeated(turns)}"
    rows = list(dict.fromkeys(message["id"] for message in books.messages))
    assert books.context == rows, f"{pupil.id}: the context is not the history"


def check_runs(books: Books) -> None:
    """Every run has ended for a reason; one that is in the history went to its end."""
    for run in books.runs.values():
        told = f"{run['id']}: {run['status']} {run['stop_reason']} {run['metadata']}"
        assert run["completed_at"], told
        if run["status"] == "completed":
            assert run["stop_reason"] in ("end_turn", "tool_rule"), told
        else:
            assert (run["status"], run["stop_reason"]) == ("failed", "error"), told
            assert run["metadata"]["error"]["type"] == "interrupted", told
    for message in books.messages:
        if message["run_id"] is not None:
            assert books.runs[message["run_id"]]["status"] == "completed", f"part of a failed run: {message}"


def check_turn(sent: Sent, books: Books) -> None:
    """What was acknowledged is there once and complete; what was not is there whole or not at all."""
    turn, taken = sent.turn, books.inputs[sent.otid]
    assert taken <= 1, f"{turn.name} was taken twice"
    assert taken or not (sent.acknowledged or sent.seen), f"{turn.name} was acknowledged and is lost"
    assert books.answers[turn.answer] == taken, f"{turn.name}: {books.answers[turn.answer]} answers, not {taken}"
    for token in turn.tokens():
        assert books.kept[token] == taken, f"{turn.name}: {token} is recorded {books.kept[token]} times, not {taken}"
    for message in sent.seen:
        found = books.by_key.get(_key(message))
        assert found == message, f"{turn.name}: shown to the client as {message}, stored as {found}"


def _key(message: Mapping[str, Any]) -> tuple[str, str, str | None]:
    return message["id"], message["message_type"], message["otid"]


def _lines(value: str) -> Counter[str]:
    return Counter(line for line in value.splitlines() if line)


def _repeated(counted: Counter[Any]) -> list[Any]:
    return [key for key, count in counted.items() if count > 1]
