"""OpenAI's clients while the disk fails and the power is cut: they send their whole history with every request, vanish,
retry with and without saying so, regenerate answers, change what they said, and go on from one answer in two windows.

Whatever happens, an agent is only ever shown a history that one client really has: nothing is said twice in it, and
nothing of another client is in it. An answer that a client got is one to its own last message.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import PATIENCE_S, ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

TRIES_MAX = 60
TURNS = 5
CALLS_MAX = 10  # of a turn: after results that a fault cut off, the model calls once more
CHAT, RESPONSES = "/openai/v1/chat/completions", "/openai/v1/responses"
_TOKEN = re.compile(r"\btok-[0-9a-z-]+")
_TOOL = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}}

Message = dict[str, Any]


class ClientHistoryScenario(ServerScenario):
    """Clients of one agent, some of which begin with the same words."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.histories: set[tuple[str, ...]] = set()  # what each client said up to each of its requests
        self.answered: list[str] = []

    async def act(self) -> None:
        await self.make_agents(2)
        chats = (self._chat(client, number) for number, client in enumerate(self.clients(3)))
        chains = (self._chain(self.client(f"chain-{number}"), number) for number in range(2))
        await together((*chats, *chains))

    # --- chat completions -------------------------------------------------------------------------------------------

    async def _chat(self, client: ScenarioClient, number: int) -> None:
        history: list[Message] = []
        for _ in range(TURNS):
            await client.pause()
            if len(history) >= 2 and client.tosses(0.3):
                del history[-2:]  # the last question is asked in other words
            elif history and client.tosses(0.2):
                history.pop()  # the last answer is regenerated
            if not history or history[-1]["role"] != "user":
                lines = ("call fetch {}",) if client.tosses(0.3) else ()
                text = "\n".join((self.machine.history.token(), *lines))
                history.append({"role": "user", "content": text})
            agent_id = self.agents[number % 2]
            if client.tosses(0.3):  # in another window the same history goes on in other words, at the same time
                other = [*history[:-1], {"role": "user", "content": self.machine.history.token()}]
                window = self.client(f"{client.name}-window-{len(self.histories)}")
                told, _ = await asyncio.gather(
                    self._answer(client, agent_id, history), self._answer(window, agent_id, other)
                )
            else:
                told = await self._answer(client, agent_id, history)
            history.append(told)

    async def _answer(self, client: ScenarioClient, agent_id: str, history: list[Message]) -> Message:
        """The answer to the last message; calls of the client's tool are answered on the way."""
        told = list(history)
        for _ in range(CALLS_MAX):
            self._note(told)
            streams = client.tosses(0.4)
            body = {"model": agent_id, "messages": told, "tools": [_TOOL], "stream": streams}
            raw = await self._insist(client, CHAT, body)
            message = _streamed(raw) if streams else raw.json()["choices"][0]["message"]
            if not message.get("tool_calls"):
                token = _token(history[-1])
                if message["content"] != f"echo {token}":
                    raise Broken("an answer is one to the last message", f"{token}: {message['content']}")
                self.answered.append(token)
                del history[:]
                history += told
                return {"role": "assistant", "content": message["content"]}
            told.append({key: message.get(key) for key in ("role", "content", "tool_calls")} | {"role": "assistant"})
            told += [
                {"role": "tool", "tool_call_id": call["id"], "content": "fetched"} for call in message["tool_calls"]
            ]
        raise Broken("a turn ends", f"{_token(history[-1])} called again and again")

    # --- responses --------------------------------------------------------------------------------------------------

    async def _chain(self, client: ScenarioClient, number: int) -> None:
        """A chain of responses, which sometimes goes on from an earlier one."""
        chain: list[tuple[str, str]] = []  # tokens, and the ids of the responses to them
        for _ in range(TURNS - 1):
            await client.pause()
            if chain and client.tosses(0.3):
                chain.pop()
            if client.tosses(0.3):  # two go on from the same response at once
                window = self.client(f"{client.name}-window-{len(self.histories)}")
                link, _ = await asyncio.gather(
                    self._respond(client, chain, number), self._respond(window, chain, number)
                )
            else:
                link = await self._respond(client, chain, number)
            chain.append(link)

    async def _respond(self, client: ScenarioClient, chain: Sequence[tuple[str, str]], number: int) -> tuple[str, str]:
        """The next link of a chain."""
        token = self.machine.history.token()
        self.histories.add((*(said for said, _ in chain), token))
        body: dict[str, Any] = {"model": self.agents[number % 2], "input": token}
        if chain:
            body["previous_response_id"] = chain[-1][1]
        made = (await self._insist(client, RESPONSES, body)).json()
        text = "".join(part["text"] for item in made["output"] for part in item.get("content", ()))
        if made["status"] != "completed" or text != f"echo {token}":
            raise Broken("an answer is one to the last message", f"{token}: {made}")
        again = await client.insist("GET", f"{RESPONSES}/{made['id']}")
        if again["output"] != made["output"] or again["status"] != "completed":
            raise Broken("a response is read as it was given", f"{again} was {made}")
        if again["previous_response_id"] != body.get("previous_response_id"):
            raise Broken("a response is read as it was given", f"{again} follows {body}")
        self.answered.append(token)
        return token, made["id"]

    # --- what every client does -------------------------------------------------------------------------------------

    async def _insist(self, client: ScenarioClient, path: str, body: dict[str, Any]) -> Response:
        """Sends a request until it is answered. A retry says so, as the SDKs do, or does not, as others do."""
        honest = client.tosses(0.6)
        for number in range(TRIES_MAX):
            await self.machine.up()
            headers = {"x-stainless-retry-count": str(number)} if honest and number else {}
            try:
                peer = self.machine.client(client.name)
                response = await peer.request("POST", path, body, headers=headers, timeout_s=PATIENCE_S)
            except ConnectionLost:
                response = None
            if response is not None and response.status == 200 and not _is_cut(response.body):
                return response
            if response is not None and response.status == 409:
                honest = False  # a turn that failed halfway is asked anew
            elif response is not None and 400 <= response.status < 500 and response.status != 429:
                raise Broken("a sound request is accepted", f"{path}: {response.status} {response.body!r}")
            await client.pause(2.0)
        raise Broken("the server recovers", f"{path} failed {TRIES_MAX} times")

    def _note(self, told: list[Message]) -> None:
        self.histories.add(tuple(_token(message) for message in told if message["role"] == "user"))

    # --- what is there at the end -----------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        for seen in self.machine.llm.seen:
            self._is_one_history([_words(one) for one in seen.body["messages"] if one["role"] == "user"], "a prompt")
        threads = self.machine.disk.query("SELECT id FROM conversations")
        for (thread,) in threads:
            rows = self.machine.disk.query(
                "SELECT content FROM context JOIN messages ON messages.id = message_id "
                "WHERE context.conversation_id = ? AND role = 'user' ORDER BY position",
                thread,
            )
            self._is_one_history([str(json.loads(content)[0].get("text")) for (content,) in rows], thread)
        said = " ".join(str(row) for row in self.machine.disk.query("SELECT content FROM messages WHERE role = 'user'"))
        if lost := [token for token in self.answered if token not in said]:
            raise Broken("no answered message is lost", f"{lost}")

    def _is_one_history(self, texts: list[str], where: str) -> None:
        tokens = tuple(token for text in texts for token in _TOKEN.findall(text)[:1])
        ours = {token for history in self.histories for token in history}
        if tokens and ours & set(tokens) and tokens not in self.histories:
            raise Broken("a conversation is the history of one client", f"{where} has {tokens}")


def _token(message: Message) -> str:
    return str(message["content"]).split("\n")[0]


def _words(message: Message) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)


def _events(body: bytes) -> list[bytes]:
    return [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]


def _is_cut(body: bytes) -> bool:
    """True for a stream that failed, or ended before its end."""
    events = _events(body)
    if not events:
        return body.startswith(b":")
    return events[-1] != b"[DONE]" or any(b'"error":' in event[:10] for event in events)


def _streamed(response: Response) -> Message:
    """The message in the chunks of a stream."""
    text, calls = "", []
    for event in _events(response.body)[:-1]:
        for choice in json.loads(event)["choices"]:
            text += choice["delta"].get("content") or ""
            calls += choice["delta"].get("tool_calls") or ()
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


CLIENT_HISTORIES = scenario(
    "openai-clients-that-resend",
    ClientHistoryScenario,
    faults=(
        Aim(Fault.crash_before_write, "database.begin", rate=0.01, times_max=2),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=2),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.02, times_max=3),
        Aim(Fault.network_packet_loss, "network.client", rate=0.02),
        Aim(Fault.vanishing_client, "client.request", rate=0.05),
        Aim(Fault.vanishing_client, "client.stream", rate=0.02),
    ),
    plots=(
        (Aim(Fault.crash_before_write, "journal.step", nth=3),),
        (Aim(Fault.crash_after_write, "journal.step", nth=5),),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.network_delay, Fault.storage_read_fail),
)
