"""A model of what holds an agent back: permissions, limits and budgets.

Limits are set about what is used: to the last that is permitted, and to the first that is not. One request follows the
other, so nothing is in flight when a limit is reached, and it is held exactly.
"""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND, as_datetime
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.cells import CPU_US
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource, micros
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.external_service import ExternalService

HOUR_S = 3600
HOUR = timedelta(hours=1)
PERIODS = ("total", "hour", "day", "month")
PRICE_USD = 1  # a million tokens, so that a token costs a millionth of a dollar
DAYS = 366  # of the sums
MONTHS_MAX = 4
PATTERNS = ("outside", "memory_*", "kind:custom", "kind:builtin", "capability:memory", "conversation_search")
TOOLS = {  # of the agent: kind and capabilities
    "outside": ("custom", {"code"}),
    "conversation_search": ("builtin", {"memory"}),
    "memory_insert": ("builtin", {"memory"}),
    "memory_replace": ("builtin", {"memory"}),
}
NOBODY: dict[str, Any] = {"allow": None, "deny": []}


def is_permitted(name: str, layers: list[dict[str, Any]]) -> bool:
    """A second implementation of the documentation: deny one capability, allow all of them."""
    kind, capabilities = TOOLS[name]
    for layer in layers:
        named = {name, f"kind:{kind}", *(f"capability:{each}" for each in capabilities)}
        if any(fnmatchcase(each, pattern) for each in named for pattern in layer["deny"]):
            return False
        allow = layer["allow"]
        if allow is None:
            continue
        whole = any(fnmatchcase(each, pattern) for each in (name, f"kind:{kind}") for pattern in allow)
        parts = all(any(fnmatchcase(f"capability:{each}", pattern) for pattern in allow) for each in capabilities)
        if not whole and not parts:
            return False
    return True


class LimitModel(ModelledResource):
    """The state: permissions and limits of the agent and its organization, its budget, and the calls that were made."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str, outside: ExternalService) -> None:
        super().__init__(machine, client)
        self.agent_id = agent_id
        self.outside = outside
        self.used: Counter[int] = Counter()  # by hour: counted calls
        self.spent: Counter[int] = Counter()  # by hour: tokens
        self.cpu: Counter[int] = Counter()  # by hour: calls that used processor time
        self.state = {
            "agent": NOBODY,
            "policy": NOBODY,
            "limit": None,
            "tokens": None,
            "cpu": None,
            "budget": None,
            "calls": [],
        }
        self._made = 0
        self._months = 0  # that were passed

    @property
    def _hour(self) -> int:
        return self.now // (HOUR_S * MICROS_PER_SECOND)

    def _bounds(self, period: str) -> tuple[int, datetime | None]:
        """The first hour of the current period, and its end, by the calendar."""
        if period == "total":
            return 0, None
        now = as_datetime(self.now)
        begins = now.replace(minute=0, second=0, microsecond=0)
        if period == "hour":
            return self._hour, begins + HOUR
        begins = begins.replace(hour=0)
        if period == "day":
            return int(begins.timestamp()) // HOUR_S, begins + timedelta(days=1)
        begins = begins.replace(day=1)
        later = begins.month == 12
        ends = begins.replace(year=begins.year + later, month=1 if later else begins.month + 1)
        return int(begins.timestamp()) // HOUR_S, ends

    async def act(self) -> None:
        acts = (self._permit, self._rule, self._limit, self._limit, self._spend, self._spend, self._pass_time)
        await self.client.picks(acts)()
        await self._turn()

    def _permissions(self) -> dict[str, Any]:
        some = [pattern for pattern in PATTERNS if self.client.tosses(0.3)]
        few = [pattern for pattern in PATTERNS if self.client.tosses(0.15)]
        return {"allow": None if self.client.tosses(0.6) else some, "deny": few}

    async def _permit(self) -> None:
        new = self._permissions()
        after = {**self.state, "agent": new}
        await self.change("PATCH", f"/v1/agents/{self.agent_id}", {"kelpie_permissions": new}, after)

    async def _rule(self) -> None:
        """The policy of the whole organization."""
        new = self.client.picks((NOBODY, self._permissions()))
        await self.change("PUT", "/v1/kelpie/policy", {"permissions": new}, {**self.state, "policy": new})

    async def _limit(self) -> None:
        """What is used in this hour, one more, two more, or no limit."""
        limit = self.client.picks((0, 0, 1, 1, 2, None))
        limit = None if limit is None else self.used[self._hour] + limit
        tokens = self.client.picks((None, None, None, self.spent[self._hour], self.spent[self._hour] + 1))
        runs = self.client.picks((None, None, 0, 1, 1, 2))  # of code, by the processor time that each takes
        cpu = None if runs is None else (self.cpu[self._hour] + runs) * CPU_US / MICROS_PER_SECOND or None
        after = {**self.state, "limit": limit, "tokens": tokens, "cpu": cpu}
        limits = {"tool_calls_per_hour": limit, "tokens_per_hour": tokens, "cpu_seconds_per_hour": cpu}
        body = {"kelpie_limits": limits}
        await self.change("PATCH", f"/v1/agents/{self.agent_id}", body, after)

    async def _spend(self) -> None:
        """A budget of tokens or money that is just used up, or lacks one token of it."""
        period = self.client.picks(PERIODS)
        amount = self._spent(period) + self.client.picks((0, 1))
        kind: dict[str, Any] = self.client.picks(({"tokens": amount}, {"usd": amount / 1_000_000}))
        budget = self.client.picks((None, {"tokens": None, "usd": None, "period": period} | kind)) if amount else None
        await self.change(
            "PATCH", f"/v1/agents/{self.agent_id}", {"kelpie_budget": budget}, {**self.state, "budget": budget}
        )

    def _spent(self, period: str) -> int:
        first, _ = self._bounds(period)
        return sum(tokens for hour, tokens in self.spent.items() if hour >= first)

    def _exceeds(self, budget: Mapping[str, Any]) -> bool:
        amount = budget["tokens"] if budget["usd"] is None else round(budget["usd"] * 1_000_000)
        return self._spent(budget["period"]) >= amount

    async def _pass_time(self) -> None:
        """To the last moment of an hour, a day or a month, or the first of the next."""
        period = self.client.picks(("hour", "hour", "day", "month"))
        self._months += period == "month"
        _, ends = self._bounds(period if self._months <= MONTHS_MAX else "day")
        assert ends is not None
        left = round(ends.timestamp() * MICROS_PER_SECOND) - self.now
        if self.client.tosses(0.5):
            self.machine.world.ahead_s += (left + 1) / MICROS_PER_SECOND

    def _is_used_up(self) -> bool:
        budget, tokens = self.state["budget"], self.state["tokens"]
        if budget and self._exceeds(budget):
            return True
        return tokens is not None and self.spent[self._hour] >= tokens

    async def _turn(self) -> None:
        """Asks for some calls in one reply: as many run as are permitted, and each has its effect once."""
        self._made += 1
        # The time that code takes counts once it has run, and calls of one reply may run at the same time.
        count = self.client.picks((1, 3)) if self.state["cpu"] is None else 1
        wanted = [self.client.picks(("outside", "outside", "memory_insert")) for _ in range(count)]
        marks = [f"{self.client.name}-{self._made}-{at}" for at in range(len(wanted))]
        lines = [
            f'call {name} {{"mark": "{mark}"}}'
            if name == "outside"
            else f'call {name} {{"label": "human", "new_string": "{mark}"}}'
            for name, mark in zip(wanted, marks, strict=True)
        ]
        charged, hour = len(self.machine.llm.charged), self._hour
        asked = len(self.machine.llm.seen)
        body = {"input": f"word{self._made}\n{' & '.join(lines)}"}
        response = await self.client.ask("POST", f"/v1/agents/{self.agent_id}/messages", body)
        if response is None or response.status != 200 or self.machine.faults.firings:
            self.may_fail("a turn", None if response is None else response.body)
            await self._take_over()
            return
        told = response.json()
        reason = told["stop_reason"]["stop_reason"]
        if self._is_used_up():
            if reason != "insufficient_credits" or told["messages"] or len(self.machine.llm.seen) != asked:
                raise Broken("what is used up is refused", f"{self.state} {self.spent}: {told}")
            self._is_told(told["stop_reason"])
            return
        self._offered(asked)
        runs = self._expected(wanted)
        for each in self.machine.llm.charged[charged : charged + 1]:
            self.spent[hour] += each.prompt_tokens + each.completion_tokens
        goes_on = not self._is_used_up()
        for each in self.machine.llm.charged[charged + 1 :]:
            self.spent[hour] += each.prompt_tokens + each.completion_tokens
        if (reason == "end_turn") != goes_on or len(self.machine.llm.seen) - asked != (2 if goes_on else 1):
            raise Broken("a turn ends where its budget does", f"{self.state} {self.spent}: {told}")
        returned = [message for message in told["messages"] if message["message_type"] == "tool_return_message"]
        results = [one for message in returned for one in message["tool_returns"]]
        seen = {one["tool_call_id"]: one["status"] == "success" for one in results}
        ordered = [seen[call_id] for call_id in sorted(seen)]  # they are numbered
        effects = [self.outside.effects[mark] for name, mark in zip(wanted, marks, strict=True) if name == "outside"]
        could = [ran for ran, name in zip(runs, wanted, strict=True) if name == "outside"]
        if ordered != runs or [count == 1 for count in effects] != could:
            raise Broken("what is permitted runs, and nothing else", f"{self.state} {self.used}: {wanted} {results}")
        self.state["calls"] += [[name, "success" if ran else "refused"] for name, ran in zip(wanted, runs, strict=True)]
        self.used[hour] += sum(runs)
        self.cpu[hour] += sum(could)

    def _is_told(self, told: Mapping[str, Any]) -> None:
        """Who is refused is told of which budget, what was spent of it, and when it is renewed."""
        budget, detail = self.state["budget"], "budget"
        if not budget or not self._exceeds(budget):
            budget, detail = {"tokens": self.state["tokens"], "usd": None, "period": "hour"}, "limit"
        spent, ends = self._spent(budget["period"]), self._bounds(budget["period"])[1]
        wanted = {
            **budget,
            "spent_tokens": spent,
            "spent_usd": spent / 1_000_000,
            "frees_at": None if ends is None else ends.isoformat(),
        }
        shown = told["kelpie_budget"]
        if told["kelpie_stop_reason"] != detail or {name: shown[name] for name in wanted} != wanted:
            raise Broken("who has nothing left is told why", f"{told} and not {detail} {wanted}")
        if wanted["frees_at"] is not None and wanted["frees_at"] not in shown["message"]:
            raise Broken("who has nothing left is told why", f"{shown['message']} without {wanted['frees_at']}")

    def _expected(self, wanted: list[str]) -> list[bool]:
        """Which of the calls of one reply run: those of it that came before count."""
        left = float("inf") if self.state["limit"] is None else self.state["limit"] - self.used[self._hour]
        runs: list[bool] = []
        for name in wanted:
            runs.append(left > 0 and self._has_time() and self._permits(name))
            left -= runs[-1]
        return runs

    def _has_time(self) -> bool:
        cpu = self.state["cpu"]
        return cpu is None or self.cpu[self._hour] * CPU_US < cpu * MICROS_PER_SECOND

    def _offered(self, asked: int) -> None:
        """The model is offered the tools that are permitted, and no others."""
        body = next(one.body for one in self.machine.llm.seen[asked:] if one.body.get("user") == self.agent_id)
        offered = {tool["function"]["name"] for tool in body.get("tools") or ()}
        permitted = {name for name in TOOLS if is_permitted(name, [self.state["agent"], self.state["policy"]])}
        if offered != permitted and not (body["tool_choice"] == "none" and not permitted):
            raise Broken("what is permitted is offered", f"{self.state}: {offered} and not {permitted}")

    def _permits(self, name: str) -> bool:
        """True if the tool may be used at all; a limit of 0 permits nothing."""
        return self.state["limit"] != 0 and is_permitted(name, [self.state["agent"], self.state["policy"]])

    async def _take_over(self) -> None:
        """After a fault: what was used is what is recorded."""
        for _ in range(100):
            if not await self.client.insist("GET", f"/v1/runs/?agent_id={self.agent_id}&active=true"):
                break
            await self.client.pause(3.0)
        calls = await self.client.insist("GET", f"/v1/agents/{self.agent_id}/tool-calls?limit=1000")
        self.state["calls"] = [[call["tool"], call["outcome"]] for call in reversed(calls)]
        self.used.clear()
        self.cpu.clear()
        for call in calls:
            hour = (micros(call["created_at"]) or 0) // (HOUR_S * MICROS_PER_SECOND)
            self.used[hour] += call["counted"]
            self.cpu[hour] += bool(call["cpu_ms"])
        self.spent.clear()
        for at, usage in self.machine.disk.query(
            "SELECT created_at, usage FROM steps WHERE agent_id = ?", self.agent_id
        ):
            self.spent[at // (HOUR_S * MICROS_PER_SECOND)] += json.loads(usage)["total_tokens"]

    async def read(self) -> Any:
        path = f"/v1/agents/{self.agent_id}"
        agent = await self.maybe(path)
        policy = await self.client.insist("GET", "/v1/kelpie/policy")
        limits = agent["kelpie_limits"] or {}
        budget = agent["kelpie_budget"]
        calls, before = list[Any](), ""
        while page := await self.client.insist("GET", f"{path}/tool-calls?limit=3{before}"):
            calls += page
            before = f"&before={page[-1]['number']}"
        return {
            "agent": {**NOBODY, **(agent["kelpie_permissions"] or {})},
            "policy": {name: policy["permissions"][name] for name in NOBODY},
            "limit": limits.get("tool_calls_per_hour"),
            "tokens": limits.get("tokens_per_hour"),
            "cpu": limits.get("cpu_seconds_per_hour"),
            "budget": None if budget is None else {name: budget[name] for name in ("tokens", "usd", "period")},
            "calls": [[call["tool"], call["outcome"]] for call in reversed(calls)],
        }

    async def check(self) -> None:
        await super().check()
        path = f"/v1/agents/{self.agent_id}"
        shown = {one["name"]: one["permitted"] for one in (await self.maybe(f"{path}/permissions"))["tools"]}
        if shown != (wanted := {name: self._permits(name) for name in TOOLS}):
            raise Broken("permissions are shown as they are held", f"{self.state}: {shown} and not {wanted}")
        used = (await self.maybe(f"{path}/limits"))["used"]
        spent = await self.maybe(f"/v1/kelpie/agents/{self.agent_id}/spending")
        here = (self.used[self._hour], self.spent[self._hour], self.spent.total())
        if here != (used["tool_calls"], used["tokens"], spent["tokens"]):
            raise Broken("what is used is counted", f"{used} and {spent}, and must be {here}")
        if (budget := spent["budget"]) is not None:
            self._is_shown(budget)
        await self._sums_are_right()

    def _is_shown(self, budget: Mapping[str, Any]) -> None:
        known, ends = self._spent(budget["period"]), self._bounds(budget["period"])[1]
        told = (budget["spent_tokens"], budget["spent_usd"], budget["used_up"], micros(budget["frees_at"]))
        frees_at = None if ends is None else round(ends.timestamp() * MICROS_PER_SECOND)
        if told != (known, known / 1_000_000, self._exceeds(self.state["budget"]), frees_at):
            raise Broken("a budget is shown as it is held", f"{budget} of {known}, which ends at {ends}")

    async def _sums_are_right(self) -> None:
        """What was spent by day, model and agent, and the list of budgets, say what the agent has spent."""
        query = f"days={DAYS}&agent_id={self.agent_id}"
        sums = {
            by: await self.client.insist("GET", f"/v1/kelpie/spending?by={by}&{query}")
            for by in ("day", "model", "agent")
        }
        first = self._hour // 24 - DAYS + 1
        by_day = Counter[str]()
        for hour, tokens in self.spent.items():
            if hour // 24 >= first:
                by_day[as_datetime(hour * HOUR_S * MICROS_PER_SECOND).date().isoformat()] += tokens
        known = {each["day"]: each["tokens"] for each in sums["day"]}
        totals = [sum(each["tokens"] for each in found) for found in sums.values()]
        priced = all(each["usd"] == each["tokens"] / 1_000_000 for found in sums.values() for each in found)
        if known != dict(by_day) or totals != [by_day.total()] * 3 or list(known) != sorted(known, reverse=True):
            raise Broken("what was spent is shown by day", f"{sums} and not {dict(by_day)}")
        if not priced or any(each["agent_id"] != self.agent_id for each in sums["agent"]):
            raise Broken("what was spent has its price", str(sums))
        listed = {each["agent_id"]: each for each in await self.client.insist("GET", "/v1/kelpie/budgets")}
        if (self.agent_id in listed) != (self.state["budget"] is not None):
            raise Broken("every budget is listed", f"{listed} and {self.state['budget']}")
        if self.agent_id in listed:
            self._is_shown(listed[self.agent_id])
