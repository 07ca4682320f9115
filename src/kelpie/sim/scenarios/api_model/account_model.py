"""A model of users and organizations: created, renamed, moved and deleted, and what each user reaches."""

from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import PAGE, ModelledResource
from kelpie.sim.scenarios.fixtures.clients import TRIES_MAX, ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import RunningKelpie

USERS, ORGANIZATIONS = "/v1/admin/users/", "/v1/admin/orgs/"
EVERY = 500  # on one page
CHANGES = 4  # at once
USERS_MAX, ORGANIZATIONS_MAX = 4, 3
HOME = "home"  # the organization of the client


class AccountModel(ModelledResource):
    """The state: the organization of each user and the rights of each organization that this client has made, by their
    names. Only an operator makes organizations."""

    def __init__(self, machine: Machine, client: ScenarioClient, organization: str) -> None:
        super().__init__(machine, client)
        self.home = organization
        self.operates = organization == DEFAULT_ORGANIZATION
        self.state = {"users": {}, "organizations": {}}
        self.ids: dict[str, str] = {}
        self._made = 0

    async def act(self) -> None:
        for _ in range(CHANGES):
            await self._change_one()
        if self.state["users"]:
            await self._acts_for(self.client.picks(list(self.state["users"])))

    async def _change_one(self) -> None:
        users, organizations = self.state["users"], self.state["organizations"]
        acts = [self._create_user] * (len(users) < USERS_MAX)
        acts += [self._create_organization] * (len(organizations) < ORGANIZATIONS_MAX)
        acts += [self._rename_user, self._move, self._delete_user] * bool(users)
        acts += [self._change_organization, self._delete_organization] * bool(organizations)
        await self.client.picks(acts)()
        await self.read()  # which knows the ids

    def _new(self, what: str) -> str:
        self._made += 1
        return f"{what} {self._made} of {self.client.name}"

    def _with(self, kind: str, name: str, value: Any, left_out: str = "") -> Any:
        kept = {each: one for each, one in self.state[kind].items() if each != left_out}
        return {**self.state, kind: {**kept, name: value}}

    def _without(self, kind: str, name: str) -> Any:
        return {**self.state, kind: {each: one for each, one in self.state[kind].items() if each != name}}

    def _id_of(self, organization: str) -> str:
        return self.home if organization == HOME else self.ids[organization]

    async def _create_user(self) -> None:
        name, where = self._new("user"), self.client.picks([HOME, *self.state["organizations"]])
        body = {"name": name, "organization_id": self._id_of(where)}
        await self.change("POST", USERS, body, self._with("users", name, where))

    async def _rename_user(self) -> None:
        """The user stays where they are."""
        name, new = self.client.picks(list(self.state["users"])), self._new("user")
        after = self._with("users", new, self.state["users"][name], name)
        await self.change("PUT", USERS, {"id": self.ids[name], "name": new}, after)

    async def _move(self) -> None:
        """Sometimes with another name at the same time."""
        name = new = self.client.picks(list(self.state["users"]))
        where = self.client.picks([HOME, *self.state["organizations"]])
        body = {"id": self.ids[name], "organization_id": self._id_of(where)}
        if self.client.tosses(0.3):
            new = body["name"] = self._new("user")
        await self._acts_for(name)
        await self.change("PUT", USERS, body, self._with("users", new, where, name))
        self.ids.setdefault(new, self.ids[name])
        if new in self.state["users"]:
            await self._acts_for(new)

    async def _delete_user(self) -> None:
        name = self.client.picks(list(self.state["users"]))
        await self.change("DELETE", f"{USERS}?user_id={self.ids[name]}", None, self._without("users", name))

    async def _create_organization(self) -> None:
        name, privileged = self._new("organization"), self.client.tosses(0.7)
        body, after = {"name": name, "privileged_tools": privileged}, self._with("organizations", name, privileged)
        await self.change("POST", ORGANIZATIONS, body, after, refused=None if self.operates else 403)

    async def _change_organization(self) -> None:
        """The name, the rights, or both."""
        name = new = self.client.picks(list(self.state["organizations"]))
        privileged, body = self.state["organizations"][name], dict[str, Any]()
        if self.client.tosses(0.5):
            new = body["name"] = self._new("organization")
        if not body or self.client.tosses(0.3):
            privileged = body["privileged_tools"] = not privileged
        after = self._with("organizations", new, privileged, name)
        after["users"] = {each: new if where == name else where for each, where in self.state["users"].items()}
        await self.change("PATCH", f"{ORGANIZATIONS}?org_id={self.ids[name]}", body, after)

    async def _delete_organization(self) -> None:
        """Only one without users is deleted."""
        name = self.client.picks(list(self.state["organizations"]))
        refused = 409 if name in self.state["users"].values() else None
        path = f"{ORGANIZATIONS}?org_id={self.ids[name]}"
        await self.change("DELETE", path, None, self._without("organizations", name), refused=refused)

    async def _acts_for(self, name: str) -> None:
        """A user reaches their own organization, where there are tools from the beginning."""
        where = self.state["users"][name]
        program = self.machine.client(f"{name} at work", {"user_id": self.ids[name]})
        seen: dict[str, Any] = {}
        for path in (ORGANIZATIONS, "/v1/tools/count"):
            await self.machine.up()
            try:
                response = await program.request("GET", path)
            except ConnectionLost:
                response = None
            if response is None or response.status != 200:
                self.may_fail(f"GET {path} for {name}", None if response is None else response.body)
                return
            seen[path] = response.json()
        reached = [one["id"] for one in seen[ORGANIZATIONS]]
        everywhere = self._id_of(where) == DEFAULT_ORGANIZATION
        if (len(reached) < 2) if everywhere else (reached != [self._id_of(where)]):
            raise Broken("a user reaches their own organization", f"{name} of {where} reaches {reached}")
        if not seen["/v1/tools/count"]:
            raise Broken("an organization has tools from the beginning", f"{where} of {name}")

    async def read(self) -> Any:
        organizations = await self._listed(ORGANIZATIONS)
        users = await self._listed(USERS)
        names = {one["id"]: one["name"] for one in organizations} | {self.home: HOME}
        mine = [one for one in organizations if self._is_mine(one)]
        for one in [*mine, *users]:
            if self._is_mine(one):
                self.ids[one["name"]] = one["id"]
        return {
            "users": {one["name"]: names[one["organization_id"]] for one in users if self._is_mine(one)},
            "organizations": {one["name"]: one["privileged_tools"] for one in mine},
        }

    def _is_mine(self, one: dict[str, Any]) -> bool:
        return one["name"].endswith(f" of {self.client.name}") and one["name"].split()[0] in ("user", "organization")

    async def _listed(self, path: str) -> list[Any]:
        """All of them on one page, the oldest first; the default user is older than anybody knows, and is the last."""
        found = await self.client.insist("GET", f"{path}?limit={EVERY}")
        made = [one["created_at"] or "unknown" for one in found]
        if made != sorted(made):
            raise Broken("a list is in its order", f"{path}: {found}")
        return found

    async def check(self) -> None:
        await super().check()
        for path in (USERS, ORGANIZATIONS):
            whole = [one["id"] for one in await self._listed(path)]
            paged = await self._by_pages(path)
            now = [one["id"] for one in await self._listed(path)]
            if whole == now and paged is not None and paged != whole:
                raise Broken("the pages of a list are the list", f"{path}: {paged} and not {whole}")
        self._share_is_known()

    async def _by_pages(self, path: str) -> list[str] | None:
        """None where somebody deletes the last one of a page meanwhile."""
        found: list[str] = []
        for _ in range(TRIES_MAX):
            cursor = f"&after={found[-1]}" if found else ""
            page = await self.maybe(f"{path}?limit={PAGE}{cursor}")
            if page is None:
                return None
            found += [one["id"] for one in page]
            if len(page) < PAGE:
                return found
        raise Broken("a list ends", f"{path} has more than {TRIES_MAX} pages")

    def _share_is_known(self) -> None:
        """The server knows for how many organizations it keeps slots; one too many, where a commit is in doubt."""
        running, node = self.machine.running, self.machine.node
        if not isinstance(running, RunningKelpie) or node is None or not node.alive or self.machine.faults.firings:
            return
        known, ((stored,),) = (
            running.kelpie.runtime.share.organizations,
            self.machine.disk.query("SELECT count(*) FROM organizations"),
        )
        if known != stored and running.kelpie.world.database.is_idle:  # pyright: ignore[reportAttributeAccessIssue]
            raise Broken("the share is one of the organizations", f"{known} and not {stored}")
