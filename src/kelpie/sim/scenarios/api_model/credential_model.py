"""A model of credentials: what each key and token opens, for how long, and what it does not."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.memory_model import still_there
from kelpie.sim.scenarios.api_model.modelled_resource import PAGE, ModelledResource, micros
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient

LIFE_S = 30
MINUTE_S, NOTED_S = 60, 3  # how exactly the last use of a key is known, and when
OWN = "of the client itself"
SCOPES = ("read", "write", "admin")
_NOT_NOW = (429, 503)
READ, WRITE, ADMIN = range(3)


class CredentialModel(ModelledResource):
    """The state: the keys and tokens that are there, by their names: rights, agents, whether the agents of a project
    are among them, and the moment of their end."""

    def __init__(self, machine: Machine, client: ScenarioClient, agents: Sequence[str]) -> None:
        super().__init__(machine, client)
        self.all, self.mine, self.other = sorted(agents), agents[0], agents[1]
        self.secrets: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.ended: set[str] = set()
        self._made = 0
        self._asked = 0
        self._project = ""
        self._members: set[str] = set()  # of the project
        self._used: dict[str, tuple[int, int, int]] = {}  # by name: when it was, when that was known, in which boot
        self._tried: set[str] = set()

    async def act(self) -> None:
        acts = (
            *(self._create, self._create, self._token, self._revoke, self._expire, self._dismiss, self._move),
            self._join,
        )
        self.state = self.current(self.state)
        await self.client.picks(acts)()
        for name in [*self.state, *sorted(self.ended)[-3:]]:
            if self.client.tosses(0.5):
                await self._use(name)

    async def _create(self, *, of_project: bool = False) -> None:
        self._made += 1
        name, scope = f"key{self._made}", self.client.picks(SCOPES)
        agents = [self.mine] if self.client.tosses(0.4) else None
        projects = [await self._known_project()] if of_project or self.client.tosses(0.2) else None
        end = self.now + LIFE_S * MICROS_PER_SECOND if self.client.tosses(0.4) else None
        body = {"name": name, "scopes": [scope], "agent_ids": agents, "project_ids": projects, "expires_at": _iso(end)}
        after = {"rights": scope, "agents": agents, "project": bool(projects), "end": end}
        await self._made_one(name, "/v1/kelpie/keys", body, after)

    async def _known_project(self) -> str:
        """The project of the keys, which begins without agents."""
        while not self._project:
            name = f"project of {self.client.name}"
            response = await self.client.ask("POST", "/v1/projects", {"name": name})
            if response is not None and response.status in (200, 409):
                self._project = (await self.client.insist("GET", f"/v1/projects?name={quote(name)}"))[0]["id"]
            elif response is None or response.status in _NOT_NOW:
                self.may_fail("POST /v1/projects", None if response is None else response.body)
            else:
                raise Broken("a sound request is accepted", f"POST /v1/projects: {response.body!r}")
        return self._project

    async def _join(self) -> None:
        """An agent joins the project or leaves it, which its keys open or close from then on."""
        if not any(one["project"] for one in self.state.values()):
            await self._create(of_project=True)
        names = [name for name, one in self.state.items() if one["project"]][-2:]
        for name in names:
            await self._use(name)
        await self._change_members()
        for name in names:
            await self._use(name)

    async def _change_members(self) -> None:
        agent, path = self.client.picks(self.all), f"/v1/projects/{await self._known_project()}"
        if agent in self._members:
            response = await self.client.ask("DELETE", f"{path}/agents/{agent}")
            if response is None or response.status != 200:
                self.may_fail(f"DELETE {path}/agents/{agent}", None if response is None else response.body)
            self._members = {one["id"] for one in (await self.client.insist("GET", path))["agents"]}
            if response is not None and response.status == 200 and agent in self._members:
                raise Broken("an agent that leaves a project is gone from it", agent)
        else:
            await self.client.insist("POST", f"{path}/agents", {"agent_id": agent})
            self._members.add(agent)

    def _reached(self, one: dict[str, Any]) -> list[str] | None:
        """The agents that a credential is for; None: all."""
        if one["agents"] is None and not one["project"]:
            return None
        return sorted({*(one["agents"] or ()), *(self._members if one["project"] else ())})

    async def _token(self) -> None:
        """Some of them, which make several pages."""
        for _ in range(self.client.picks((1, PAGE + 1))):
            await self._make_token()
        await self._tokens_are_listed()

    async def _make_token(self) -> None:
        self._made += 1
        name, access = f"token{self._made}", self.client.picks(("read_messages", "read_agent", "write_agent"))
        end = self.now + LIFE_S * MICROS_PER_SECOND
        agents = [self.mine, self.other] if self.client.tosses(0.3) else [self.mine]
        policy = [{"type": "agent", "id": agent, "access": [access]} for agent in agents]
        body = {"hostname": f"https://{name}.example", "policy": policy, "expires_at": _iso(end)}
        after = {"rights": access, "agents": agents, "project": False, "end": end}
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
            named = self.secrets.get(name, self.ids[name]) if name.startswith("token") else self.ids[name]
            named = self.client.picks((named, self.ids[name]))
            await self.change("DELETE", f"/v1/{kind}/{named}", body, after)
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
        name, new = f"key{self._made}", {"rights": "write", "agents": None, "project": False, "end": None}
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
        new = {"rights": "write", "agents": None, "project": False, "end": None}
        await self._made_one(key, "/v1/kelpie/keys", {"name": key, "scopes": ["write"], "user_id": user_id}, new)
        as_user = ScenarioClient(self.machine, name, [], self.machine.client(name, {"user_id": user_id}))
        end = self.now + LIFE_S * MICROS_PER_SECOND
        policy = [{"type": "agent", "id": self.mine, "access": ["read_agent"]}]
        body = {"hostname": f"https://{token}.example", "policy": policy, "expires_at": _iso(end)}
        self.secrets[token] = (await as_user.insist("POST", "/v1/client-side-access-tokens", body))["token"]
        self.state = {
            **self.state,
            token: {"rights": "read_agent", "agents": [self.mine], "project": False, "end": end},
        }
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
        reached = self._reached(one) if one else []
        mine, other = reached is None or self.mine in reached, reached is None or self.other in reached
        asked: list[tuple[str, str, Any, bool]] = []
        if one is None or one["rights"] in SCOPES:
            rank = SCOPES.index(one["rights"]) if one else -1
            free = reached is None
            asked = [
                ("GET", "/v1/agents/", None, rank >= READ),
                ("GET", agent, None, rank >= READ and mine),
                ("GET", f"/v1/agents/{self.other}", None, rank >= READ and other),
                ("PATCH", agent, {"description": name}, rank >= WRITE and mine),
                ("PATCH", agent, {"kelpie_budget": None}, rank >= WRITE and free),
                ("GET", "/v1/blocks/", None, rank >= READ and free),
                ("GET", "/v1/kelpie/keys", None, rank >= ADMIN and free),
                ("GET", f"/v1/kelpie/agents/{self.mine}/spending", None, rank >= READ and mine),
            ]
        else:
            access = one["rights"]
            asked = [
                ("GET", agent, None, access == "read_agent"),
                ("GET", f"{agent}/messages", None, access == "read_messages"),
                ("PATCH", agent, {"description": name}, access == "write_agent"),
                ("GET", f"/v1/agents/{self.other}", None, access == "read_agent" and other),
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
            reached = self._reached(self.state[name])
            if agents != (self.all if reached is None else reached):
                raise Broken("a credential opens what it is for", f"{name} lists {agents}")

    async def _answer(self, name: str, method: str, path: str, body: Any) -> Any:
        await self.machine.up()
        headers: Mapping[str, str] = {"Authorization": f"Bearer {self.secrets[name]}"}
        self._asked += 1  # each from an address of its own: wrong ones have to wait
        self._tried.add(name)
        called, boot = self.now, self.machine.boots
        try:
            program = self.machine.client(f"program {self._asked} of {self.client.name}", headers)
            response = await program.request(method, path, body)
        except ConnectionLost:
            response = None
        if response is None or response.status in _NOT_NOW:
            self.may_fail(f"{method} {path} with {name}", None if response is None else response.body)
            return None
        if response.status != 401:
            self._used[name] = (called, self.now, boot)
        return response

    async def check(self) -> None:
        """Also what is not in the state: the lists of tokens, and when a key was used."""
        await super().check()
        await self._tokens_are_listed()
        for name in [name for name in self.state if name.startswith("key") and name in self.secrets][-1:]:
            await self._answer(name, "GET", "/v1/agents/", None)
            await asyncio.sleep(NOTED_S)
            await self._is_noted(name)

    async def _tokens_are_listed(self) -> None:
        """With all pages, and for each agent."""
        path = "/v1/client-side-access-tokens?limit="
        before = (await self.client.insist("GET", f"{path}100"))["tokens"]
        found: list[Any] = []
        while True:
            page = await self.client.insist("GET", f"{path}{PAGE}&offset={len(found)}")
            found += page["tokens"]
            if not page["hasNextPage"] or not page["tokens"]:
                break
        of = {each: await self.client.insist("GET", f"{path}100&agentId={each}") for each in (self.mine, self.other)}
        if before != (await self.client.insist("GET", f"{path}100"))["tokens"]:
            return  # one came to its end meanwhile
        if found != before:
            raise Broken("the pages of a list are the list", f"{found} and not {before}")
        for agent, listed in of.items():
            wanted = [one for one in before if agent in (rule["id"] for rule in one["policy"]["data"])]
            if listed["tokens"] != wanted or listed["hasNextPage"]:
                raise Broken("a filter finds what fits it", f"{agent}: {listed} and not {wanted}")

    async def _is_noted(self, name: str) -> None:
        """A key says when it was last used, to the minute, and ends as its secret does."""
        key = await self.maybe(f"/v1/kelpie/keys/{self.ids[name]}")
        if key is None:
            self.state = self.current(self.state)
            if name in self.state:
                raise Broken("the API shows what was done", f"{name} is listed, but is not there")
            return
        noted = micros(key["last_used_at"])
        if name in self.secrets and not self.secrets[name].endswith(key["hint"]):
            raise Broken("a key is known by its end", f"{name}: {key['hint']}")
        if noted is not None and (name not in self._tried or noted > self.now):
            raise Broken("a key knows its last use", f"{name}: {noted} before it was used")
        called, known, boot = self._used.get(name, (0, 0, -1))
        if boot != self.machine.boots or self.now - known < NOTED_S * MICROS_PER_SECOND:
            return  # a power cut loses it
        if not self.machine.faults.firings and (noted is None or called - noted >= MINUTE_S * MICROS_PER_SECOND):
            raise Broken("a key knows its last use", f"{name}: {noted}, used at {called}")

    async def read(self) -> Any:
        state: dict[str, Any] = {}
        keys = await self.pages("/v1/kelpie/keys", "")
        for key in (key for key in keys if key["name"] != OWN):
            end = micros(key["expires_at"])
            projects = key["project_ids"]
            if projects not in (None, [self._project]):
                raise Broken("the API shows what was done", f"{key['name']} is for the projects {projects}")
            state[key["name"]] = {
                "rights": key["scopes"][0],
                "agents": key["agent_ids"],
                "project": bool(projects),
                "end": end,
            }
            self.ids[key["name"]] = key["id"]
        for token in (await self.client.insist("GET", "/v1/client-side-access-tokens?limit=100"))["tokens"]:
            name = token["hostname"].removeprefix("https://").removesuffix(".example")
            rules = token["policy"]["data"]
            end = micros(token["expiresAt"])
            agents = [rule["id"] for rule in rules]
            state[name] = {"rights": rules[0]["access"][0], "agents": agents, "project": False, "end": end}
            self.ids[name] = token["token"]
        return state


def _iso(moment: int | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment / MICROS_PER_SECOND, UTC).isoformat()
