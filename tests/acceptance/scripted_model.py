"""Turns whose every step is written into the message that begins them, and a model process that plays them.

The model speaks OpenAI's chat completions and keeps nothing: which step comes next it reads from the history it is
shown, so it survives every server and answers the same to the same. It takes a few milliseconds for each answer.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = "scripted"
HANDLE = f"openai/{MODEL}"
DELAYS_MS = 7  # an answer takes from 2 to this many more
SAY = "say"

_MARK = re.compile(r"\[turn (\S+): ([a-z+ ]+)\]")


@dataclass(frozen=True)
class ScriptedTurn:
    """A name that is used once, and what happens in each step; the last one is the answer."""

    name: str
    steps: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> str:
        return f"[turn {self.name}: {' '.join('+'.join(step) for step in self.steps)} {SAY}]"

    @property
    def answer(self) -> str:
        return f"answer to {self.name}"

    def calls(self, step: int) -> list[dict[str, Any]]:
        """The tool calls of a step; none in the last one."""
        if step >= len(self.steps):
            return []
        return [self._call(word, f"{self.name}.{step}.{place}") for place, word in enumerate(self.steps[step])]

    def tokens(self) -> list[tuple[str, str]]:
        """Every label and token that the turn appends to memory."""
        calls = [call["arguments"] for step in range(len(self.steps)) for call in self.calls(step)]
        return [(call["label"], call["content"]) for call in calls if "content" in call]

    def demo_text(self, heartbeats: bool) -> str:
        """The same turn for `kelpie/demo`."""
        extra = {"request_heartbeat": True, "thinking": "on"} if heartbeats else {}
        lines: list[dict[str, Any]] = []
        for step in range(len(self.steps)):
            calls = [{**call, "arguments": call["arguments"] | extra} for call in self.calls(step)]
            lines.append({"calls": calls, "wait_s": 0.004})
        return "!script " + json.dumps([*lines, {"text": self.answer, "wait_s": 0.004}])

    def _call(self, word: str, token: str) -> dict[str, Any]:
        if word == "search":
            return {"name": "conversation_search", "arguments": {"query": token}}
        if word == "missing":
            return {"name": "no_such_tool", "arguments": {"token": token}}
        return {"name": "core_memory_append", "arguments": {"label": word, "content": token}}


def next_reply(body: dict[str, Any]) -> dict[str, Any]:
    """The message that answers a request: the next step of the last turn in it."""
    messages = body["messages"]
    for place in range(len(messages) - 1, -1, -1):
        found = _MARK.search(str(messages[place]["content"])) if messages[place]["role"] == "user" else None
        if found:
            words = [tuple(step.split("+")) for step in found[2].split() if step != SAY]
            done = sum(message["role"] == "assistant" for message in messages[place + 1 :])
            return _message(ScriptedTurn(found[1], tuple(words)), done, body.get("tools") or [])
    return {"role": "assistant", "content": "I was given no turn to play."}


def _message(turn: ScriptedTurn, step: int, tools: list[dict[str, Any]]) -> dict[str, Any]:
    offered = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in tools}
    calls = turn.calls(step)
    if not calls and "send_message" not in offered:
        return {"role": "assistant", "content": turn.answer}
    calls = calls or [{"name": "send_message", "arguments": {"message": turn.answer}}]
    extra = {"request_heartbeat": True, "thinking": "on"} if "send_message" in offered else {}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{turn.name}_{step}_{place}",
                "index": place,
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(_dressed(call, extra))},
            }
            for place, call in enumerate(calls)
        ],
    }


def _dressed(call: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    if call["name"] == "send_message":
        return call["arguments"] | {name: value for name, value in extra.items() if name == "thinking"}
    return call["arguments"] | extra


def _answer(body: dict[str, Any]) -> tuple[str, bytes]:
    reply = next_reply(body)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    reason = "tool_calls" if reply.get("tool_calls") else "stop"
    if not body.get("stream"):
        choice = {"index": 0, "message": reply, "finish_reason": reason}
        whole = {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    chunks = [
        {"choices": [{"index": 0, "delta": reply, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": usage},
    ]
    frames = [f"data: {json.dumps({'id': 'x', **chunk})}\n\n" for chunk in chunks]
    return "text/event-stream", "".join([*frames, "data: [DONE]\n\n"]).encode()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = re.search(rb"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            if head.startswith(b"get"):
                model = {"id": MODEL, "object": "model", "context_window": 1_000_000}
                kind, answer = "application/json", json.dumps({"object": "list", "data": [model]}).encode()
            else:
                await asyncio.sleep((2 + len(body) % DELAYS_MS) / 1000)
                kind, answer = _answer(json.loads(body))
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(answer)}\r\n\r\n".encode())
            writer.write(answer)
            await writer.drain()
    writer.close()


@contextmanager
def scripted_model() -> Iterator[str]:
    """The model in a process of its own; gives the base URL it is served at."""
    root = Path(__file__).parents[2]
    command = (sys.executable, "-m", "tests.acceptance.scripted_model")
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=1 << 26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
