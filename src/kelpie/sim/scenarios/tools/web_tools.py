"""Ten web searches at once while the search provider limits, stalls, fails and is cut off, and the power fails.

Every search ends within its time, with the results of its own query or with an error; nobody asks a provider that has
told how long to leave it alone; pages come whole or not at all; and the other tools of the turn work as always.
"""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

PROVIDER, PAGES = "search.sim", "pages.sim"
AT_ONCE = 10
ROUNDS = 2
WORK_S = (0.05, 1.5)
REST_S = (1.0, 30.0)  # that a 429 asks for
ON_THE_WAY_S = 1.0  # in which a request that was sent before the refusal arrives, callback after callback late
LATE_S = 0.5  # a switch to another task, beyond a time limit
LIMIT_S = SETTINGS.web_search_s
PAGE = "Tea is made of leaves.\n" * 20
DELAYS = (Fault.network_delay, Fault.network_partition, Fault.network_message_reorder, Fault.storage_latency)


class WebTools(ServerScenario):
    """Two agents, each of which searches ten times in one step, twice, and reads a page."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self._rng = machine.loop.rng("search provider")
        self._rests: list[tuple[float, float]] = []  # from when and until when the provider wants no request
        self._asked_s: list[float] = []
        self.machine.world.internet.host(PROVIDER, self._search)
        self.machine.world.internet.host(PAGES, self._page)

    # --- the web ---------------------------------------------------------------------------------------------------

    async def _search(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        now = asyncio.get_running_loop().time()
        self._asked_s.append(now)
        dice = self._rng.random()
        if dice < 0.15:
            rest_s = self._rng.uniform(*REST_S)
            self._rests.append((now, now + rest_s))
            await answer.start(429, {"retry-after": f"{rest_s:.3f}"})
            return
        if dice < 0.25:
            await asyncio.sleep(3600.0)
        await asyncio.sleep(self._rng.uniform(*WORK_S))
        if dice < 0.35:
            await answer.start(503)
            return
        query = json.loads(asked.body)["query"]
        found = {"title": query, "url": "https://a.example/", "content": f"about {query}", "score": 0.5}
        body = b"<html>" if dice < 0.4 else json.dumps({"results": [found]}).encode()
        await answer.start(200, {"content-type": "application/json"})
        await answer.send(body[:20])
        if dice < 0.45:
            answer.cut()
            return
        await answer.send(body[20:])

    async def _page(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        dice = self._rng.random()
        if dice < 0.2:
            await answer.start(302, {"location": f"http://{PAGES}{asked.path}x"})
            return
        if dice < 0.3:
            await asyncio.sleep(3600.0)
        await answer.start(200, {"content-type": "text/plain"})
        for line in PAGE.splitlines(keepends=True):
            await answer.send(line.encode())
        if dice < 0.4:
            answer.cut()

    # --- what is done ----------------------------------------------------------------------------------------------

    async def act(self) -> None:
        tools = ("web_search", "fetch_webpage")
        await self.make_agents(2, types=("letta_v1_agent", "memgpt_v2_agent"), tools=tools)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(2)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(ROUNDS):
            await client.pause(3.0)
            queries = [f"q-{number}-{turn}-{each}-end" for each in range(AT_ONCE)]
            searches = " & ".join(f'call web_search {{"query": "{query}"}}' for query in queries)
            page = f'call fetch_webpage {{"url": "http://{PAGES}/tea"}}'
            script = (searches, f"{page} & {page}", "remember something")
            await client.say(self.agents[number], *script, stream=client.tosses(0.5))

    # --- what is there at the end ----------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        self._results_are_of_their_queries()
        self._calls_end_in_time()
        if not any(firing.fault in DELAYS for firing in self.machine.faults.firings):
            self._the_provider_is_left_alone()

    def _results_are_of_their_queries(self) -> None:
        calls: dict[str, tuple[str, str]] = {}
        rows = self.machine.disk.query("SELECT tool_calls, tool_returns FROM messages ORDER BY seq")
        for made, returned in rows:
            calls |= {each["id"]: (each["name"], each["arguments"]) for each in json.loads(made or "[]")}
            for each in json.loads(returned or "[]"):
                name, arguments = calls[each["call_id"]]
                if each["ok"] and name == "web_search":
                    query = json.loads(arguments)["query"]
                    if set(re.findall(r"q-[\d-]+-end", each["text"])) != {query}:
                        raise Broken("a search has the results of its query", f"{query}: {each['text'][:200]}")
                if each["ok"] and name == "fetch_webpage" and PAGE.strip() not in each["text"]:
                    raise Broken("a page comes whole", each["text"][:200])

    def _calls_end_in_time(self) -> None:
        limits = {"web_search": LIMIT_S, "fetch_webpage": SETTINGS.web_fetch_s}
        for name, took_us in self.machine.disk.query("SELECT name, duration_us FROM tool_calls"):
            limit_s = limits.get(name)
            starved = any(firing.fault is Fault.cpu_starvation for firing in self.machine.faults.firings)
            if limit_s is not None and not starved and took_us / 1_000_000 > limit_s + LATE_S:
                raise Broken("a web tool ends in its time", f"{name} took {took_us / 1_000_000:.1f} s")

    def _the_provider_is_left_alone(self) -> None:
        """A restart forgets what was asked for; then the next 429 tells it again."""
        if self.machine.boots > 1:
            return
        for since_s, until_s in self._rests:
            for at_s in self._asked_s:
                if since_s + ON_THE_WAY_S < at_s < until_s:
                    told = f"asked at {at_s:.2f}, left alone from {since_s:.2f} to {until_s:.2f}"
                    raise Broken("a rate limit is kept by all", told)


WEB = scenario(
    "web-searches-at-once",
    WebTools,
    plots=(
        (),
        (
            Aim(Fault.network_partition, "network.provider", rate=0.02, times_max=6),
            Aim(Fault.network_packet_loss, "network.provider", rate=0.02),
        ),
        (
            Aim(Fault.crash_before_write, "journal.result", nth=2),
            Aim(Fault.network_delay, "network.provider", rate=0.1),
        ),
    ),
    swarm=(Fault.storage_latency, Fault.llm_rate_limit, Fault.storage_busy, Fault.cpu_starvation),
    settings=replace(SETTINGS, tavily_api_key="sim-key", tavily_base_url=f"http://{PROVIDER}"),
)
