"""A model of credentials: what each key and token opens, for how long, and what it does not."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.memory_model import still_there
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource, micros
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient

LIFE_S = 30
OWN = "of the client itself"
SCOPES = ("read", "write", "admin")
_NOT_NOW = (429, 503)
READ, WRITE, ADMIN = range(3)


class CredentialModel(ModelledResource):
    """The state: the keys and tokens that are there, by their names: rights, agents, and the moment of their end."""

    def __init__(self, machine: Machine, client: ScenarioClient, agents: Sequence[str]) -> None:
        super().__init__(machine, client)
        self.all, self.mine, self.other = sorted(agents), agents[0], agents[1]
        self.secrets: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.ended: set[str] = set()
        self._made = 0
        self._asked = 0

    async def act(self) -> None:
        acts = (self._create, self._create, self._token, self._revoke, self._expire, self._dismiss, self._move)
        self.state = self.current(self.state)
        await self.client.picks(acts)()
        for name in [*self.state, *sorted(self.ended)[-3:]]:
            if self.client.tosses(0.5):
                await self._use(name)

    async def _create(self) -> None:
        self._made += 1
        name, scope = f"key{self._made}", self.client.picks(SCOPES)
        agents = [self.mine] if self.client.tosses(0.4) else None
        end = self.now + LIFE_S * MICROS_PER_SECOND if self.client.tosses(0.4) else None
        body = {"name": name, "scopes": [scope], "agent_ids": agents, "expires_at": _iso(end)}
        await self._made_one(name, "/v1/kelpie/keys", body, {"rights": scope, "agents": agents, "end": end})

    async def _token(self) -> None:
        self._made += 1
        name, access = f"token{self._made}", self.client.picks(("read_messages", "read_agent", "write_agent"))
        end = self.now + LIFE_S * MICROS_PER_SECOND
        policy = [{"type": "agent", "id": self.mine, "access": [access]}]
        body = {"hostname": f"https://{name}.example", "policy": policy, "expires_at": _iso(end)}
        after = {"rights": access, "agents": [self.mine], "end": end}
        await self._made_one(name, "/v1/client-side-access-tokens", body, after)

    async def _made_one(self, name: str, path: str, body: dict[str, Any], new: dict[str, Any]) -> None:
        answer = await self.change("POST", path, body, {**self.state, name: new})
        if answer is not None:
            self.secrets[name] = answer.get("key") or answer["token"]

    async def _revoke(self) -> None:
        await self.read()
        names = [name for name in self.current(self.state) if name in self.ids]
        if names:
            name = self.client.picks(names)
            kind = "kelpie/keys" if name.startswith("key") else "client-side-access-tokens"
            after = {each: one for each, one in self.state.items() if each != name}
            body = {} if name.startswith("token") else None
            await self.change("DELETE", f"/v1/{kind}/{self.ids[name]}", body, after)
            if name not in self.state:
                self.ended.add(name)

    async def _expire(self) -> None:
        """A credential works until its end, and not from its end on."""
        ending = [name for name, one in self.state.items() if one["end"] is not None and name in self.secrets]
        if not ending:
            return
        name = self.client.picks(ending)
        await self.sleep_until(self.state[name]["end"] - 1)
        await self._use(name)
        await self.sleep_until(self.state[name]["end"])
        await self._use(name)
        self.state = self.current(self.state)

    async def _dismiss(self) -> None:
        """A user who is deleted takes their keys along."""
        organization = next(iter(await self.client.insist("GET", "/v1/admin/orgs/")))["id"]
        self._made += 1
        name, new = f"key{self._made}", {"rights": "write", "agents": None, "end": None}
        user = {"name": name, "organization_id": organization}
        user_id = (await self.client.insist("POST", "/v1/admin/users/", user))["id"]
        body = {"name": name, "scopes": ["write"], "user_id": user_id}
        await self._made_one(name, "/v1/kelpie/keys", body, {**new})
        await self._use(name)
        known = await self._agents_for(user_id)
        made = name in self.state  # else nothing tells whether the user is gone
        after = {each: one for each, one in self.state.items() if each != name}
        await self.change("DELETE", f"/v1/admin/users/?user_id={user_id}", None, after)
        self.ended.add(name)
        if name in self.state or not made:
            return
        await self._use(name)
        nobody, seen = await self._agents_for(None), await self._agents_for(user_id)
        if known not in (None, self.all) or (nobody is not None and seen is not None and nobody != seen):
            raise Broken("an operator acts for users that exist", f"{user_id} had {known} and has {seen}, not {nobody}")

    async def _move(self) -> None:
        """A user who moves to another organization loses the keys and tokens to the old one."""
        name = f"operator of {self.client.name}"
        operator = ScenarioClient(self.machine, name, [], self.machine.client(name))
        organization = (await self.client.insist("GET", "/v1/admin/orgs/"))[0]["id"]
        others = [one["id"] for one in await operator.insist("GET", "/v1/admin/orgs/") if one["id"] != organization]
        self._made += 1
        key, token = f"key{self._made}", f"token{self._made}"
        user = {"name": key, "organization_id": organization}
        user_id = (await operator.insist("POST", "/v1/admin/users/", user))["id"]
        new = {"rights": "write", "agents": None, "end": None}
        await self._made_one(key, "/v1/kelpie/keys", {"name": key, "scopes": ["write"], "user_id": user_id}, new)
        as_user = ScenarioClient(self.machine, name, [], self.machine.client(name, {"user_id": user_id}))
        end = self.now + LIFE_S * MICROS_PER_SECOND
        policy = [{"type": "agent", "id": self.mine, "access": ["read_agent"]}]
        body = {"hostname": f"https://{token}.example", "policy": policy, "expires_at": _iso(end)}
        self.secrets[token] = (await as_user.insist("POST", "/v1/client-side-access-tokens", body))["token"]
        self.state = {**self.state, token: {"rights": "read_agent", "agents": [self.mine], "end": end}}
        self.state = self.current(self.state)
        for each in (key, token):
            await self._use(each)
        await operator.insist("PUT", "/v1/admin/users/", {"id": user_id, "organization_id": others[0]})
        self.state = {each: one for each, one in self.current(self.state).items() if each not in (key, token)}
        self.ended |= {key, token}
        for each in (key, token):
            await self._use(each)

    async def _agents_for(self, user_id: str | None) -> list[str] | None:
        """The agents that an operator sees for a user, for an unknown one those of the default user; None where nobody
        knows."""
        await self.machine.up()
        headers = {} if user_id is None else {"user_id": user_id}
        try:
            response = await self.machine.client(f"operator of {self.client.name}", headers).request(
                "GET", "/v1/agents/?limit=100"
            )
        except ConnectionLost:
            return None
        return sorted(one["id"] for one in response.json()) if response.status == 200 else None

    def current(self, state: Any) -> Any:
        left = still_there(state, self.now)
        self.ended |= set(state or ()) - set(left or ())
        return left

    async def _use(self, name: str) -> None:
        """Asks for everything with it, and gets what it opens."""
        if name not in self.secrets:
            return
        one, agent = self.state.get(name), f"/v1/agents/{self.mine}"
        asked: list[tuple[str, str, Any, bool]] = []
        if one is None or one["rights"] in SCOPES:
            rank = SCOPES.index(one["rights"]) if one else -1
            free = bool(one) and one is not None and one["agents"] is None
            asked = [
                ("GET", "/v1/agents/", None, rank >= READ),
                ("GET", agent, None, rank >= READ),
                ("GET", f"/v1/agents/{self.other}", None, rank >= READ and free),
                ("PATCH", agent, {"description": name}, rank >= WRITE),
                ("PATCH", agent, {"kelpie_budget": None}, rank >= WRITE and free),
                ("GET", "/v1/blocks/", None, rank >= READ and free),
                ("GET", "/v1/kelpie/keys", None, rank >= ADMIN and free),
                ("GET", f"/v1/kelpie/agents/{self.mine}/spending", None, rank >= READ),
            ]
        else:
            access = one["rights"]
            asked = [
                ("GET", agent, None, access == "read_agent"),
                ("GET", f"{agent}/messages", None, access == "read_messages"),
                ("PATCH", agent, {"description": name}, access == "write_agent"),
                ("GET", f"/v1/agents/{self.other}", None, False),
                ("GET", "/v1/agents/", None, False),
            ]
        for method, path, body, opens in asked:
            await self._gets(name, method, path, body, opens=opens)

    async def _gets(self, name: str, method: str, path: str, body: Any, *, opens: bool) -> None:
        called = self.now
        response = await self._answer(name, method, path, body)
        end = (self.state.get(name) or {"end": 0})["end"]
        if response is None or (end is not None and called < end <= self.now):
            return  # nobody knows, or it ended meanwhile
        wanted = 401 if end is not None and end <= called else 200 if opens else 403
        if response.status != wanted:
            told = f"{name} {self.state.get(name)}: {method} {path} got {response.status} and not {wanted}"
            raise Broken("a credential opens what it is for", told)
        if wanted == 200 and path == "/v1/agents/":
            agents = sorted(one["id"] for one in response.json())
            if agents != (self.state[name]["agents"] or self.all):
                raise Broken("a credential opens what it is for", f"{name} lists {agents}")

    async def _answer(self, name: str, method: str, path: str, body: Any) -> Any:
        await self.machine.up()
        headers: Mapping[str, str] = {"Authorization": f"Bearer {self.secrets[name]}"}
        self._asked += 1  # each from an address of its own: wrong ones have to wait
        try:
            program = self.machine.client(f"program {self._asked} of {self.client.name}", headers)
            response = await program.request(method, path, body)
        except ConnectionLost:
            response = None
        if response is None or response.status in _NOT_NOW:
            self.may_fail(f"{method} {path} with {name}", None if response is None else response.body)
            return None
        return response

    async def read(self) -> Any:
        state: dict[str, Any] = {}
        keys = await self.pages("/v1/kelpie/keys", "")
        for key in (key for key in keys if key["name"] != OWN):
            end = micros(key["expires_at"])
            state[key["name"]] = {"rights": key["scopes"][0], "agents": key["agent_ids"], "end": end}
            self.ids[key["name"]] = key["id"]
        for token in (await self.client.insist("GET", "/v1/client-side-access-tokens?limit=100"))["tokens"]:
            name = token["hostname"].removeprefix("https://").removesuffix(".example")
            (rule,) = token["policy"]["data"]
            end = micros(token["expiresAt"])
            state[name] = {"rights": rule["access"][0], "agents": [rule["id"]], "end": end}
            self.ids[name] = token["token"]
        return state


def _iso(moment: int | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment / MICROS_PER_SECOND, UTC).isoformat()
