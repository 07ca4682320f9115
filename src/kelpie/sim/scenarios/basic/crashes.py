"""Power cuts: at every point of the journal, one after the other, and anywhere at all.

The points are enumerated, not drawn: before and after every kind of commit, on both sides of an external tool's effect,
and in the recovery from another cut. Run number n takes the n-th of them, so a set of seeds at least as large as the
list visits each.
"""

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

BEFORE, AFTER = Fault.crash_before_write, Fault.crash_after_write
TRIES_MAX = 5


class EveryKindOfCommit(ServerScenario):
    """One agent and one message after the other, so that the visits of each point can be counted.

    The messages make, in this order: open step / open step step / open reply result step / open reply result result
    result step / open close.
    """

    async def act(self) -> None:
        await self.register_outside()
        (agent_id,) = await self.make_agents(1, tools=["outside"])
        client = self.client("person")
        await client.say(agent_id)
        await client.say(agent_id, "remember {token} likes tea", stream=True)
        await client.say(agent_id, 'call outside {"mark": "{token}"}')
        both = 'call outside {"mark": "{token}-a"} & call outside {"mark": "{token}-b"}'
        append = 'call memory_insert {"label": "human", "new_string": "{token} saw both"}'
        await client.say(agent_id, f"{both} & {append}", stream=True, tokens=True)
        await client.say(agent_id, max_steps=0)

    async def settle(self) -> None:
        if self.machine.boots < 2:
            raise Broken("the power was cut", f"the node was booted {self.machine.boots} times")
        await super().settle()


class CrashAnywhere(ServerScenario):
    """Clients that talk to the same agents while the power fails anywhere; a client without an answer tries again."""

    async def act(self) -> None:
        await self.register_outside()
        await self.make_agents(2, tools=["outside"])
        await together(self._talk(client, number) for number, client in enumerate(self.clients(3)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        lines = (*LINES, ('call outside {"mark": "{token}"}', "remember {token} was outside"))[number + 1]
        for _ in range(TRIES_MAX):
            await client.pause()
            heard = await client.say(self.agents[number % 2], *lines, stream=client.tosses(0.3))
            if heard.acknowledged:
                return


def cuts(kind: str, *visits: int) -> tuple[tuple[Aim, ...], ...]:
    """Aim lists with one cut each: before and after these visits of a kind of commit."""
    return tuple((Aim(fault, f"journal.{kind}", nth=nth),) for nth in visits for fault in (BEFORE, AFTER))


_OUTSIDE = tuple((Aim(fault, "outside.effect", nth=nth),) for nth in (1, 2, 3) for fault in (BEFORE, AFTER))

# In the recovery from a first cut. The visit counts those of the lives before.
_AGAIN = (
    (Aim(AFTER, "journal.open", nth=2), Aim(BEFORE, "journal.close", nth=1)),
    (Aim(BEFORE, "journal.step", nth=1), Aim(AFTER, "journal.close", nth=1)),
    (Aim(AFTER, "outside.effect", nth=1), Aim(BEFORE, "journal.recover", nth=1)),
    (Aim(AFTER, "outside.effect", nth=1), Aim(AFTER, "journal.recover", nth=1)),
    (Aim(BEFORE, "outside.effect", nth=2), Aim(BEFORE, "journal.recover", nth=1), Aim(AFTER, "journal.recover", nth=1)),
    (Aim(AFTER, "journal.reply", nth=1), Aim(BEFORE, "journal.recover", nth=1)),
    (Aim(AFTER, "journal.result", nth=1), Aim(BEFORE, "journal.step", nth=4)),
    (Aim(AFTER, "journal.result", nth=2), Aim(AFTER, "journal.recover", nth=1)),
    (Aim(AFTER, "journal.step", nth=2), Aim(BEFORE, "journal.step", nth=3)),
    (Aim(AFTER, "journal.open", nth=1), Aim(BEFORE, "database.begin", nth=6)),
    (Aim(AFTER, "journal.reply", nth=2), Aim(Fault.crash_during_transaction, "database.commit", nth=14)),
)

EVERY_POINT = scenario(
    "crash-at-every-journal-point",
    EveryKindOfCommit,
    plots=(
        *cuts("open", 1, 3, 5),
        *cuts("step", 1, 2, 3, 4),
        *cuts("reply", 1, 2),
        *cuts("result", 1, 2, 3, 4),
        *cuts("close", 1),
        *_OUTSIDE,
        *_AGAIN,
    ),
)

ANYWHERE = scenario(
    "crashes-anywhere",
    CrashAnywhere,
    faults=(
        Aim(Fault.crash_before_write, "database.begin", rate=0.02, times_max=2),
        Aim(Fault.crash_during_transaction, "database.statement", rate=0.002, times_max=2),
        Aim(Fault.crash_during_transaction, "database.commit", rate=0.02, times_max=2),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=2),
    ),
    swarm=(Fault.storage_latency, Fault.network_delay, Fault.llm_malformed, Fault.clock_skew, Fault.vanishing_client),
)
