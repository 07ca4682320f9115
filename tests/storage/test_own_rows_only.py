"""What writes about one thing changes its own rows, these rows alone, and all of them.

Three agents have everything that an agent can have, and each thing is there three times. Every write is about the
second of them. The whole database is compared before and after: each row that differs must be one of the second, and
the numbers of rows that came, went and changed must be those that are written here.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Column

from kelpie.core.access.callers import Organization, User
from kelpie.core.access.credential_scopes import AccessToken, ApiKey, Session
from kelpie.core.access.identities import Identity
from kelpie.core.agents.agent import Agent, Secret
from kelpie.core.agents.groups import Group
from kelpie.core.agents.projects import Project
from kelpie.core.agents.templates import NewVersion, Template
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.batches import BatchItem, ItemStatus
from kelpie.core.conversations.client_histories import ClientTurn
from kelpie.core.conversations.conversations import Conversation
from kelpie.core.conversations.jobs import Job, JobStatus, JobType
from kelpie.core.conversations.mcp_tasks import McpTask
from kelpie.core.conversations.messages import Message, NewMessage, Role, Text
from kelpie.core.conversations.runs import Run, RunStatus, Step, StopReason, Trace
from kelpie.core.files.files import File, FilePassage, FileStatus
from kelpie.core.files.folders import Folder
from kelpie.core.ids import FactId, OrganizationId, SecretId
from kelpie.core.memory.block_history import Author, AuthorKind, Change
from kelpie.core.memory.blocks import Block
from kelpie.core.memory.fact_timeline import StatedFact
from kelpie.core.memory.facts import Entity, Fact, FactSettings, FactState, key
from kelpie.core.memory.passages import Archive, Passage
from kelpie.core.memory.working_memory import WorkingMemoryEntry
from kelpie.core.models.model_providers import ModelProvider
from kelpie.core.permissions.call_records import CallRecord
from kelpie.core.permissions.organization_limits import OrganizationUsage
from kelpie.core.permissions.policies import NO_POLICY
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.sandbox_configs import SandboxConfig, SandboxVariable
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.core.triggers.schedules import Firing, FiringStatus, Schedule
from kelpie.core.triggers.webhooks import Webhook
from kelpie.storage import providers
from kelpie.storage.accounts import access_tokens, accounts, api_keys, sessions, usage
from kelpie.storage.agents import agents, groups, identities, ownership_fence, policies, projects, removal, secrets
from kelpie.storage.agents.ownership_fence import Node
from kelpie.storage.archives import archives, passages
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.blocks import attachments, blocks
from kelpie.storage.conversations import approvals, client_turns, contexts, conversations, fact_progress, messages
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.files import attachments as folder_attachments
from kelpie.storage.files import files, folders, views
from kelpie.storage.files import passages as file_passages
from kelpie.storage.files import removal as file_removal
from kelpie.storage.memory import entities, facts, working_memory
from kelpie.storage.runs import (
    batches,
    callbacks,
    client_ids,
    events,
    jobs,
    journal_keys,
    runs,
    steps,
    tool_calls,
    traces,
)
from kelpie.storage.runs.input import RunInput
from kelpie.storage.tables import metadata
from kelpie.storage.templates import templates
from kelpie.storage.tools import mcp_oauth, mcp_servers, mcp_tasks, mcp_tools, sandbox_configs, tools
from kelpie.storage.triggers import firings, hooks, schedules
from kelpie.world.database import Tx
from kelpie.world.keyring import Key, Keyring
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema
from tests.storage.filled import filled

OURS = OrganizationId("org-00000000-0000-4000-8000-000000000900")
KEYRING = Keyring([Key(bytes(32))])
SEALING = Sealing(KEYRING, b"seed")
BY = Author(AuthorKind.user, "user 1")
CHANGE = Change(BY, 7000, 100)
NODE = Node("here", 3)
INPUT = RunInput((NewMessage(Role.user, (Text("hello"),)),), 5)


class Belongings:
    """Everything that belongs to the agent of this number, as values."""

    def __init__(self, number: int) -> None:
        def made(kind: type[Any], **given: Any) -> Any:
            names = {each for each in kind.__dataclass_fields__ if each in ("organization_id", "agent_id")}
            owner = {"organization_id": OURS, "agent_id": self.agent.id if number else None}
            return filled(kind, number, **{name: owner[name] for name in names if name not in given}, **given)

        self.number = number
        self.agent = filled(Agent, number, organization_id=OURS)
        self.user = made(User)
        self.key = made(ApiKey, user_id=self.user.id)
        self.token = made(AccessToken, user_id=self.user.id)
        self.session = made(Session, key_id=self.key.id)
        self.block = made(Block)
        self.copy = replace(self.block, id=type(self.block.id)(f"{self.block.id[:-1]}7"))
        self.group = made(Group, agent_ids=(self.agent.id,), shared_block_ids=(self.block.id,))
        self.identity = made(Identity)
        self.project = made(Project)
        self.secret = made(Secret, unreadable=None)
        self.archive = made(Archive)
        self.passage = made(Passage, archive_id=self.archive.id)
        self.conversation = made(Conversation, isolated_block_ids=())
        self.run = made(Run, status=RunStatus.created, conversation_id=self.conversation.id)
        self.step = made(Step, run_id=self.run.id)
        self.message = made(Message, role=Role.user, run_id=self.run.id, step_id=self.step.id)
        self.message = replace(self.message, conversation_id=None)
        self.second = replace(self.message, id=type(self.message.id)(f"{self.message.id[:-1]}7"))
        self.waiting = made(PendingCalls, conversation="", request=self.message.id)
        self.client_turn = made(ClientTurn, continued=False, conversation="")
        self.fact = made(Fact, valid_until=None, superseded_by=None, supersedes=None, link=None)
        self.entity = made(Entity)
        self.entry = made(WorkingMemoryEntry)
        self.other_entry = replace(self.entry, key=f"other {self.entry.key}", expires_at=None)
        self.job = made(Job, job_type=JobType.batch, status=JobStatus.running)
        self.item = made(BatchItem, batch_id=self.job.id, run_id=self.run.id, status=ItemStatus.running)
        self.trace = made(Trace, step_id=self.step.id)
        self.call = made(CallRecord, number=number, run_id=self.run.id)
        self.folder = made(Folder)
        self.file = made(File, folder_id=self.folder.id, status=FileStatus.completed)
        self.file_passage = made(FilePassage, file_id=self.file.id)
        self.schedule = made(Schedule)
        self.firing = made(Firing, schedule_id=self.schedule.id, status=FiringStatus.waiting)
        self.hook = made(Webhook)
        self.provider = made(ModelProvider, unreadable={})
        self.server = made(McpServer, unreadable={})
        self.task = made(McpTask, server_id=self.server.id)
        self.tool = made(Tool, tool_type=ToolType.custom)
        self.template = made(Template, changed=False, latest=1, base=1)

    def write(self, tx: Tx) -> None:
        number, agent_id = self.number, self.agent.id
        agents.create(tx, self.agent)
        accounts.insert_user(tx, self.user)
        api_keys.insert(tx, self.key, "digest")
        access_tokens.insert(tx, self.token, "digest")
        sessions.insert(tx, self.session, "digest")
        blocks.give_to_new(tx, agent_id, [self.block], BY)
        blocks.insert(tx, [self.copy], BY)
        groups.add(tx, self.group, OURS)
        identities.insert(tx, self.identity)
        identities.of_agents.add(tx, [agent_id], [self.identity.id])
        identities.of_blocks.add(tx, [self.block.id], [self.identity.id])
        projects.insert(tx, self.project)
        projects.add(tx, self.project.id, agent_id)
        other = replace(self.secret, id=SecretId(f"{self.secret.id[:-1]}7"), key="other")
        secrets.replace(tx, agent_id, [self.secret, other], SEALING)
        archives.insert(tx, self.archive)
        archives.attach(tx, agent_id, self.archive.id)
        passages.insert(tx, self.passage)
        conversations.add(tx, self.conversation, OURS, {self.copy.label: self.copy.id})
        runs.open_run(tx, self.run, OURS, INPUT, NODE)
        client_ids.add(tx, agent_id, self.run.id, ["otid"])
        events.append(tx, self.run.id, "segment", 0, [{"at": 1}], 10)
        claim = ownership_fence.claim(tx, agent_id, NODE)
        journal_keys.add(tx, claim, self.run.id, 0, "open", 10)
        journal_keys.add(tx, claim, self.run.id, 1, "step", 11)
        steps.add(tx, self.step, OURS)
        steps.set_feedback(tx, self.step.id, "positive", ["good"])
        traces.add(tx, [self.trace], 9)
        messages.append(tx, [self.message, self.second], "")
        contexts.replace(tx, agent_id, [self.second.id], self.conversation.id)
        conversations.share(tx, self.conversation.id, [self.message.id])
        approvals.move(tx, None, self.waiting)
        client_turns.add(tx, OURS, self.client_turn, {"a": 1})
        fact_progress.follow(tx, agent_id, FactSettings())
        facts.add(tx, self.fact)
        entities.add(tx, agent_id, self.entity)
        working_memory.insert_many(tx, agent_id, [(self.entry, "1"), (self.other_entry, "2")])
        working_memory.next_version(tx, agent_id)
        batches.insert(tx, self.job, OURS, [(self.item, batches.ItemInput(INPUT, {}))])
        tool_calls.add(tx, [self.call, replace(self.call, run_id=None, number=number + 3)])
        folders.insert(tx, self.folder)
        files.insert(tx, self.file)
        file_passages.insert_many(tx, OURS, [self.file_passage])
        folder_attachments.attach(tx, OURS, agent_id, self.folder.id, 20)
        schedules.insert(tx, self.schedule)
        firings.insert(tx, self.firing)
        hooks.insert(tx, self.hook, f"digest {number}")
        providers.insert(tx, self.provider, SEALING)
        mcp_servers.insert(tx, self.server, SEALING)
        mcp_oauth.put(tx, self.server.id, "state", f"login {number}", 5, SEALING)
        mcp_tasks.insert(tx, self.task)
        tools.insert(tx, self.tool)
        tools.attach(tx, agent_id, self.tool.id)
        mcp_tools.add(tx, self.tool.id, self.server.id, "remote", {})
        template_id = f"version {self.template.id}"
        templates.create(tx, OURS, self.template, NewVersion(f"document {number}", ()), template_id)
        owner = filled(Organization, number)
        accounts.insert_organization(tx, owner)
        config = filled(SandboxConfig, number, organization_id=owner.id)
        sandbox_configs.insert(tx, config)
        variable = filled(
            SandboxVariable, number, sandbox_config_id=config.id, organization_id=owner.id, unreadable=None
        )
        sandbox_configs.insert_variable(tx, variable, SEALING)
        policies.set_policy(tx, owner.id, NO_POLICY, self.user.id, 5)
        usage.set_limits(tx, owner.id, {"agents": 5}, 5)


IT = Belongings(2)
AGENT = IT.agent.id
OWNER = filled(Organization, 2)
CONFIG = filled(SandboxConfig, 2, organization_id=OWNER.id)
VARIABLE = filled(SandboxVariable, 2, sandbox_config_id=CONFIG.id, organization_id=OWNER.id, unreadable=None)
ENDED = replace(IT.run, status=RunStatus.failed, stop_reason=StopReason.error, completed_at=9000)
TOLD = StatedFact(
    replace(IT.fact, id=FactId(f"{IT.fact.id[:-1]}7"), value="new", valid_from=9000), FactId(f"{IT.fact.id[:-1]}8")
)


def state(tx: Tx) -> FactState:
    found = fact_progress.get(tx, AGENT)
    assert found is not None
    return found


WRITES: list[tuple[str, Callable[[Tx], object], str]] = [
    ("bump", lambda tx: agents.bump(tx, AGENT),
     "agents ~1"),
    ("touch", lambda tx: agents.touch(tx, AGENT, 9000),
     "agents ~1"),
    ("record_run", lambda tx: agents.record_run(tx, AGENT, 9000, 5, StopReason.error),
     "agents ~1"),
    ("pause", lambda tx: agents.pause(tx, AGENT, 9000, 9001),
     "agents ~1"),
    ("update_agent", lambda tx: agents.update_agent(tx, AGENT, {"name": "new", "tags": ["new"]}, 9000),
     "agent_tags +1, agent_tags -2, agents ~1"),
    ("end_claims", lambda tx: ownership_fence.end_claims(tx, AGENT),
     "agent_head ~1"),
    ("claim", lambda tx: ownership_fence.claim(tx, AGENT, NODE),
     "agent_head ~1"),
    ("advance", lambda tx: ownership_fence.advance(tx, ownership_fence.Claim(AGENT, 1, NODE)),
     "agent_head ~1"),
    ("remove_agent", lambda tx: removal.remove(tx, AGENT, 9000),
     "agent_archives -1, agent_blocks -1, agent_folders -1, agent_head -1, agent_identities -1, "
     "agent_secrets -2, agent_tags -2, agent_tools -1, agents -1, approvals -1, block_history -1, "
     "block_tags -2, blocks -1, client_turns -1, context -3, conversation_blocks -1, conversation_shares -1, "
     "conversations -1, entities -1, fact_sources -2, fact_states -1, facts -1, file_views -1, firings -1, "
     "group_agents -1, hooks -1, jobs ~1, journal -2, mcp_tasks -1, messages -2, organization_usage ~1, "
     "project_agents -1, run_events -1, run_otids -1, runs -1, schedules -1, step_tags -1, step_traces -1, "
     "steps -1, tool_calls -2, working_memory -2, working_memory_heads -1"),
    ("set_policy", lambda tx: policies.set_policy(tx, OWNER.id, NO_POLICY, IT.user.id, 9000),
     "tool_policies ~1"),
    ("replace_secrets", lambda tx: secrets.replace(tx, AGENT, [IT.secret], SEALING),
     "agent_secrets -1"),
    ("remove_other_secrets", lambda tx: secrets.remove_others(tx, AGENT, [IT.secret.key]),
     "agent_secrets -1"),
    ("update_organization", lambda tx: accounts.update_organization(tx, replace(OWNER, name="new")),
     "organizations ~1"),
    ("update_user", lambda tx: accounts.update_user(tx, replace(IT.user, name="new")),
     "users ~1"),
    ("end_credentials", lambda tx: accounts.end_credentials(tx, IT.user.id),
     "access_token_agents -2, access_tokens -1, api_keys -1, sessions -1"),
    ("delete_user", lambda tx: accounts.delete_user(tx, IT.user.id),
     "access_token_agents -2, access_tokens -1, api_keys -1, sessions -1, users -1"),
    ("delete_key", lambda tx: api_keys.delete(tx, IT.key.id),
     "api_keys -1, sessions -1"),
    ("record_use_of_key", lambda tx: api_keys.record_use(tx, {IT.key.id: 9000}),
     "api_keys ~1"),
    ("delete_token", lambda tx: access_tokens.delete(tx, IT.token.id),
     "access_token_agents -2, access_tokens -1"),
    ("delete_session", lambda tx: sessions.delete(tx, IT.session.id),
     "sessions -1"),
    ("set_limits", lambda tx: usage.set_limits(tx, OWNER.id, {}, 9000),
     "organization_quotas -1"),
    ("correct_usage", lambda tx: usage.correct(tx, OWNER.id, OrganizationUsage(1, 1, 1, 1)),
     "organization_usage ~1"),
    ("set_agents_of_group", lambda tx: groups.set_agents(tx, IT.group.id, ()),
     "group_agents -1"),
    ("set_blocks_of_group", lambda tx: groups.set_blocks(tx, IT.group.id, ()),
     "group_blocks -1"),
    ("change_group", lambda tx: groups.change(tx, IT.group.id, {"description": "new"}),
     "groups ~1"),
    ("remove_group", lambda tx: groups.remove(tx, IT.group.id),
     "group_agents -1, group_blocks -1, groups -1"),
    ("update_identity", lambda tx: identities.update(tx, IT.identity, {"name": "new"}, 9000, "user 1"),
     "identities ~1"),
    ("delete_identity", lambda tx: identities.delete(tx, OURS, IT.identity.id),
     "agent_identities -1, block_identities -1, identities -1"),
    ("detach_identity", lambda tx: identities.of_agents.change(tx, AGENT, IT.identity.id, attach=False),
     "agent_identities -1"),
    ("replace_identities", lambda tx: identities.of_agents.replace(tx, AGENT, ()),
     "agent_identities -1"),
    ("replace_agents_of_identity", lambda tx: identities.of_agents.replace_rows(tx, IT.identity.id, ()),
     "agent_identities -1"),
    ("replace_blocks_of_identity", lambda tx: identities.of_blocks.replace_rows(tx, IT.identity.id, ()),
     "block_identities -1"),
    ("replace_project", lambda tx: projects.replace(tx, replace(IT.project, name="new", tags=())),
     "project_tags -2, projects ~1"),
    ("delete_project", lambda tx: projects.delete(tx, IT.project.id),
     "project_agents -1, project_tags -2, projects -1"),
    ("remove_from_project", lambda tx: projects.remove(tx, IT.project.id, AGENT),
     "project_agents -1"),
    ("update_archive", lambda tx: archives.update(tx, OURS, IT.archive.id, {"name": "new"}, 9000, "user 1"),
     "archives ~1"),
    ("detach_archive", lambda tx: archives.detach(tx, AGENT, IT.archive.id),
     "agent_archives -1"),
    ("delete_archive", lambda tx: archive_removal.delete(tx, OURS, IT.archive.id),
     "agent_archives -1, archives -1, organization_usage ~1, passage_tags -2, passages -1, search_items -1"),
    ("delete_large_archive", lambda tx: archive_removal.delete(tx, OURS, IT.archive.id, 0),
     "agent_archives -1, archives ~1"),
    ("delete_passage", lambda tx: passages.delete(tx, IT.archive.id, IT.passage.id),
     "organization_usage ~1, passage_tags -2, passages -1, search_items -1"),
    ("update_block", lambda tx: blocks.update(tx, IT.block.id, {"value": "new", "tags": ()}, CHANGE),
     "block_history +1, block_tags -2, blocks ~1, organization_usage ~1"),
    ("relabel_block", lambda tx: blocks.update(tx, IT.block.id, {"label": "new"}, CHANGE),
     "agent_blocks +1, agent_blocks -1, block_history +1, blocks ~1, organization_usage ~1"),
    ("delete_block", lambda tx: blocks.delete(tx, IT.block.id),
     "agent_blocks -1, block_history -1, block_identities -1, block_tags -2, blocks -1, group_blocks -1, "
     "organization_usage ~1"),
    ("detach_block", lambda tx: attachments.detach(tx, AGENT, IT.block.id),
     "agent_blocks -1"),
    ("detach_blocks", lambda tx: attachments.detach_many(tx, AGENT, [IT.block.id]),
     "agent_blocks -1"),
    ("replace_blocks", lambda tx: attachments.replace_for_agent(tx, AGENT, ()),
     "agent_blocks -1"),
    ("answer_calls", lambda tx: approvals.move(tx, IT.waiting, replace(IT.waiting, answers=())),
     "approvals ~1"),
    ("clear_calls", lambda tx: approvals.move(tx, IT.waiting, None),
     "approvals -1"),
    ("continue_client_turn", lambda tx: client_turns.continue_once(tx, IT.client_turn.id),
     "client_turns ~1"),
    ("repeat_client_turn", lambda tx: client_turns.repeat(tx, IT.client_turn.id),
     "client_turns ~1"),
    ("withdraw_client_turn", lambda tx: client_turns.withdraw(tx, IT.client_turn.id),
     "client_turns -1, organization_usage ~1"),
    ("forget_client_request", lambda tx: client_turns.forget_request(tx, IT.client_turn.id),
     "client_turns ~1, organization_usage ~1"),
    ("replace_context", lambda tx: contexts.replace(tx, AGENT, [IT.message.id]),
     "context +1, context -2"),
    ("replace_context_of_conversation", lambda tx: contexts.replace(tx, AGENT, [], IT.conversation.id),
     "context -1"),
    ("clear_contexts", lambda tx: contexts.clear_all(tx, AGENT),
     "context -3"),
    ("clear_some_of_contexts", lambda tx: contexts.clear_some(tx, AGENT, 2),
     "context -2"),
    ("change_conversation", lambda tx: conversations.change(tx, IT.conversation.id, {"summary": "new"}),
     "conversations ~1"),
    ("record_run_of_conversation", lambda tx: conversations.record_run(tx, IT.conversation.id, 9000),
     "conversations ~1"),
    ("remove_conversation", lambda tx: conversations.remove(tx, IT.conversation, 9000),
     "block_history -1, block_tags -2, blocks -1, context -1, conversation_blocks -1, conversation_shares -1, "
     "conversations ~1, organization_usage ~1"),
    ("follow_no_facts", lambda tx: fact_progress.follow(tx, AGENT, None),
     "fact_states -1"),
    ("follow_facts", lambda tx: fact_progress.follow(tx, AGENT, FactSettings(every_turns=7)),
     "fact_states ~1"),
    ("rewind_facts", lambda tx: fact_progress.rewind(tx, AGENT),
     "fact_states ~1"),
    ("set_through_of_facts", lambda tx: fact_progress.set_through(tx, AGENT, 1),
     "fact_states ~1"),
    ("change_fact_state", lambda tx: fact_progress.change(tx, state(tx), replace(state(tx), extractions=9)),
     "fact_states ~1"),
    ("learn_fact", lambda tx: facts.learn(tx, TOLD),
     "fact_sources +2, facts +1, organization_usage ~1, search_items +1"),
    ("remove_fact", lambda tx: facts.remove(tx, AGENT, IT.fact.id),
     "fact_sources -2, facts -1, organization_usage ~1, search_items -1"),
    ("erase_facts", lambda tx: facts.erase(tx, [IT.fact.id]),
     "fact_sources -2, facts -1, organization_usage ~1, search_items -1"),
    ("mention_entity", lambda tx: entities.record_mention(tx, AGENT, [IT.entity], replace(IT.entity, kind="new")),
     "entities ~1"),
    ("remove_entity", lambda tx: entities.remove(tx, AGENT, [key(IT.entity.name)]),
     "entities -1"),
    ("rewrite_message", lambda tx: messages.rewrite(tx, IT.message.id, (Text("new"),)),
     "messages ~1, organization_usage ~1"),
    ("remove_messages", lambda tx: messages.remove_all(tx, AGENT),
     "approvals -1, context -3, conversation_shares -1, fact_states ~1, messages -2, organization_usage ~1, "
     "search_items -2"),
    ("replace_entry", lambda tx: working_memory.replace(tx, AGENT, replace(IT.entry, version=9), "3"),
     "working_memory ~1"),
    ("remove_entry", lambda tx: working_memory.remove(tx, AGENT, IT.entry.key),
     "organization_usage ~1, working_memory -1"),
    ("remove_entries", lambda tx: working_memory.remove_keys(tx, AGENT, [IT.entry.key]),
     "organization_usage ~1, working_memory -1"),
    ("clear_entries", lambda tx: working_memory.clear(tx, AGENT),
     "organization_usage ~1, working_memory -2"),
    ("drop_lapsed_entries", lambda tx: working_memory.drop_lapsed(tx, AGENT, 9000),
     "organization_usage ~1, working_memory -1"),
    ("next_version_of_entries", lambda tx: working_memory.next_version(tx, AGENT),
     "working_memory_heads ~1"),
    ("raise_version_of_entries", lambda tx: working_memory.raise_version(tx, AGENT, 9),
     "working_memory_heads ~1"),
    ("change_batch", lambda tx: batches.change(tx, replace(IT.job, status=JobStatus.failed), 9000),
     "jobs ~1"),
    ("replace_item", lambda tx: batches.replace(tx, replace(IT.item, status=ItemStatus.failed)),
     "batch_items ~1, organization_usage ~1"),
    ("end_job", lambda tx: jobs.end(tx, IT.job.id, JobStatus.failed, 9000, None),
     "jobs ~1"),
    ("remove_job", lambda tx: jobs.remove(tx, IT.job.id),
     "batch_items -1, jobs -1, organization_usage ~1"),
    ("schedule_callback", lambda tx: callbacks.schedule(tx, IT.run.id, 9000),
     "runs ~1"),
    ("record_attempt", lambda tx: callbacks.record_attempt(tx, IT.run.id, 9000, 500, "no", 9001),
     "runs ~1"),
    ("record_attempt_of_batch", lambda tx: callbacks.record_attempt(tx, IT.job.id, 9000, 500, "no", 9001),
     "jobs ~1"),
    ("append_events", lambda tx: events.append(tx, IT.run.id, "segment", 0, [{"at": 1}, {"at": 2}], 9000),
     "run_events +1"),
    ("remove_keys_of_journal", lambda tx: journal_keys.remove(tx, [(AGENT, IT.run.id)]),
     "journal -2"),
    ("claim_run", lambda tx: runs.claim(tx, IT.run.id, Node("there", 1)),
     "runs ~1"),
    ("replace_input", lambda tx: runs.replace_input(tx, IT.run.id, replace(INPUT, max_steps=9)),
     "runs ~1"),
    ("progress", lambda tx: runs.progress(tx, replace(IT.run, step_count=9)),
     "runs ~1"),
    ("finish", lambda tx: runs.finish(tx, ENDED),
     "runs ~1"),
    ("remove_run", lambda tx: runs.remove(tx, IT.run.id),
     "organization_usage ~1, run_events -1, run_otids -1, runs -1, step_tags -1, step_traces -1, steps -1, "
     "tool_calls -1"),
    ("set_feedback", lambda tx: steps.set_feedback(tx, IT.step.id, None, ()),
     "step_tags -1, steps ~1"),
    ("set_transaction", lambda tx: steps.set_transaction(tx, IT.step.id, "new"),
     "steps ~1"),
    ("set_stop", lambda tx: steps.set_stop(tx, IT.step.id, IT.run.id, StopReason.no_tool_call),
     "steps ~1"),
    ("put_template", lambda tx: templates.put(tx, OURS, IT.template, NewVersion("new", ()), "version 2", 9, "user 1"),
     "organization_usage ~1, template_versions +1, templates ~1"),
    ("save_template", lambda tx: templates.save(tx, OURS, IT.template, "version-2", "new", 9000, "user 1"),
     "organization_usage ~1, template_versions +1, templates ~1"),
    ("delete_template", lambda tx: templates.delete(tx, IT.template),
     "organization_usage ~1, template_versions -1, templates -1"),
    ("put_oauth", lambda tx: mcp_oauth.put(tx, IT.server.id, "state", None, 9000, SEALING),
     "mcp_oauth ~1"),
    ("delete_oauth", lambda tx: mcp_oauth.delete(tx, IT.server.id),
     "mcp_oauth -1"),
    ("delete_server", lambda tx: mcp_servers.delete(tx, OURS, IT.server.id),
     "mcp_oauth -1, mcp_servers -1, mcp_tools -1"),
    ("replace_tool_of_server", lambda tx: mcp_tools.replace(tx, IT.tool.id, {"new": 1}),
     "mcp_tools ~1"),
    ("delete_provider", lambda tx: providers.delete(tx, OURS, IT.provider.id),
     "providers -1"),
    ("set_synced", lambda tx: providers.set_synced(tx, IT.provider.id, 9000),
     "providers ~1"),
    ("delete_sandbox", lambda tx: sandbox_configs.delete(tx, OWNER.id, CONFIG.id),
     "sandbox_configs -1, sandbox_variables -1"),
    ("delete_variable", lambda tx: sandbox_configs.delete_variable(tx, OWNER.id, VARIABLE.id),
     "sandbox_variables -1"),
    ("detach_tool", lambda tx: tools.detach(tx, AGENT, IT.tool.id),
     "agent_tools -1"),
    ("replace_tools", lambda tx: tools.replace_for_agent(tx, AGENT, ()),
     "agent_tools -1"),
    ("update_tool", lambda tx: tools.update(tx, IT.tool.id, {"description": "new"}, 9000, None),
     "organization_usage ~1, search_items +1, search_items -1, tools ~1"),
    ("delete_tool", lambda tx: tools.delete(tx, IT.tool.id),
     "agent_tools -1, mcp_tools -1, organization_usage ~1, search_items -1, tool_tags -2, tools -1"),
    ("replace_firing", lambda tx: firings.replace(tx, replace(IT.firing, status=FiringStatus.dead)),
     "firings ~1"),
    ("delete_schedule", lambda tx: schedules.delete(tx, IT.schedule.id),
     "firings -1, organization_usage ~1, schedules -1"),
    ("renew_hook", lambda tx: hooks.renew(tx, IT.hook.id, "new"),
     "hooks ~1"),
    ("note_use_of_hook", lambda tx: hooks.note_use(tx, IT.hook.id, 9000),
     "hooks ~1"),
    ("delete_hook", lambda tx: hooks.delete(tx, IT.hook.id),
     "hooks -1"),
    ("change_file", lambda tx: files.change(tx, IT.file.id, {"note": "new"}, 9000),
     "files ~1"),
    ("update_folder", lambda tx: folders.update(tx, OURS, IT.folder.id, {"name": "new"}, 9000, "user 1"),
     "folders ~1"),
    ("detach_folder", lambda tx: folder_attachments.detach(tx, OURS, AGENT, IT.folder.id, 9000),
     "agent_folders -1, agents ~1, file_views -1"),
    ("detach_folder_from_all", lambda tx: folder_attachments.detach_all(tx, OURS, IT.folder.id),
     "agent_folders -1, agents ~1"),
    ("close_file", lambda tx: views.close(tx, AGENT, [IT.file.id]),
     "file_views ~1"),
    ("use_file", lambda tx: views.use(tx, AGENT, [IT.file.id], 9000),
     "file_views ~1"),
    ("open_file", lambda tx: views.open_file(tx, IT.agent, IT.file.id, 9000, 1, 2),
     "file_views ~1"),
    ("delete_file", lambda tx: file_removal.delete_file(tx, OURS, IT.file.id, IT.folder.id),
     "agents ~1, file_passages -1, file_views -1, files -1, organization_usage ~1"),
    ("delete_folder", lambda tx: file_removal.delete_folder(tx, OURS, IT.folder.id),
     "agent_folders -1, agents ~1, files ~1, folders ~1"),
    ("drop_passages_of_file", lambda tx: file_passages.drop_some(tx, IT.file.id, 9, indexed=False),
     "file_passages -1, organization_usage ~1"),
]  # fmt: skip

MINE = re.compile("-0{9}2[0-9][0-9]")  # an id of the second
Rows = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]


def dump(tx: Tx) -> Rows:
    """Every row of every table by its key."""
    found: Rows = {}
    for table in metadata.sorted_tables:
        columns = list(table.c)
        keys: list[Column[Any]] = list(table.primary_key.columns) or columns[:3]
        places = [columns.index(key) for key in keys]
        names = ", ".join(f'"{column.name}"' for column in columns)
        rows = tx.exec_driver_sql(f'SELECT {names} FROM "{table.name}"').all()
        found[table.name] = {tuple(row[at] for at in places): tuple(row) for row in rows}
    return found


def changes(before: Rows, after: Rows) -> tuple[str, list[Any]]:
    """What differs, as text, and the rows that do."""
    counts: Counter[str] = Counter()
    rows: list[Any] = []
    for name in before:
        for place in before[name].keys() | after[name].keys():
            old, new = before[name].get(place), after[name].get(place)
            if old != new:
                counts[f"{name} {'+' if old is None else '-' if new is None else '~'}"] += 1
                rows.append((name, old or new))
    return ", ".join(f"{what}{count}" for what, count in sorted(counts.items())), rows


@pytest.fixture(scope="module")
def stored() -> Iterator[Tx]:
    with memory_connection() as connection:
        connection.commit()
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        create_schema(connection)
        accounts.insert_organization(connection, Organization(OURS, "ours", False, 1, 1))
        for number in (1, 2, 3):
            Belongings(number).write(connection)
        connection.commit()
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        yield connection


@pytest.fixture
def tx(stored: Tx) -> Iterator[Tx]:
    with stored.begin_nested() as point:
        yield stored
        point.rollback()


@pytest.fixture(scope="module")
def before(stored: Tx) -> Rows:
    return dump(stored)


@pytest.mark.parametrize(("name", "write", "expected"), WRITES, ids=[name for name, _, _ in WRITES])
def test_a_write_changes_its_own_rows_and_no_others(
    tx: Tx, before: Rows, name: str, write: Callable[[Tx], object], expected: str
) -> None:
    write(tx)
    told, rows = changes(before, dump(tx))
    assert told == expected
    assert not [row for row in rows if not MINE.search(repr(row)) and row[0] != "organization_usage"]
    if name != "correct_usage":
        assert usage.state(tx, OURS).used == usage.recount(tx, OURS)
