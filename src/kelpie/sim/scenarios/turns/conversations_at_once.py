"""One agent with several conversations at once, forked and deleted while turns run, while writes fail and the power is
cut.

The messages of one conversation show in no other but its forks, which have those from before the fork. A conversation
with copies of blocks writes and sees those, the others the agent's. A switch of the agent's reasoning reaches the next
step of each, loaded or not. It is busy only while it has a turn, and in the end each takes a message.
"""

import json
import re
from collections import Counter
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.checks.invariants import appended_by
from kelpie.sim.scenarios.fixtures.clients import ClientAnswer, ScenarioClient
from kelpie.sim.scenarios.fixtures.edits import Edits
from kelpie.sim.scenarios.fixtures.prompts import Prompt, prompts
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

DEFAULT = "default"
FIRST = "as it was"
LINES = (("remember {token} liked it",), (), ('call outside {"mark": "{token}"}', "remember {token} came back"))
LONG = tuple(f'call outside {{"mark": "{{token}} {number}"}}' for number in range(4))
_RUN = re.compile(r"run-[0-9a-f-]{36}")


class ConversationsAtOnce(ServerScenario):
    """Two clients talk in a conversation with copies of its own, two in others; one forks, and one edits."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.edits = Edits(machine.loop)
        self.origins: dict[str, tuple[str, float]] = {}  # what a fork was made from, and when that was done

    async def act(self) -> None:
        maker = self.client("maker")
        await self.register_outside()
        self.note = (await maker.insist("POST", "/v1/blocks/", {"label": "note", "value": FIRST}))["id"]
        first = self.machine.loop.seed % 2
        types = ("letta_v1_agent", "memgpt_agent")[first : first + 1]
        await self.make_agents(1, types=types, tools=["outside"], block_ids=[self.note])
        (self.agent,) = self.agents
        self.own = await self._open(maker, ["human", "note"])
        self.plain = await self._open(maker, [])
        copies = (await maker.insist("GET", f"/v1/conversations/{self.own}"))["isolated_block_ids"]
        self.copies = {(await maker.insist("GET", f"/v1/blocks/{block}"))["label"]: block for block in copies}
        self.apart = {self.own}
        self.edits.began("agent", FIRST)
        self.edits.began("own", FIRST)
        self.edits.began("temperature", "1.0")
        self.config = (await maker.insist("GET", f"/v1/agents/{self.agent}"))["llm_config"]
        self.edits.began("thoughts", str(self.config["put_inner_thoughts_in_kwargs"]))
        clients = self.clients(6)
        talks = (
            self._talk(clients[0], self.own, 3),
            self._talk(clients[1], self.own, 2),
            self._talk(clients[2], self.plain, 2),
            self._talk(clients[3], DEFAULT, 2),
        )
        await together((*talks, self._fork(clients[4]), self._edit(clients[5])))

    async def _open(self, maker: ScenarioClient, labels: list[str]) -> str:
        path = f"/v1/conversations/?agent_id={self.agent}"
        return (await maker.insist("POST", path, {"isolated_block_labels": labels}))["id"]

    async def _talk(self, client: ScenarioClient, conversation: str, rounds: int) -> None:
        for number in range(rounds):
            await client.pause()
            await self._say(client, conversation, LINES[number])
            if client.tosses(0.2):
                await client.say(self.agent)  # to the agent itself, where it waits in the queue

    async def _say(self, client: ScenarioClient, conversation: str, lines: tuple[str, ...] = ()) -> ClientAnswer:
        stream = client.tosses(0.5)
        return await client.say(self.agent, *lines, stream=stream, tokens=stream, conversation=conversation)

    async def _fork(self, client: ScenarioClient) -> None:
        """A fork of a conversation in use, a fork of that, and one that is deleted while it answers."""
        await client.pause(2.0)
        first = await self._forked(client, self.own)
        await self._say(client, first, LINES[0])
        second = await self._forked(client, first)
        await self._say(client, second, LINES[0])
        third = await self._forked(client, DEFAULT)
        await together((self._say(client, third, LONG), self._delete(client, third)))

    async def _forked(self, client: ScenarioClient, origin: str) -> str:
        whose = f"?agent_id={self.agent}" if origin == DEFAULT else ""
        made = (await client.insist("POST", f"/v1/conversations/{origin}/fork{whose}"))["id"]
        self.origins[made] = (origin, self.machine.loop.time())
        if origin in self.apart:
            self.apart.add(made)
        return made

    async def _delete(self, client: ScenarioClient, conversation: str) -> None:
        await client.pause(3.0)
        self.machine.history.removed.add(conversation)
        await client.ask("DELETE", f"/v1/conversations/{conversation}")

    async def _edit(self, client: ScenarioClient) -> None:
        """Edits of the agent and of one conversation, in any order and apart: each is told for itself."""
        for number in range(2):
            edits = [self._edit_own, self._edit_shared, self._edit_settings, self._switch_thoughts]
            while edits:
                await client.pause()
                edit = edits.pop(edits.index(client.picks(edits)))
                await edit(client, number)
                if edit == self._edit_settings:  # which nothing but its own version tells of
                    await self._say(client, self.own)

    async def _edit_own(self, client: ScenarioClient, number: int) -> None:
        edit = self.edits.call("own", f"own {number}")
        await self.edits.make(client, edit, "PATCH", f"/v1/blocks/{self.copies['note']}", {"value": edit.value})

    async def _edit_shared(self, client: ScenarioClient, number: int) -> None:
        edit = self.edits.call("agent", f"agent {number}")
        await self.edits.make(client, edit, "PATCH", f"/v1/blocks/{self.note}", {"value": edit.value})

    async def _edit_settings(self, client: ScenarioClient, number: int) -> None:
        edit = self.edits.call("temperature", f"0.{number + 1}")
        settings = {"provider_type": "openai", "temperature": float(edit.value or 0)}
        await self.edits.make(client, edit, "PATCH", f"/v1/conversations/{self.own}", {"model_settings": settings})

    async def _switch_thoughts(self, client: ScenarioClient, number: int) -> None:
        """Switches the thoughts in tool calls off and on, where the agent's type has them."""
        if self.config["put_inner_thoughts_in_kwargs"]:
            config = {**self.config, "put_inner_thoughts_in_kwargs": number == 1}
            edit = self.edits.call("thoughts", str(number == 1))
            await self.edits.make(client, edit, "PATCH", f"/v1/agents/{self.agent}", {"llm_config": config})

    # --- what must be so -----------------------------------------------------------------------------------------

    async def settle(self) -> None:
        visitor = self.client("guest")
        known = [self.own, self.plain, *self.origins]
        for conversation in known:
            if conversation not in self.machine.history.removed:
                heard = await self._say(visitor, conversation)
                if not heard.acknowledged:
                    raise Broken("no conversation is bricked", f"{conversation}: {heard.status} {heard.trouble}")
        await super().settle()

    def check(self) -> None:
        super().check()
        self._busy_answers_are_true()
        lanes = {each.said.token: each.conversation or DEFAULT for each in self.heard}
        called = {each.said.token: each.said.called_s for each in self.heard}
        for prompt in prompts(self.machine.llm.seen, self.heard):
            lane = lanes[prompt.said[-1]]
            self._is_apart(prompt, lane, lanes, called)
            self._is_fresh(prompt, lane)
        for conversation in sorted(self.apart - self.machine.history.removed):
            self._holds_its_own(conversation)
        gone = "SELECT id FROM conversations WHERE deleted_at IS NULL"
        if left := self.machine.disk.query(
            f"SELECT message_id FROM context WHERE conversation_id <> '' AND conversation_id NOT IN ({gone})"
        ):
            raise Broken("nothing is half there", f"a deleted conversation has a context: {left}")

    def _is_apart(self, prompt: Prompt, lane: str, lanes: dict[str, str], called: dict[str, float]) -> None:
        """User messages in a prompt were sent in its conversation, or in its origin before the fork."""
        before_s, allowed, at = float("inf"), dict[str, float](), lane
        while True:
            allowed[at] = before_s
            if at not in self.origins:
                break
            at, forked_s = self.origins[at]
            before_s = min(before_s, forked_s)
        for token in prompt.said:
            if called[token] > allowed.get(lanes[token], -1.0):
                raise Broken("what is said in one conversation stays in it", f"{token} of {lanes[token]} is in {lane}")

    def _is_fresh(self, prompt: Prompt, lane: str) -> None:
        if lane == self.own:
            self.edits.check("own", prompt.block("note"), prompt.began_s, prompt.seen_s)
            self.edits.check("temperature", str(prompt.temperature), prompt.began_s, prompt.seen_s)
        elif lane not in self.apart:
            self.edits.check("agent", prompt.block("note"), prompt.began_s, prompt.seen_s)
            self.edits.check("thoughts", str(prompt.asks_for_thoughts), prompt.began_s, prompt.seen_s)

    def _holds_its_own(self, conversation: str) -> None:
        """Its copy of 'human' has each of its own successful appends once, and of others' only those from its
        beginning.
        """
        rows = self.machine.disk.query(
            "SELECT b.value FROM conversation_blocks c JOIN blocks b ON b.id = c.block_id "
            "WHERE c.conversation_id = ? AND c.label = 'human'",
            conversation,
        )
        lines = Counter(str(rows[0][0]).split("\n")) if rows else Counter[str]()
        appended: dict[str, list[str]] = {}
        calls: dict[str, str] = {}
        for lane, made, returned in self.machine.disk.query(
            "SELECT conversation_id, tool_calls, tool_returns FROM messages ORDER BY seq"
        ):
            calls |= {call["id"]: words for call in json.loads(made) if (words := appended_by(call)) is not None}
            for result in json.loads(returned):
                if result["ok"] and result["call_id"] in calls:
                    appended.setdefault(lane or DEFAULT, []).append(calls[result["call_id"]])
        for words in appended.get(conversation, []):
            if lines[words] != 1:
                raise Broken("a copy holds what was written to it", f"{conversation}: {lines} without {words}")
        ancestors, at = {conversation}, conversation
        while at in self.origins:
            at = self.origins[at][0]
            ancestors.add(at)
        for lane, words in appended.items():
            if strangers := [each for each in words if lane not in ancestors | {DEFAULT, self.plain} and lines[each]]:
                raise Broken("copies stay apart", f"{conversation} holds {strangers} of {lane}")

    def _busy_answers_are_true(self) -> None:
        """A client that was told of a running turn was told so before that turn's sender had its end."""
        ends: dict[str, float] = {}
        for each in self.heard:
            for message in each.messages if each.said.returned_s is not None and each.status == 200 else ():
                if message.get("run_id") and each.said.fate != "unknown":
                    ends[message["run_id"]] = each.said.returned_s or 0.0
        for each in self.heard:
            found = _RUN.search(each.trouble) if each.status == 409 else None
            if found and ends.get(found.group(0), float("inf")) < each.said.called_s:
                raise Broken("busy is told truly", f"{each.said.token} was told of {found.group(0)} after its end")


LANES = scenario(
    "lanes-of-one-agent",
    ConversationsAtOnce,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.02),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
        Aim(Fault.storage_busy, "database.commit", rate=0.02),
        Aim(Fault.storage_read_fail, "database.read", rate=0.02),
        Aim(Fault.storage_latency, "read.conversation", rate=0.3),
        Aim(Fault.crash_before_write, "database.begin", rate=0.01, times_max=1),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=1),
        Aim(Fault.crash_after_write, "journal.reply", rate=0.5, times_max=1),
        Aim(Fault.crash_after_write, "journal.step", rate=0.05, times_max=1),
    ),
    swarm=(
        Fault.network_delay,
        Fault.storage_latency,
        Fault.cpu_starvation,
        Fault.vanishing_client,
        Fault.llm_malformed,
    ),
)
