"""Which scope and which access a request needs, by method and path alone."""

import pytest

from kelpie.core.access.credential_scopes import OPERATOR, Access, Authorization, Scope, scopes_with
from kelpie.core.errors import Forbidden
from kelpie.core.ids import AgentId
from kelpie.server.http.route_access import access_for, check, scope_for

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
READ, WRITE = Access.read_agent, Access.write_agent
HEAR, SAY = Access.read_messages, Access.write_messages


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/agents/", Scope.read),
        ("HEAD", "/docs", Scope.read),
        ("POST", "/v1/agents/", Scope.write),
        ("POST", "/v1/agents/search", Scope.read),
        ("POST", "/v1/messages/search/", Scope.read),
        ("POST", "/v1/runs/run-1/stream", Scope.read),
        ("POST", "/v1/conversations/conv-1/stream", Scope.read),
        ("POST", "/v1/agents/agent-1/messages/stream", Scope.write),
        ("PUT", "/v1/tools/search", Scope.write),
        ("DELETE", "/v1/agents/agent-1", Scope.write),
        ("PATCH", "/v1/agents/agent-1", Scope.write),
        ("POST", "/v1/client-side-access-tokens", Scope.write),
        ("GET", "/v1/admin/users/", Scope.admin),
        ("DELETE", "/v1/admin/orgs/", Scope.admin),
        ("GET", "/v1/kelpie/keys", Scope.admin),
        ("GET", "/v1/kelpie/data", Scope.admin),
        ("DELETE", "/v1/kelpie/keys/key-1", Scope.admin),
        ("GET", "/v1/kelpie/models", Scope.read),
        ("POST", "/v1/kelpie/models/check", Scope.write),
    ],
)
def test_the_scope_of_a_request(method: str, path: str, scope: Scope) -> None:
    assert scope_for(method, path) is scope
    for given in Scope:
        held = Authorization(scopes=scopes_with((given,)))
        if list(Scope).index(given) >= list(Scope).index(scope):
            check(held, method, path)
        else:
            with pytest.raises(Forbidden, match=scope.value):
                check(held, method, path)


@pytest.mark.parametrize(
    "path",
    ["/v1/kelpie/models/pull", "/v1/kelpie/models/remove", "/v1/kelpie/encryption", "/v1/kelpie/encryption/rotate"],
)
def test_what_concerns_every_organization_is_for_the_operator(path: str) -> None:
    for method in ("GET", "POST"):
        with pytest.raises(Forbidden, match="Only the operator"):
            check(Authorization(scopes=scopes_with((Scope.admin,))), method, path)
        check(OPERATOR, method, path)


@pytest.mark.parametrize("rest", ["generate", "tools/shell/run"])
def test_a_page_goes_past_neither_prompt_nor_approval(rest: str) -> None:
    everything, path = {AGENT: frozenset(Access)}, f"/v1/agents/{AGENT}/{rest}"
    check(Authorization(grants=everything), "POST", path)
    with pytest.raises(Forbidden, match="access token"):
        check(Authorization(grants=everything, hostname="https://x.y"), "POST", path)


@pytest.mark.parametrize(
    ("method", "rest", "needed"),
    [
        ("GET", "", {READ}),
        ("GET", "/", {READ}),
        ("GET", "/core-memory/blocks/human", {READ}),
        ("PATCH", "", {WRITE}),
        ("DELETE", "", {WRITE}),
        ("POST", "/archival-memory", {WRITE}),
        ("POST", "/stop", {WRITE}),
        ("PATCH", "/tools/detach/tool-1", None),
        ("PATCH", "/tools/approval/shell", None),
        ("PATCH", "/core-memory/blocks/detach/block-1", {WRITE}),
        ("GET", "/tools", {READ}),
        ("PATCH", "/tools/attach/tool-1", None),
        ("GET", "/messages", {HEAR}),
        ("POST", "/messages", {SAY}),
        ("POST", "/messages/stream", {SAY}),
        ("POST", "/messages/cancel", {SAY}),
        ("PATCH", "/messages/message-1", {SAY}),
        ("PATCH", "/reset-messages", {SAY}),
        ("POST", "/summarize", {SAY}),
        ("GET", "/context", {READ, HEAR}),
        ("GET", "/memory/checkpoint", {READ, HEAR}),
        ("GET", "/working-memory/a", {READ}),
        ("GET", "/export", {READ, HEAR}),
        ("POST", "/messages/preview-raw-payload", {READ, HEAR}),
    ],
)
def test_the_access_of_a_request(method: str, rest: str, needed: set[Access] | None) -> None:
    assert access_for(method, rest.split("/")) == needed
    path = f"/v1/agents/{AGENT}{rest}"
    everything = {AGENT: frozenset(Access)}
    if needed is None:
        with pytest.raises(Forbidden, match="attach"):
            check(Authorization(grants=everything, hostname="https://x.y"), method, path)
        return
    check(Authorization(grants={AGENT: frozenset(needed)}, hostname="https://x.y"), method, path)
    for lacking in needed:
        with pytest.raises(Forbidden, match=lacking.value):
            check(Authorization(grants={AGENT: frozenset(Access) - {lacking}}, hostname="https://x.y"), method, path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/docs",
        "/v1",
        "/v1/agents",
        "/v1/agents/",
        "/v1/agents/count",
        "/v1/blocks/",
        "/v1/agentsx/agent-1",
        "/x/y/z/w",
        f"/v1/blocks/{AGENT}",
        f"//v1/agents/{AGENT}",
        f"/v1/agents//{AGENT}",
        f"/v1/agents/{AGENT}x",
        f"/v1/_internal_agents/{AGENT}",
        f"/V1/agents/{AGENT}",
        f"/v1/agents/x/../{AGENT}",
    ],
)
def test_nothing_else_is_ever_granted(path: str) -> None:
    for method in ("GET", "POST", "PATCH", "PUT", "DELETE"):
        with pytest.raises(Forbidden):
            check(Authorization(grants={AGENT: frozenset(Access)}, hostname="https://x.y"), method, path)
