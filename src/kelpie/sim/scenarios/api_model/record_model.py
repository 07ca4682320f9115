"""A model of records of any kind: created, read, listed with every filter and by pages, changed field by field, linked
with agents and blocks, and deleted.

A kind (`record_kinds`) says which fields and filters its records have. Everything that it does not say is the same for
all of them, so a kind that is added is checked as thoroughly as the others.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import PAGE, ModelledResource
from kelpie.sim.scenarios.checks.invariants import views_are_current
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient

RECORDS_MIN = 2  # of one kind, before anything else is done
RECORDS_MAX = 4  # several pages
KEYS = tuple(f"record {number}" for number in range(6))
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record, and some values that a client may give it. `default` is its value if none was given."""

    values: tuple[Any, ...]
    default: Any = None
    creates: bool = True
    changes: bool = True
    always: bool = False  # given with every creation


@dataclass(frozen=True, slots=True)
class Link:
    """Links of records with agents or blocks. Paths contain `{record}` and `{target}`; `body` goes with a new link."""

    name: str  # of the links in a record of the model
    targets: str  # agents or blocks
    attach: str
    detach: str
    of_record: str = ""  # the targets of a record; empty if no route says
    of_target: str = ""  # the records of a target; the same
    ids: Callable[[Any], list[str]] = lambda listed: [one["id"] for one in listed]
    records: Callable[[Any], list[str]] = lambda listed: [one["id"] for one in listed]
    attach_method: str = "PATCH"
    detach_method: str = "PATCH"
    body: Callable[[str], Any] = lambda target: None


@dataclass
class Cast:
    """The agents and blocks of an organization that records are linked with: ids by name."""

    agents: dict[str, str]
    blocks: dict[str, str]

    def ids(self, targets: str) -> dict[str, str]:
        return self.agents if targets == "agents" else self.blocks

    def names(self, targets: str, ids: Sequence[str]) -> list[str]:
        """The names of those with these ids; an id that nobody has stays as it is."""
        known = {one: name for name, one in self.ids(targets).items()}
        return sorted(known.get(each, each) for each in ids)


class CastModel(ModelledResource):
    """Talks to agents of the cast, and replaces them: what belonged to one goes with it. The state: ids by name."""

    def __init__(self, machine: Machine, client: ScenarioClient, cast: Cast, models: "Sequence[RecordModel]") -> None:
        super().__init__(machine, client)
        self.cast, self.models = cast, models
        self.state = dict(cast.agents)

    async def act(self) -> None:
        name = self.client.picks(sorted(self.cast.agents))
        if self.client.tosses(0.7):
            await self.talk(name)
        else:
            await self._replace(name)

    async def talk(self, name: str) -> None:
        """A turn of an agent, which loads it: after every change its prompt is what is stored."""
        path = f"/v1/agents/{self.cast.agents[name]}/messages"
        response = await self.client.ask("POST", path, {"input": f"hello {name}"})
        if response is None or response.status != 200:
            if response is None or response.status not in (409, 429):  # its webhooks keep it busy
                self.may_fail(path, None if response is None else response.body)
            return
        if not self.machine.faults.firings:
            views_are_current(self.machine.disk, self.machine.llm.seen, [self.cast.agents[name]])

    async def _replace(self, name: str) -> None:
        path = f"/v1/agents/{self.cast.agents[name]}"
        while await self.maybe(path) is not None:
            response = await self.client.ask("DELETE", path)
            if response is None or response.status != 200:
                self.may_fail(f"DELETE {path}", None if response is None else response.body)
        while not (found := await self.client.insist("GET", f"/v1/agents/?name={name}")):
            await self.client.ask("POST", "/v1/agents/", {"name": name, "agent_type": "letta_v1_agent"})
        self.cast.agents[name] = self.state[name] = found[0]["id"]
        for model in self.models:
            model.lost(name)
        for model in self.models:
            await model.check()

    async def check(self) -> None:
        await super().check()
        for name in sorted(self.cast.agents):
            await self.talk(name)

    async def read(self) -> Any:
        listed = await self.pages("/v1/agents/", "")
        return {one["name"]: one["id"] for one in listed if one["name"] in self.cast.agents}


class RecordKind:
    """One kind of records. A subclass names the paths, and what differs from the usual."""

    path = ""
    key = "name"  # the field that names a record; no two have the same
    query = ""  # of every list
    taken: int | None = 409  # for a key that another record has
    gone = 404  # for a record that was deleted
    counted = ""
    fields: Mapping[str, RecordField]
    filters: tuple[tuple[str, Callable[[Record], bool]], ...] = ()  # queries, and what they find
    links: tuple[Link, ...] = ()
    paged = True
    single = True  # a route reads one of them
    hidden: tuple[str, ...] = ()  # texts that nobody is ever shown
    descends = True  # the newest is first unless a client says otherwise

    def __init__(self, cast: Cast) -> None:
        self.cast = cast

    def collection(self, record: Record) -> str:
        """Where such a record is created."""
        return self.path

    def item(self, record: Record, record_id: str) -> str:
        """Where it is read, changed and deleted."""
        return f"{self.path.rstrip('/')}/{record_id}"

    def body(self, given: Record) -> Any:
        """The request that creates a record with these fields."""
        return given

    def change(self, record: Record, given: Record) -> Any:
        """The request that changes these fields."""
        return given

    def clashes(self, record: Record, given: Record) -> bool:
        """True if a new record cannot have the key of this one."""
        return True

    def merged(self, record: Record, given: Record) -> Record:
        """The record after a change."""
        return {**record, **given}

    def shown(self, answer: Any) -> Record:
        """A record of the model, without its links, as the API shows it."""
        return {name: answer[name] for name in (self.key, *self.fields)}

    def completed(self, record: Record) -> Record:
        """A new record with what the server adds."""
        return record

    def told(self, key: str, before: Record | None, after: Record, answer: Any) -> None:
        """Notes a change that was acknowledged; `before` is None for a new record."""

    def doubts(self) -> None:
        """Notes that nobody knows what became of a change."""

    async def listed(self, model: "RecordModel") -> list[Any]:
        """All records, the oldest first."""
        if not self.paged:
            return await model.maybe(self.path)
        return await model.pages(self.path, self.query)

    def acts(self, model: "RecordModel") -> Sequence[Callable[[], Any]]:
        """Changes that only this kind has."""
        return ()

    async def check(self, model: "RecordModel") -> None:
        """What only this kind must hold."""

    def lost(self, state: dict[str, Record], agent: str) -> None:
        """Changes the state as the end of an agent does, beyond its links."""


class RecordModel(ModelledResource):
    """The state: the fields and links of each record by its key, the oldest first."""

    def __init__(self, machine: Machine, client: ScenarioClient, kind: RecordKind) -> None:
        super().__init__(machine, client)
        self.kind = kind
        self.ids: dict[str, str] = {}
        self.stamps: dict[str, str] = {}  # when a record was last changed
        self.born: dict[str, str | None] = {}  # by id: when it was created

    def item(self, key: str) -> str:
        return self.kind.item(self.state[key], self.ids[key])

    def some(self) -> str | None:
        """The key of a record, if there is one that surely exists."""
        known = [key for key in self.state if key in self.ids]
        return self.client.picks(known) if known else None

    async def act(self) -> None:
        acts = [self._create, self._change, self._change, self._delete, *self.kind.acts(self)]
        if self.kind.links:
            acts += [self._link, self._link]
        await (self.client.picks(acts) if len(self.state) >= RECORDS_MIN else self._create)()

    # --- changes ---------------------------------------------------------------------------------------------------

    def _drawn(self, fields: Mapping[str, RecordField], chance: float) -> Record:
        return {
            name: deepcopy(self.client.picks(field.values))
            for name, field in fields.items()
            if field.always or self.client.tosses(chance)
        }

    async def _create(self) -> None:
        kind = self.kind
        given = self._drawn({name: field for name, field in kind.fields.items() if field.creates}, 0.5)
        few = len(self.state) < RECORDS_MIN
        key = self.client.picks([each for each in KEYS if each not in self.state] if few else KEYS)
        if key in self.state and kind.taken is not None and kind.clashes(self.state[key], given):
            body = kind.body({kind.key: key, **given})
            await self.change("POST", kind.collection(given), body, refused=kind.taken)
            return
        if key in self.state or len(self.state) >= RECORDS_MAX:
            return
        plain = {name: deepcopy(field.default) for name, field in kind.fields.items()}
        new = kind.completed({kind.key: key, **plain, **given, **{link.name: [] for link in kind.links}})
        body = kind.body({kind.key: key, **given})
        answer = await self.change("POST", kind.collection(new), body, {**self.state, key: new})
        self._is_told(key, None, answer)

    def _is_told(self, key: str, before: Record | None, answer: Any) -> None:
        """The answer to a change is the record as it is then."""
        if answer is None:
            self.kind.doubts()
            return
        self.ids[key] = answer["id"]
        self._equals(key, answer, "the answer to a change")
        self.stamps[key] = answer.get("updated_at") or ""
        self.kind.told(key, before, self.state[key], answer)

    def _equals(self, key: str, shown: Any, what: str) -> None:
        seen, links = self.kind.shown(shown), {link.name for link in self.kind.links}
        wanted = {name: value for name, value in self.state[key].items() if name in seen and name not in links}
        if seen != wanted:
            told = f"{what} of {type(self.kind).__name__} {key} shows {seen} and not {wanted}"
            raise Broken("the API shows what was done", told)
        if any(secret in str(shown) for secret in self.kind.hidden):
            raise Broken("a secret is never shown", f"{what} of {type(self.kind).__name__} {key} shows {shown}")
        if self.born.setdefault(shown["id"], shown.get("created_at")) != shown.get("created_at"):
            raise Broken("a record was created once", f"{key}: {self.born[shown['id']]}, then {shown['created_at']}")

    async def _change(self) -> None:
        kind, key = self.kind, self.some()
        if key is None:
            return
        fields = {name: field for name, field in kind.fields.items() if field.changes}
        given = {name: deepcopy(self.client.picks(fields[name].values)) for name in fields if self.client.tosses(0.35)}
        after = kind.merged(self.state[key], given)
        if not given:
            return
        old, stamp = self.state[key], self.stamps.get(key)
        answer = await self.change(
            "PATCH", self.item(key), kind.change(self.state[key], given), {**self.state, key: after}
        )
        self._is_told(key, old, answer)
        if answer is not None and after != old and stamp and self.stamps[key] <= stamp:
            raise Broken("a change has its time", f"{self.item(key)} {given}: {stamp} and {self.stamps[key]}")

    async def _delete(self) -> None:
        key = self.some()
        if key is None:
            return
        path = self.item(key)
        await self.change("DELETE", path, None, {each: one for each, one in self.state.items() if each != key})
        if key in self.state:
            return
        self.ids.pop(key, None)
        if self.kind.single and await self.maybe(path) is not None:
            raise Broken("what was deleted is gone", path)
        await self.change("DELETE", path, None, refused=self.kind.gone)

    async def _link(self) -> None:
        key, link = self.some(), self.client.picks(self.kind.links)
        if key is None:
            return
        targets = self.kind.cast.ids(link.targets)
        name = self.client.picks(sorted(targets))
        linked = name in self.state[key][link.name]
        ids = {"record": self.ids[key], "target": targets[name]}
        now = [each for each in self.state[key][link.name] if each != name] + ([] if linked else [name])
        after = {**self.state, key: {**self.state[key], link.name: sorted(now)}}
        path = (link.detach if linked else link.attach).format(**ids)
        method = link.detach_method if linked else link.attach_method
        await self.change(method, path, None if linked else link.body(targets[name]), after)

    def lost(self, agent: str) -> None:
        """The agent of this name was deleted: nothing is linked with it any more."""
        for record in self.state.values():
            for link in self.kind.links:
                if link.targets == "agents":
                    record[link.name] = [each for each in record[link.name] if each != agent]
        self.kind.lost(self.state, agent)

    # --- what can be read ------------------------------------------------------------------------------------------

    async def read(self) -> Any:
        kind = self.kind
        listed = await kind.listed(self)
        self.ids = {kind.shown(one)[kind.key]: one["id"] for one in listed}
        if len(self.ids) != len(listed):
            raise Broken("the API shows what was done", f"{kind.path} lists {listed}")
        state: dict[str, Record] = {}
        for one in listed:
            record = kind.shown(one)
            for link in kind.links:
                record[link.name] = kind.cast.names(link.targets, await self._linked(link, one["id"]))
            state[record[kind.key]] = record
        return state

    async def _linked(self, link: Link, record_id: str) -> list[str]:
        """The ids of what a record is linked with."""
        if link.of_record:
            return link.ids(await self.maybe(link.of_record.format(record=record_id)))
        targets = self.kind.cast.ids(link.targets).values()
        return [
            each for each in targets if record_id in link.records(await self.maybe(link.of_target.format(target=each)))
        ]

    async def check(self) -> None:
        await super().check()
        listed = await self.kind.listed(self)
        if [self.kind.shown(one)[self.kind.key] for one in listed] != list(self.state):
            raise Broken("a list is in the order of creation", f"{listed} and not {list(self.state)}")
        for one in listed:
            key = self.kind.shown(one)[self.kind.key]
            self._equals(key, await self.maybe(self.item(key)) if self.kind.single else one, "the record")
        await self._filters_find()
        await self._links_agree()
        if self.kind.paged and self.state:
            await self._pages_touch_their_cursor([one["id"] for one in listed])
        if self.kind.counted and (count := await self.maybe(self.kind.counted)) != len(self.state):
            raise Broken("a count is the length of the list", f"{self.kind.counted}: {count} of {list(self.state)}")
        await self.kind.check(self)

    async def _filters_find(self) -> None:
        for query, fits in self.kind.filters:
            path = f"{self.kind.path}?limit=100&order=asc&{query}"
            seen = [self.kind.shown(one)[self.kind.key] for one in await self.maybe(path)]
            wanted = [key for key, record in self.state.items() if fits(record)]
            if seen != wanted:
                raise Broken("a filter finds what fits it", f"{path}: {seen} and not {wanted}")

    async def _links_agree(self) -> None:
        """A link is the same from both of its ends."""
        keys = {record_id: key for key, record_id in self.ids.items()}
        for link in (each for each in self.kind.links if each.of_target):
            for name, target in self.kind.cast.ids(link.targets).items():
                found = link.records(await self.maybe(link.of_target.format(target=target)))
                seen = sorted(keys.get(each, each) for each in found)
                wanted = sorted(key for key, record in self.state.items() if name in record[link.name])
                if seen != wanted:
                    told = f"{name} has {seen} by {link.of_target}, and must have {wanted}"
                    raise Broken("a link is the same from both ends", told)

    async def _pages_touch_their_cursor(self, ids: list[str]) -> None:
        """A page before a cursor is the one next to it, in either order; without an order the usual one counts."""
        place = self.client.picks(range(len(ids)))
        for order, ordered in (("asc", ids), ("desc", ids[::-1])):
            at = place if order == "asc" else len(ids) - 1 - place
            path = f"{self.kind.path}?limit={PAGE}&order={order}&before={ids[place]}{self.kind.query}"
            seen = [one["id"] for one in await self.maybe(path)]
            if seen != ordered[max(0, at - PAGE) : at]:
                raise Broken("a page touches its cursor", f"{path}: {seen} of {ordered}")
        usual = [one["id"] for one in await self.maybe(f"{self.kind.path}?{self.kind.query.lstrip('&')}")]
        if usual != (ids[::-1] if self.kind.descends else ids):
            raise Broken("a list has its usual order", f"{self.kind.path}: {usual} of {ids}")
