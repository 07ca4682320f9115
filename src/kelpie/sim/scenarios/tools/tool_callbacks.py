"""Code in cells that calls back into Kelpie's API while cells, disk and power fail and turns are cancelled.

Agents run errands: their code edits its own agent's memory, uses its agent's tools, writes to other agents and to those
that wait for it, shows passports of other calls, and goes on after its own result. Its answers are true; a refused
request has left nothing; no agents wait in a ring; and all requests of the code end with its call.
"""

import json
from collections import Counter
from dataclasses import replace

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.cells import CellEnvironment
from kelpie.sim.ports.disk import Disk
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.cell_errands import (
    LEDGER,
    NOTES,
    REFUSALS,
    SOURCE,
    WITH_TOOLS,
    Errands,
    Request,
    Verb,
    is_ring,
    line,
)
from kelpie.sim.scenarios.cell_setup import boot_with_cells
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, RunningKelpie
from kelpie.sim.scenarios.fixtures.prompts import element
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 3
CANCELS = 3
PLACES = 2
WAITING = 8
WALL_S = 120.0  # far more than any errand takes by itself
REFUSED_S = 10.0  # within which a ring is refused: a few reads, however slow
TOOLS = ("errand", WITH_TOOLS, "outside")
BARRED = 2  # the agent that may not use the tool 'outside'


class ToolCallbacks(ServerScenario):
    """Three agents that run errands, three clients that send them, and one that cancels."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.errands = Errands(machine.loop)
        self.marks = 0
        self.committed: list[tuple[float, str, str]] = []  # when, in which run, and which mark code has written
        self.cancelled: dict[str, float] = {}  # runs, and when they were reported as over
        self._seen = 0  # of the versions of blocks
        machine.world.code = self._code
        machine.disk.watch(self._watch)

    async def act(self) -> None:
        maker = self.client("maker")
        await self.register_outside()
        held = {"kelpie_sandbox": {"timeout_s": WALL_S}}
        await maker.insist("POST", "/v1/tools/", {"source_code": SOURCE, **held})
        for _ in range(3):
            new = [{"label": label, "value": "empty"} for label in (NOTES, LEDGER)]
            ids = [(await maker.insist("POST", "/v1/blocks/", block))["id"] for block in new]
            await self.make_agents(1, types=("letta_v1_agent",), tools=TOOLS, block_ids=ids)
        ban = {"kelpie_permissions": {"deny": ["outside"]}}
        await maker.insist("PATCH", f"/v1/agents/{self.agents[BARRED]}", ban)
        sending = (self._send(client, number) for number, client in enumerate(self.clients(3)))
        await together((*sending, self._cancel(self.client("canceller"))))

    # --- what is done ----------------------------------------------------------------------------------------------

    def _mark(self) -> str:
        self.marks += 1
        return f"mark-{self.marks}."

    def _step(self, verb: Verb, whom: str, *lines: str) -> list[str]:
        return [verb, whom, self._mark(), *lines]

    async def _send(self, client: ScenarioClient, number: int) -> None:
        own, other = self.agents[number], self.agents[(number + 1) % 3]
        for _ in range(ROUNDS):
            await client.pause(2.0)
            back = line([self._step(Verb.loop, own), self._step(Verb.write, other)])
            steps = [
                self._step(Verb.write, own),
                self._step(Verb.append, own),
                self._step(Verb.outside, own),
                self._step(Verb.loop, own),
                self._step(Verb.steal, own),
                self._step(Verb.pry, own),
                self._step(Verb.ask, other, back),
                self._step(Verb.tell, other),
                self._step(Verb.write, own),
            ]
            chosen = [step for step in steps if client.tosses(0.6)] or steps[:1]
            if client.tosses(0.3):
                chosen.append(self._step(Verb.linger, own))
            await client.say(own, line(chosen, with_tools=client.tosses(0.3)), stream=client.tosses(0.3))

    async def _cancel(self, client: ScenarioClient) -> None:
        for _ in range(CANCELS):
            await client.pause(4.0)
            answer = await client.ask("POST", f"/v1/agents/{client.picks(self.agents)}/messages/cancel", {})
            if answer is not None and answer.status == 200:
                ended = [run_id for run_id, word in answer.json().items() if word == "cancelled"]
                self.cancelled |= {run_id: self.machine.loop.time() for run_id in ended if run_id not in self.cancelled}

    # --- what is seen on the way -----------------------------------------------------------------------------------

    def _watch(self, disk: Disk) -> None:
        """Writes of code are committed before its call is over."""
        now = self.machine.loop.time()
        rows = disk.query("SELECT rowid, run_id, value FROM block_history WHERE rowid > ? ORDER BY rowid", self._seen)
        for rowid, run_id, value in rows:
            self._seen, mark = rowid, value.rpartition("\n")[2]
            self.committed.append((now, run_id or "", mark))
            self._is_in_time(mark, now)

    async def _code(self, inside: CellEnvironment) -> str:
        """Code that a tool of an errand runs does not outlive the errand."""
        if mark := inside.arguments.get("mark"):
            self._is_in_time(mark, self.machine.loop.time())
        return await self.errands.code(inside)

    def _is_in_time(self, mark: str, at_s: float) -> None:
        for each in self.errands.asked:
            shut_s = each.inside.api_socket.shut_s
            if each.mark == mark and shut_s is not None and shut_s < at_s:
                told = f"{each.verb} {mark} at {at_s:.4f}, shut at {shut_s:.4f}"
                self.machine.loop.fail(Broken("what code asks for ends with its call", told))

    # --- what is there at the end ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        free = {"kelpie_permissions": {"allow": ["*"]}}
        await self.client("maker").insist("PATCH", f"/v1/agents/{self.agents[BARRED]}", free)
        await super().settle()
        running = self.machine.running
        assert isinstance(running, RunningKelpie) and running.kelpie.runtime.sandbox is not None
        if left := len(running.kelpie.runtime.passports):
            raise Broken("no passport outlives its call", f"{left} are left")
        await running.kelpie.runtime.sandbox.settled()
        if any(running.kelpie.runtime.sandbox.counts()[name] for name in ("running", "ending", "waiting", "starting")):
            raise Broken("nothing of a job is left", str(running.kelpie.runtime.sandbox.counts()))

    def check(self) -> None:
        super().check()
        self._answers_are_sound()
        self._answers_are_true()
        self._calls_are_recorded()
        self._nothing_comes_of_what_was_cancelled()
        self._nobody_waited_for_ever()
        self._prompts_show_what_code_wrote()

    def _answers_are_sound(self) -> None:
        for each in self.errands.asked:
            if each.status is None:
                continue
            if each.verb is Verb.pry and each.status == 200:
                raise Broken("code does not change what its agent is", f"{each.mark}: {each.said}")
            if each.verb is Verb.steal and each.status != 401:
                raise Broken("a passport is for its own call", f"{each.mark}: {each.status} {each.said}")
            if each.verb is Verb.loop and not is_ring(each.status, each.said):
                raise Broken("a ring is refused", f"{each.mark}: {each.status} {each.said}")
            if each.verb is Verb.loop and each.ended_s - each.began_s > REFUSED_S:
                raise Broken("a ring is refused at once", f"{each.mark} after {each.ended_s - each.began_s:.1f} s")
            if each.status >= 400 and each.status not in REFUSALS[each.verb]:
                raise Broken("sound code is let through", f"{each.verb} {each.mark}: {each.status} {each.said}")

    def _answers_are_true(self) -> None:
        written = Counter(mark for _, _, mark in self.committed)
        texts = self.machine.disk.query("SELECT agent_id, content FROM messages WHERE role = 'user'")
        sent = Counter((agent_id, json.loads(content)[0]["text"].split("\n")[0]) for agent_id, content in texts)
        for each in self.errands.asked:
            found = written[each.mark]
            if each.verb in (Verb.ask, Verb.tell, Verb.loop):
                found = sent[each.whom, each.mark]
            elif each.verb is Verb.outside:
                found = self.outside.effects[each.mark]
            doubtful = each.is_doubtful or (each.verb is Verb.tell and each.done and not self._was_answered(each))
            if found not in ((0, 1) if doubtful else (int(each.done),)):
                told = f"{each.verb} {each.mark} was told {each.status} {each.said[:200]}, and is there {found} times"
                raise Broken("what code was told is so", told)
            if each.verb is Verb.outside and each.agent_id == self.agents[BARRED] and (found or each.done):
                raise Broken("what is forbidden is not run", f"{each.mark} is there {found} times")

    def _was_answered(self, told: Request) -> bool:
        """True if the run that a client was told of has come to its end by itself; the run exists in any case."""
        run_id = json.loads(told.said)["id"]
        ((status,),) = self.machine.disk.query("SELECT status FROM runs WHERE id = ?", run_id)
        return status == "completed"

    def _calls_are_recorded(self) -> None:
        """Every answer that code got about a tool it used is recorded, and a refusal as a refusal."""
        rows = self.machine.disk.query("SELECT agent_id, name, outcome FROM tool_calls WHERE call_id IS NULL")
        noted = Counter((agent_id, name, outcome == "refused") for agent_id, name, outcome in rows)
        tried, told = Counter[tuple[str, str, bool]](), Counter[tuple[str, str, bool]]()
        for each in self.errands.asked:
            if each.verb is Verb.pry:
                key = each.agent_id, WITH_TOOLS if "code" in each.inside.arguments else "errand", True
                tried[key] += 1
                told[key] += each.status == 403
            if each.verb in (Verb.append, Verb.outside):
                name = "outside" if each.verb is Verb.outside else "memory_insert"
                key = each.agent_id, name, name == "outside" and each.agent_id == self.agents[BARRED]
                tried[key] += 1
                told[key] += each.status == 200
        for key in {**tried, **noted}:
            if not told[key] <= noted[key] <= tried[key]:
                seen = f"{key}: told {told[key]}, noted {noted[key]} of {tried[key]}"
                raise Broken("what code uses is recorded", seen)

    def _nothing_comes_of_what_was_cancelled(self) -> None:
        for at_s, run_id, mark in self.committed:
            if at_s > self.cancelled.get(run_id, at_s):
                raise Broken("cancelled means no later effect", f"{mark} of {run_id} was written")

    def _nobody_waited_for_ever(self) -> None:
        hung = sum(firing.fault is Fault.process_timeout for firing in self.machine.faults.firings)
        rows = self.machine.disk.query("SELECT tool_returns FROM messages WHERE role = 'tool'")
        late = [each["text"] for (returned,) in rows for each in json.loads(returned) if "time-out" in each["text"]]
        if late and not hung:  # else they may have waited for one that hung
            raise Broken("nobody waits for the time-out", f"none hung, and these were ended: {late}")

    def _prompts_show_what_code_wrote(self) -> None:
        """A prompt after the answer to an edit shows that edit, or a later one."""
        order = {mark: place for place, (_, _, mark) in enumerate(self.committed)}
        for request in self.machine.llm.seen:
            agent_id, block = str(request.body.get("user")), element(request.body["messages"][0]["content"], NOTES)
            shown = order.get((element(block or "", "value") or "").strip(), -1)
            for each in self.errands.asked:
                wrote = each.verb is Verb.write and each.agent_id == agent_id and each.done
                if wrote and each.ended_s < request.at_s and order[each.mark] > shown:
                    raise Broken("a prompt is not older than the last edit", f"{each.mark} is not in {block}")


CALLBACKS = replace(
    scenario(
        "code-that-calls-back",
        ToolCallbacks,
        faults=(
            Aim(Fault.process_crash, "cells.calling", rate=0.1),
            Aim(Fault.process_timeout, "cells.calling", rate=0.03),
            Aim(Fault.out_of_memory, "cells.calling", rate=0.05),
            Aim(Fault.process_crash, "cells.after", rate=0.05),
            Aim(Fault.process_resource_exhaustion, "cells.start", rate=0.05),
            Aim(Fault.crash_after_write, "cells.told", rate=0.02, times_max=1),
            Aim(Fault.crash_before_write, "journal.result", rate=0.1, times_max=1),
            Aim(Fault.storage_write_fail, "database.begin", rate=0.01),
            Aim(Fault.storage_write_fail, "database.commit", rate=0.01),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
            Aim(Fault.storage_read_fail, "database.read", rate=0.005),
        ),
        swarm=(Fault.storage_latency, Fault.cpu_starvation, Fault.llm_rate_limit, Fault.crash_after_write),
        quiet_s=2 * WALL_S,
        settings=replace(SETTINGS, sandbox_cells_max=PLACES, sandbox_waiting_max=WAITING, sandbox_warm_max=2),
    ),
    boot=boot_with_cells,
)
