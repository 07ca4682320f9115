"""Edits whose outcome is unknown: the commit is in and its answer is lost, or the waiting client was cut off.

Their editors send them again, and may be told that there is nothing left to do. Still no prompt is older than the last
edit that was acknowledged, and in the end every live agent sees what is stored.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from kelpie.sim.faults import SIZES, Aim, Fault
from kelpie.sim.scenarios.checks.invariants import views_are_current
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.edits import Edits
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.fixtures.prompts import Prompt, prompts
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

TYPES = ("letta_v1_agent", "memgpt_v2_agent")
EDITORS_AT_ONCE = 2  # few: every edit that an agent hears of makes it look at all
ROUNDS = 3
SPARE, LENT = "spare", "lent"  # tools: all have the one, the second agent has the other now and then
SOURCE = '''
def {name}() -> str:
    """As it was made."""
    return ""
'''

Editor = Callable[[ScenarioClient], Awaitable[None]]


class UnknownOutcomes(ServerScenario):
    """Two agents with a shared block and a shared tool. Each editor changes a thing of its own, then writes to one."""

    async def act(self) -> None:
        self.edits = Edits(self.machine.loop)
        maker = self.client("maker")
        self.notice = await self._block(maker, "notice", "notice 0")
        self.tools = {name: await self._tool(maker, name) for name in (SPARE, LENT)}
        await self.make_agents(2, types=TYPES, tools=self.tools, block_ids=[self.notice])
        await self._begin(maker)
        editors: list[Editor] = [self._rewrite, self._pin, self._describe, self._lend, self._instruct]
        chosen = self.machine.rng.sample(editors, EDITORS_AT_ONCE)
        works = [editor(client) for editor, client in zip(chosen, self.clients(EDITORS_AT_ONCE), strict=True)]
        await together((*works, self._talk(self.client("talker"))))

    async def _block(self, maker: ScenarioClient, label: str, value: str) -> str:
        return (await maker.insist("POST", "/v1/blocks/", {"label": label, "value": value}))["id"]

    async def _tool(self, maker: ScenarioClient, name: str) -> str:
        return (await maker.insist("POST", "/v1/tools/", {"source_code": SOURCE.format(name=name)}))["id"]

    async def _begin(self, maker: ScenarioClient) -> None:
        """Records the initial values, and loads both agents."""
        for key, value in (("notice", "notice 0"), ("pin", None), (SPARE, "As it was made."), (LENT, LENT)):
            self.edits.began(key, value)
        await self.edits.make(
            maker, self.edits.call("system", "edition 0"), "PATCH", self._agent(0), {"system": "edition 0"}
        )
        await together(maker.say(agent_id) for agent_id in self.agents)

    async def _talk(self, client: ScenarioClient) -> None:
        for turn in range(3):
            await client.pause()
            await client.say(self.agents[turn % 2], stream=client.tosses(0.3))

    def _agent(self, number: int, rest: str = "") -> str:
        return f"/v1/agents/{self.agents[number]}{rest}"

    # --- the editors ---------------------------------------------------------------------------------------------

    async def _rewrite(self, client: ScenarioClient) -> None:
        """Replaces the value of a shared block, by two requests at once: the first answer counts."""
        for number in range(1, ROUNDS + 1):
            await client.pause()
            edit = self.edits.call("notice", f"notice {number}")
            path, body = f"/v1/blocks/{self.notice}", {"value": edit.value}
            await together(self.edits.make(one, edit, "PATCH", path, body) for one in (client, self.client("twin")))
            await client.say(self.agents[number % 2])

    async def _pin(self, client: ScenarioClient) -> None:
        """Attaches a block to the first agent now and then; the last one is deleted while it is attached."""
        for number in range(1, ROUNDS + 1):
            pin = await self._block(client, "pin", f"pin {number}")
            way = self._agent(0, "/core-memory/blocks")
            await self.edits.make(client, self.edits.call("pin", f"pin {number}"), "PATCH", f"{way}/attach/{pin}")
            await client.say(self.agents[0])
            off = self.edits.call("pin", None)
            if number == ROUNDS:
                await self.edits.make(client, off, "DELETE", f"/v1/blocks/{pin}", gone=404)
            else:
                await self.edits.make(client, off, "PATCH", f"{way}/detach/{pin}", gone=404)
            await client.say(self.agents[0])

    async def _describe(self, client: ScenarioClient) -> None:
        """Changes the description of a shared tool."""
        for number in range(1, ROUNDS + 1):
            await client.pause()
            edit = self.edits.call(SPARE, f"Edition {number}.")
            schema = {"name": SPARE, "description": edit.value, "parameters": {"type": "object", "properties": {}}}
            await self.edits.make(client, edit, "PATCH", f"/v1/tools/{self.tools[SPARE]}", {"json_schema": schema})
            await client.say(self.agents[number % 2])

    async def _lend(self, client: ScenarioClient) -> None:
        """Attaches a tool to the second agent now and then; in the end it is deleted."""
        tool_id = self.tools[LENT]
        for _ in range(ROUNDS - 1):
            for value, way in ((None, "detach"), (LENT, "attach")):
                edit = self.edits.call(LENT, value)
                await self.edits.make(client, edit, "PATCH", self._agent(1, f"/tools/{way}/{tool_id}"))
                await client.say(self.agents[1])
        await self.edits.make(client, self.edits.call(LENT, None), "DELETE", f"/v1/tools/{tool_id}", gone=400)
        await client.say(self.agents[1])

    async def _instruct(self, client: ScenarioClient) -> None:
        """Changes the instructions of the first agent."""
        for number in range(1, ROUNDS + 1):
            await client.pause()
            edit = self.edits.call("system", f"edition {number}")
            await self.edits.make(client, edit, "PATCH", self._agent(0), {"system": edit.value})
            await client.say(self.agents[0])

    def check(self) -> None:
        super().check()
        for prompt in prompts(self.machine.llm.seen, self.heard):
            for key, shown in self._shown(prompt):
                self.edits.check(key, shown, prompt.began_s, prompt.seen_s)

    def _shown(self, prompt: Prompt) -> list[tuple[str, str | None]]:
        shown = [("notice", prompt.block("notice")), (SPARE, prompt.tool(SPARE))]
        if prompt.agent_id == self.agents[0]:
            shown += [("pin", prompt.block("pin")), ("system", prompt.system.partition("\n")[0])]
        else:
            shown.append((LENT, LENT if prompt.tool(LENT) else None))
        return shown


class CancelledWrites(ServerScenario):
    """One agent writes into a block while an operator cancels its turns; another one has the block in its prompt.

    Nothing else makes the other one reload, so it gets a message after every cut.
    """

    async def act(self) -> None:
        maker, writer, operator = (self.client(name) for name in ("maker", "writer", "operator"))
        block_id = (await maker.insist("POST", "/v1/blocks/", {"label": "log", "value": "began"}))["id"]
        await self.make_agents(2, types=TYPES, tools=["core_memory_append"], block_ids=[block_id])
        for _ in range(4):
            await together((self._write(writer), self._cut(operator)))
            await asyncio.sleep(SIZES[Fault.storage_latency][1])  # a commit without a waiting caller takes its time
            await maker.say(self.agents[1])
            views_are_current(self.machine.disk, self.machine.llm.seen, self.agents[1:])

    async def _write(self, writer: ScenarioClient) -> None:
        await writer.say(self.agents[0], 'call core_memory_append {"label": "log", "content": "{token}"}')

    async def _cut(self, operator: ScenarioClient) -> None:
        await operator.pause(1.5)
        await operator.insist("POST", f"/v1/agents/{self.agents[0]}/restart")


DOUBTS = scenario(
    "edits-in-doubt",
    UnknownOutcomes,
    faults=(
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.2),
        Aim(Fault.storage_busy, "database.begin", rate=0.05),
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
    ),
    swarm=(Fault.storage_write_fail, Fault.storage_read_fail, Fault.crash_after_write, Fault.cpu_starvation),
)

CUT_OFF = scenario(
    "turns-cut-off",
    CancelledWrites,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.2),
        Aim(Fault.storage_latency, "database.acknowledge", rate=0.4),  # stored, and nobody knows when the turn is cut
    ),
    swarm=(Fault.storage_busy, Fault.cpu_starvation, Fault.llm_rate_limit),
    settings=replace(SETTINGS, drain_s=0.3),
)
