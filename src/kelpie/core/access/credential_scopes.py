"""Rights of a credential: scopes of API keys, grants of access tokens, and the authorization that either gives.

An authorization never reaches beyond one organisation, except that of the operator: the client that knows the server's
password (or, on a server that has none, any client that reaches it).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from kelpie.core.ids import (
    DEFAULT_ORGANIZATION,
    DEFAULT_USER,
    AgentId,
    HookId,
    KeyId,
    OrganizationId,
    ProjectId,
    SessionId,
    TokenId,
    UserId,
)
from kelpie.core.time import Micros


class Scope(StrEnum):
    """Purpose of an API key. Each scope includes the one before it."""

    read = "read"
    write = "write"
    admin = "admin"


class Access(StrEnum):
    """Rights of an access token on one agent."""

    read_messages = "read_messages"
    write_messages = "write_messages"
    read_agent = "read_agent"
    write_agent = "write_agent"


READ_ACCESS = frozenset({Access.read_messages, Access.read_agent})
ALL_ACCESS = frozenset(Access)
Grants = Mapping[AgentId, frozenset[Access]]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key of a user. The secret itself is not stored: `hint` is its end, so that people can identify the key."""

    id: KeyId
    organization_id: OrganizationId
    user_id: UserId
    name: str
    scopes: tuple[Scope, ...]
    hint: str
    created_at: Micros
    agent_ids: tuple[AgentId, ...] | None = None  # None: every agent of the organisation
    project_ids: tuple[ProjectId, ...] | None = None  # and the agents of these projects
    expires_at: Micros | None = None
    last_used_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """An API key to create."""

    name: str
    scopes: tuple[Scope, ...]
    user_id: UserId | None = None  # None: the caller
    agent_ids: tuple[AgentId, ...] | None = None
    project_ids: tuple[ProjectId, ...] | None = None
    expires_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    agent_id: AgentId
    access: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A short-lived credential for a page in a browser: a few agents, a few kinds of access, one site."""

    id: TokenId
    organization_id: OrganizationId
    user_id: UserId
    hostname: str
    policy: tuple[Grant, ...]
    created_at: Micros
    expires_at: Micros


@dataclass(frozen=True, slots=True)
class Session:
    """A browser in which a person signed in, with an API key or, if there is none, with the server's password."""

    id: SessionId
    key_id: KeyId | None
    created_at: Micros
    expires_at: Micros


@dataclass(frozen=True, slots=True)
class Authorization:
    """The caller that a credential stands for, and what it may reach."""

    user_id: UserId = DEFAULT_USER
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    scopes: frozenset[Scope] = frozenset(Scope)
    grants: Grants | None = None  # None: every agent, and what is not of an agent
    hostname: str | None = None  # the site whose pages may use it; None: any
    operator: bool = False  # may act for any user
    expires_at: Micros | None = None
    key_id: KeyId | TokenId | HookId | None = None
    project_ids: tuple[ProjectId, ...] | None = None  # whose agents it may reach


OPERATOR = Authorization(operator=True)


def scopes_with(scopes: tuple[Scope, ...]) -> frozenset[Scope]:
    """The scopes and all that they include."""
    ranked = list(Scope)
    return frozenset(ranked[: max((ranked.index(scope) for scope in scopes), default=-1) + 1])


def authorization_of_key(key: ApiKey) -> Authorization:
    scopes = scopes_with(key.scopes)
    access = ALL_ACCESS if Scope.write in scopes else READ_ACCESS
    grants = None if key.agent_ids is None else dict.fromkeys(key.agent_ids, access)
    if key.project_ids is not None:
        grants = grants or {}  # the agents of the projects are added at each request
    return Authorization(
        key.user_id,
        key.organization_id,
        scopes,
        grants,
        expires_at=key.expires_at,
        key_id=key.id,
        project_ids=key.project_ids,
    )


def with_agents(given: Authorization, agents: Iterable[AgentId]) -> Authorization:
    """The authorization of a key for projects with the agents that are in them now."""
    access = ALL_ACCESS if Scope.write in given.scopes else READ_ACCESS
    return replace(given, grants={**(given.grants or {}), **dict.fromkeys(agents, access)})


def authorization_of_hook(hook_id: HookId, organization: OrganizationId) -> Authorization:
    """Authorization of the token of a webhook, which is good for a delivery to this webhook and nothing else."""
    return Authorization(DEFAULT_USER, organization, frozenset(), {}, key_id=hook_id)


def authorization_of_token(token: AccessToken) -> Authorization:
    """Authorization of a token: it has no scopes, only what is granted explicitly."""
    grants: dict[AgentId, frozenset[Access]] = {}
    for grant in token.policy:
        grants[grant.agent_id] = grants.get(grant.agent_id, frozenset()) | frozenset(grant.access)
    user, organization, until = token.user_id, token.organization_id, token.expires_at
    return Authorization(user, organization, frozenset(), grants, token.hostname, False, until, token.id)
