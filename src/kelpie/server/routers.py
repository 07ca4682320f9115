"""The routers of all resources, in the order in which a request is compared with them."""

from kelpie.server.http.routing.lazy_routers import LazyRouter
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.server.kelpie import agents as agent_care
    from kelpie.server.kelpie import (
        approvals,
        block_history,
        checkpoints,
        facts,
        ids,
        keys,
        permissions,
        projects,
        prompts,
        spending,
        working_memory,
    )
    from kelpie.server.kelpie import mcp as mcp_connections
    from kelpie.server.kelpie import models as model_care
    from kelpie.server.kelpie import runs as run_records
    from kelpie.server.kelpie.operations import data, encryption, health, sandbox, usage
    from kelpie.server.kelpie.operations import logs as recent_logs
    from kelpie.server.kelpie.triggers import hooks, schedules
    from kelpie.server.letta.accounts import access_token_routes, admin_routes, auth_routes
    from kelpie.server.letta.agent_files import routes as agent_files
    from kelpie.server.letta.agents import block_routes, identity_routes, tag_routes, template_routes
    from kelpie.server.letta.agents import folder_routes as agent_folders
    from kelpie.server.letta.agents import internal_routes as internal_agent_routes
    from kelpie.server.letta.agents import routes as agents
    from kelpie.server.letta.agents import tool_routes as agent_tool_routes
    from kelpie.server.letta.archives import passage_routes
    from kelpie.server.letta.archives import routes as archives
    from kelpie.server.letta.batches import agent_routes as agent_batches
    from kelpie.server.letta.batches import routes as batches
    from kelpie.server.letta.blocks import routes as blocks
    from kelpie.server.letta.compatibility import environment_routes, health_routes
    from kelpie.server.letta.conversations import background_routes, cancel_routes, preview_routes, window_routes
    from kelpie.server.letta.conversations import routes as conversations
    from kelpie.server.letta.folders import routes as folders
    from kelpie.server.letta.folders import source_routes as sources
    from kelpie.server.letta.groups import message_routes
    from kelpie.server.letta.groups import routes as groups
    from kelpie.server.letta.identities import routes as identities
    from kelpie.server.letta.mcp import login_routes as mcp_login_routes
    from kelpie.server.letta.mcp import routes as mcp_servers
    from kelpie.server.letta.mcp import routes_by_name as mcp_servers_by_name
    from kelpie.server.letta.message_search import routes as messages_search
    from kelpie.server.letta.messages import routes as messages
    from kelpie.server.letta.models import routes as models
    from kelpie.server.letta.providers import routes as providers
    from kelpie.server.letta.runs import internal_routes, job_routes, step_routes
    from kelpie.server.letta.runs import routes as runs
    from kelpie.server.letta.schedules import routes as agent_schedules
    from kelpie.server.letta.templates import routes as templates
    from kelpie.server.letta.tools import routes as tools
    from kelpie.server.letta.tools import run_routes, sandbox_routes
    from kelpie.server.mcp import routes as mcp
    from kelpie.server.openai import chat_routes, embedding_routes, model_routes, response_routes


ROUTERS = (
    # The first stand before routes that would take `batch` and `batches` for an id.
    LazyRouter(lambda: batches.router, "/v1/agents/*/messages/batch", "/v1/messages/batches"),
    LazyRouter(lambda: batches.kelpie_router, "/v1/kelpie/batches"),
    LazyRouter(lambda: agent_batches.router, "/v1/agents/batch"),
    LazyRouter(lambda: messages.router, "/v1/agents/*/messages", "/v1/messages/*"),
    LazyRouter(lambda: health_routes.router, "/v1/health", "/v1/ready"),
    LazyRouter(
        lambda: messages_search.router,
        "/v1/_internal_search/cache-warm",
        "/v1/agents/*/messages/capture",
        "/v1/agents/messages/search",
        "/v1/messages",
    ),
    LazyRouter(lambda: templates.agent_router, "/v1/agents"),
    LazyRouter(lambda: agents.router, "/v1/agents"),
    LazyRouter(lambda: block_routes.router, "/v1/agents/*/blocks", "/v1/agents/*/core-memory/blocks"),
    LazyRouter(lambda: block_routes.block_router, "/v1/blocks/*/agents"),
    LazyRouter(lambda: run_routes.agent_router, "/v1/agents/*/tools/*/run"),
    LazyRouter(lambda: agent_tool_routes.router, "/v1/agents/*/tools"),
    LazyRouter(lambda: archives.agent_router, "/v1/agents/*/archives"),
    LazyRouter(lambda: agent_folders.folder_router, "/v1/agents/*/folders"),
    LazyRouter(lambda: agent_folders.source_router, "/v1/agents/*/sources"),
    LazyRouter(lambda: agent_folders.file_router, "/v1/agents/*/files"),
    LazyRouter(lambda: passage_routes.agent_router, "/v1/agents/*/archival-memory"),
    LazyRouter(lambda: passage_routes.embedding_router, "/v1/embeddings/total_storage_size"),
    LazyRouter(lambda: working_memory.router, "/v1/agents/*/working-memory"),
    LazyRouter(lambda: checkpoints.router, "/v1/agents/*/memory"),
    LazyRouter(lambda: agent_files.router, "/v1/agents/*/export", "/v1/agents/import"),
    LazyRouter(lambda: identity_routes.router, "/v1/agents/*/identities"),
    LazyRouter(lambda: identity_routes.identity_router, "/v1/identities/*/agents"),
    LazyRouter(
        lambda: window_routes.router, "/v1/agents/*/context", "/v1/agents/*/summarize", "/v1/conversations/*/compact"
    ),
    LazyRouter(lambda: identities.block_router, "/v1/blocks/*/identities"),
    LazyRouter(lambda: blocks.router, "/v1/blocks"),
    LazyRouter(lambda: block_history.router, "/v1/blocks/*/diff", "/v1/blocks/*/history", "/v1/blocks/*/rollback"),
    LazyRouter(lambda: data.router, "/v1/kelpie/data"),
    LazyRouter(lambda: mcp_servers_by_name.router, "/v1/tools/mcp/servers"),
    LazyRouter(lambda: run_routes.router, "/v1/tools/run"),
    LazyRouter(lambda: tools.router, "/v1/tools"),
    LazyRouter(lambda: mcp_login_routes.router, "/v1/mcp-servers/connect/*"),
    LazyRouter(
        lambda: mcp_login_routes.oauth_router,
        "/v1/tools/mcp/oauth",
        "/v1/tools/mcp/servers/connect",
    ),
    LazyRouter(lambda: mcp_servers.router, "/v1/mcp-servers"),
    LazyRouter(lambda: sandbox_routes.router, "/v1/sandbox-config"),
    LazyRouter(lambda: internal_agent_routes.agent_router, "/v1/_internal_agents"),
    LazyRouter(lambda: internal_agent_routes.block_router, "/v1/_internal_blocks"),
    LazyRouter(
        lambda: template_routes.router,
        "/v1/_internal_templates/agents",
        "/v1/_internal_templates/blocks",
        "/v1/_internal_templates/deployment/*",
        "/v1/_internal_templates/groups",
    ),
    LazyRouter(lambda: templates.router, "/v1/templates"),
    LazyRouter(lambda: environment_routes.router, "/v1/environments"),
    LazyRouter(lambda: runs.router, "/v1/runs"),
    LazyRouter(lambda: internal_routes.router, "/v1/_internal_runs"),
    LazyRouter(lambda: step_routes.router, "/v1/steps"),
    LazyRouter(lambda: step_routes.telemetry_router, "/v1/telemetry/*"),
    LazyRouter(lambda: cancel_routes.router, "/v1/agents/*/messages/cancel", "/v1/conversations/*/cancel"),
    LazyRouter(lambda: conversations.router, "/v1/conversations"),
    LazyRouter(
        lambda: background_routes.router,
        "/v1/agents/*/messages/async",
        "/v1/conversations/*/stream",
        "/v1/runs/*/stream",
    ),
    LazyRouter(lambda: groups.agent_router, "/v1/agents/*/groups"),
    LazyRouter(
        lambda: preview_routes.router,
        "/v1/agents/*/generate",
        "/v1/agents/*/messages/preview-raw-payload",
        "/v1/conversations/*/messages/preview-raw-payload",
    ),
    LazyRouter(lambda: groups.router, "/v1/groups"),
    LazyRouter(lambda: message_routes.router, "/v1/groups/*/messages"),
    LazyRouter(lambda: job_routes.router, "/v1/jobs"),
    LazyRouter(lambda: archives.router, "/v1/archives"),
    LazyRouter(lambda: folders.router, "/v1/folders"),
    LazyRouter(lambda: sources.router, "/v1/sources"),
    LazyRouter(lambda: passage_routes.router, "/v1/passages/search"),
    LazyRouter(lambda: identities.router, "/v1/identities"),
    LazyRouter(lambda: tag_routes.router, "/v1/tags"),
    LazyRouter(lambda: models.router, "/v1/models"),
    LazyRouter(lambda: providers.router, "/v1/providers"),
    LazyRouter(lambda: model_care.router, "/v1/kelpie/models"),
    LazyRouter(lambda: mcp_connections.router, "/v1/kelpie/mcp-servers"),
    LazyRouter(lambda: mcp_connections.task_router, "/v1/kelpie/mcp-tasks"),
    LazyRouter(lambda: agent_schedules.router, "/v1/agents/*/schedule"),
    LazyRouter(lambda: schedules.router, "/v1/kelpie/schedules"),
    LazyRouter(lambda: schedules.firing_router, "/v1/kelpie/firings"),
    LazyRouter(lambda: hooks.router, "/v1/agents/*/hooks"),
    LazyRouter(lambda: hooks.all_router, "/v1/kelpie/hooks"),
    LazyRouter(lambda: hooks.delivery_router, "/v1/hooks/*"),
    LazyRouter(lambda: projects.router, "/v1/projects"),
    LazyRouter(lambda: admin_routes.organization_router, "/v1/admin/orgs"),
    LazyRouter(lambda: admin_routes.user_router, "/v1/admin/users"),
    LazyRouter(lambda: access_token_routes.router, "/v1/client-side-access-tokens"),
    LazyRouter(lambda: auth_routes.router, "/v1/auth"),
    LazyRouter(lambda: agent_care.router, "/v1/kelpie/agents/repair"),
    LazyRouter(lambda: approvals.router, "/v1/kelpie/approvals"),
    LazyRouter(lambda: approvals.agent_router, "/v1/agents/*/approvals"),
    LazyRouter(lambda: ids.router, "/v1/kelpie/ids"),
    LazyRouter(lambda: prompts.router, "/v1/kelpie/agents/*/prompt", "/v1/kelpie/steps/*/prompt"),
    LazyRouter(lambda: run_records.router, "/v1/kelpie/runs"),
    LazyRouter(lambda: keys.router, "/v1/kelpie/keys"),
    LazyRouter(lambda: spending.router, "/v1/kelpie/agents/*/spending"),
    LazyRouter(lambda: spending.sum_router, "/v1/kelpie/spending"),
    LazyRouter(lambda: spending.budget_router, "/v1/kelpie/budgets"),
    LazyRouter(lambda: facts.router, "/v1/agents/*/entities", "/v1/agents/*/facts"),
    LazyRouter(
        lambda: permissions.router, "/v1/agents/*/limits", "/v1/agents/*/permissions", "/v1/agents/*/tool-calls"
    ),
    LazyRouter(lambda: encryption.router, "/v1/kelpie/encryption"),
    LazyRouter(lambda: permissions.registry, "/v1/kelpie/policy", "/v1/kelpie/tools"),
    LazyRouter(lambda: sandbox.router, "/v1/kelpie/sandbox"),
    LazyRouter(lambda: health.router, "/v1/kelpie/health"),
    LazyRouter(lambda: recent_logs.router, "/v1/kelpie/logs"),
    LazyRouter(lambda: usage.router, "/v1/kelpie/usage"),
    LazyRouter(lambda: usage.quota_router, "/v1/kelpie/quotas/*"),
    LazyRouter(lambda: mcp.router, "/mcp"),
    LazyRouter(lambda: chat_routes.router, "/openai/v1/chat/completions"),
    LazyRouter(lambda: chat_routes.letta_router, "/v1/chat/completions"),
    LazyRouter(lambda: response_routes.router, "/openai/v1/responses"),
    LazyRouter(lambda: embedding_routes.router, "/openai/v1/embeddings"),
    LazyRouter(lambda: model_routes.router, "/openai/v1/models"),
    LazyRouter(lambda: model_routes.letta_router, "/v1/models"),
)
