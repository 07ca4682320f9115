"""Models of an agent's memory: blocks with their histories, working memory, and passages."""

import json
from copy import deepcopy
from typing import Any
from urllib.parse import quote

from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource, micros
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient

VERSIONS_KEPT = 3
ENTRIES_MAX = 2
VALUE_BYTES_MAX = 60
BYTES_MAX = 100
TTL_S = 10
KEYS = ("a/1", "a/2", "b", "c")
LABELS = ("note_one", "note_two", "note_three")
TAGS = ("green", "red")  # as they are sorted


class BlockModel(ModelledResource):
    """Blocks: the state of each label is its fields, all values that it ever had, and whether the agent has it."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str) -> None:
        super().__init__(machine, client)
        self.agent_id = agent_id
        self.ids: dict[str, str] = {}
        self.first: dict[str, int] = {}  # version of a block that was restored
        self._made = 0

    def _fresh(self) -> str:
        self._made += 1
        return f"value {self._made}"

    async def act(self) -> None:
        label = self.client.picks(LABELS)
        if label not in self.state:
            await self._create(label)
            return
        acts = (self._edit, self._edit, self._describe, self._roll_back, self._roll_back, self._attach, self._remove)
        await self.client.picks(acts)(label)

    async def have_attached(self) -> None:
        """Attaches a block, unless the agent has one."""
        if not any(block["attached"] for block in self.state.values()):
            label = self.client.picks(LABELS)
            if label not in self.state:
                await self._create(label)
            if label in self.state:
                await self._attach(label)

    async def change_attached(self) -> None:
        """Changes a block of the agent."""
        for label in [label for label, block in self.state.items() if block["attached"]][:1]:
            await self.client.picks((self._edit, self._describe))(label)

    async def know_restored(self, saved: dict[str, Any]) -> None:
        """A block that was deleted and is restored goes on with its version; the versions before it are lost."""
        for label in saved:
            if label not in self.state and await self.client.insist("GET", f"/v1/blocks/?label={label}"):
                self.first[await self._id(label)] = len(saved[label]["values"])

    async def lose_attached(self) -> None:
        """Deletes or detaches a block of the agent."""
        for label in [label for label, block in self.state.items() if block["attached"]][:1]:
            await self.client.picks((self._remove, self._attach))(label)

    async def _create(self, label: str) -> None:
        value = self._fresh()
        new = {"values": [value], "description": None, "limit": 50, "attached": False}
        body = {"label": label, "value": value, "limit": 50}
        await self.change("POST", "/v1/blocks/", body, {**self.state, label: new})

    def _after(self, label: str, **changes: Any) -> dict[str, Any]:
        after = deepcopy(self.state)
        after[label].update(changes)
        return after

    async def _edit(self, label: str) -> None:
        value, block = self._fresh(), self.state[label]
        path = f"/v1/blocks/{await self._id(label)}"
        if block["attached"] and self.client.tosses(0.5):
            path = f"/v1/agents/{self.agent_id}/core-memory/blocks/{label}"
        after = self._after(label, values=[*block["values"], value])
        await self.change("PATCH", path, {"value": value}, after)

    async def _describe(self, label: str) -> None:
        """A change of something else is a version as well, with the same value."""
        description, values = self._fresh(), self.state[label]["values"]
        after = self._after(label, values=[*values, values[-1]], description=description)
        await self.change("PATCH", f"/v1/blocks/{await self._id(label)}", {"description": description}, after)

    async def _roll_back(self, label: str) -> None:
        """To the oldest version that is kept, one before it, or one that is not the newest any more."""
        values, path = self.state[label]["values"], f"/v1/blocks/{await self._id(label)}/rollback"
        newest = len(values)
        oldest = max(self.first.get(self.ids[label], 1), newest - VERSIONS_KEPT + 1)
        version = self.client.picks((oldest, oldest, oldest - 1, newest, newest + 1))
        body: dict[str, Any] = {"version": version}
        refused = None if oldest <= version <= newest else 404
        if version < 1:
            return
        if self.client.tosses(0.5):
            body["expected_version"] = self.client.picks((newest, newest, max(1, newest - 1)))
            if refused is None and body["expected_version"] != newest:
                refused = 409
        value = values[version - 1] if refused is None else ""
        changed = refused is None and value != values[-1]
        after = self._after(label, values=[*values, value]) if changed else self.state
        await self.change("POST", path, body, after, refused=refused)

    async def _attach(self, label: str) -> None:
        verb = "detach" if self.state[label]["attached"] else "attach"
        path = f"/v1/agents/{self.agent_id}/core-memory/blocks/{verb}/{await self._id(label)}"
        await self.change("PATCH", path, None, lambda _: self._after(label, attached=verb == "attach"))

    async def _remove(self, label: str) -> None:
        after = {name: block for name, block in self.state.items() if name != label}
        await self.change("DELETE", f"/v1/blocks/{await self._id(label)}", None, after)

    async def _id(self, label: str) -> str:
        """The newest block of this label: the only one that is there."""
        found = await self.client.insist("GET", f"/v1/blocks/?label={label}")
        if len(found) != 1:
            raise Broken("the API shows what was done", f"{len(found)} blocks of the label {label} are listed")
        self.ids[label] = found[0]["id"]
        return found[0]["id"]

    async def read(self) -> Any:
        listed = [one for one in await self.pages("/v1/blocks/", "") if one["label"] in LABELS]
        hung = await self.client.insist("GET", f"/v1/agents/{self.agent_id}/core-memory/blocks?limit=100")
        attached = {one["id"] for one in hung}
        state: dict[str, Any] = {}
        for one in listed:
            if await self.maybe(f"/v1/blocks/{one['id']}") != one or one["label"] in state:
                raise Broken("a list has what is there", f"{one}")
            agents = await self.client.insist("GET", f"/v1/blocks/{one['id']}/agents")
            if [agent["id"] for agent in agents] != ([self.agent_id] if one["id"] in attached else []):
                raise Broken("both ends of a link agree", f"{one['id']}: {agents}")
            values = await self._values(one["id"])
            if values[-1] != one["value"]:
                raise Broken("the newest version is the block", f"{one} and {values}")
            state[one["label"]] = {
                "values": values,
                "description": one["description"],
                "limit": one["limit"],
                "attached": one["id"] in attached,
            }
        if await self.client.insist("GET", "/v1/blocks/count") != len(await self._everything()):
            raise Broken("a count is the length of the list", "blocks")
        return state

    async def _everything(self) -> list[Any]:
        return await self.client.insist("GET", "/v1/blocks/?limit=1000&show_hidden_blocks=true")

    async def _values(self, block_id: str) -> list[str]:
        """All values that the block had, of which those that are not kept any more are taken from the model."""
        path, versions, before = f"/v1/blocks/{block_id}/history", list[int](), ""
        while page := await self.client.insist("GET", f"{path}?limit=2{before}"):
            versions += [one["version"] for one in page]
            before = f"&before={versions[-1]}"
        newest = versions[0]
        first = self.first.get(block_id, 1)
        kept = list(range(newest, max(first - 1, newest - VERSIONS_KEPT), -1))
        if versions != kept:
            raise Broken("so many versions are kept", f"{block_id}: {versions}, and must be {kept}")
        label = (await self.maybe(f"/v1/blocks/{block_id}"))["label"]
        known = self.state.get(label, {"values": [None] * (first - 1)})["values"][: kept[-1] - 1]
        if kept[-1] > 1 and await self.maybe(f"{path}/{kept[-1] - 1}") is not None:
            raise Broken("so many versions are kept", f"{block_id}: {kept[-1] - 1} can be read")
        return known + [(await self.maybe(f"{path}/{version}"))["value"] for version in reversed(kept)]


class WorkingMemoryModel(ModelledResource):
    """Working memory: the state of a key is its value and the second in which it ends."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str) -> None:
        super().__init__(machine, client)
        self.path = f"/v1/agents/{agent_id}/working-memory"
        self._versions: dict[str, int] = {}
        self._newest = 0

    def current(self, state: Any) -> Any:
        return still_there(state, self.now)

    async def act(self) -> None:
        self.state = self.current(self.state)
        acts = (self._put, self._put, self._increment, self._append, self._merge, self._expire, self._expire)
        acts = (*acts, self._remove)
        await self.client.picks(acts)(self.client.picks(KEYS))

    def _fits(self, key: str, value: Any) -> bool:
        """True if there is room, by the limits of the settings."""
        size = _size(key, value)
        own = _size(key, self.state[key]["value"]) if key in self.state else 0
        total = sum(_size(name, one["value"]) for name, one in self.state.items()) - own + size
        full = key not in self.state and len(self.state) >= ENTRIES_MAX
        return _bytes(value) <= VALUE_BYTES_MAX and not full and (size <= own or total <= BYTES_MAX)

    async def _write(
        self, method: str, key: str, body: dict[str, Any], value: Any, keeps_end: bool, *, ends: bool = False
    ) -> None:
        """Sends a write, sometimes with the version that it expects, or with another one."""
        end = self.state[key]["end"] if keeps_end and key in self.state else None
        right = self.client.picks((None, None, True, False))
        here = self._versions.get(key, 0) if key in self.state else 0
        if right is not None:
            body = {**body, "if_version": here if right else here + 1}
        refused = 409 if right is False else None if self._fits(key, value) else 400
        if ends or self.client.tosses(0.5):
            body = {**body, "ttl_seconds": TTL_S}

        def after(answer: Any) -> Any:
            if answer["version"] <= self._newest:
                raise Broken("a version is given once", f"{answer} after {self._newest}")
            self._newest = self._versions[key] = answer["version"]
            ends = micros(answer["expires_at"])
            if "ttl_seconds" in body and not (ends and called <= ends - TTL_S * MICROS_PER_SECOND <= self.now):
                raise Broken("an entry ends when it was told to", f"{answer} at {self.now}")
            if "ttl_seconds" not in body and ends != end:
                raise Broken("an entry keeps its end", f"{answer}, which was {end}")
            return {**self.state, key: {"value": value, "end": ends}}

        called = self.now
        await self.change(method, f"{self.path}/{quote(key)}", body, after, refused=refused)

    async def _put(self, key: str) -> None:
        """A value of any size about the limit: the last that fits, and the first that does not."""
        letters = self.client.picks((5, 10, VALUE_BYTES_MAX - 2, VALUE_BYTES_MAX - 2, VALUE_BYTES_MAX - 1))
        value: Any = self.client.picks((7, ["x"], {"a": 1}, "x" * letters))
        await self._write("PUT", key, {"value": value}, value, keeps_end=False)

    async def _increment(self, key: str) -> None:
        if isinstance(old := self._old(key, 0), int):
            await self._write("PATCH", key, {"increment": 2}, old + 2, keeps_end=True)

    async def _append(self, key: str) -> None:
        if isinstance(old := self._old(key, []), list):
            await self._write("PATCH", key, {"append": "y"}, [*old, "y"], keeps_end=True)

    async def _merge(self, key: str) -> None:
        if isinstance(old := self._old(key, {}), dict):
            new = {"b": {"c": len(old)}}
            await self._write("PATCH", key, {"merge": {"a": None, **new}}, {**_without(old, "a"), **new}, True)

    def _old(self, key: str, missing: Any) -> Any:
        return self.state[key]["value"] if key in self.state else missing

    async def _expire(self, key: str) -> None:
        """An entry is there until its end, and not from its end on."""
        ending = [name for name, one in self.state.items() if one["end"] is not None]
        key = self.client.picks(ending) if ending else key
        if not ending:
            await self._write("PUT", key, {"value": 7}, 7, keeps_end=False, ends=True)
        end = self.state.get(key, {"end": None})["end"]
        if end is None:
            return
        if self.client.tosses(0.5):  # nobody looks at it in between: the write itself finds that it is over
            await self.sleep_until(end)
            self.state = self.current(self.state)
            await self.client.picks((self._put, self._increment, self._append, self._merge))(key)
            await self.check()
            return
        await self.sleep_until(end - 1)
        before = await self.maybe(f"{self.path}/{quote(key)}")
        if before is None and self.now < end:
            raise Broken("an entry is there until its end", f"{key} at {self.now}, which ends at {end}")
        await self.sleep_until(end)
        if await self.maybe(f"{self.path}/{quote(key)}") is not None:
            raise Broken("an entry is gone from its end on", f"{key} at {self.now}, which ended at {end}")
        self.state = self.current(self.state)

    async def _remove(self, key: str) -> None:
        if self.client.tosses(0.1):
            await self.change("DELETE", self.path, None, {})
            return
        path, right = f"{self.path}/{quote(key)}", self.client.picks((None, True, False))
        here = self._versions.get(key, 0) if key in self.state else 0
        if right is not None:
            path += f"?if_version={here if right else here + 1}"
        refused = 409 if right is False else None if key in self.state else 404
        await self.change("DELETE", path, None, _without(self.state, key), refused=refused)

    async def check(self) -> None:
        await super().check()
        for prefix in ("a/", "b"):
            listed = await self.client.insist("GET", f"{self.path}?prefix={quote(prefix)}")
            wanted = sorted(key for key in self.current(self.state) if key.startswith(prefix))
            if (seen := [one["key"] for one in listed if one["key"] in wanted]) != wanted:
                raise Broken("a prefix finds its keys", f"{prefix}: {seen} and not {wanted}")
            if strange := [one["key"] for one in listed if not one["key"].startswith(prefix)]:
                raise Broken("a prefix finds its keys", f"{prefix}: {strange}")

    def _stays(self, one: Any) -> bool:
        end = micros(one["expires_at"])
        return end is None or end > self.now

    async def read(self) -> Any:
        for order_by in ("key", "updated_at"):
            listed = await self.pages(self.path, f"&order_by={order_by}", lambda one: one["key"], self._stays)
        state: dict[str, Any] = {}
        for one in listed:
            if await self.maybe(f"{self.path}/{quote(one['key'])}") not in (one, None):
                raise Broken("a list has what is there", f"{one}")
            end = micros(one["expires_at"])
            state[one["key"]] = {"value": one["value"], "end": end}
            self._versions[one["key"]] = one["version"]
            self._newest = max(self._newest, one["version"])
        return state


class PassageModel(ModelledResource):
    """Passages of an agent: the state is the tags of each text, in the order in which they were stored."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str) -> None:
        super().__init__(machine, client)
        self.agent_id = agent_id
        self.path = f"/v1/agents/{agent_id}/archival-memory"
        self.archive_id = ""
        self._made = 0

    async def act(self) -> None:
        act = self.client.picks((self._store, self._store, self._store_many, self._remove))
        await act()

    def _new(self) -> dict[str, Any]:
        self._made += 1
        tags = [tag for tag in TAGS if self.client.tosses(0.5)]
        return {"text": f"passage number{self._made} about whales", "tags": tags}

    async def _store(self) -> None:
        """Through the agent, or in its archive with one field more."""
        new = self._new()
        after = {**self.state, new["text"]: new["tags"]}
        if not await self._archive() or self.client.tosses(0.5):
            await self.change("POST", self.path, new, after)
            return
        new["metadata"] = {"of": self._made}
        made = await self.change("POST", f"/v1/archives/{self.archive_id}/passages", new, after)
        if made is not None and made["metadata"] != new["metadata"]:
            raise Broken("a record has what it was made with", f"{made} of {new}")

    async def _archive(self) -> str:
        if not self.archive_id:
            found = await self.client.insist("GET", f"/v1/archives/?agent_id={self.agent_id}")
            self.archive_id = found[0]["id"] if found else ""
        return self.archive_id

    async def _store_many(self) -> None:
        """All or none of them."""
        if await self._archive():
            several = [self._new() for _ in range(3)]
            after = {**self.state, **{new["text"]: new["tags"] for new in several}}
            await self.change("POST", f"/v1/archives/{self.archive_id}/passages/batch", {"passages": several}, after)

    async def _remove(self) -> None:
        if self.state:
            text = self.client.picks(list(self.state))
            listed = await self.client.insist("GET", f"{self.path}?limit=1000")
            passage_id = next(one["id"] for one in listed if one["text"] == text)
            await self.change("DELETE", f"{self.path}/{passage_id}", None, _without(self.state, text))
            if text not in self.state:
                await self.change("DELETE", f"{self.path}/{passage_id}", None, refused=404)

    async def read(self) -> Any:
        found: dict[str, list[Any]] = {}
        for way in ("true", "false"):
            found[way], cursor = [], ""
            while page := await self.client.insist("GET", f"{self.path}?limit=2&ascending={way}{cursor}"):
                found[way] += page
                cursor = f"&after={page[-1]['id']}"
        if found["true"] != found["false"][::-1]:
            raise Broken("a list is the same in both directions", self.path)
        return {one["text"]: one["tags"] or [] for one in found["true"]}

    async def check(self) -> None:
        await super().check()
        if not self.state:
            return
        word = self.client.picks(list(self.state)).split()[1]
        listed = await self.client.insist("GET", f"{self.path}?limit=100&search={word}")
        if [one["text"] for one in listed] != [text for text in self.state if word in text]:
            raise Broken("a filter finds what fits it", f"{self.path} {word}: {listed}")
        await self._finds({"query": word, "search_mode": "fts"}, {text for text in self.state if word in text.split()})
        for mode, every in (("any", any), ("all", all)):
            wanted = {text for text, tags in self.state.items() if every(tag in tags for tag in TAGS)}
            await self._finds({"tags": list(TAGS), "tag_match_mode": mode}, wanted)

    async def _finds(self, query: dict[str, Any], wanted: set[str]) -> None:
        """In the agent's archive, and in all of the organization's, which has no other."""
        for of in ({"agent_id": self.agent_id}, {}):
            results = await self.client.insist("POST", "/v1/passages/search", {**query, **of, "limit": 100})
            seen = [one["passage"]["text"] for one in results]
            if sorted(seen) != sorted(wanted):
                raise Broken("a search finds what is stored", f"{query} {of}: {seen} and not {wanted}")


def still_there(state: dict[str, Any] | None, now: Micros) -> dict[str, Any] | None:
    """Entries that have not come to their end."""
    if state is None:
        return None
    return {key: one for key, one in state.items() if one["end"] is None or one["end"] > now}


def _without(state: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != key}


def _bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")).encode())


def _size(key: str, value: Any) -> int:
    return len(key.encode()) + _bytes(value)
