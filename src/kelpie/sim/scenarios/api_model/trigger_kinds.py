"""Schedules and webhooks as kinds of records."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.scenarios.api_model.modelled_resource import micros
from kelpie.sim.scenarios.api_model.record_model import Cast, Record, RecordField, RecordKind, RecordModel

TEXTS = ("one text", "another text")
FAR_H = (9, 10)  # hours from now, further than a run takes


class _OfAgent(RecordKind):
    """Records of an agent, which are gone with it."""

    part = ""  # of the path, after the agent
    taken = None

    def collection(self, record: Record) -> str:
        return f"/v1/agents/{self.cast.agents[record['agent']]}/{self.part}"

    def item(self, record: Record, record_id: str) -> str:
        return f"{self.collection(record)}/{record_id}"

    def body(self, given: Record) -> Any:
        return {name: value for name, value in given.items() if name != "agent"}

    def shown(self, answer: Any) -> Record:
        (agent,) = self.cast.names("agents", [answer["agent_id"]])
        return {name: answer[name] for name in ("name", *self.fields) if name in answer} | {"agent": agent}

    def lost(self, state: dict[str, Record], agent: str) -> None:
        for key in [key for key, record in state.items() if record["agent"] == agent]:
            del state[key]

    async def check(self, model: RecordModel) -> None:
        """Each agent has its own, and nobody finds them at another agent."""
        for agent, agent_id in self.cast.agents.items():
            found = await model.maybe(f"/v1/agents/{agent_id}/{self.part}?limit=100")
            listed = found["scheduled_messages"] if isinstance(found, dict) else found
            wanted = [key for key, record in model.state.items() if record["agent"] == agent]
            if (seen := [one["name"] for one in listed][::-1]) != wanted:
                raise Broken("a filter finds what fits it", f"{agent} has {seen} and not {wanted}")
            for key, record in model.state.items():
                path = f"/v1/agents/{agent_id}/{self.part}/{model.ids[key]}"
                if (await model.maybe(path) is None) != (record["agent"] != agent):
                    raise Broken("a record of an agent is found there alone", path)


class ScheduleKind(_OfAgent):
    """Schedules of every day, none of which is due within a run."""

    path = "/v1/kelpie/schedules"
    part = "schedule"
    fields = MappingProxyType(
        {
            "agent": RecordField(("ann", "bea"), always=True, changes=False),
            "message": RecordField(TEXTS, always=True),
            "recurrence_rule": RecordField(("0 0 * * *",), always=True),  # others are set for a run
            "timezone": RecordField(("Asia/Tokyo", "America/New_York"), default="UTC"),
            "missed_policy": RecordField(("run_once", "run_all", "skip"), default="run_once"),
            "missed_max": RecordField((1, 7), default=100),
            "paused": RecordField((True, False), default=False),
            "max_steps": RecordField((3, 4)),
        }
    )

    def __init__(self, cast: Cast, now: int) -> None:
        super().__init__(cast)
        hours = [(datetime.fromtimestamp(now / MICROS_PER_SECOND, UTC) + timedelta(hours=each)).hour for each in FAR_H]
        rules = tuple(f"{minute} {hour} * * *" for minute, hour in zip((15, 40), hours, strict=True))
        self.fields = MappingProxyType({**self.fields, "recurrence_rule": RecordField(rules, always=True)})

    def shown(self, answer: Any) -> Record:
        (said,) = answer["message"]["messages"]
        return super().shown(answer) | {"message": said["content"], "max_steps": answer["message"].get("max_steps")}

    async def check(self, model: RecordModel) -> None:
        await super().check(model)
        for key, record in model.state.items():
            shown = await model.maybe(model.item(key))
            wanted = None if record["paused"] else _next(record["recurrence_rule"], record["timezone"], model.now)
            if micros(shown["next_scheduled_time"]) != wanted:
                raise Broken(
                    "a schedule knows its next time", f"{record}: {shown['next_scheduled_time']}, not {wanted}"
                )
            if shown["status"] != ("paused" if record["paused"] else "active"):
                raise Broken("a schedule knows its next time", f"{record} is {shown['status']}")


def _next(rule: str, zone: str, now: int) -> int:
    """The next time of a rule of every day, found without the product's calendar."""
    minute, hour, *_ = rule.split()
    at = datetime.fromtimestamp(now / MICROS_PER_SECOND, ZoneInfo(zone))
    due = at.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    if due <= at:
        due = (due.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone))
    return round(due.timestamp() * MICROS_PER_SECOND)


class WebhookKind(_OfAgent):
    """Webhooks, whose addresses are used: the newest one works while it is switched on, and no other ever does."""

    path = "/v1/kelpie/hooks"
    part = "hooks"
    fields = MappingProxyType(
        {
            "agent": RecordField(("ann", "bea"), always=True, changes=False),
            "instructions": RecordField((None, *TEXTS)),
            "enabled": RecordField((True, False), default=True, creates=False),
        }
    )

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast)
        self.address: dict[str, str] = {}  # by id: the one that was told last
        self.ended: list[str] = []
        self.heard: dict[tuple[str, str], str] = {}  # by webhook and delivery: its run
        self._names: list[str] = []
        self._texts: dict[str, str] = {}  # by run: what its agent is told
        self._made = 0

    def told(self, key: str, before: Record | None, after: Record, answer: Any) -> None:
        if "path" in answer:
            self.address[answer["id"]] = answer["path"]

    def acts(self, model: RecordModel) -> Sequence[Callable[[], Any]]:
        return (lambda: self._deliver(model), lambda: self._deliver(model), lambda: self._renew(model))

    async def _renew(self, model: RecordModel) -> None:
        key = model.some()
        if key is None or model.ids[key] not in self.address:
            return
        if model.client.tosses(0.5):
            await self._post(model, self.address[model.ids[key]])  # so that it is known
        old = self.address.pop(model.ids[key])
        answer = await model.change("POST", f"{model.item(key)}/renew", None, model.state)
        if answer is None:
            return
        self.ended.append(old)
        self.address[answer["id"]] = answer["path"]
        await self._is_refused(model, old)

    async def _deliver(self, model: RecordModel) -> None:
        for path in self.ended[-2:]:
            await self._is_refused(model, path)
        for gone in sorted(self.address.keys() - set(model.ids.values())):
            self.ended.append(self.address.pop(gone))
            await self._is_refused(model, self.ended[-1])
        key = model.some()
        if key is None or model.ids[key] not in self.address:
            return
        record, client = model.state[key], model.client
        self._names.append(f"delivery {len(self._names)}")
        name = client.picks(self._names[-3:])
        told = await self._post(model, self.address[model.ids[key]], name)
        if told is None:
            return
        wanted = 202 if record["enabled"] else 403
        if told.status != wanted:
            raise Broken("a webhook that is on takes what is delivered", f"{record}: {told.status} {told.body!r}")
        mark, run_id = (model.ids[key], name), told.json().get("run_id")
        if wanted != 202:
            return
        if self.heard.setdefault(mark, run_id) != run_id:
            raise Broken("a delivery that comes again is the one before", f"{mark}: {self.heard[mark]} and {run_id}")
        if mixed := [other for other, run in self.heard.items() if run == run_id and other != mark]:
            raise Broken("a delivery is one of its webhook alone", f"{mark} and {mixed} are {run_id}")
        head = f"[Automatic message, not from a person: the webhook '{key}' received this.]"
        body = json.dumps({"event": name}, indent=2)
        self._texts.setdefault(run_id, "\n\n".join(filter(None, (head, record["instructions"], body))))

    async def check(self, model: RecordModel) -> None:
        await super().check(model)
        for run_id, text in self._texts.items():
            listed = await model.maybe(f"/v1/runs/{run_id}/messages")
            told = [one["content"] for one in listed or () if one["message_type"] == "user_message"]
            if told not in ([], [text]):  # it waits, or its agent is gone
                raise Broken("an agent is told what was delivered, by whom and why", f"{told} and not {text}")

    async def _is_refused(self, model: RecordModel, path: str) -> None:
        told = await self._post(model, path)
        if told is not None and told.status not in (401, 404):
            raise Broken("an address that was replaced does not work", f"{path}: {told.status} {told.body!r}")

    async def _post(self, model: RecordModel, path: str, name: str = "") -> Any:
        """Delivers; None where nobody knows or the agent is busy."""
        await model.machine.up()
        self._made += 1  # each program has an address of its own: those with wrong tokens have to wait
        program = model.machine.client(f"sender {self._made} of {model.client.name}", {})
        try:
            told = await program.request(
                "POST", path, {"event": name}, headers={"Idempotency-Key": name} if name else {}
            )
        except ConnectionLost:
            told = None
        if told is None or told.status >= 500:
            model.may_fail(f"POST {path}", told and told.body)
            return None
        return None if told.status == 429 else told
