"""The scenarios, by name."""

from kelpie.sim.runs.scenario import Scenario
from kelpie.sim.scenarios.api_model.tenants import (
    API_ACCESS,
    API_FIELDS,
    API_LIMITS,
    API_MEMORY,
    API_RECORDS,
    API_TURNS,
)
from kelpie.sim.scenarios.basic.all_faults import EVERYTHING
from kelpie.sim.scenarios.basic.clock_faults import CLOCKS
from kelpie.sim.scenarios.basic.commit_groups import DISK_FULL
from kelpie.sim.scenarios.basic.crashes import ANYWHERE, EVERY_POINT
from kelpie.sim.scenarios.basic.failed_commits import FAILED_COMMITS
from kelpie.sim.scenarios.basic.many_messages import LARGE_AGENTS, MANY_AGENTS, ONE_AGENT
from kelpie.sim.scenarios.basic.model_faults import ABSENT, FALLBACKS, LLM_FAULTS, MODEL_SERVER, NETWORK
from kelpie.sim.scenarios.basic.slow_clients import CLIENTS
from kelpie.sim.scenarios.basic.storage_faults import CONVERSATIONS
from kelpie.sim.scenarios.basic.two_servers import RIVALS
from kelpie.sim.scenarios.cell_setup import SANDBOXED
from kelpie.sim.scenarios.mcp.broken_servers import BROKEN
from kelpie.sim.scenarios.mcp.questions import QUESTIONS
from kelpie.sim.scenarios.mcp.shared_programs import PROGRAMS
from kelpie.sim.scenarios.mcp.tasks import TASKS
from kelpie.sim.scenarios.mcp.tokens import TOKENS
from kelpie.sim.scenarios.mcp.tool_lists import LISTS
from kelpie.sim.scenarios.memory.agent_files import AGENT_FILES
from kelpie.sim.scenarios.memory.archives import EMBEDDINGS, PASSAGES, PROCESS
from kelpie.sim.scenarios.memory.block_history import BLOCK_HISTORY
from kelpie.sim.scenarios.memory.corruption import CORRUPTION
from kelpie.sim.scenarios.memory.facts import LEARNING
from kelpie.sim.scenarios.memory.file_uploads import FILE_UPLOADS
from kelpie.sim.scenarios.memory.long_changes import LONG_CHANGES
from kelpie.sim.scenarios.memory.memory_tools import MEMORY_CRASHES, VECTOR_SEARCH
from kelpie.sim.scenarios.memory.restores import RESTORES
from kelpie.sim.scenarios.memory.shared_blocks import SHARED
from kelpie.sim.scenarios.memory.working_memory import WORKINGS
from kelpie.sim.scenarios.records.agent_records import HOUSEHOLDS
from kelpie.sim.scenarios.records.archive_records import RECORDS
from kelpie.sim.scenarios.records.conversation_records import THREADS
from kelpie.sim.scenarios.records.credentials import CREDENTIALS
from kelpie.sim.scenarios.records.dashboard_sessions import DASHBOARD_SESSIONS
from kelpie.sim.scenarios.records.own_providers import OWN_PROVIDERS
from kelpie.sim.scenarios.records.projects import PROJECTS
from kelpie.sim.scenarios.records.secrets import SECRETS
from kelpie.sim.scenarios.records.templates import TEMPLATES
from kelpie.sim.scenarios.records.tool_records import TOOLBOXES
from kelpie.sim.scenarios.records.unknown_outcomes import CUT_OFF, DOUBTS
from kelpie.sim.scenarios.tools.agent_messages import CORRESPONDENCE
from kelpie.sim.scenarios.tools.fairness import FLOODED, FLOODED_SLOT
from kelpie.sim.scenarios.tools.mcp_clients import MCP_CLIENTS
from kelpie.sim.scenarios.tools.permissions import PERMITS
from kelpie.sim.scenarios.tools.quotas import ALLOWANCES
from kelpie.sim.scenarios.tools.tool_callbacks import CALLBACKS
from kelpie.sim.scenarios.tools.tool_changes import RENEWALS
from kelpie.sim.scenarios.tools.web_tools import WEB
from kelpie.sim.scenarios.triggers.schedules import SCHEDULED_BATCHES, SCHEDULES, TWO_SCHEDULERS
from kelpie.sim.scenarios.turns.abandoned_jobs import ABANDONED
from kelpie.sim.scenarios.turns.approval_expiry import EXPIRING
from kelpie.sim.scenarios.turns.approvals import WAITING
from kelpie.sim.scenarios.turns.background_runs import BACKGROUND
from kelpie.sim.scenarios.turns.batches import BATCHES
from kelpie.sim.scenarios.turns.budgets import BUDGETS
from kelpie.sim.scenarios.turns.cancelling import CANCELLING, RESUMING
from kelpie.sim.scenarios.turns.client_histories import CLIENT_HISTORIES
from kelpie.sim.scenarios.turns.compaction import WINDOWS
from kelpie.sim.scenarios.turns.conversations_at_once import LANES
from kelpie.sim.scenarios.turns.deletions import REMOVALS
from kelpie.sim.scenarios.turns.pauses import RESTS
from kelpie.sim.scenarios.turns.start_and_stop import LIFECYCLE
from kelpie.sim.scenarios.turns.tool_rules import RULINGS
from kelpie.sim.scenarios.turns.usage import USAGE

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        CONVERSATIONS,
        EVERY_POINT,
        FAILED_COMMITS,
        ANYWHERE,
        DISK_FULL,
        LLM_FAULTS,
        NETWORK,
        FALLBACKS,
        MODEL_SERVER,
        ABSENT,
        ONE_AGENT,
        MANY_AGENTS,
        LARGE_AGENTS,
        CLIENTS,
        CLOCKS,
        SHARED,
        BLOCK_HISTORY,
        RECORDS,
        PASSAGES,
        EMBEDDINGS,
        PROCESS,
        VECTOR_SEARCH,
        MEMORY_CRASHES,
        CORRUPTION,
        HOUSEHOLDS,
        AGENT_FILES,
        FILE_UPLOADS,
        TEMPLATES,
        PROJECTS,
        THREADS,
        LANES,
        TOOLBOXES,
        SANDBOXED,
        FLOODED,
        FLOODED_SLOT,
        CALLBACKS,
        WEB,
        MCP_CLIENTS,
        BROKEN,
        PROGRAMS,
        TASKS,
        QUESTIONS,
        LISTS,
        TOKENS,
        RENEWALS,
        RULINGS,
        CORRESPONDENCE,
        CREDENTIALS,
        DASHBOARD_SESSIONS,
        SECRETS,
        OWN_PROVIDERS,
        DOUBTS,
        CUT_OFF,
        CANCELLING,
        RESUMING,
        ABANDONED,
        WAITING,
        EXPIRING,
        RESTS,
        BUDGETS,
        USAGE,
        PERMITS,
        ALLOWANCES,
        LEARNING,
        LIFECYCLE,
        REMOVALS,
        RIVALS,
        BATCHES,
        SCHEDULES,
        TWO_SCHEDULERS,
        SCHEDULED_BATCHES,
        BACKGROUND,
        CLIENT_HISTORIES,
        WINDOWS,
        WORKINGS,
        LONG_CHANGES,
        RESTORES,
        API_MEMORY,
        API_TURNS,
        API_FIELDS,
        API_LIMITS,
        API_ACCESS,
        API_RECORDS,
        EVERYTHING,
    )
}
