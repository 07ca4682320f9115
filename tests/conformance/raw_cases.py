"""One valid request for every route that no method of the SDK calls, by the route's name: where to, and with what."""

from collections.abc import Callable
from typing import Any

from tests.conformance.things import SOURCE, Things

Asked = tuple[str, dict[str, Any]]
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
STDIO = {"type": "stdio", "command": "true", "args": []}
# Where another status than 200, 201 or 204 is right.
STATUS = {
    "GET /v1/tools/mcp/oauth/callback": 400,
    "PATCH /v1/agents/{agent_id}/messages/{message_id}": 405,
    "PATCH /v1/groups/{group_id}/messages/{message_id}": 405,
}


def _variables(sandbox: str) -> str:
    return f"/v1/sandbox-config/{sandbox}/environment-variable"


def _carried(t: Things) -> Asked:
    block, identity = t.block(), t.identity()
    t.call("PATCH", f"/v1/blocks/{block}/identities/attach/{identity}")
    return f"/v1/blocks/{block}/identities/detach/{identity}", {}


def _group_block(t: Things) -> Asked:
    group, block = t.group(), t.block()
    t.call("PATCH", f"/v1/groups/{group}/blocks/attach/{block}")
    return f"/v1/groups/{group}/blocks/detach/{block}", {}


def _deployed(t: Things) -> str:
    name = t.word()
    t.call("POST", "/v1/_internal_templates/blocks", json=_template_block(t, name))
    return name


def _template_block(t: Things, deployment: str) -> dict[str, Any]:
    return {"label": t.word(), "value": "v", "deployment_id": deployment, **_TEMPLATE}


_TEMPLATE = {"base_template_id": "base", "template_id": "template", "entity_id": "entity"}


def _done_run(t: Things) -> str:
    agent = t.agent()
    t.call("POST", f"/v1/agents/{agent}/messages", json=HELLO)
    return t.call("GET", "/v1/runs/", params={"agent_id": agent})[0]["id"]


_SAID = {"role": "user", "content": "from elsewhere"}


def _batch(t: Things) -> str:
    """A batch with so many items that it has not ended when the next request comes."""
    requests = [{"agent_id": t.agent(), "input": "hello"}] * 50
    return t.call("POST", "/v1/messages/batches", json={"requests": requests})["id"]


def _folder_cases() -> dict[str, Callable[[Things], Asked]]:
    """The routes of sources, which do the same as those of folders, and the routes of folders without a method."""
    upload = {"files": {"file": ("a.md", b"# Tea", "text/markdown")}}

    def named(t: Things, root: str) -> Asked:
        folder = t.call("GET", f"/v1/folders/{t.folder()}")
        return f"/v1/{root}/name/{folder['name']}", {}

    def attached(t: Things) -> Asked:
        agent, folder = t.agent_with_folder()
        return f"/v1/agents/{agent}/sources/detach/{folder}", {}

    return {
        "GET /v1/folders/count": lambda t: ("/v1/folders/count", {}),
        "GET /v1/folders/metadata": lambda t: ("/v1/folders/metadata", {}),
        "GET /v1/folders/name/{folder_name}": lambda t: named(t, "folders"),
        "GET /v1/folders/{folder_id}/passages": lambda t: (f"/v1/folders/{t.file()[0]}/passages", {}),
        "GET /v1/sources/": lambda t: ("/v1/sources/", {}),
        "POST /v1/sources/": lambda t: ("/v1/sources/", {"json": {"name": t.word()}}),
        "GET /v1/sources/count": lambda t: ("/v1/sources/count", {}),
        "GET /v1/sources/metadata": lambda t: (
            "/v1/sources/metadata",
            {"params": {"include_detailed_per_source_metadata": "true"}},
        ),
        "GET /v1/sources/name/{source_name}": lambda t: named(t, "sources"),
        "DELETE /v1/sources/{source_id}": lambda t: (f"/v1/sources/{t.folder()}", {}),
        "GET /v1/sources/{source_id}": lambda t: (f"/v1/sources/{t.folder()}", {}),
        "PATCH /v1/sources/{source_id}": lambda t: (f"/v1/sources/{t.folder()}", {"json": {"description": "new"}}),
        "GET /v1/sources/{source_id}/agents": lambda t: (f"/v1/sources/{t.agent_with_folder()[1]}/agents", {}),
        "GET /v1/sources/{source_id}/files": lambda t: (f"/v1/sources/{t.file()[0]}/files", {}),
        "GET /v1/sources/{source_id}/files/{file_id}": lambda t: ("/v1/sources/{}/files/{}".format(*t.file()), {}),
        "GET /v1/sources/{source_id}/passages": lambda t: (f"/v1/sources/{t.file()[0]}/passages", {}),
        "POST /v1/sources/{source_id}/upload": lambda t: (f"/v1/sources/{t.folder()}/upload", upload),
        "DELETE /v1/sources/{source_id}/{file_id}": lambda t: ("/v1/sources/{}/{}".format(*t.file()), {}),
        "GET /v1/agents/{agent_id}/sources": lambda t: (f"/v1/agents/{t.agent_with_folder()[0]}/sources", {}),
        "PATCH /v1/agents/{agent_id}/sources/attach/{source_id}": lambda t: (
            f"/v1/agents/{t.agent()}/sources/attach/{t.folder()}",
            {},
        ),
        "PATCH /v1/agents/{agent_id}/sources/detach/{source_id}": attached,
    }


CASES: dict[str, Callable[[Things], Asked]] = {
    "GET /v1/ready/": lambda t: ("/v1/ready/", {}),
    "POST /v1/chat/completions": lambda t: (
        "/v1/chat/completions",
        {"json": {"model": t.agent(), "messages": [{"role": "user", "content": "hi"}], "stream": True}},
    ),
    "POST /v1/auth": lambda t: ("/v1/auth", {"json": {}}),
    # --- folders
    **_folder_cases(),
    # --- agents
    "GET /v1/agents/count": lambda t: ("/v1/agents/count", {}),
    "POST /v1/agents/messages/search": lambda t: ("/v1/agents/messages/search", {"json": {"query": "rain"}}),
    "GET /v1/agents/{agent_id}/context": lambda t: (f"/v1/agents/{t.talked.agent}/context", {}),
    "GET /v1/agents/{agent_id}/core-memory": lambda t: (f"/v1/agents/{t.agent()}/core-memory", {}),
    "POST /v1/agents/{agent_id}/export": lambda t: (
        f"/v1/agents/{t.agent()}/export",
        {"json": {"skills": [{"name": "s", "files": {"SKILL.md": "text"}}], "scrub_messages": True}},
    ),
    "POST /v1/agents/{agent_id}/generate": lambda t: (
        f"/v1/agents/{t.agent()}/generate",
        {"json": {"prompt": "Say hi"}},
    ),
    "GET /v1/agents/{agent_id}/groups": lambda t: (f"/v1/agents/{t.agent()}/groups", {}),
    "POST /v1/agents/{agent_id}/messages/capture": lambda t: (
        f"/v1/agents/{t.agent()}/messages/capture",
        {"json": {"provider": "p", "model": "m", "request_messages": [_SAID], "response_dict": {"content": "yes"}}},
    ),
    "POST /v1/agents/{agent_id}/messages/preview-raw-payload": lambda t: (
        f"/v1/agents/{t.agent()}/messages/preview-raw-payload",
        {"json": HELLO},
    ),
    "PATCH /v1/agents/{agent_id}/messages/{message_id}": lambda t: (
        f"/v1/agents/{t.talked.agent}/messages/{t.talked.message}",
        {"json": {"message_type": "user_message", "content": "x"}},
    ),
    "POST /v1/agents/{agent_id}/system-prompt/recompile": lambda t: (
        f"/v1/agents/{t.agent()}/system-prompt/recompile",
        {},
    ),
    "GET /v1/_internal_agents/count": lambda t: ("/v1/_internal_agents/count", {"params": {"exclude_hidden": True}}),
    "PATCH /v1/_internal_agents/{agent_id}/core-memory/blocks/{block_label}": lambda t: (
        f"/v1/_internal_agents/{t.agent()}/core-memory/blocks/human",
        {"json": {"value": "new"}},
    ),
    # --- blocks
    "GET /v1/blocks/count": lambda t: ("/v1/blocks/count", {}),
    "PATCH /v1/blocks/{block_id}/identities/attach/{identity_id}": lambda t: (
        f"/v1/blocks/{t.block()}/identities/attach/{t.identity()}",
        {},
    ),
    "PATCH /v1/blocks/{block_id}/identities/detach/{identity_id}": _carried,
    "GET /v1/_internal_blocks/": lambda t: ("/v1/_internal_blocks/", {}),
    "POST /v1/_internal_blocks/": lambda t: ("/v1/_internal_blocks/", {"json": {"label": "human", "value": "v"}}),
    "DELETE /v1/_internal_blocks/{block_id}": lambda t: (f"/v1/_internal_blocks/{t.block()}", {}),
    "GET /v1/_internal_blocks/{block_id}/agents": lambda t: (
        f"/v1/_internal_blocks/{t.agent_with_block()[1]}/agents",
        {},
    ),
    # --- templates' rows
    "GET /v1/embeddings/total_storage_size": lambda t: ("/v1/embeddings/total_storage_size", {}),
    "POST /v1/_internal_search/cache-warm": lambda t: (
        "/v1/_internal_search/cache-warm",
        {"json": {"collection": "messages", "scope": {}}},
    ),
    "POST /v1/_internal_templates/agents": lambda t: (
        "/v1/_internal_templates/agents",
        {"json": {"model": "kelpie/demo", "deployment_id": t.word(), **_TEMPLATE}},
    ),
    "POST /v1/_internal_templates/blocks": lambda t: (
        "/v1/_internal_templates/blocks",
        {"json": _template_block(t, t.word())},
    ),
    "POST /v1/_internal_templates/blocks/batch": lambda t: (
        "/v1/_internal_templates/blocks/batch",
        {"json": [_template_block(t, t.word())]},
    ),
    "POST /v1/_internal_templates/groups": lambda t: (
        "/v1/_internal_templates/groups",
        {"json": {"agent_ids": [t.agent()], "description": "d", "deployment_id": t.word(), **_TEMPLATE}},
    ),
    "GET /v1/_internal_templates/deployment/{deployment_id}": lambda t: (
        f"/v1/_internal_templates/deployment/{_deployed(t)}",
        {},
    ),
    "DELETE /v1/_internal_templates/deployment/{deployment_id}": lambda t: (
        f"/v1/_internal_templates/deployment/{_deployed(t)}",
        {},
    ),
    # --- accounts
    "GET /v1/admin/orgs/": lambda t: ("/v1/admin/orgs/", {}),
    "POST /v1/admin/orgs/": lambda t: ("/v1/admin/orgs/", {"json": {"name": t.word()}}),
    "PATCH /v1/admin/orgs/": lambda t: (
        "/v1/admin/orgs/",
        {"params": {"org_id": t.organization()}, "json": {"name": t.word()}},
    ),
    "DELETE /v1/admin/orgs/": lambda t: ("/v1/admin/orgs/", {"params": {"org_id": t.organization()}}),
    "GET /v1/admin/users/": lambda t: ("/v1/admin/users/", {}),
    "POST /v1/admin/users/": lambda t: (
        "/v1/admin/users/",
        {"json": {"name": t.word(), "organization_id": t.organization()}},
    ),
    "PUT /v1/admin/users/": lambda t: ("/v1/admin/users/", {"json": {"id": t.user(), "name": t.word()}}),
    "DELETE /v1/admin/users/": lambda t: ("/v1/admin/users/", {"params": {"user_id": t.user()}}),
    # --- archives, identities, groups
    "GET /v1/archives/{archive_id}/agents": lambda t: (f"/v1/archives/{t.agent_with_archive()[1]}/agents", {}),
    "GET /v1/identities/": lambda t: ("/v1/identities/", {}),
    "POST /v1/identities/": lambda t: ("/v1/identities/", {"json": t.new_identity()}),
    "PUT /v1/identities/": lambda t: ("/v1/identities/", {"json": t.new_identity()}),
    "GET /v1/identities/count": lambda t: ("/v1/identities/count", {}),
    "DELETE /v1/identities/{identity_id}": lambda t: (f"/v1/identities/{t.identity()}", {}),
    "GET /v1/identities/{identity_id}": lambda t: (f"/v1/identities/{t.identity()}", {}),
    "PATCH /v1/identities/{identity_id}": lambda t: (f"/v1/identities/{t.identity()}", {"json": {"name": "Ben"}}),
    "GET /v1/identities/{identity_id}/agents": lambda t: (f"/v1/identities/{t.identity()}/agents", {}),
    "GET /v1/identities/{identity_id}/blocks": lambda t: (f"/v1/identities/{t.identity()}/blocks", {}),
    "PUT /v1/identities/{identity_id}/properties": lambda t: (
        f"/v1/identities/{t.identity()}/properties",
        {"json": [{"key": "k", "value": "v", "type": "string"}]},
    ),
    "GET /v1/groups/": lambda t: ("/v1/groups/", {}),
    "POST /v1/groups/": lambda t: ("/v1/groups/", {"json": {"agent_ids": [t.agent()], "description": "d"}}),
    "GET /v1/groups/count": lambda t: ("/v1/groups/count", {}),
    "DELETE /v1/groups/{group_id}": lambda t: (f"/v1/groups/{t.group()}", {}),
    "GET /v1/groups/{group_id}": lambda t: (f"/v1/groups/{t.group()}", {}),
    "PATCH /v1/groups/{group_id}": lambda t: (f"/v1/groups/{t.group()}", {"json": {"description": "new"}}),
    "PATCH /v1/groups/{group_id}/blocks/attach/{block_id}": lambda t: (
        f"/v1/groups/{t.group()}/blocks/attach/{t.block()}",
        {},
    ),
    "PATCH /v1/groups/{group_id}/blocks/detach/{block_id}": _group_block,
    "GET /v1/groups/{group_id}/messages": lambda t: (f"/v1/groups/{t.group()}/messages", {}),
    "PATCH /v1/groups/{group_id}/messages/{message_id}": lambda t: (
        f"/v1/groups/{t.group()}/messages/{t.talked.message}",
        {"json": {"message_type": "user_message", "content": "x"}},
    ),
    "PATCH /v1/groups/{group_id}/reset-messages": lambda t: (f"/v1/groups/{t.group()}/reset-messages", {}),
    "POST /v1/conversations/{conversation_id}/messages/preview-raw-payload": lambda t: (
        f"/v1/conversations/{t.conversation()}/messages/preview-raw-payload",
        {"json": HELLO},
    ),
    # --- runs, steps, jobs
    "GET /v1/_internal_runs/": lambda t: ("/v1/_internal_runs/", {}),
    "GET /v1/runs/active": lambda t: ("/v1/runs/active", {}),
    "DELETE /v1/runs/{run_id}": lambda t: (f"/v1/runs/{_done_run(t)}", {}),
    "GET /v1/runs/{run_id}/metrics": lambda t: (f"/v1/runs/{t.talked.run}/metrics", {}),
    "PATCH /v1/steps/{step_id}/transaction/{transaction_id}": lambda t: (
        f"/v1/steps/{t.talked.step}/transaction/t1",
        {},
    ),
    "GET /v1/telemetry/{step_id}": lambda t: (f"/v1/telemetry/{t.talked.step}", {}),
    "GET /v1/jobs/": lambda t: ("/v1/jobs/", {}),
    "GET /v1/jobs/active": lambda t: ("/v1/jobs/active", {}),
    "GET /v1/jobs/{job_id}": lambda t: (f"/v1/jobs/{_batch(t)}", {}),
    "PATCH /v1/jobs/{job_id}/cancel": lambda t: (f"/v1/jobs/{_batch(t)}/cancel", {}),
    "DELETE /v1/jobs/{job_id}": lambda t: (f"/v1/jobs/{_batch(t)}", {}),
    # --- batches
    "GET /v1/messages/batches": lambda t: ("/v1/messages/batches", {}),
    "POST /v1/messages/batches": lambda t: (
        "/v1/messages/batches",
        {"json": {"requests": [{"agent_id": t.agent(), **HELLO}]}},
    ),
    "GET /v1/messages/batches/{batch_id}": lambda t: (f"/v1/messages/batches/{_batch(t)}", {}),
    "PATCH /v1/messages/batches/{batch_id}/cancel": lambda t: (f"/v1/messages/batches/{_batch(t)}/cancel", {}),
    "GET /v1/messages/batches/{batch_id}/messages": lambda t: (f"/v1/messages/batches/{_batch(t)}/messages", {}),
    # --- providers
    "GET /v1/providers/": lambda t: ("/v1/providers/", {}),
    "POST /v1/providers/": lambda t: ("/v1/providers/", {"json": {"name": t.word(), **t.provider_body()}}),
    "POST /v1/providers/check": lambda t: ("/v1/providers/check", {"json": t.provider_body()}),
    "GET /v1/providers/{provider_id}": lambda t: (f"/v1/providers/{t.provider()}", {}),
    "PATCH /v1/providers/{provider_id}": lambda t: (f"/v1/providers/{t.provider()}", {"json": {"api_key": "sk-other"}}),
    "DELETE /v1/providers/{provider_id}": lambda t: (f"/v1/providers/{t.provider()}", {}),
    "POST /v1/providers/{provider_id}/check": lambda t: (f"/v1/providers/{t.provider()}/check", {}),
    "PATCH /v1/providers/{provider_id}/refresh": lambda t: (f"/v1/providers/{t.provider()}/refresh", {}),
    # --- tools, MCP servers, sandboxes
    "POST /v1/tools/add-base-tools": lambda t: ("/v1/tools/add-base-tools", {}),
    "GET /v1/tools/count": lambda t: ("/v1/tools/count", {}),
    "POST /v1/tools/generate-schema": lambda t: ("/v1/tools/generate-schema", {"json": {"code": SOURCE}}),
    "POST /v1/tools/run": lambda t: ("/v1/tools/run", {"json": {"source_code": SOURCE, "args": {"text": "x"}}}),
    "GET /v1/tools/mcp/servers": lambda t: ("/v1/tools/mcp/servers", {}),
    "PUT /v1/tools/mcp/servers": lambda t: ("/v1/tools/mcp/servers", {"json": {"server_name": t.word(), **STDIO}}),
    "GET /v1/mcp-servers/connect/{mcp_server_id}": lambda t: (f"/v1/mcp-servers/connect/{t.mcp_tool()[0]}", {}),
    "GET /v1/tools/mcp/oauth/callback": lambda t: ("/v1/tools/mcp/oauth/callback?state=unknown&code=x", {}),
    "POST /v1/tools/mcp/servers/connect": lambda t: (
        "/v1/tools/mcp/servers/connect",
        {"json": {"server_name": "s", "type": "streamable_http", "server_url": t.mcp_url}},
    ),
    "POST /v1/tools/mcp/servers/test": lambda t: (
        "/v1/tools/mcp/servers/test",
        {"json": {"server_name": "s", "type": "streamable_http", "server_url": t.mcp_url}},
    ),
    "POST /v1/tools/mcp/servers/{mcp_server_name}/resync": lambda t: (
        f"/v1/tools/mcp/servers/{t.mcp_server_named()[0]}/resync",
        {},
    ),
    "GET /v1/tools/mcp/servers/{mcp_server_name}/tools": lambda t: (
        f"/v1/tools/mcp/servers/{t.mcp_server_named()[0]}/tools",
        {},
    ),
    "POST /v1/tools/mcp/servers/{mcp_server_name}/tools/{tool_name}/execute": lambda t: (
        "/v1/tools/mcp/servers/{}/tools/{}/execute".format(*t.mcp_server_named()),
        {"json": {"args": {}}},
    ),
    "POST /v1/tools/mcp/servers/{mcp_server_name}/{mcp_tool_name}": lambda t: (
        "/v1/tools/mcp/servers/{}/{}".format(*t.mcp_server_named()),
        {},
    ),
    "DELETE /v1/tools/mcp/servers/{mcp_server_name}": lambda t: (f"/v1/tools/mcp/servers/{t.old_mcp_server()}", {}),
    "PATCH /v1/tools/mcp/servers/{mcp_server_name}": lambda t: (
        f"/v1/tools/mcp/servers/{t.old_mcp_server()}",
        {"json": {"stdio_config": {"server_name": "x", **STDIO}}},
    ),
    "GET /v1/sandbox-config/": lambda t: ("/v1/sandbox-config/", {}),
    "POST /v1/sandbox-config/": lambda t: ("/v1/sandbox-config/", {"json": {"config": {"sandbox_dir": "/tmp/x"}}}),
    "POST /v1/sandbox-config/local": lambda t: ("/v1/sandbox-config/local", {"json": {"sandbox_dir": "/tmp/x"}}),
    "POST /v1/sandbox-config/local/default": lambda t: ("/v1/sandbox-config/local/default", {}),
    "DELETE /v1/sandbox-config/{sandbox_config_id}": lambda t: (f"/v1/sandbox-config/{t.sandbox()}", {}),
    "PATCH /v1/sandbox-config/{sandbox_config_id}": lambda t: (
        f"/v1/sandbox-config/{t.sandbox()}",
        {"json": {"config": {"sandbox_dir": "/tmp/y"}}},
    ),
    "GET /v1/sandbox-config/{sandbox_config_id}/environment-variable": lambda t: (_variables(t.sandbox()), {}),
    "POST /v1/sandbox-config/{sandbox_config_id}/environment-variable": lambda t: (
        _variables(t.sandbox()),
        {"json": {"key": t.word(), "value": "v"}},
    ),
    "PATCH /v1/sandbox-config/environment-variable/{env_var_id}": lambda t: (
        f"/v1/sandbox-config/environment-variable/{t.sandbox_variable()}",
        {"json": {"value": "new"}},
    ),
    "DELETE /v1/sandbox-config/environment-variable/{env_var_id}": lambda t: (
        f"/v1/sandbox-config/environment-variable/{t.sandbox_variable()}",
        {},
    ),
}
