"""MCP clients of both generations talk to agents through /mcp while answers are lost and the power fails.

A client repeats a call without an answer under the same message id. No message that was answered is lost or doubled;
an answer is that of its own message; a task that was handed out is there after a restart and ends; and an edit of a
block that was acknowledged is in it once.
"""

import json
from collections import Counter
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

CLIENTS = 3
ROUNDS = 4
EDITS = 2  # of a block at once, after every message
TRIES_MAX = 200
PATIENCE_S = 3600.0
NEW, OLD = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
NOTES = "notes"
ENDED = ("completed", "failed", "cancelled")


class McpClients(ServerScenario):
    """Three clients, each in a conversation of its own with one of two agents."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.answered: dict[str, str] = {}  # token -> reply
        self.failed: set[str] = set()
        self.notes: dict[str, bool] = {}  # appended line -> whether it was acknowledged
        self._numbers = 0

    async def act(self) -> None:
        for _ in range(2):
            block = await self.client("maker").insist("POST", "/v1/blocks/", {"label": NOTES, "value": ""})
            await self.make_agents(1, types=("letta_v1_agent",), block_ids=[block["id"]])
        await together(self._talk(client, number) for number, client in enumerate(self.clients(CLIENTS)))

    # --- what clients do -------------------------------------------------------------------------------------------

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        agent = self.agents[number % 2]
        lane = (await client.insist("POST", f"/v1/conversations/?agent_id={agent}", {}))["id"]
        for turn in range(ROUNDS):
            await client.pause(3.0)
            token = self.machine.history.token()
            text = "\n".join([token, "remember something", "remember more"])
            say = {"agent": agent, "message": text, "conversation_id": lane, "message_id": f"id-{token}"}
            await self._send(client, token, say, version=NEW if client.tosses(0.5) else OLD)
            await together(self._note(client, agent, f"note-{number}-{turn}-{at}.") for at in range(EDITS))

    async def _send(self, client: ScenarioClient, token: str, say: dict[str, Any], version: str) -> None:
        """Sends until there is an answer, and waits for a task."""
        tasks = client.tosses(0.5)
        call: dict[str, Any] = {"name": "send_message", "arguments": say}
        if tasks and version == OLD:
            call["task"] = {}
        for _ in range(TRIES_MAX):
            result = await self._ask(client, "tools/call", call, version, tasks=tasks)
            if result is None or _is_doubtful(result):
                await client.pause()
                continue
            if "task" in result or result.get("resultType") == "task":
                task = result.get("task", result)["taskId"]
                result = await self._task(client, task, version)
            self._hear(token, result)
            return
        raise Broken("the server recovers", f"{token} was not answered {TRIES_MAX} times")

    def _hear(self, token: str, result: dict[str, Any]) -> None:
        if result["isError"]:
            self.failed.add(token)
            return
        reply = result["structuredContent"]["reply"]
        if reply != f"echo {token}":
            raise Broken("an answer is that of its message", f"{token}: {reply}")
        self.answered[token] = reply

    async def _task(self, client: ScenarioClient, task_id: str, version: str) -> dict[str, Any]:
        """The result of a task, which must not be lost."""
        for _ in range(TRIES_MAX):
            found = await self._ask(client, "tasks/get", {"taskId": task_id}, version)
            if found is None or found["status"] not in ENDED:
                await client.pause(5.0)
            elif version == NEW:
                return found.get("result") or {"isError": True}
            elif (result := await self._ask(client, "tasks/result", {"taskId": task_id}, version)) is not None:
                return result
        raise Broken("every task ends", task_id)

    async def _note(self, client: ScenarioClient, agent: str, line: str) -> None:
        """Adds a line to the agent's block, once: a call without an answer is not repeated."""
        self.notes[line] = False
        arguments = {"agent": agent, "label": NOTES, "append": line}
        result = await self._ask(client, "tools/call", {"name": "edit_memory_block", "arguments": arguments}, NEW)
        if result is not None and not result["isError"]:
            self.notes[line] = True

    async def _ask(
        self, client: ScenarioClient, method: str, params: dict[str, Any], version: str, *, tasks: bool = False
    ) -> dict[str, Any] | None:
        """The result of a method; None where its outcome is unknown. Raises Broken for an error of the protocol."""
        await self.machine.up()
        self._numbers += 1
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}
        if version == NEW:
            extensions = {META + "tasks": {}} if tasks else {}
            meta = {META + "protocolVersion": NEW, META + "clientCapabilities": {"extensions": extensions}}
            name = params.get("name") or params.get("taskId")
            headers |= {"mcp-method": method, "mcp-name": str(name)}
            params = {**params, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": params}
        try:
            peer = self.machine.client(client.name)
            response = await peer.request("POST", "/mcp", body, headers=headers, timeout_s=PATIENCE_S)
        except ConnectionLost:
            return None
        if response.status >= 500 or response.status == 429:
            return None
        lines = [line[6:] for line in response.body.split(b"\n") if line.startswith(b"data: ")]
        answer = json.loads(lines[-1] if lines else response.body)
        if "error" in answer and answer["error"]["code"] == -32603:
            return None  # the disk failed
        if answer.get("id") != body["id"] or "result" not in answer:
            raise Broken("a sound request is answered", f"{method}: {answer}")
        return answer["result"]

    # --- what is there at the end ----------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        rows = self.machine.disk.query("SELECT status, input FROM runs")
        runs = Counter[tuple[str, str]]()
        for status, given in rows:
            if asked := json.loads(given)["messages"]:
                runs[str(asked[0]["content"][0].get("text", "")).split("\n")[0], status] += 1
        said = Counter[str]()
        for (content,) in self.machine.disk.query("SELECT content FROM messages WHERE role = 'user'"):
            said[json.loads(content)[0]["text"].split("\n")[0]] += 1
        for token in self.answered:
            if runs[token, "completed"] != 1 or said[token] - runs[token, "failed"] > 1:
                raise Broken("no answered message is lost or doubled", f"{token}: {runs}, {said[token]} times said")
        for token in self.failed:
            if runs[token, "completed"]:
                raise Broken("what was told as failed did not succeed", token)
        self._notes_are_kept()

    def _notes_are_kept(self) -> None:
        values = [value for (value,) in self.machine.disk.query("SELECT value FROM blocks WHERE label = ?", NOTES)]
        for line, acknowledged in self.notes.items():
            count = sum(value.split("\n").count(line) for value in values)
            if count not in ((1,) if acknowledged else (0, 1)):
                raise Broken("an edit that was acknowledged is there once", f"{line} is there {count} times")


def _is_doubtful(result: dict[str, Any]) -> bool:
    """True for an error that does not tell how the turn ended, such as one of the disk."""
    return result.get("isError", False) and not result["content"][0]["text"].startswith("The turn of the agent")


MCP_CLIENTS = scenario(
    "mcp-clients-and-power-cuts",
    McpClients,
    faults=(
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=2),
        Aim(Fault.network_packet_loss, "network.client", rate=0.02),
    ),
    plots=(
        (Aim(Fault.crash_before_write, "journal.step", nth=3),),
        (Aim(Fault.crash_after_write, "journal.step", nth=5),),
        (Aim(Fault.vanishing_client, "client.request", rate=0.1),),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation, Fault.network_delay),
)
