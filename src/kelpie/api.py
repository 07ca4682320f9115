"""The API of one caller: a resource for each kind of record, every one of which sees the caller's organization only.

An endpoint gets the API of its request's caller, so it cannot leave the scope. Code that works for no caller in
particular (recovery, activations) must use the storage itself.
"""

from dataclasses import replace
from functools import cached_property

from kelpie.accounts.access_tokens import AccessTokens
from kelpie.accounts.api_keys import ApiKeys
from kelpie.accounts.identities import Identities
from kelpie.accounts.organization_database import OrganizationDatabase
from kelpie.accounts.organization_spending import OrganizationSpending
from kelpie.accounts.organization_usage import OrganizationUsages
from kelpie.accounts.organizations import Organizations
from kelpie.accounts.providers import Providers
from kelpie.accounts.stored_data import StoredData
from kelpie.accounts.users import Users
from kelpie.agent.client_histories.client_histories import ClientHistories
from kelpie.agent.inbox.background_runs import BackgroundRuns
from kelpie.agent.inbox.cancel import Cancellations
from kelpie.agent.inbox.send import MessageSender
from kelpie.agent.resources.agent_file_exports import AgentFileExports
from kelpie.agent.resources.agent_file_imports import AgentFileImports
from kelpie.agent.resources.agents import Agents
from kelpie.agent.resources.checkpoints import Checkpoints
from kelpie.agent.resources.context_windows import ContextWindows
from kelpie.agent.resources.conversations import Conversations
from kelpie.agent.resources.deployments import Deployments
from kelpie.agent.resources.groups import Groups
from kelpie.agent.resources.histories import Histories
from kelpie.agent.resources.id_prefixes import IdPrefixes
from kelpie.agent.resources.jobs import Jobs
from kelpie.agent.resources.manual_tool_runs import ManualToolRuns
from kelpie.agent.resources.message_search import MessageSearcher
from kelpie.agent.resources.model_previews import ModelPreviews
from kelpie.agent.resources.pending_approvals import PendingApprovals
from kelpie.agent.resources.projects import Projects
from kelpie.agent.resources.runs import Runs
from kelpie.agent.resources.tags import Tags
from kelpie.agent.templates.migration import Migration
from kelpie.agent.templates.templates import Templates
from kelpie.batches.batches import Batches
from kelpie.core.access.callers import Caller
from kelpie.encryption.rotation import KeyRotation
from kelpie.files.attached_files import AttachedFiles
from kelpie.files.folders import Folders
from kelpie.memory.archives import Archives
from kelpie.memory.block_history import BlockHistory
from kelpie.memory.blocks import Blocks
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.facts import Facts
from kelpie.memory.working_memory import WorkingMemory
from kelpie.runtime import Runtime
from kelpie.tools.mcp.logins import McpLogins
from kelpie.tools.mcp.tasks import McpTasks
from kelpie.tools.registry.mcp_servers import McpServers, ServerRules
from kelpie.tools.registry.permissions import Permissions
from kelpie.tools.registry.registry import Tools
from kelpie.tools.registry.sandbox_configs import SandboxConfigs
from kelpie.tools.registry.writes import ensure_builtins
from kelpie.triggers.schedules import Schedules
from kelpie.triggers.webhooks import Webhooks


class Api:
    """Resources that one caller may reach. Each is made when it is first used."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self.caller = caller
        database = OrganizationDatabase(
            runtime.world.database, caller.organization_id, runtime.quotas, runtime.memory_gate
        )
        self.world = replace(runtime.world, database=database)
        self.settings = runtime.settings
        self.models = runtime.models.of(caller.organization_id)
        self.sandbox = runtime.sandbox
        self.encoded_tools = runtime.encoded_tools
        self.encoded_messages = runtime.encoded_messages
        self._runtime = runtime

    # --- agents --------------------------------------------------------------------------------------------------

    @cached_property
    def agents(self) -> Agents:
        shared = self._runtime
        return Agents(
            self.world,
            self.models,
            shared.dispatcher,
            shared.live_agents,
            shared.recovery,
            shared.pauses,
            self.settings,
            shared.piece_size,
            self.caller,
        )

    @cached_property
    def agent_file_exports(self) -> AgentFileExports:
        return AgentFileExports(self.world, self.settings, self.caller)

    @cached_property
    def agent_file_imports(self) -> AgentFileImports:
        shared = self._runtime
        return AgentFileImports(
            self.world,
            self.models,
            self.settings,
            self.agents,
            self.tools,
            self.mcp_servers,
            shared.live_agents,
            shared.staged_agents,
            shared.piece_size,
            shared.file_processing.wake,
            self.caller,
        )

    @cached_property
    def checkpoints(self) -> Checkpoints:
        shared = self._runtime
        return Checkpoints(
            self.world,
            self.settings,
            shared.active_turns,
            shared.live_agents,
            shared.memory_changes,
            shared.quotas,
            self.caller,
        )

    @cached_property
    def deployments(self) -> Deployments:
        return Deployments(self.world, self.agents, self.blocks, self.groups, self.caller)

    @cached_property
    def groups(self) -> Groups:
        shared = self._runtime
        return Groups(self.world, shared.live_agents, self.sending, shared.running_chats, self.caller)

    @cached_property
    def projects(self) -> Projects:
        return Projects(self.world, self.agents, self._runtime.live_agents, self.caller)

    @cached_property
    def tags(self) -> Tags:
        return Tags(self.world.database, self.caller)

    @cached_property
    def templates(self) -> Templates:
        return Templates(self.world, self.agent_file_imports, self._runtime.live_agents, self.caller)

    @cached_property
    def template_migration(self) -> Migration:
        shared = self._runtime
        return Migration(
            self.world, self.settings, self.agents, self.agent_file_imports, shared.live_agents, self.caller
        )

    # --- messages and runs ---------------------------------------------------------------------------------------

    @cached_property
    def sending(self) -> MessageSender:
        shared = self._runtime
        return MessageSender(
            self.world,
            self.models,
            shared.dispatcher,
            shared.active_turns,
            shared.wait_graph,
            self.settings,
            self.caller,
        )

    @cached_property
    def background_runs(self) -> BackgroundRuns:
        shared = self._runtime
        return BackgroundRuns(
            self.world,
            self.models,
            self.settings,
            shared.run_queue,
            shared.run_notifier,
            shared.quotas,
            self.caller,
            shared.stream_page,
        )

    @cached_property
    def cancellations(self) -> Cancellations:
        shared = self._runtime
        # What a cancelled turn has done is stored, whatever the quota.
        return Cancellations(shared.world, shared.dispatcher, shared.active_turns, shared.run_notifier, self.caller)

    @cached_property
    def batches(self) -> Batches:
        return Batches(
            self.world, self.models, self.settings, self._runtime.batch_runner, self.cancellations, self.caller
        )

    @cached_property
    def client_histories(self) -> ClientHistories:
        return ClientHistories(self.world, self.conversations, self.caller)

    @cached_property
    def context_windows(self) -> ContextWindows:
        return ContextWindows(self.world, self._runtime.dispatcher, self.caller)

    @cached_property
    def conversations(self) -> Conversations:
        shared = self._runtime
        return Conversations(self.world, self.models, shared.live_agents, shared.active_turns, self.caller)

    @cached_property
    def histories(self) -> Histories:
        shared = self._runtime
        return Histories(self.world, self.agents, shared.live_agents, shared.memory_changes, self.caller)

    @cached_property
    def id_prefixes(self) -> IdPrefixes:
        return IdPrefixes(self.world.database, self.caller)

    @cached_property
    def jobs(self) -> Jobs:
        return Jobs(self.world, self.caller)

    @cached_property
    def message_search(self) -> MessageSearcher:
        return MessageSearcher(self.world, self._runtime.embeddings, self.caller)

    @cached_property
    def model_previews(self) -> ModelPreviews:
        return ModelPreviews(self.world, self.models, self.settings, self.caller)

    @cached_property
    def pending_approvals(self) -> PendingApprovals:
        return PendingApprovals(self.world.database, self.caller)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self.world.database, self._runtime.turn_dependencies.traces, self.caller)

    @cached_property
    def schedules(self) -> Schedules:
        return Schedules(self.world, self.models, self.settings, self._runtime.scheduler.wake, self.caller)

    @cached_property
    def spending(self) -> OrganizationSpending:
        return OrganizationSpending(self.world.database, self.caller)

    @cached_property
    def webhooks(self) -> Webhooks:
        forget = self._runtime.authenticator.forget
        return Webhooks(self.world, self.settings, self.background_runs, forget, self.caller)

    # --- memory --------------------------------------------------------------------------------------------------

    @cached_property
    def archives(self) -> Archives:
        shared = self._runtime
        return Archives(self.world, self.models, shared.embeddings, shared.piece_size, self.caller)

    @property
    def embeddings(self) -> Embeddings:
        return self._runtime.embeddings

    @cached_property
    def block_history(self) -> BlockHistory:
        return BlockHistory(self.world, self._runtime.live_agents.reload, self.settings.block_rules, self.caller)

    @cached_property
    def blocks(self) -> Blocks:
        return Blocks(self.world, self._runtime.live_agents.reload, self.settings.block_rules, self.caller)

    @cached_property
    def attached_files(self) -> AttachedFiles:
        return AttachedFiles(self.world, self._runtime.live_agents.reload, self.caller)

    @cached_property
    def folders(self) -> Folders:
        shared = self._runtime
        return Folders(
            self.world,
            self.models,
            shared.embeddings,
            shared.live_agents.reload,
            shared.file_processing.wake,
            shared.piece_size,
            self.caller,
        )

    @cached_property
    def facts(self) -> Facts:
        return Facts(self.world, self._runtime.embeddings, self.caller)

    @cached_property
    def working_memory(self) -> WorkingMemory:
        return WorkingMemory(self.world, self.settings, self.caller)

    # --- tools ---------------------------------------------------------------------------------------------------

    @cached_property
    def manual_tool_runs(self) -> ManualToolRuns:
        shared = self._runtime
        return ManualToolRuns(shared.turn_dependencies, shared.custom_tools, self.caller, self.settings.sandbox_caps)

    @cached_property
    def mcp_servers(self) -> McpServers:
        shared, settings = self._runtime, self.settings
        rules = ServerRules(settings.mcp_private, settings.mcp_directories)
        return McpServers(self.world, shared.mcp_pool, rules, shared.live_agents.reload, self.caller)

    @cached_property
    def mcp_logins(self) -> McpLogins:
        return McpLogins(self.world, self._runtime.mcp_pool, self._runtime.mcp_tokens, self.caller)

    @cached_property
    def mcp_tasks(self) -> McpTasks:
        return McpTasks(self.world, self._runtime.mcp_pool, self._runtime.mcp_tool_runner.task_due, self.caller)

    @cached_property
    def permissions(self) -> Permissions:
        return Permissions(self.world, self.settings.policy, self._runtime.live_agents.reload_all, self.caller)

    @cached_property
    def sandbox_configs(self) -> SandboxConfigs:
        return SandboxConfigs(self.world, self.caller)

    @cached_property
    def tools(self) -> Tools:
        shared, runner = self._runtime, self._runtime.custom_tools
        prepare = None if runner is None else runner.prepare
        return Tools(
            self.world, shared.embeddings, shared.live_agents.reload, self.caller, prepare, self.settings.sandbox_caps
        )

    # --- accounts ------------------------------------------------------------------------------------------------

    @cached_property
    def access_tokens(self) -> AccessTokens:
        return AccessTokens(self.world, self._runtime.authenticator.forget, self.caller)

    @cached_property
    def api_keys(self) -> ApiKeys:
        return ApiKeys(self.world, self._runtime.authenticator.forget, self.caller)

    @cached_property
    def identities(self) -> Identities:
        return Identities(self.world, self.caller)

    @cached_property
    def organizations(self) -> Organizations:
        return Organizations(
            self.world, ensure_builtins, self._runtime.authenticator.forget, self._runtime.share, self.caller
        )

    @cached_property
    def providers(self) -> Providers:
        return Providers(self.world, self.models, private=self.settings.provider_private, caller=self.caller)

    @property
    def key_rotation(self) -> KeyRotation:
        return self._runtime.key_rotation

    @cached_property
    def usage(self) -> OrganizationUsages:
        return OrganizationUsages(self._runtime.world, self._runtime.quotas, self._runtime.disk_usage, self.caller)

    @cached_property
    def stored_data(self) -> StoredData:
        return StoredData(self.world, self.caller)

    @cached_property
    def users(self) -> Users:
        return Users(self.world, self._runtime.authenticator.forget, self.caller)
