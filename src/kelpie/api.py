"""The API of one caller: a resource for each kind of record, every one of which sees the caller's organization only.

An endpoint gets the API of its request's caller, so it cannot leave the scope. Code that works for no caller in
particular (recovery, activations) must use the storage itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from kelpie.accounts.quotas.organization_database import OrganizationDatabase
from kelpie.core.access.callers import Caller
from kelpie.encryption.rotation import KeyRotation
from kelpie.memory.embeddings import Embeddings
from kelpie.runtime import Runtime
from kelpie.tools.registry.writes import ensure_builtins
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.accounts import access_tokens as _access_tokens
    from kelpie.accounts import api_keys as _api_keys
    from kelpie.accounts import identities as _identities
    from kelpie.accounts import organizations as _organizations
    from kelpie.accounts import providers as _providers
    from kelpie.accounts import stored_data as _stored_data
    from kelpie.accounts import users as _users
    from kelpie.accounts.quotas import organization_spending as _organization_spending
    from kelpie.accounts.quotas import organization_usage as _organization_usage
    from kelpie.agent.client_histories import client_histories as _client_histories
    from kelpie.agent.inbox import background_runs as _background_runs
    from kelpie.agent.inbox import cancel as _cancel
    from kelpie.agent.inbox import send as _send
    from kelpie.agent.resources import agent_file_exports as _agent_file_exports
    from kelpie.agent.resources import agent_file_imports as _agent_file_imports
    from kelpie.agent.resources import agents as _agents
    from kelpie.agent.resources import checkpoints as _checkpoints
    from kelpie.agent.resources import deployments as _deployments
    from kelpie.agent.resources import groups as _groups
    from kelpie.agent.resources import id_prefixes as _id_prefixes
    from kelpie.agent.resources import jobs as _jobs
    from kelpie.agent.resources import manual_tool_runs as _manual_tool_runs
    from kelpie.agent.resources import model_previews as _model_previews
    from kelpie.agent.resources import projects as _projects
    from kelpie.agent.resources import runs as _runs
    from kelpie.agent.resources import tags as _tags
    from kelpie.agent.resources.conversations import context_windows as _context_windows
    from kelpie.agent.resources.conversations import conversations as _conversations
    from kelpie.agent.resources.conversations import histories as _histories
    from kelpie.agent.resources.conversations import message_search as _message_search
    from kelpie.agent.resources.conversations import pending_approvals as _pending_approvals
    from kelpie.agent.templates import migration as _migration
    from kelpie.agent.templates import templates as _templates
    from kelpie.batches import batches as _batches
    from kelpie.files import attached_files as _attached_files
    from kelpie.files import folders as _folders
    from kelpie.memory import archives as _archives
    from kelpie.memory import block_history as _block_history
    from kelpie.memory import blocks as _blocks
    from kelpie.memory import facts as _facts
    from kelpie.memory import working_memory as _working_memory
    from kelpie.tools.mcp import logins as _logins
    from kelpie.tools.mcp import tasks as _tasks
    from kelpie.tools.registry import mcp_servers as _mcp_servers
    from kelpie.tools.registry import permissions as _permissions
    from kelpie.tools.registry import registry as _registry
    from kelpie.tools.registry import sandbox_configs as _sandbox_configs
    from kelpie.triggers import schedules as _schedules
    from kelpie.triggers import webhooks as _webhooks


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
    def agents(self) -> _agents.Agents:
        shared = self._runtime
        return _agents.Agents(
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
    def agent_file_exports(self) -> _agent_file_exports.AgentFileExports:
        return _agent_file_exports.AgentFileExports(self.world, self.settings, self.caller)

    @cached_property
    def agent_file_imports(self) -> _agent_file_imports.AgentFileImports:
        shared = self._runtime
        return _agent_file_imports.AgentFileImports(
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
    def checkpoints(self) -> _checkpoints.Checkpoints:
        shared = self._runtime
        return _checkpoints.Checkpoints(
            self.world,
            self.settings,
            shared.active_turns,
            shared.live_agents,
            shared.memory_changes,
            shared.quotas,
            self.caller,
        )

    @cached_property
    def deployments(self) -> _deployments.Deployments:
        return _deployments.Deployments(self.world, self.agents, self.blocks, self.groups, self.caller)

    @cached_property
    def groups(self) -> _groups.Groups:
        shared = self._runtime
        return _groups.Groups(self.world, shared.live_agents, self.sending, shared.running_chats, self.caller)

    @cached_property
    def projects(self) -> _projects.Projects:
        return _projects.Projects(self.world, self.agents, self._runtime.live_agents, self.caller)

    @cached_property
    def tags(self) -> _tags.Tags:
        return _tags.Tags(self.world.database, self.caller)

    @cached_property
    def templates(self) -> _templates.Templates:
        return _templates.Templates(self.world, self.agent_file_imports, self._runtime.live_agents, self.caller)

    @cached_property
    def template_migration(self) -> _migration.Migration:
        shared = self._runtime
        return _migration.Migration(
            self.world, self.settings, self.agents, self.agent_file_imports, shared.live_agents, self.caller
        )

    # --- messages and runs ---------------------------------------------------------------------------------------

    @cached_property
    def sending(self) -> _send.MessageSender:
        shared = self._runtime
        return _send.MessageSender(
            self.world,
            self.models,
            shared.dispatcher,
            shared.active_turns,
            shared.wait_graph,
            self.settings,
            self.caller,
        )

    @cached_property
    def background_runs(self) -> _background_runs.BackgroundRuns:
        shared = self._runtime
        return _background_runs.BackgroundRuns(
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
    def cancellations(self) -> _cancel.Cancellations:
        shared = self._runtime
        # What a cancelled turn has done is stored, whatever the quota.
        return _cancel.Cancellations(
            shared.world, shared.dispatcher, shared.active_turns, shared.run_notifier, self.caller
        )

    @cached_property
    def batches(self) -> _batches.Batches:
        return _batches.Batches(
            self.world, self.models, self.settings, self._runtime.batch_runner, self.cancellations, self.caller
        )

    @cached_property
    def client_histories(self) -> _client_histories.ClientHistories:
        return _client_histories.ClientHistories(self.world, self.conversations, self.caller)

    @cached_property
    def context_windows(self) -> _context_windows.ContextWindows:
        return _context_windows.ContextWindows(self.world, self._runtime.dispatcher, self.caller)

    @cached_property
    def conversations(self) -> _conversations.Conversations:
        shared = self._runtime
        return _conversations.Conversations(
            self.world, self.models, shared.live_agents, shared.active_turns, self.caller
        )

    @cached_property
    def histories(self) -> _histories.Histories:
        shared = self._runtime
        return _histories.Histories(self.world, self.agents, shared.live_agents, shared.memory_changes, self.caller)

    @cached_property
    def id_prefixes(self) -> _id_prefixes.IdPrefixes:
        return _id_prefixes.IdPrefixes(self.world.database, self.caller)

    @cached_property
    def jobs(self) -> _jobs.Jobs:
        return _jobs.Jobs(self.world, self.caller)

    @cached_property
    def message_search(self) -> _message_search.MessageSearcher:
        return _message_search.MessageSearcher(self.world, self._runtime.embeddings, self.caller)

    @cached_property
    def model_previews(self) -> _model_previews.ModelPreviews:
        return _model_previews.ModelPreviews(self.world, self.models, self.settings, self.caller)

    @cached_property
    def pending_approvals(self) -> _pending_approvals.PendingApprovals:
        return _pending_approvals.PendingApprovals(self.world.database, self.caller)

    @cached_property
    def runs(self) -> _runs.Runs:
        return _runs.Runs(self.world.database, self._runtime.turn_dependencies.traces, self.caller)

    @cached_property
    def schedules(self) -> _schedules.Schedules:
        return _schedules.Schedules(self.world, self.models, self.settings, self._runtime.scheduler.wake, self.caller)

    @cached_property
    def spending(self) -> _organization_spending.OrganizationSpending:
        return _organization_spending.OrganizationSpending(self.world.database, self.caller)

    @cached_property
    def webhooks(self) -> _webhooks.Webhooks:
        forget = self._runtime.authenticator.forget
        return _webhooks.Webhooks(self.world, self.settings, self.background_runs, forget, self.caller)

    # --- memory --------------------------------------------------------------------------------------------------

    @cached_property
    def archives(self) -> _archives.Archives:
        shared = self._runtime
        return _archives.Archives(self.world, self.models, shared.embeddings, shared.piece_size, self.caller)

    @property
    def embeddings(self) -> Embeddings:
        return self._runtime.embeddings

    @cached_property
    def block_history(self) -> _block_history.BlockHistory:
        return _block_history.BlockHistory(
            self.world, self._runtime.live_agents.reload, self.settings.block_rules, self.caller
        )

    @cached_property
    def blocks(self) -> _blocks.Blocks:
        return _blocks.Blocks(self.world, self._runtime.live_agents.reload, self.settings.block_rules, self.caller)

    @cached_property
    def attached_files(self) -> _attached_files.AttachedFiles:
        return _attached_files.AttachedFiles(self.world, self._runtime.live_agents.reload, self.caller)

    @cached_property
    def folders(self) -> _folders.Folders:
        shared = self._runtime
        return _folders.Folders(
            self.world,
            self.models,
            shared.embeddings,
            shared.live_agents.reload,
            shared.file_processing.wake,
            shared.piece_size,
            self.caller,
        )

    @cached_property
    def facts(self) -> _facts.Facts:
        return _facts.Facts(self.world, self._runtime.embeddings, self.caller)

    @cached_property
    def working_memory(self) -> _working_memory.WorkingMemory:
        return _working_memory.WorkingMemory(self.world, self.settings, self.caller)

    # --- tools ---------------------------------------------------------------------------------------------------

    @cached_property
    def manual_tool_runs(self) -> _manual_tool_runs.ManualToolRuns:
        shared = self._runtime
        return _manual_tool_runs.ManualToolRuns(
            shared.turn_dependencies, shared.custom_tools, self.caller, self.settings.sandbox_caps
        )

    @cached_property
    def mcp_servers(self) -> _mcp_servers.McpServers:
        shared, settings = self._runtime, self.settings
        rules = _mcp_servers.ServerRules(settings.mcp_private, settings.mcp_directories)
        return _mcp_servers.McpServers(self.world, shared.mcp_pool, rules, shared.live_agents.reload, self.caller)

    @cached_property
    def mcp_logins(self) -> _logins.McpLogins:
        return _logins.McpLogins(self.world, self._runtime.mcp_pool, self._runtime.mcp_tokens, self.caller)

    @cached_property
    def mcp_tasks(self) -> _tasks.McpTasks:
        return _tasks.McpTasks(self.world, self._runtime.mcp_pool, self._runtime.mcp_tool_runner.task_due, self.caller)

    @cached_property
    def permissions(self) -> _permissions.Permissions:
        return _permissions.Permissions(
            self.world, self.settings.policy, self._runtime.live_agents.reload_all, self.caller
        )

    @cached_property
    def sandbox_configs(self) -> _sandbox_configs.SandboxConfigs:
        return _sandbox_configs.SandboxConfigs(self.world, self.caller)

    @cached_property
    def tools(self) -> _registry.Tools:
        shared, runner = self._runtime, self._runtime.custom_tools
        prepare = None if runner is None else runner.prepare
        return _registry.Tools(
            self.world, shared.embeddings, shared.live_agents.reload, self.caller, prepare, self.settings.sandbox_caps
        )

    # --- accounts ------------------------------------------------------------------------------------------------

    @cached_property
    def access_tokens(self) -> _access_tokens.AccessTokens:
        return _access_tokens.AccessTokens(self.world, self._runtime.authenticator.forget, self.caller)

    @cached_property
    def api_keys(self) -> _api_keys.ApiKeys:
        return _api_keys.ApiKeys(self.world, self._runtime.authenticator.forget, self.caller)

    @cached_property
    def identities(self) -> _identities.Identities:
        return _identities.Identities(self.world, self.caller)

    @cached_property
    def organizations(self) -> _organizations.Organizations:
        return _organizations.Organizations(
            self.world, ensure_builtins, self._runtime.authenticator.forget, self._runtime.share, self.caller
        )

    @cached_property
    def providers(self) -> _providers.Providers:
        return _providers.Providers(self.world, self.models, private=self.settings.provider_private, caller=self.caller)

    @property
    def key_rotation(self) -> KeyRotation:
        return self._runtime.key_rotation

    @cached_property
    def usage(self) -> _organization_usage.OrganizationUsages:
        return _organization_usage.OrganizationUsages(
            self._runtime.world, self._runtime.quotas, self._runtime.disk_usage, self.caller
        )

    @cached_property
    def stored_data(self) -> _stored_data.StoredData:
        return _stored_data.StoredData(self.world, self.caller)

    @cached_property
    def users(self) -> _users.Users:
        return _users.Users(self.world, self._runtime.authenticator.forget, self.caller)
