"""The schema, once, for every dialect. Times are integers (microseconds UTC); values that no query filters on are
JSON.
"""

from kelpie.search import tables as search
from kelpie.storage.tables.accounts import (
    access_token_agents,
    access_tokens,
    api_keys,
    organizations,
    providers,
    sessions,
    users,
)
from kelpie.storage.tables.agents import agent_file_parts, agent_head, agent_secrets, agent_tags, agents, nodes
from kelpie.storage.tables.archives import agent_archives, archives, passage_tags, passages
from kelpie.storage.tables.blocks import agent_blocks, block_history, block_tags, blocks
from kelpie.storage.tables.conversations import client_turns, conversation_blocks, conversation_shares, conversations
from kelpie.storage.tables.encryption import encryption_keys
from kelpie.storage.tables.files import agent_folders, file_passages, file_views, files, folders
from kelpie.storage.tables.groups import group_agents, group_blocks, groups
from kelpie.storage.tables.history import (
    approvals,
    batch_items,
    context,
    jobs,
    journal,
    messages,
    runs,
    step_tags,
    step_traces,
    steps,
)
from kelpie.storage.tables.identities import agent_identities, block_identities, identities
from kelpie.storage.tables.memory import (
    entities,
    fact_sources,
    fact_states,
    facts,
    working_memory,
    working_memory_heads,
)
from kelpie.storage.tables.metadata import metadata
from kelpie.storage.tables.permissions import tool_calls, tool_policies
from kelpie.storage.tables.projects import project_agents, project_tags, projects
from kelpie.storage.tables.streams import run_events, run_otids
from kelpie.storage.tables.templates import agent_variables, template_versions, templates
from kelpie.storage.tables.tools import (
    agent_tools,
    mcp_oauth,
    mcp_servers,
    mcp_tasks,
    mcp_tools,
    sandbox_configs,
    sandbox_variables,
    tool_tags,
    tools,
)
from kelpie.storage.tables.triggers import firings, hooks, schedules
from kelpie.storage.tables.usage import (
    memory_change_parts,
    memory_changes,
    organization_quotas,
    organization_usage,
    removed_agents,
)

for _table in search.metadata.sorted_tables:
    _table.to_metadata(metadata)

__all__ = [
    "access_token_agents",
    "access_tokens",
    "agent_archives",
    "agent_blocks",
    "agent_file_parts",
    "agent_folders",
    "agent_head",
    "agent_identities",
    "agent_secrets",
    "agent_tags",
    "agent_tools",
    "agent_variables",
    "agents",
    "api_keys",
    "approvals",
    "archives",
    "batch_items",
    "block_history",
    "block_identities",
    "block_tags",
    "blocks",
    "client_turns",
    "context",
    "conversation_blocks",
    "conversation_shares",
    "conversations",
    "encryption_keys",
    "entities",
    "fact_sources",
    "fact_states",
    "facts",
    "file_passages",
    "file_views",
    "files",
    "firings",
    "folders",
    "group_agents",
    "group_blocks",
    "groups",
    "hooks",
    "identities",
    "jobs",
    "journal",
    "mcp_oauth",
    "mcp_servers",
    "mcp_tasks",
    "mcp_tools",
    "memory_change_parts",
    "memory_changes",
    "messages",
    "metadata",
    "nodes",
    "organization_quotas",
    "organization_usage",
    "organizations",
    "passage_tags",
    "passages",
    "project_agents",
    "project_tags",
    "projects",
    "providers",
    "removed_agents",
    "run_events",
    "run_otids",
    "runs",
    "sandbox_configs",
    "sandbox_variables",
    "schedules",
    "sessions",
    "step_tags",
    "step_traces",
    "steps",
    "template_versions",
    "templates",
    "tool_calls",
    "tool_policies",
    "tool_tags",
    "tools",
    "users",
    "working_memory",
    "working_memory_heads",
]
