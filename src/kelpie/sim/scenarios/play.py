"""What every scenario with the real server has in common: its people and agents, and the end in which all must be well.

A play says what is done; the faults around it are named where it becomes a scenario.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kelpie.core.settings import Settings
from kelpie.sim.checkers import AT_REST, Fence, no_leaks, runs_ended
from kelpie.sim.disk import Watcher
from kelpie.sim.errors import Broken
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.scenario import QUIET_S, Scenario
from kelpie.sim.scenarios.house import SETTINGS, boot, schema
from kelpie.sim.scenarios.invariants import (
    outside_at_most_once,
    prompts_are_fresh,
    prompts_are_sound,
    remembered_once,
    repeats_double_nothing,
    said_in_order,
    turns_are_whole,
    views_are_current,
)
from kelpie.sim.scenarios.outside import HOST, SOURCE, Outside
from kelpie.sim.scenarios.people import Heard, Person
from kelpie.sim.stage import Stage

TYPES = ("letta_v1_agent", "letta_v1_agent", "memgpt_agent")
ALL_TYPES = (  # but those that need instructions or a companion
    "letta_v1_agent",
    "memgpt_agent",
    "memgpt_v2_agent",
    "react_agent",
    "workflow_agent",
    "sleeptime_agent",
)


class Play(ABC):
    """One run. A scenario is a subclass with its own `act`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.heard: list[Heard] = []
        self.agents: list[str] = []
        self.secrets: dict[str, str] = {}
        self.emptied_s: dict[str, float] = {}  # when an agent's history was last emptied
        self.apart: set[str] = set()  # conversations that have a copy of the block 'human' for themselves
        self.outside = Outside(stage.loop, stage.faults, stage.crash)
        stage.world.internet.host(HOST, self.outside)

    @abstractmethod
    async def act(self) -> None:
        """What is done while faults fire."""

    async def settle(self) -> None:
        """After the quiet period: everything has ended by itself, and everybody is well."""
        runs_ended(self.stage.disk, self.stage.history)
        visitor = self.person("visitor")
        await together(self._is_well(visitor, agent_id) for agent_id in self.agents)
        views_are_current(self.stage.disk, self.stage.llm.seen, self.agents)
        self.check()

    def check(self) -> None:
        """The invariants that need more than the disk and the history."""
        disk, history = self.stage.disk, self.stage.history
        said_in_order(disk, history)
        wiped = {each.token for each in history.said if each.called_s <= self.emptied_s.get(each.agent_id, -1.0)}
        wiped |= {each.said.token for each in self.heard if each.conversation in history.removed}
        turns_are_whole(disk, wiped)
        repeats_double_nothing(disk, self.heard)
        remembered_once(disk, {a: secret for a, secret in self.secrets.items() if a not in self.emptied_s}, self.apart)
        prompts_are_sound(self.stage.llm.seen)
        prompts_are_fresh(self.stage.llm.seen)
        outside_at_most_once(disk, self.outside.effects)
        no_leaks(self.stage.llm.seen, self.secrets, {agent_id: agent_id for agent_id in self.secrets})

    def person(self, name: str) -> Person:
        return Person(self.stage, name, self.heard)

    def people(self, count: int) -> list[Person]:
        return [self.person(f"person-{number}") for number in range(count)]

    @property
    def all_types(self) -> Sequence[str]:
        """Every type, beginning with another one in each run."""
        first = self.stage.loop.seed % len(ALL_TYPES)
        return (*ALL_TYPES[first:], *ALL_TYPES[:first])

    async def make_agents(
        self,
        count: int,
        *,
        types: Sequence[str] = TYPES,
        tools: Iterable[str] = (),
        block_ids: Iterable[str] = (),
    ) -> list[str]:
        """Agents of several types, each with a secret of its own in its memory."""
        maker = self.person("maker")
        for number in range(count):
            secret = f"secret-{len(self.agents)}-x"
            body = {
                "name": f"agent {len(self.agents)}",
                "agent_type": types[number % len(types)],
                "memory_blocks": [{"label": "human", "value": secret}],
                "tools": list(tools),
                "block_ids": list(block_ids),
            }
            agent_id = (await maker.insist("POST", "/v1/agents/", body))["id"]
            self.agents.append(agent_id)
            self.secrets[agent_id] = secret
        return self.agents

    async def register_outside(self) -> None:
        """Makes the tool 'outside' known to the server."""
        await self.person("maker").insist("POST", "/v1/tools/", {"source_code": SOURCE})

    async def _is_well(self, visitor: Person, agent_id: str) -> None:
        heard = await visitor.say(agent_id)
        if not heard.acknowledged:
            raise Broken("no agent is bricked", f"{agent_id} was told {heard.status} {heard.trouble}")
        path = f"/v1/agents/{agent_id}/messages?limit=1000&order=asc&include_return_message_types=user_message"
        listed = [str(one["content"]) for one in await visitor.insist("GET", path)]
        rows = self.stage.disk.query(
            "SELECT content FROM messages WHERE agent_id = ? AND role IN ('user', 'summary') ORDER BY seq", agent_id
        )
        stored = [json.loads(content)[0]["text"] for (content,) in rows]
        if listed != stored:
            raise Broken("the history is read as it was written", f"{agent_id} lists {listed}, the disk has {stored}")


async def together(works: Iterable[Awaitable[object]]) -> None:
    """Does it all at once; the first trouble ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(_await(work))
    except ExceptionGroup as troubles:
        raise troubles.exceptions[0] from None


async def _await(work: Awaitable[object]) -> None:
    await work


def scenario(
    name: str,
    play: type[Play],
    *,
    faults: tuple[Aim, ...] = (),
    plots: tuple[tuple[Aim, ...], ...] = (),
    swarm: tuple[Fault, ...] = (),
    settings: Settings = SETTINGS,
    quiet_s: float = QUIET_S,
    watches: tuple[Callable[[], Watcher], ...] = (),
) -> Scenario:
    """A play with the faults around it."""

    async def body(stage: Stage) -> None:
        stage.scene = scene = play(stage)
        await scene.act()

    async def settled(stage: Stage) -> None:
        assert isinstance(stage.scene, play)
        await stage.scene.settle()

    return Scenario(
        name,
        body,
        boot,
        schema,
        faults=faults,
        plots=plots,
        swarm=swarm,
        settled=settled,
        checks=AT_REST,
        watches=(Fence, *watches),
        settings=settings,
        quiet_s=quiet_s,
    )
