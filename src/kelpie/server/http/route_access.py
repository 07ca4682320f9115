"""Route authorization by method and path: what a scope allows, and what a credential for some agents may touch.

A credential for some agents is refused every route that is not listed here: a new route is closed to it until a
developer decides otherwise.
"""

from collections.abc import Sequence
from typing import Any

from kelpie.core.access.credential_scopes import Access, Authorization, Scope
from kelpie.core.access.passports import Passport
from kelpie.core.errors import Forbidden, NotFound
from kelpie.core.ids import AgentId, HookId
from kelpie.core.permissions.tool_permissions import Capability
from kelpie.core.triggers.webhooks import NO_HOOK
from kelpie.server.http.errors import Refused

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_ADMIN = (
    "/v1/admin/",
    "/v1/kelpie/data",
    "/v1/kelpie/keys",
    "/v1/kelpie/policy",
    "/v1/kelpie/quotas",
    "/v1/kelpie/usage",
)
# What concerns all organizations at once.
_OPERATOR = ("/v1/kelpie/encryption", "/v1/kelpie/logs", "/v1/kelpie/models/pull", "/v1/kelpie/models/remove")
# Requests that only read although they are sent with POST: searches, streams of existing runs, previews.
_READING_POSTS = ("/search", "/preview-raw-payload", "/export", "/v1/tools/generate-schema", "/openai/v1/embeddings")
_LIST = ("/v1/agents", "/v1/agents/")
_HOOKS = "/v1/hooks/"  # deliveries to webhooks
_HOOK_TOKEN = "kelpie-hook_"
_NO_HOOK = NotFound("Webhook", "?", NO_HOOK)
_MCP = "/mcp"  # whose every tool and resource is checked as the REST request that does the same
# OpenAI's API, whose every request is checked as the one of Letta's API that does the same to the agent it names.
_OPENAI = ("/openai/v1/", "/v1/chat/completions")
_STREAMS_OF = ("/v1/runs/", "/v1/conversations/")

# Fields of an agent that hold it back. A credential for some agents may not change them, not even to nothing.
_RULES = frozenset({"kelpie_permissions", "kelpie_limits", "kelpie_budget", "tool_rules", "tool_ids", "tools"})
_RULING = frozenset({"attach", "detach", "approval"})  # under /v1/agents/{agent_id}/tools

_NO_RULES = "a key that is limited to specific agents may not change their tools, rules, permissions, limits or budget."

_BOTH = frozenset({Access.read_agent, Access.read_messages})
# Under /v1/agents/{agent_id}: routes about messages, and routes that show the agent and its messages together.
_OF_MESSAGES = frozenset({"approvals", "messages", "reset-messages", "schedule", "summarize", "generate"})
_SHOWS_BOTH = frozenset({"context", "export", "preview-raw-payload", "checkpoint"})

# Requests that the code of a tool may make to any agent, and the parts of its own agent that it may change.
_SENDING = frozenset({("messages",), ("messages", "stream"), ("messages", "async")})
_REMEMBERED = frozenset({"core-memory", "archival-memory", "working-memory"})
_HANGING = frozenset({"attach", "detach"})


def hook_token(path: str) -> str | None:
    """The token of a webhook in the path of a delivery, which is the credential of that request; None for other paths.

    Raises NotFound for anything else in its place, which must not be tried as a password.
    """
    if not path.startswith(_HOOKS):
        return None
    token = path.removeprefix(_HOOKS)
    if not token.startswith(_HOOK_TOKEN):
        raise _NO_HOOK
    return token


def check(given: Authorization, method: str, path: str) -> None:
    """Raises Forbidden when the authorization does not cover this request, and NotFound for an unknown webhook."""
    if path.startswith(_HOOKS):
        if not isinstance(given.key_id, HookId):
            raise _NO_HOOK
        return
    if given.operator:
        return
    if path == _MCP:
        _check_mcp(given)
        return
    if path.startswith(_OPENAI):
        if given.hostname is not None:
            raise Forbidden("An access token may not use OpenAI's API; use an API key.")
        _check_scope(given, method, path)
        return
    if path.startswith(_OPERATOR):
        raise Forbidden("Only the operator may do this; authenticate with the server password.")
    if given.grants is not None:
        _check_grants(given, method, path)
    if given.hostname is not None:
        _check_page(path)
    else:
        _check_scope(given, method, path)


def _check_scope(given: Authorization, method: str, path: str) -> None:
    if given.hostname is None and (scope := scope_for(method, path)) not in given.scopes:
        raise Forbidden(f"This request needs a key with the scope '{scope}'.")


def check_passport(passport: Passport, method: str, path: str) -> None:
    """Raises Forbidden when the code of a tool may not make this request.

    It may read its own agent, change the agent's memory, run the agent's tools, and send messages to any agent of the
    organization. It may not change what the agent is or may do.
    """
    parts = [part for part in path.split("/") if part]
    if parts[:2] != ["v1", "agents"] or len(parts) < 3:
        raise Forbidden("Tool code may only use routes under /v1/agents/{agent_id}.")
    agent_id, rest = parts[2], parts[3:]
    if method == "POST" and tuple(rest) in _SENDING:
        return
    if agent_id != passport.agent_id:
        raise Forbidden("Tool code may only use its own agent; it may send messages to other agents.")
    remembers = bool(rest) and rest[0] in _REMEMBERED and not _HANGING & set(rest)
    if method in _READING or remembers or (method == "POST" and _only_reads(path.rstrip("/"))):
        return
    if method == "POST" and len(rest) == 3 and (rest[0], rest[2]) == ("tools", "run"):
        return
    raise Forbidden("Tool code may change the memory of its agent, but nothing else about the agent.")


def required_capability(method: str, path: str) -> Capability | None:
    """The capability that the code of a tool needs for a request that its passport allows; None where its own call is
    enough.
    """
    rest = [part for part in path.split("/") if part][3:]
    if method == "POST" and tuple(rest) in _SENDING:
        return Capability.messaging
    changes = method not in _READING and not _only_reads(path.rstrip("/"))
    return Capability.memory if changes and rest and rest[0] in _REMEMBERED else None


def only_writes(method: str, path: str) -> bool:
    """True if the request of a tool's code is a write that waits for no agent and no other tool."""
    rest = tuple(part for part in path.split("/") if part)[3:]
    reads = method in _READING or (method == "POST" and _only_reads(path.rstrip("/")))
    runs_a_tool = len(rest) == 3 and (rest[0], rest[2]) == ("tools", "run")
    return not reads and not runs_a_tool and (rest not in _SENDING or rest == ("messages", "async"))


def check_body(given: Authorization | None, path: str, document: Any) -> None:
    """Raises Refused when a credential for some agents brings in something of the whole organization, or changes
    the rules that hold an agent back.

    To give an agent a block or an archive is to read it, so such a credential may not. FastAPI reads bodies itself and
    lets no other kind of error through.
    """
    if given is None or given.grants is None or not isinstance(document, dict) or path.startswith(_OPENAI):
        return
    for name, value in document.items():
        if name in _RULES:
            raise Refused("access_forbidden", f"{name}: {_NO_RULES}")
        if name.endswith("_ids") and value:
            raise Refused(
                "access_forbidden", f"{name}: a key that is limited to specific agents may not attach anything to them."
            )
    if given.hostname is not None and path.rstrip("/").endswith("/summarize") and "compaction_settings" in document:
        raise Refused("access_forbidden", "compaction_settings: an access token may not set this field; omit it.")


def listed_agents(given: Authorization | None) -> tuple[AgentId, ...] | None:
    """The agents that a list of agents may show; None: all of the organization."""
    if given is None or given.grants is None:
        return None
    return tuple(agent_id for agent_id, access in given.grants.items() if Access.read_agent in access)


def scope_for(method: str, path: str) -> Scope:
    """The scope that a request needs."""
    if path.startswith(_ADMIN):
        return Scope.admin
    if method in _READING or (method == "POST" and _only_reads(path.rstrip("/"))):
        return Scope.read
    return Scope.write


def access_for(method: str, rest: Sequence[str]) -> frozenset[Access] | None:
    """The access that is required for a path below `/v1/agents/{agent_id}`, given as its parts; None: it never is."""
    parts = [part for part in rest if part]
    if "attach" in parts or parts == ["memory", "restore"]:  # which hangs blocks and an archive on the agent
        return None
    if method not in _READING and parts[:1] == ["hooks"]:  # whose tokens outlive the key
        return None
    if method not in _READING and parts[:1] == ["tools"] and len(parts) == 3 and parts[1] in _RULING:
        return None
    if parts and parts[-1] in _SHOWS_BOTH:
        return _BOTH
    of_messages = bool(parts) and parts[0] in _OF_MESSAGES
    if method in _READING:
        return frozenset({Access.read_messages if of_messages else Access.read_agent})
    return frozenset({Access.write_messages if of_messages else Access.write_agent})


def _check_mcp(given: Authorization) -> None:
    if given.hostname is not None:
        raise Forbidden("An access token may not use MCP; use an API key.")
    if Scope.read not in given.scopes:
        raise Forbidden(f"This request needs a key with the scope '{Scope.read}'.")


def _check_grants(given: Authorization, method: str, path: str) -> None:
    assert given.grants is not None
    if method in _READING and path in _LIST and given.hostname is None:
        return  # the list has only the agents of the key
    parts = path.split("/")
    if method in _READING and parts[2:3] == ["projects"] and parts[3:4] and parts[3] in (given.project_ids or ()):
        return
    if given.hostname is None and parts[2:4] == ["kelpie", "agents"] and parts[5:] == ["spending"]:
        del parts[2]  # what an agent has spent may be read by whoever may read the agent
    if parts[:3] != ["", "v1", "agents"] or len(parts) < 4 or not parts[3].startswith("agent-"):
        raise Forbidden("This key is limited to specific agents and cannot be used here.")
    granted = given.grants.get(AgentId(parts[3]))
    if granted is None:
        raise Forbidden("This key is limited to specific agents, and this agent is not one of them.")
    needed = access_for(method, parts[4:])
    if needed is None:
        raise Forbidden(
            "A key that is limited to specific agents may not attach anything to them, nor change their tools or rules."
        )
    if missing := sorted(needed - granted):
        raise Forbidden(f"This key lacks {' and '.join(missing)} for this agent.")


def _check_page(path: str) -> None:
    """Raises Forbidden for what a web page may not do with an agent, whatever its token allows.

    Running a tool goes past its approval, and `generate` past the agent's prompt; a schedule, a webhook or a
    batch goes on without the page.
    """
    rest = [part for part in path.split("/") if part][3:]
    if (
        rest == ["generate"]
        or rest[:1] in (["schedule"], ["hooks"])
        or rest[:2] == ["messages", "batch"]
        or (len(rest) == 3 and (rest[0], rest[2]) == ("tools", "run"))
    ):
        raise Forbidden("An access token may not do this; use an API key.")


def _only_reads(path: str) -> bool:
    return path.endswith(_READING_POSTS) or (path.startswith(_STREAMS_OF) and path.endswith("/stream"))
