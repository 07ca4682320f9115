"""Every field of every kind of row comes back as it was written, a change writes what it should, and no other row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
from sqlalchemy import text

from kelpie.core.access.callers import Organization, User
from kelpie.core.access.credential_scopes import AccessToken, ApiKey, Session
from kelpie.core.access.identities import Identity
from kelpie.core.agents.agent import Agent, Secret
from kelpie.core.agents.groups import Group
from kelpie.core.agents.projects import Project
from kelpie.core.agents.templates import NewVersion, Template
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.batches import BatchItem
from kelpie.core.conversations.client_histories import ClientTurn
from kelpie.core.conversations.conversations import Conversation
from kelpie.core.conversations.jobs import Job
from kelpie.core.conversations.mcp_tasks import McpTask
from kelpie.core.conversations.messages import Message
from kelpie.core.conversations.runs import Step, Trace
from kelpie.core.files.files import File, FilePassage
from kelpie.core.files.folders import Folder
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block
from kelpie.core.memory.facts import Entity, Fact, FactState
from kelpie.core.memory.passages import Archive, Passage
from kelpie.core.memory.working_memory import WorkingMemoryEntry
from kelpie.core.models.model_providers import ModelProvider, ProviderAccess
from kelpie.core.paging import Page
from kelpie.core.permissions.call_records import CallQuery, CallRecord
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.sandbox_configs import SandboxConfig, SandboxVariable
from kelpie.core.tools.tools import Tool
from kelpie.core.triggers.schedules import Firing, Schedule
from kelpie.core.triggers.webhooks import Webhook
from kelpie.storage import providers
from kelpie.storage.accounts import access_tokens, accounts, api_keys, sessions
from kelpie.storage.agents import agents, groups, identities, projects, secrets
from kelpie.storage.archives import archives, passages
from kelpie.storage.blocks import blocks
from kelpie.storage.conversations import approvals, client_turns, conversations, fact_progress, messages
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.files import files, folders
from kelpie.storage.files import passages as file_passages
from kelpie.storage.memory import entities, facts, working_memory
from kelpie.storage.runs import batches, jobs, steps, tool_calls, traces
from kelpie.storage.tables import fact_states
from kelpie.storage.templates import templates
from kelpie.storage.tools import mcp_servers, mcp_tasks, sandbox_configs, tools
from kelpie.storage.triggers import firings, hooks, schedules
from kelpie.world.database import Tx
from kelpie.world.keyring import Key, Keyring
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema
from tests.storage.filled import filled

OURS = OrganizationId("org-00000000-0000-4000-8000-000000000001")
AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
KEYRING = Keyring([Key(bytes(32))])
SEALING = Sealing(KEYRING, b"seed")
BY = Author(AuthorKind.user, "user 1")
KEYS = (
    "id", "organization_id", "agent_id", "batch_id", "conversation", "key", "place", "request", "sandbox_config_id",
    "schedule_id", "server_id",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One kind of row: how a value is written, read, and replaced. `kept` are the fields that a change must not write.

    `given` are fields whose value is not free, and `moved` those that a change sets by itself, from the old value.
    """

    of: type[Any]
    add: Callable[[Tx, Any], object]
    read: Callable[[Tx, Any], Any]
    change: Callable[[Tx, Any], object] | None = None
    kept: tuple[str, ...] = ()
    given: Callable[[int], dict[str, Any]] = lambda number: {}
    moved: Callable[[Any], dict[str, Any]] = lambda before: {}

    def value(self, number: int) -> Any:
        return filled(self.of, number, **self.given(number))


def _update_agent(tx: Tx, agent: Agent) -> None:
    kept = ("id", "created_at", "updated_at", "version")
    changes = {each.name: getattr(agent, each.name) for each in fields(Agent) if each.name not in kept}
    changes |= {name: getattr(agent, name).value for name in ("agent_type", "last_stop_reason")}
    agents.update_agent(tx, agent.id, changes, agent.updated_at)


def _add_trace(tx: Tx, trace: Trace) -> None:
    steps.add(tx, filled(Step, trace.created_at, id=trace.step_id), OURS)
    traces.add(tx, [trace], 9)


def _add_variable(tx: Tx, variable: SandboxVariable) -> None:
    given = {"id": variable.sandbox_config_id, "organization_id": variable.organization_id}
    sandbox_configs.insert(tx, filled(SandboxConfig, variable.created_at, **given))
    sandbox_configs.insert_variable(tx, variable, SEALING)


def _versions(tx: Tx, template: Template) -> Template:
    found = templates.get(tx, OURS, template.name)
    documents = [templates.snapshot(tx, found, each.number).document for each in templates.versions(tx, found)]
    assert documents == [f"document of {template.id}"]
    return found


def agent_of(value: Any) -> AgentId:
    """An agent for a value that does not name its own: another one for each value."""
    name = getattr(value, "name", None) or value.key
    return AgentId(f"agent-00000000-0000-4000-8000-{int(name.split()[-1]):012}")


def columns(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def only(found: list[Any]) -> Any:
    """The one value of a list that must have one."""
    (value,) = found
    return value


def same(found: tuple[Any, Any] | None, beside: Any) -> Any:
    """The value of a pair whose other part must be this."""
    assert found is not None and found[1] == beside
    return found[0]


KINDS = [
    Kind(Organization, accounts.insert_organization, lambda tx, it: accounts.get_organization(tx, it.id),
         accounts.update_organization, ("id", "created_at")),
    Kind(User, accounts.insert_user, lambda tx, it: accounts.get_user(tx, it.id), accounts.update_user,
         ("id", "created_at")),
    Kind(ApiKey, lambda tx, it: api_keys.insert(tx, it, it.id[::-1]),
         lambda tx, it: same(api_keys.find(tx, it.id), it.id[::-1])),
    Kind(AccessToken, lambda tx, it: access_tokens.insert(tx, it, it.id[::-1]),
         lambda tx, it: same(access_tokens.find(tx, it.id), it.id[::-1])),
    Kind(Session, lambda tx, it: sessions.insert(tx, it, it.id[::-1]),
         lambda tx, it: same(sessions.find(tx, it.id), it.id[::-1])),
    Kind(Agent, agents.create, lambda tx, it: agents.get(tx, it.id), _update_agent, ("id", "created_at"),
         moved=lambda before: {"version": before.version + 1}),
    Kind(Group, lambda tx, it: groups.add(tx, it, OURS), lambda tx, it: groups.get(tx, OURS, it.id)),
    Kind(Identity, identities.insert, lambda tx, it: identities.get(tx, it.organization_id, it.id),
         lambda tx, it: identities.update(
             tx, it, {name: getattr(it, name) for name in ("identifier_key", "name", "identity_type", "properties")},
             it.updated_at, it.last_updated_by_id,
         ), ("id", "created_at", "project_id", "organization_id", "created_by_id")),
    Kind(Project, projects.insert, lambda tx, it: projects.get(tx, it.organization_id, it.id), projects.replace,
         ("id", "organization_id", "created_at")),
    Kind(Secret, lambda tx, it: secrets.replace(tx, agent_of(it), [it], SEALING),
         lambda tx, it: secrets.of_agents(tx, [agent_of(it)], KEYRING)[agent_of(it)][0],
         given=lambda number: {"unreadable": None}),
    Kind(Archive, archives.insert, lambda tx, it: archives.get(tx, it.organization_id, it.id),
         lambda tx, it: archives.update(
             tx, it.organization_id, it.id, columns(it), it.updated_at,
             it.last_updated_by_id,
         ), ("id", "organization_id", "created_at", "created_by_id", "embedding_chunk_size", "metadata")),
    Kind(Passage, passages.insert, lambda tx, it: only(passages.select(tx, it.archive_id, Page()))),
    Kind(Block, lambda tx, it: blocks.insert(tx, [it], BY), lambda tx, it: blocks.get(tx, it.id)),
    Kind(PendingCalls, lambda tx, it: approvals.move(tx, None, it),
         lambda tx, it: approvals.get(tx, it.agent_id, it.conversation),
         lambda tx, it: approvals.move(tx, it, it), ("agent_id", "conversation", "request", "runs", "requested_at")),
    Kind(ClientTurn, lambda tx, it: client_turns.add(tx, OURS, it, {"of": it.id}),
         lambda tx, it: same(client_turns.find(tx, OURS, it.id), {"of": it.id})),
    Kind(Conversation,
         lambda tx, it: conversations.add(tx, it, OURS, {str(at): one for at, one in enumerate(it.isolated_block_ids)}),
         lambda tx, it: conversations.get(tx, OURS, it.id)),
    Kind(Message, lambda tx, it: messages.append(tx, [it]), lambda tx, it: messages.get(tx, it.id),
         given=lambda number: {"seq": 1}),
    Kind(File, files.insert, lambda tx, it: files.get(tx, it.organization_id, it.id)),
    Kind(FilePassage, lambda tx, it: file_passages.insert_many(tx, OURS, [it]),
         lambda tx, it: only(file_passages.some(tx, it.file_id, 0, 9))),
    Kind(Folder, folders.insert, lambda tx, it: folders.get(tx, it.organization_id, it.id),
         lambda tx, it: folders.update(
             tx, it.organization_id, it.id, columns(it), it.updated_at,
             it.last_updated_by_id,
         ), ("id", "organization_id", "created_at", "created_by_id")),
    Kind(Entity, lambda tx, it: entities.add(tx, agent_of(it), it),
         lambda tx, it: only(entities.of_agent(tx, agent_of(it)))),
    Kind(Fact, facts.add, lambda tx, it: facts.get(tx, it.agent_id, it.id)),
    Kind(FactState, lambda tx, it: tx.execute(fact_states.insert(), columns(it) | {"every_turns": 1}),
         lambda tx, it: fact_progress.get(tx, it.agent_id)),
    Kind(WorkingMemoryEntry,
         lambda tx, it: working_memory.insert_many(tx, agent_of(it), [(it, f'"{it.value}"')]),
         lambda tx, it: working_memory.get(tx, agent_of(it), it.key),
         lambda tx, it: working_memory.replace(tx, agent_of(it), it, f'"{it.value}"'), ("key", "created_at")),
    Kind(BatchItem, lambda tx, it: tx.execute(batches._INSERT, batches._to_row(it) | {"given": {}}),
         lambda tx, it: only(batches.items(tx, it.batch_id)), batches.replace,
         ("batch_id", "place", "organization_id", "agent_id")),
    Kind(Job, lambda tx, it: jobs.add(tx, it, OURS), lambda tx, it: jobs.get(tx, OURS, it.id)),
    Kind(Job, lambda tx, it: jobs.add(tx, it, OURS), lambda tx, it: jobs.get(tx, OURS, it.id), batches.change,
         tuple(each.name for each in fields(Job) if each.name not in
               ("status", "metadata", "completed_at", "total_duration_ns", "updated_at"))),
    Kind(Step, lambda tx, it: steps.add(tx, it, OURS), lambda tx, it: steps.get(tx, it.id)),
    Kind(CallRecord, lambda tx, it: tool_calls.add(tx, [it]),
         lambda tx, it: only(tool_calls.select_calls(tx, it.organization_id, CallQuery())),
         given=lambda number: {"number": number}),
    Kind(Trace, _add_trace, lambda tx, it: traces.find(tx, it.step_id)),
    Kind(ModelProvider, lambda tx, it: providers.insert(tx, it, SEALING),
         lambda tx, it: providers.get(tx, it.organization_id, it.id, KEYRING),
         lambda tx, it: providers.replace(tx, it, SEALING),
         ("id", "organization_id", "name", "last_synced_at", "created_by_id", "created_at"),
         given=lambda number: {"unreadable": {}, "access": filled(ProviderAccess, number, provider_type="openai")}),
    Kind(McpServer, lambda tx, it: mcp_servers.insert(tx, it, SEALING),
         lambda tx, it: mcp_servers.get(tx, it.organization_id, it.id, KEYRING),
         lambda tx, it: mcp_servers.replace(tx, it, SEALING), ("id", "organization_id", "created_by_id", "created_at"),
         given=lambda number: {"unreadable": {}}),
    Kind(McpTask, mcp_tasks.insert, lambda tx, it: mcp_tasks.get(tx, it.organization_id, it.id), mcp_tasks.replace,
         ("id", "organization_id", "server_id", "agent_id", "conversation_id", "tool_name", "task_id", "expires_at",
          "created_at")),
    Kind(SandboxConfig, sandbox_configs.insert, lambda tx, it: sandbox_configs.get(tx, it.organization_id, it.id),
         sandbox_configs.replace, ("id", "type", "organization_id", "created_by_id", "created_at")),
    Kind(SandboxVariable, _add_variable,
         lambda tx, it: sandbox_configs.get_variable(tx, it.organization_id, it.id, KEYRING),
         lambda tx, it: sandbox_configs.replace_variable(tx, it, SEALING),
         ("id", "sandbox_config_id", "organization_id", "created_by_id", "created_at"),
         given=lambda number: {"unreadable": None}),
    Kind(Tool, tools.insert, lambda tx, it: tools.get(tx, it.id)),
    Kind(Template,
         lambda tx, it: templates.create(tx, OURS, it, NewVersion(f"document of {it.id}", ("a",)), it.id[::-1]),
         _versions, given=lambda number: {"changed": False, "latest": 1, "base": 1}),
    Kind(Firing, firings.insert, lambda tx, it: firings.get(tx, it.organization_id, it.id), firings.replace,
         ("id", "schedule_id", "organization_id", "agent_id", "due_at", "manual", "created_at")),
    Kind(Webhook, lambda tx, it: hooks.insert(tx, it, it.id[::-1]),
         lambda tx, it: same(hooks.find(tx, it.id), it.id[::-1]), hooks.replace,
         ("id", "organization_id", "agent_id", "last_used_at", "created_at")),
    Kind(Schedule, schedules.insert, lambda tx, it: schedules.get(tx, it.organization_id, it.agent_id, it.id),
         schedules.replace, ("id", "organization_id", "agent_id", "created_at")),
]  # fmt: skip
CHANGING = [kind for kind in KINDS if kind.change]


def name_of(kind: Kind) -> str:
    return f"{kind.of.__name__}-{KINDS.index(kind)}"


@pytest.fixture(scope="module")
def stored() -> Iterator[Tx]:
    with memory_connection() as connection:
        connection.execute(text("PRAGMA foreign_keys = OFF"))
        create_schema(connection)
        yield connection


@pytest.fixture
def tx(stored: Tx) -> Iterator[Tx]:
    with stored.begin_nested() as point:
        yield stored
        point.rollback()


@pytest.mark.parametrize("kind", KINDS, ids=map(name_of, KINDS))
def test_every_field_comes_back_as_it_was_written(tx: Tx, kind: Kind) -> None:
    values = [kind.value(number) for number in (1, 2)]
    for value in values:
        kind.add(tx, value)
    assert [kind.read(tx, value) for value in values] == values


@pytest.mark.parametrize("kind", CHANGING, ids=map(name_of, CHANGING))
def test_a_change_writes_what_may_change_and_nothing_else(tx: Tx, kind: Kind) -> None:
    first, second, third = (kind.value(number) for number in (1, 2, 3))
    for value in (first, second):
        kind.add(tx, value)
    keys = {name: getattr(first, name) for name in KEYS if name in kind.kept}
    assert kind.change is not None
    kind.change(tx, replace(third, **keys))
    changed = replace(third, **{name: getattr(first, name) for name in kind.kept}, **kind.moved(first))
    assert [kind.read(tx, changed), kind.read(tx, second)] == [changed, second]
