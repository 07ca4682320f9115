"""A model of fields: every field that a client sets is there until it sets another, and no other field changes.

It is one model for agents, blocks, conversations, archives and identities, which differ in their fields alone, and one
for the feedback on steps. With their links, turns and messages they fill the lists that the scenario walks over.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource, micros
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient

RECORDS_MAX = 4  # of a kind
TAGS: tuple[list[str], ...] = ([], ["green"], ["green", "red"], ["red"])
TEXTS = ("first words", "other words", "Ünal's 100_ %")
DOCUMENTS: tuple[dict[str, Any], ...] = ({"a": 1}, {"b": {"c": [1, None]}}, {"a": "ä", "d": True})


@dataclass(frozen=True, slots=True)
class FieldKind:
    """Definition of a kind: its path, the field that names a record, and the values of the others."""

    path: str
    name: str
    fields: Mapping[str, Sequence[Any]]
    first: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])  # only of a new record
    later: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])  # only of one that is there
    every: str = ""  # the parameter with which a list hides nothing
    dated: bool = True  # it shows when it was made and changed
    most: int = 100  # in a list

    @property
    def shown(self) -> tuple[str, ...]:
        return (*self.fields, *self.first, *self.later)


AGENTS = FieldKind(
    "/v1/agents/",
    "name",
    {
        "description": TEXTS,
        "tags": TAGS,
        "metadata": DOCUMENTS,
        "timezone": ("UTC", "Asia/Tokyo"),
        "system": TEXTS,
        "hidden": (True, False),
        "message_buffer_autoclear": (True, False),
        "max_files_open": (3, 7),
        "per_file_view_window_char_limit": (100, 200),
    },
    every="show_hidden_agents=true",
)
BLOCKS = FieldKind(
    "/v1/blocks/",
    "label",
    {
        "value": TEXTS,
        "limit": (200, 300),
        "description": TEXTS,
        "read_only": (True, False),
        "metadata": DOCUMENTS,
        "tags": TAGS,
        "hidden": (True, False),
        "template_name": TEXTS[:2],
        "preserve_on_migration": (True, False),
    },
    every="show_hidden_blocks=true",
    dated=False,
)
CONVERSATIONS = FieldKind(
    "/v1/conversations/",
    "summary",
    {
        "description": TEXTS,
        "model": ("openai/scripted", None),
        "context_window_limit": (20_000, 30_000, None),
    },
    first={"hidden": (True, False)},
    later={"archived": (True, False)},
    every="show_hidden_conversations=true",
)
ARCHIVES = FieldKind("/v1/archives/", "name", {"description": TEXTS})
IDENTITIES = FieldKind(
    "/v1/identities/", "identifier_key", {"name": TEXTS, "identity_type": ("user", "org", "other")}, dated=False
)
_COPIED = ("model", "context_window_limit")  # by a fork


class FieldModel(ModelledResource):
    """Records of one kind: the state of each name is its fields."""

    def __init__(self, machine: Machine, client: ScenarioClient, kind: FieldKind, query: str = "") -> None:
        super().__init__(machine, client)
        self.kind, self.query = kind, query  # which a new record needs
        self.ids: dict[str, str] = {}
        self._made = 0
        self._user: str | None = None  # the client's

    async def act(self) -> None:
        if len(self.state) < 2 or (len(self.state) < RECORDS_MAX and self.client.tosses(0.4)):
            await self._create()
            return
        name = self.client.picks(list(self.state))
        acts = (self._edit, self._edit, self._edit, self._remove)
        await self.client.picks((*acts, self._fork) if self.kind is CONVERSATIONS else acts)(name)

    def _some(self, *of: Mapping[str, Sequence[Any]], chance: float) -> dict[str, Any]:
        given = {name: values for part in of for name, values in part.items() if self.client.tosses(chance)}
        return {name: self.client.picks(values) for name, values in given.items()}

    async def _create(self) -> None:
        self._made += 1
        kind, name, called = self.kind, f"{self.kind.name}{self._made}", self.now
        given = self._some(kind.fields, kind.first, chance=0.5)
        if kind is IDENTITIES:
            given = {"name": TEXTS[0], "identity_type": "user", **given}

        def after(answer: Any) -> Any:
            self._is_dated(answer, called, new=True)
            shown = {each: answer[each] for each in kind.shown}
            if wrong := {each for each, value in given.items() if shown[each] != value}:
                raise Broken("a record has what it was made with", f"{answer['id']} {wrong}: {shown} of {given}")
            self.ids[name] = answer["id"]
            return {**self.state, name: shown}

        await self.change("POST", kind.path + self.query, {kind.name: name, **given}, after)

    def _is_dated(self, answer: Any, called: int, *, new: bool = False) -> None:
        """By the client's own user, and when it says so."""
        if not self.kind.dated:
            return
        self._user = self._user or answer["last_updated_by_id"]
        by = (answer["created_by_id"], answer["last_updated_by_id"])
        if self._user is None or by != (self._user, self._user):
            raise Broken("a record knows who changed it", f"{answer['id']}: {by} and not {self._user}")
        made, changed = micros(answer["created_at"]), micros(answer["updated_at"])
        if not (changed and called <= changed <= self.now) or (new and not (made and called <= made <= self.now)):
            raise Broken("a record knows when it was changed", f"{answer['id']}: {made} {changed}, called {called}")

    async def _edit(self, name: str) -> None:
        """Some fields, which are then as they were sent; the others stay, and so does the time of its creation."""
        kind, called = self.kind, self.now
        given = self._some(kind.fields, kind.later, chance=0.3)
        path = f"{kind.path}{self.ids[name]}"
        before = await self.maybe(path)
        if not given or before is None:
            return

        def after(answer: Any) -> Any:
            if any(before[each] != value for each, value in given.items()):
                self._is_dated(answer, called)
            if before.get("created_at") != answer.get("created_at"):
                raise Broken("a record knows when it was made", f"{path}: {answer['created_at']}")
            return {**self.state, name: {**self.state[name], **given}}

        await self.change("PATCH", path, given, after)

    async def _remove(self, name: str) -> None:
        if self.client.tosses(0.5):
            return
        after = {each: one for each, one in self.state.items() if each != name}
        path = f"{self.kind.path}{self.ids[name]}"
        await self.change("DELETE", path, None, after)
        if name not in self.state and await self.maybe(path) is not None:
            raise Broken("what was deleted is gone", path)

    async def _fork(self, name: str) -> None:
        """A fork has the model and the window of its origin."""
        self._made += 1
        fork = f"{self.kind.name}{self._made}"
        response = await self.client.ask("POST", f"{self.kind.path}{self.ids[name]}/fork")
        if response is None or response.status != 200:
            self.may_fail(f"fork {name}", None if response is None else response.body)
            self.state = await self.read()
            return
        await self.client.insist("PATCH", f"{self.kind.path}{response.json()['id']}", {"summary": fork})
        origin, self.ids[fork] = self.state[name], response.json()["id"]
        plain = {"description": None, "hidden": False, "archived": False}
        self.state = {**self.state, fork: {**plain, **{each: origin[each] for each in _COPIED}}}

    async def read(self) -> Any:
        kind = self.kind
        query = "&".join(filter(None, (f"limit={kind.most}", kind.every)))
        listed = await self.client.insist("GET", f"{kind.path}?{query}")
        self.ids = {one[kind.name] or one["id"]: one["id"] for one in listed}
        state: dict[str, Any] = {}
        for one in listed:
            name = one[kind.name] or one["id"]
            if name in state:
                raise Broken("the API shows what was done", f"{name} is listed twice")
            if name.startswith(kind.name) or name == one["id"]:
                state[name] = {each: one[each] for each in kind.shown}
        return state

    async def check(self) -> None:
        await super().check()
        if self.kind is BLOCKS or self.kind is AGENTS:
            everything = await self.client.insist("GET", f"{self.kind.path}?limit=500&{self.kind.every}")
            counted = await self.client.insist("GET", f"{self.kind.path}count")
            if counted != len(everything):
                raise Broken("a count is the length of the list", f"{self.kind.path}: {counted} of {len(everything)}")


class FeedbackModel(ModelledResource):
    """Turns of an agent in its conversations, and what a person says about their steps. The state: the feedback and
    tags of each step."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str, lanes: FieldModel) -> None:
        super().__init__(machine, client)
        self.agent_id, self._lanes = agent_id, lanes
        self._made = 0
        self._user: str | None = None  # the client's

    async def act(self) -> None:
        if len(self.state) < 3 or self.client.tosses(0.4):
            await self._talk()
            return
        step_id = self.client.picks(list(self.state))
        given: dict[str, Any] = {"feedback": self.client.picks(("positive", "negative", None))}
        if self.client.tosses(0.6):
            given["tags"] = self.client.picks(TAGS)
        after = {**deepcopy(self.state), step_id: {**self.state[step_id], **given}}
        await self.change("PATCH", f"/v1/steps/{step_id}/feedback", given, after)

    async def _talk(self) -> None:
        """A turn in any conversation, in the foreground or not, with a tool call or without."""
        self._made += 1
        text = f"word{self._made}" + ('\ncall outside {"mark": "' + f"{self.client.name}-{self._made}" + '"}') * (
            self._made % 2
        )
        lanes = [f"/v1/conversations/{one}/messages" for one in self._lanes.ids.values()]
        own = f"/v1/agents/{self.agent_id}/messages"
        path = self.client.picks([own, f"{own}/async", *lanes])
        body = {"messages": [{"role": "user", "content": text}], "streaming": False, "agent_id": self.agent_id}
        called = self.now
        told = await self.client.ask("POST", path, body)
        for _ in range(100):
            if not await self.client.insist("GET", "/v1/runs/?active=true"):
                break
            await self.client.pause(3.0)
        self.state = {**await self.read(), **self.state}
        if path in lanes and told is not None and told.status == 200:
            conversation = await self.maybe(path.removesuffix("/messages"))
            if not called <= (micros(conversation["last_message_at"]) or 0) <= self.now:
                raise Broken("a conversation knows its last message", f"{conversation}, called {called}")

    async def read(self) -> Any:
        steps = await self.client.insist("GET", f"/v1/steps/?agent_id={self.agent_id}&limit=500")
        return {step["id"]: {"feedback": step["feedback"], "tags": step["tags"]} for step in steps}
