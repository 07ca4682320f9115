"""A model of templates: their versions, which one is current, and what each of them contains."""

import json
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import PAGE, ModelledResource
from kelpie.sim.scenarios.fixtures.clients import TRIES_MAX, ScenarioClient

NAMES = ("clerk", "cook", "guard")
MARKS = ("quick", "quiet", "kind")  # descriptions of the agent, by which its versions are told apart
TEMPLATES = "/v1/templates"


class TemplateModel(ModelledResource):
    """The state of each name: its saved versions with their marks and messages, the number of the version that the
    current one comes from, and the mark of changes that are not saved."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str) -> None:
        super().__init__(machine, client)
        self.agent_id = agent_id

    async def act(self) -> None:
        name = self.client.picks(NAMES)
        if name not in self.state:
            await self._create(name)
            return
        acts = (self._create, self._update, self._update, self._save, self._save, self._roll_back, self._delete)
        await self.client.picks(acts)(name)

    async def _file(self, mark: str) -> Any:
        """The agent file of an agent with this description."""
        path = f"/v1/agents/{self.agent_id}"
        await self.client.insist("PATCH", path, {"description": mark})
        return await self.client.insist("GET", f"{path}/export?scrub_messages=true")

    async def _create(self, name: str) -> None:
        mark = self.client.picks(MARKS)
        body = {"type": "agent_file", "name": name, "agent_file": await self._file(mark)}
        if name in self.state:
            await self.change("POST", TEMPLATES, body, refused=409)
            return
        new = {"saved": [[mark, None]], "base": 1, "unsaved": None}
        await self.change("POST", TEMPLATES, body, {**self.state, name: new})

    def _current(self, name: str) -> str:
        one = self.state[name]
        return one["unsaved"] or one["saved"][one["base"] - 1][0]

    async def _update(self, name: str) -> None:
        """One that is the version it comes from is no change."""
        mark, first, one = self.client.picks(MARKS), self.client.tosses(0.5), self.state[name]
        saved, base = list(one["saved"]), one["base"]
        if first and one["unsaved"]:
            saved.append([one["unsaved"], None])
            base = len(saved)
        after = {"saved": saved, "base": base, "unsaved": None if mark == saved[base - 1][0] else mark}
        body = {"agent_file_json": await self._file(mark), "save_existing_changes": first}
        await self.change("PATCH", f"{TEMPLATES}/{name}", body, {**self.state, name: after})

    async def _save(self, name: str) -> None:
        """Also without changes: a version is added."""
        message = self.client.picks((None, "better", "worse"))
        saved = [*self.state[name]["saved"], [self._current(name), message]]
        after = {"saved": saved, "base": len(saved), "unsaved": None}
        await self.change("POST", f"{TEMPLATES}/{name}/save", {"message": message}, {**self.state, name: after})

    async def _roll_back(self, name: str) -> None:
        """What is not saved is saved before."""
        one = self.state[name]
        number = self.client.picks(range(1, len(one["saved"]) + 2))
        path, body = f"{TEMPLATES}/{name}/rollback", {"version": str(number)}
        if number > len(one["saved"]):
            await self.change("POST", path, body, refused=404)
            return
        saved = [*one["saved"], *([[one["unsaved"], None]] if one["unsaved"] else [])]
        await self.change("POST", path, body, {**self.state, name: {"saved": saved, "base": number, "unsaved": None}})

    async def _delete(self, name: str) -> None:
        if self.client.tosses(0.5):
            return
        after = {each: one for each, one in self.state.items() if each != name}
        await self.change("DELETE", f"{TEMPLATES}/{name}", None, after)
        if name not in self.state and await self.maybe(f"{TEMPLATES}/{name}") is not None:
            raise Broken("what was deleted is gone", name)

    async def _listed(self) -> list[str]:
        """The names by pages, the oldest first."""
        found: list[Any] = []
        for _ in range(TRIES_MAX):
            after = f"&after={found[-1]['id']}" if found else ""
            page = await self.maybe(f"{TEMPLATES}?limit={PAGE}&order=asc{after}")
            found += page["templates"]
            if not page["has_next_page"]:
                return [one["name"] for one in found]
        raise Broken("a list ends", f"{TEMPLATES} has more than {TRIES_MAX} pages")

    async def read(self) -> Any:
        return {name: await self._read(name) for name in await self._listed()}

    async def _read(self, name: str) -> Any:
        shown = await self.maybe(f"{TEMPLATES}/{name}")
        by_number = {one["version"]: one for one in shown["versions"]}
        saved = [
            [await self._mark(f"{name}:{number}"), by_number[str(number)]["message"]]
            for number in range(1, int(shown["latest_version"]) + 1)
        ]
        unsaved = await self._mark(f"{name}:current") if shown["kelpie_unsaved_changes"] else None
        if len(by_number) != len(saved) + bool(unsaved) or ("current" in by_number) != bool(unsaved):
            raise Broken("a template has the versions that it says", f"{shown}")
        return {"saved": saved, "base": int(shown["kelpie_current_version"]), "unsaved": unsaved}

    async def _mark(self, version: str) -> str:
        document = await self.maybe(f"{TEMPLATES}/{version}/snapshot")
        return document["agents"][0]["description"]

    async def check(self) -> None:
        await super().check()
        if (listed := await self._listed()) != list(self.state):
            raise Broken("a list is in the order of creation", f"{listed} and not {list(self.state)}")
        for name in self.state:
            seen = [await self._mark(f"{name}:{version}") for version in ("current", "latest")]
            wanted = [self._current(name), self.state[name]["saved"][-1][0]]
            if seen != wanted:
                raise Broken("a name of a version is that version", f"{name}: {json.dumps(seen)}, not {wanted}")
