"""Small context windows: histories that are compacted again and again, while the summariser fails, says nothing or too
much, the provider refuses prompts as too long, the power fails and the disk misbehaves.

No turn hangs on a compaction, nothing leaves the history with it, every context is instructions, at most one summary
and whole turns, and the input stands in every prompt of its turn. A summary takes at most its share of the window,
whatever the summariser wrote, and no more is asked for.
"""

import json
from collections.abc import Mapping
from typing import Any

from kelpie.core.token_estimates import BYTES_PER_TOKEN
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.scripted_model import sums_up
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

WINDOW = 5_000
FILLER = "so it goes on and on " * 60  # about 300 tokens
TURNS = 9
DRINKS = ("tea", "milk", "water")
SUMMARY_TOKENS_MAX = WINDOW // 4
ENVELOPE_BYTES_MAX = 1_000  # of a stored summary, beside its text
MODES = ("sliding_window", "all", "self_compact_sliding_window", "self_compact_all")


class SmallWindows(ServerScenario):
    """Two agents, each with two clients; one client now and then asks for a compaction."""

    async def act(self) -> None:
        await self.make_agents(2)
        maker = self.client("maker")
        for number, agent_id in enumerate(self.agents):
            mode = MODES[(self.machine.loop.seed + number) % len(MODES)]
            body = {"context_window_limit": WINDOW, "compaction_settings": {"mode": mode}}
            await maker.insist("PATCH", f"/v1/agents/{agent_id}", body)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(4)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        agent_id = self.agents[number % 2]
        for _ in range(TURNS):
            await client.pause()
            likes = DRINKS[: client.picks((1, 3))] if client.tosses(0.3) else ()
            lines = (FILLER, *(f"remember {{token}} likes {drink}" for drink in likes))
            await client.say(agent_id, *lines, stream=client.tosses(0.4), tokens=client.tosses(0.5))
            if client.tosses(0.1):
                answer = await client.ask("POST", f"/v1/agents/{agent_id}/summarize", {})
                if answer is not None and answer.status not in (200, 400, 429, 500, 503, 504):
                    raise Broken("a compaction is made or refused", f"{answer.status} {answer.body!r}")

    def check(self) -> None:
        super().check()
        for request in self.machine.llm.seen:
            _check_input(request.body)
            _check_limit(request.body)
        for agent_id in self.agents:
            self._context_is_sound(agent_id)

    def _context_is_sound(self, agent_id: str) -> None:
        rows = self.machine.disk.query(
            """SELECT m.role, m.tool_calls, m.tool_returns, m.content
               FROM context c LEFT JOIN messages m ON m.id = c.message_id
               WHERE c.agent_id = ? ORDER BY c.position""",
            agent_id,
        )
        roles = [role for role, *_ in rows]
        if roles[0] != "system" or "summary" in roles[2:] or None in roles:
            raise Broken("a context is instructions, a summary and what was said", f"{agent_id}: {roles}")
        calls = {call["id"] for _, made, *_ in rows for call in json.loads(made)}
        results = {result["call_id"] for _, _, returned, _ in rows for result in json.loads(returned)}
        if calls != results:
            raise Broken("a cut parts no call from its result", f"{agent_id}: {sorted(calls ^ results)}")
        size = max((len(content) for role, *_, content in rows if role == "summary"), default=0)
        if size > SUMMARY_TOKENS_MAX * BYTES_PER_TOKEN + ENVELOPE_BYTES_MAX:
            raise Broken("a summary takes at most its share of the window", f"{agent_id}: {size} bytes")


def _check_input(body: Mapping[str, Any]) -> None:
    """The input is in the prompt that answers it; a prompt that asks for a summary answers no message."""
    if sums_up(body["messages"]):
        return
    users = [str(message["content"]) for message in body["messages"] if message["role"] == "user"]
    if body.get("tools") and not any(text.lstrip().startswith("tok-") for text in users):
        raise Broken("a prompt holds the question", f"{[text[:60] for text in users]}")


def _check_limit(body: Mapping[str, Any]) -> None:
    """A request for a summary has its limit; that of a model that thinks includes the thoughts."""
    thinks = "max_completion_tokens" in body
    if sums_up(body["messages"]) and not thinks and not 0 < body.get("max_tokens", 0) <= SUMMARY_TOKENS_MAX:
        raise Broken("a summary is asked for within its limit", f"{body.get('max_tokens')} tokens")


WINDOWS = scenario(
    "small-context-windows",
    SmallWindows,
    faults=(
        Aim(Fault.llm_malformed, "llm.overflow", rate=0.05),
        Aim(Fault.llm_malformed, "llm.summary_fails", rate=0.2),
        Aim(Fault.llm_malformed, "llm.summary_empty", rate=0.2),
        Aim(Fault.llm_malformed, "llm.summary_long", rate=0.2),
        Aim(Fault.crash_before_write, "journal.compact", rate=0.1, times_max=1),
        Aim(Fault.crash_after_write, "journal.compact", rate=0.1, times_max=1),
        Aim(Fault.storage_write_fail, "journal.compact", rate=0.1),
        Aim(Fault.disk_full, "journal.compact", rate=0.1),
        Aim(Fault.storage_write_fail, "journal.compact.told", rate=0.1),
    ),
    swarm=(Fault.storage_busy, Fault.llm_timeout, Fault.clock_jump, Fault.network_delay, Fault.vanishing_client),
)
