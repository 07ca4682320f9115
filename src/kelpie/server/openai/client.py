"""The client of one request to OpenAI's API: what it may reach, and the agent that it names as its model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from starlette.requests import Request

from kelpie.core.access.credential_scopes import Authorization
from kelpie.core.access.identities import KEY_CHARS_MAX, IdentityType, NewIdentity
from kelpie.core.agents.agent import AgentQuery, Include
from kelpie.core.errors import InvalidId, InvalidInput, NotFound
from kelpie.core.ids import AgentId, IdentityId
from kelpie.core.paging import Page
from kelpie.server.http import route_access

if TYPE_CHECKING:
    from kelpie.api import Api

NO_MODEL = "Give the id or the name of an agent as the model; GET /v1/models lists them."
KEY_HEADER, RETRY_HEADER = "idempotency-key", "x-stainless-retry-count"


@dataclass(frozen=True, slots=True)
class Client:
    """The client of one request. `retried` is set when it says that it has sent the same before."""

    api: "Api"
    given: Authorization
    idempotency_key: str | None = None
    retried: bool = False

    async def agent(self, model: str, method: str = "POST", rest: str = "/messages") -> AgentId:
        """The agent with this id or name, if the credential covers the same request to Letta's API.

        Raises NotFound, InvalidInput, Forbidden.
        """
        agent_id = await self._named(model)
        route_access.check(self.given, method, f"/v1/agents/{agent_id}{rest}")
        return agent_id

    async def _named(self, model: str) -> AgentId:
        try:
            return AgentId.parse(model)
        except InvalidId:
            pass  # then it is a name
        only = route_access.listed_agents(self.given)
        found = await self.api.agents.page(AgentQuery(page=Page(limit=2), name=model, only=only), Include())
        if not found:
            raise NotFound("Model", model[:200], NO_MODEL)
        if len(found) > 1:
            raise InvalidInput("model", f"several agents are named '{model[:80]}'; give the id of one of them")
        return found[0].agent.id

    async def identity(self, agent_id: AgentId, user: str | None) -> IdentityId | None:
        """The identity of the user that a client names, created when it is new and linked with the agent.

        None without a user, and for a credential that is limited to some agents, because identities are the whole
        organization's.
        """
        if not user or self.given.grants is not None:
            return None
        if len(user) > KEY_CHARS_MAX:
            raise InvalidInput("user", f"must have at most {KEY_CHARS_MAX} characters")
        identity = await self.api.identities.known(NewIdentity(user, user, IdentityType.user, agent_ids=(agent_id,)))
        return identity.id


async def _client(request: Request) -> Any:
    headers, scope = request.headers, request.scope
    key = headers.get(KEY_HEADER, "")[:KEY_CHARS_MAX] or None
    retried = headers.get(RETRY_HEADER, "0") not in ("", "0")
    return Client(request.app.state.api(scope["caller"]), scope["pass"], key, retried)


if TYPE_CHECKING:
    OpenAiClient = Client
else:
    OpenAiClient = Annotated[Any, Depends(_client)]
