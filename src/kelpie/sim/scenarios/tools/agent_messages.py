"""Agents that write to each other, companions, and groups, while the power fails.

No agent waits for ever, however they ask each other; a message sent without waiting arrives exactly once; what an agent
asks is not heard any more once it was cancelled; members of a group hear the message and each other once; the runs of a
companion follow from the turns of its agent one for one; and every agent takes new messages afterwards.
"""

import asyncio
import json
from collections import Counter
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.clock import START
from kelpie.sim.scenarios.basic.crashes import AFTER, BEFORE, TRIES_MAX, cuts
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together
from kelpie.tools.calls.stable_ids import stable_uuid

ASK = "send_message_to_agent_and_wait_for_reply"
ASK_TAGGED = "send_message_to_agents_matching_tags"
TELL = "send_message_to_agent_async"
EVERY = 2  # turns of the watched agent between two looks of its companion
ROUNDS = 2
REST_S = 120.0
TEAM = "team"
LONG = 6  # steps of an agent that is busy
BUSY_S, ASKS_S = 0.3, 1.0  # until it has begun, and until another has asked it
BEGINS_S = 1.0  # a turn that has its message begins so soon, where nothing is slow


def call(name: str, **arguments: Any) -> str:
    return f"call {name} {json.dumps(arguments)}"


class AgentMessages(ServerScenario):
    """Three agents that know each other, a fourth with a companion, and a group of two of them."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.watched, self.companion, self.group = "", "", ""
        self.marks = 0
        self.withdrawn: list[tuple[str, float]] = []  # questions, and when a cancel of who asked was answered
        self.met: list[str] = []  # messages to the group that every member has answered

    async def act(self) -> None:
        await self._cast()
        ann, ben, cid = self.agents
        clients = self.clients(5)
        await together(
            (
                self._asks(clients[0], ann, ben),
                self._asks(clients[1], ben, ann),
                self._writes(clients[2], cid, ann, ben),
                self._talks(clients[3]),
                self._meets(clients[4]),
                self._attaches(self.client("librarian")),
            )
        )
        await self._asks_all(clients[0], cid, ben)
        await self._gives_up(self.client("impatient"), ben)

    async def _cast(self) -> None:
        await self.make_agents(3, types=("letta_v1_agent",), tools=[ASK, ASK_TAGGED, TELL])
        maker = self.client("maker")
        for agent_id in self.agents:
            await maker.insist("PATCH", f"/v1/agents/{agent_id}", {"tags": [TEAM]})
        body = {"name": "watched", "enable_sleeptime": True, "memory_blocks": [{"label": "human", "value": "someone"}]}
        made = await maker.insist("POST", "/v1/agents/", body)
        self.watched = made["id"]
        mine = [g for g in await maker.insist("GET", "/v1/groups/") if g["manager_agent_id"] == self.watched]
        (self.companion,) = mine[0]["agent_ids"]
        config = {"manager_type": "sleeptime", "sleeptime_agent_frequency": EVERY}
        await maker.insist("PATCH", f"/v1/groups/{mine[0]['id']}", {"manager_config": config})
        group = {"agent_ids": self.agents[:2], "description": "two"}
        self.group = (await maker.insist("POST", "/v1/groups/", group))["id"]

    def _mark(self) -> str:
        self.marks += 1
        return f"mark-{self.marks}."

    async def _asks(self, client: ScenarioClient, one: str, other: str) -> None:
        """One agent asks the other, which asks back, which must be refused; and both may do so at the same moment."""
        for _ in range(ROUNDS):
            back = call(ASK, message=self._mark(), other_agent_id=one)
            await self._insists(client, one, call(ASK, message=f"{self._mark()}\n{back}", other_agent_id=other))

    async def _writes(self, client: ScenarioClient, one: str, first: str, second: str) -> None:
        """One agent writes to two others without waiting, and one of them writes to it."""
        both = " & ".join(call(TELL, message=self._mark(), other_agent_id=other) for other in (first, second))
        answer = call(TELL, message=self._mark(), other_agent_id=one)
        lines = (both, call(TELL, message=f"{self._mark()}\n{answer}", other_agent_id=first))
        await self._insists(client, one, *lines)

    async def _asks_all(self, client: ScenarioClient, one: str, stopped: str) -> None:
        """One agent asks all others while one of them is stopped, and once more when it is not."""
        operator = self.client("operator")
        await operator.insist("POST", f"/v1/agents/{stopped}/stop")
        await self._insists(client, one, call(ASK_TAGGED, message=self._mark(), match_all=[TEAM], match_some=[]))
        await operator.insist("POST", f"/v1/agents/{stopped}/start")
        await self._insists(client, one, call(ASK_TAGGED, message=self._mark(), match_all=[], match_some=[TEAM]))

    async def _gives_up(self, client: ScenarioClient, busy: str) -> None:
        """An agent asks one that is busy, and is cancelled while it waits."""
        asker = (await self.make_agents(1, types=("letta_v1_agent",), tools=[ASK]))[-1]
        boots = self.machine.boots  # after a crash a turn may wait for one that is resumed
        for _ in range(ROUNDS):
            mark = self._mark()
            script = [f"remember {self._mark()}" for _ in range(LONG)]
            asked = call(ASK, message=mark, other_agent_id=busy)

            async def cancels(mark: str = mark) -> None:
                await asyncio.sleep(ASKS_S)
                await client.pause(3.0)
                answer = await client.ask("POST", f"/v1/agents/{asker}/messages/cancel", {})
                told = answer.json() if answer is not None and answer.status == 200 else {}
                if told and set(told.values()) == {"cancelled"} and self.machine.boots == boots:
                    self.withdrawn.append((mark, self.machine.loop.time()))

            async def asks(asked: str = asked) -> None:
                await asyncio.sleep(BUSY_S)
                await client.say(asker, asked)

            await together((self.client("talker").say(busy, *script), asks(), cancels()))

    async def _insists(self, client: ScenarioClient, agent_id: str, *lines: str) -> None:
        """Repeats a message that got no answer, but not for ever."""
        for _ in range(TRIES_MAX):
            if (await client.say(agent_id, *lines)).acknowledged:
                return
            await client.pause()

    async def _talks(self, client: ScenarioClient) -> None:
        for _ in range(2 * ROUNDS):
            await client.say(self.watched, f"remember {self._mark()}", stream=client.tosses(0.3))

    async def _attaches(self, client: ScenarioClient) -> None:
        """Gives blocks to the agent with a companion, which shares them and must see them at once."""
        for number in range(ROUNDS):
            await client.pause(10.0)
            block = await client.insist("POST", "/v1/blocks/", {"label": f"shelf-{number}", "value": "books"})
            await client.insist("PATCH", f"/v1/agents/{self.watched}/core-memory/blocks/attach/{block['id']}")

    async def _meets(self, client: ScenarioClient) -> None:
        for _ in range(ROUNDS):
            mark = self._mark()
            said = await client.ask("POST", f"/v1/groups/{self.group}/messages", {"input": mark})
            if said is not None and said.status not in (200, 409, 429, 503):
                raise Broken("a group is answered", f"{said.status} {said.body!r}")
            if said is not None and said.status == 200:
                self._is_answered(mark, said.json())
            await client.pause()

    def _is_answered(self, mark: str, told: dict[str, Any]) -> None:
        """The members have spoken one after the other, and what it took is told."""
        if told["kelpie_failures"]:
            return
        self.met.append(mark)
        spoke = [message["sender_id"] for message in told["messages"]]
        if spoke != self.agents[:2] or told["stop_reason"]["stop_reason"] != "end_turn":
            raise Broken("a group is answered", f"{mark}: {spoke} of {self.agents[:2]}, {told['stop_reason']}")
        runs = {message["run_id"] for message in told["messages"]}
        used = [json.loads(usage) for run in sorted(runs) for (usage,) in self._usage_of(run)]
        if told["usage"]["total_tokens"] != sum(each["total_tokens"] for each in used):
            raise Broken("a group is told what it has used", f"{told['usage']} and {used}")

    def _usage_of(self, run_id: str) -> list[tuple[Any, ...]]:
        return self.machine.disk.query("SELECT usage FROM runs WHERE id = ?", run_id)

    async def settle(self) -> None:
        await super().settle()
        visitor = self.client("second visitor")
        for agent_id in (self.watched, self.companion):
            await self._is_well(visitor, agent_id)
        await asyncio.sleep(REST_S)  # what these visits gave the companion to do is done as well
        self._sent_once()
        self._chained()
        self._withdrawn_unheard()
        self._met_once()
        self._looked_after()

    def check(self) -> None:
        super().check()
        for run_id, returned in self.machine.disk.query(
            "SELECT run_id, tool_returns FROM messages WHERE role = 'tool'"
        ):
            for result in json.loads(returned):
                if "seconds" in result["text"]:
                    raise Broken("nobody waits for the time-out", f"{run_id}: {result['text']}")

    def _sent_once(self) -> None:
        """Every message that a result reports as sent is one run of its receiver, and there are no others."""
        told = Counter[str]()
        for (returned,) in self.machine.disk.query("SELECT tool_returns FROM messages WHERE role = 'tool'"):
            for result in json.loads(returned):
                if result["name"] == TELL and result["ok"]:
                    told[result["text"].rpartition(" in ")[2].rstrip(".")] += 1
        runs = self.machine.disk.query("SELECT id FROM runs WHERE metadata LIKE '%sender_id%'")
        if told != Counter(run_id for (run_id,) in runs):
            raise Broken("what is sent arrives exactly once", f"told {dict(told)}, and there are {runs}")
        for (run_id,) in runs:
            rows = self.machine.disk.query("SELECT role FROM messages WHERE run_id = ? AND role = 'user'", run_id)
            if len(rows) > 1:
                raise Broken("what is sent arrives exactly once", f"{run_id} has it {len(rows)} times")

    def _chained(self) -> None:
        """A message is one hop further than the turn that sent it, and nobody waits for the answer."""
        chains = {
            run_id: json.loads(given).get("chain", {"waiting": [], "hops": 0})
            for run_id, given in self.machine.disk.query("SELECT id, input FROM runs")
        }
        for run_id, returned in self.machine.disk.query(
            "SELECT run_id, tool_returns FROM messages WHERE role = 'tool'"
        ):
            for result in json.loads(returned):
                if result["name"] == TELL and result["ok"]:
                    sent = result["text"].rpartition(" in ")[2].rstrip(".")
                    wanted = {"waiting": [], "hops": chains[run_id]["hops"] + 1}
                    if chains[sent] != wanted:
                        raise Broken("a message knows how far it is from a person", f"{sent}: {chains[sent]}, {wanted}")

    def _withdrawn_unheard(self) -> None:
        """Nobody begins with a question after the cancel of its sender was answered; it may just have begun before."""
        if any(firing.fault is Fault.storage_latency for firing in self.machine.faults.firings):
            return
        for mark, at_s in self.withdrawn:
            for run_id, begun in self.machine.disk.query(
                "SELECT id, created_at FROM runs WHERE agent_id = ? AND input LIKE ?", self.agents[1], f"%{mark}%"
            ):
                if begun > START + int((at_s + BEGINS_S) * MICROS_PER_SECOND):
                    raise Broken("a question of a cancelled turn is not heard", f"{mark} in {run_id}, after {at_s}")

    def _met_once(self) -> None:
        """Each member has heard a message to the group once, and the later ones what was said before them."""
        first, *others = self.agents[:2]
        for mark in self.met:
            rows = self.machine.disk.query(
                "SELECT agent_id, run_id FROM messages WHERE role = 'user' AND group_id = ? AND content LIKE ? "
                "ORDER BY created_at, agent_id",
                self.group,
                f"%{mark}%",
            )
            if sorted(agent_id for agent_id, _ in rows) != sorted((first, *others)):
                raise Broken("every member hears a message to the group once", f"{mark}: {rows}")
            runs: dict[str, str] = dict(rows)  # type: ignore[arg-type]
            ((said,),) = self.machine.disk.query(
                "SELECT content FROM messages WHERE run_id = ? AND role = 'assistant'", runs[first]
            )
            answer = json.loads(said)[0]["text"]
            for other in others:
                heard = self.machine.disk.query(
                    "SELECT content FROM messages WHERE run_id = ? AND role = 'user' AND sender_id = ?",
                    runs[other],
                    first,
                )
                if len(heard) != 1 or answer not in heard[0][0]:
                    raise Broken("the members of a group hear each other", f"{mark}: {answer!r} and {heard}")

    def _looked_after(self) -> None:
        """Every second ended turn has given the companion one run, with all messages since the last."""
        turns = self.machine.disk.query(
            "SELECT id FROM runs WHERE agent_id = ? AND status = 'completed' ORDER BY completed_at, id", self.watched
        )
        wanted = {f"run-{stable_uuid(run_id, self.companion)}" for (run_id,) in turns[::EVERY]}
        found = self.machine.disk.query(
            "SELECT id, input FROM runs WHERE agent_id = ? AND metadata LIKE '%sleeptime%'", self.companion
        )
        if wanted != {run_id for run_id, _ in found}:
            raise Broken("a companion works after every nth turn", f"wanted {sorted(wanted)}, found {found}")
        ((count,),) = self.machine.disk.query(
            "SELECT turns_counter FROM groups WHERE manager_agent_id = ?", self.watched
        )
        if count != (len(turns) - 1) % EVERY:
            raise Broken("turns are counted once", f"{len(turns)} turns, and the count is {count}")
        heard = "\n".join(given for _, given in found)
        rows = self.machine.disk.query(
            "SELECT m.content FROM messages m JOIN runs r ON r.id = m.run_id WHERE m.role = 'user' AND m.agent_id = ?"
            " AND r.status = 'completed' AND m.seq <= (SELECT n.seq FROM messages n JOIN groups g"
            " ON g.last_processed_message_id = n.id WHERE g.manager_agent_id = ?)",
            self.watched,
            self.watched,
        )
        for (content,) in rows:
            token = json.loads(content)[0]["text"].split("\n")[0]
            for who in (f"user: {token}", f"assistant: echo {token}"):
                if heard.count(f"{who}\\n") != 1 and heard.count(who) != 1:
                    raise Broken("a companion hears everything once", f"{who} is {heard.count(who)} times in {heard}")


CORRESPONDENCE = scenario(
    "agents-write-to-each-other",
    AgentMessages,
    plots=(
        *cuts("open", 3, 9),
        *cuts("step", 2, 5, 9),
        *cuts("reply", 1, 4),
        *cuts("result", 1, 4),
        (Aim(AFTER, "journal.reply", nth=1), Aim(BEFORE, "journal.recover", nth=1)),
        (Aim(AFTER, "journal.step", nth=7), Aim(AFTER, "journal.open", nth=8)),
    ),
    swarm=(Fault.network_delay, Fault.storage_latency, Fault.storage_busy),
)
