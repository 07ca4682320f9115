"""Every filter of every list: alone, with what it keeps and what it leaves out, and never a row of somebody else.

Each list has three rows of ours, numbered 1 to 3. Beside them are twins of row 2: one of another organization and,
where rows belong to agents, one of an agent that was deleted. No list may show a twin.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import pytest
from sqlalchemy import insert, text, update

from kelpie.core.access.identities import Identity, IdentityQuery
from kelpie.core.agents.agent import Agent, AgentQuery
from kelpie.core.agents.groups import Group, GroupQuery, ManagerType
from kelpie.core.agents.projects import Project, ProjectQuery
from kelpie.core.conversations.conversations import ArchiveStatus, Conversation, ConversationQuery
from kelpie.core.conversations.jobs import Job, JobQuery, JobStatus
from kelpie.core.conversations.messages import Message, MessageSearch, Role, Text, Usage
from kelpie.core.conversations.runs import Comparison, Run, RunQuery, RunStatus, Step, StepQuery
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block, BlockQuery
from kelpie.core.memory.facts import Entity, Fact, FactQuery
from kelpie.core.memory.passages import Archive, ArchiveQuery, Passage, PassageQuery
from kelpie.core.memory.working_memory import EntryQuery, WorkingMemoryEntry
from kelpie.core.models.model_providers import ModelProvider, ProviderAccess, ProviderQuery
from kelpie.core.paging import Page
from kelpie.core.permissions.call_records import CallOutcome, CallQuery, CallRecord
from kelpie.core.tools.tools import Tool, ToolQuery, ToolSearch, ToolType
from kelpie.storage import providers
from kelpie.storage.agents import agents, groups, identities, projects
from kelpie.storage.archives import archives, passage_search, passages
from kelpie.storage.blocks import attachments, blocks
from kelpie.storage.conversations import conversations, message_search, messages
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.memory import entities, facts, working_memory
from kelpie.storage.runs import jobs, runs, steps, tool_calls
from kelpie.storage.tables import agent_archives, journal, metadata, removed_agents
from kelpie.storage.tables import runs as runs_table
from kelpie.storage.tools import search as tool_search
from kelpie.storage.tools import tools
from kelpie.world.database import Tx
from kelpie.world.keyring import Key, Keyring
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema
from tests.storage.filled import filled

OURS = OrganizationId("org-00000000-0000-4000-8000-000000000001")
OTHERS = OrganizationId("org-00000000-0000-4000-8000-000000000002")
REMOVED = AgentId("agent-00000000-0000-4000-8000-00000000dead")
BY = Author(AuthorKind.user, "user 1")
KEYRING = Keyring([Key(bytes(32))])
SEALING = Sealing(KEYRING, b"seed")

T = TypeVar("T")
Filter = tuple[dict[str, Any], Sequence[int]]


def agent(number: int) -> AgentId:
    return AgentId(f"agent-00000000-0000-4000-8000-{number:012}")


@dataclass(frozen=True)
class Listing:
    """One list: its query, how its rows are made, and for each filter which of the rows it keeps."""

    query: type[Any]
    write: Callable[[Tx], Sequence[Any]]
    read: Callable[[Tx, Any], Sequence[Any]]
    filters: Sequence[Filter]
    beside: tuple[str, ...] = ("page",)  # fields of the query that are no filters
    count: Callable[[Tx, Any], int] | None = None
    plain: Sequence[int] = (1, 2, 3)  # rows that a query without filters shows


def three(kind: type[Any], **given: Any) -> list[Any]:
    return [filled(kind, number, **given) for number in (1, 2, 3)]


def four(kind: type[T]) -> list[T]:
    """The values that `three` makes, each at the place of its number."""
    return [filled(kind, number) for number in range(4)]


def twin(value: Any, number: int = 9, **given: Any) -> Any:
    """The same value with another id."""
    return replace(value, id=type(value.id)(f"{value.id[:-1]}{number}"), **given)


# --- runs and steps ---------------------------------------------------------------------------------------------------


def _runs(tx: Tx) -> list[Run]:
    status = [RunStatus.created, RunStatus.running, RunStatus.completed]
    made = [
        replace(
            filled(Run, number, agent_id=agent(number), status=status[number - 1]),
            background=number == 2,
            conversation_id=None if number == 1 else filled(Run, number).conversation_id,
            usage=filled(Usage, number),
        )
        for number in (1, 2, 3)
    ]
    others, removed = twin(made[1], 8), twin(made[1], 9, agent_id=REMOVED)
    for run, owner, taken_up in ((made[0], OURS, 0), (made[1], OURS, 1), (made[2], OURS, 1), (others, OTHERS, 1),
                                 (removed, OURS, 1)):  # fmt: skip
        row = {name: getattr(run, name, None) for name in runs_table.c.keys()}  # noqa: SIM118
        row |= {"usage": {name: getattr(run.usage, name) for name in Usage.__slots__}, "organization_id": owner}
        row |= {"owner": "here", "owner_incarnation": 1, "taken_up": taken_up, "input": {}, "callback_attempts": 0}
        tx.execute(insert(runs_table), row)
    for number, outcome in ((1, CallOutcome.success), (2, CallOutcome.error), (3, CallOutcome.refused)):
        record = filled(
            CallRecord, number, number=number, run_id=made[number - 1].id, outcome=outcome, tool_id="tool 1"
        )
        tool_calls.add(tx, [record, replace(record, tool_id=f"tool {number + 1}", outcome=CallOutcome.interrupted)])
        agents.create(tx, filled(Agent, number, id=agent(number)))
    row = {"agent_id": agent(1), "turn_id": made[0].id, "step": 0, "kind": "open", "epoch": 1, "created_at": 5000}
    tx.execute(insert(journal), row)
    return made


RUN, STEP = four(Run), four(Step)
RUNS: Sequence[Filter] = [
    ({"run_id": RUN[2].id}, [2]),
    ({"agent_ids": (agent(1), agent(3))}, [1, 3]),
    ({"statuses": (RunStatus.created, RunStatus.completed)}, [1, 3]),
    ({"statuses": (RunStatus.completed,), "active": True}, [3]),
    ({"active": True}, [1, 2]),
    ({"background": True}, [2]),
    ({"background": False}, [1, 3]),
    ({"stop_reason": RUN[2].stop_reason}, [2]),
    ({"conversation_id": RUN[2].conversation_id}, [2]),
    ({"conversation_id": "default"}, [1]),
    ({"tools_used": ("tool 1",)}, [1, 2]),
    ({"tools_used": ("tool 3", "tool 4")}, [2, 3]),
    ({"project_id": filled(Agent, 2).project_id}, [2]),
    ({"template_family": filled(Agent, 2).base_template_id}, [2]),
    ({"step_count": Comparison("eq", RUN[2].step_count)}, [2]),
    ({"step_count": Comparison("gte", RUN[2].step_count)}, [2, 3]),
    ({"step_count": Comparison("lte", RUN[2].step_count)}, [1, 2]),
    ({"duration_ns": Comparison("eq", RUN[2].total_duration_ns or 0)}, [2]),
    ({"duration_ns": Comparison("gt", RUN[2].total_duration_ns or 0)}, [3]),
    ({"duration_ns": Comparison("lt", RUN[2].total_duration_ns or 0)}, [1]),
    ({"duration_percentile": 0}, [1, 2, 3]),
    ({"duration_percentile": 33}, [1, 2, 3]),
    ({"duration_percentile": 34}, [2, 3]),
    ({"duration_percentile": 66}, [2, 3]),
    ({"duration_percentile": 67}, [3]),
    ({"duration_percentile": 100}, [3]),
    ({"duration_percentile": 50, "background": False}, [3]),
    ({"created_from": RUN[2].created_at}, [2, 3]),
    ({"created_to": RUN[2].created_at}, [1, 2]),
    ({"cost_micros_min": filled(Usage, 2).cost_micros}, [2, 3]),
    ({"recovered": True}, [3]),
    ({"recovered": False}, [1, 2]),
    ({"idle_since": RUN[2].created_at}, []),
    ({"idle_since": RUN[2].created_at + 1}, [2]),
    ({"idle_since": 5000}, [2]),
    ({"idle_since": 5001}, [1, 2]),
]


def _steps(tx: Tx) -> list[Step]:
    made = [
        replace(filled(Step, number), feedback=None if number == 3 else f"feedback {number}") for number in (1, 2, 3)
    ]
    others, removed = twin(made[1], 8), twin(made[1], 9, agent_id=REMOVED)
    for step, owner in ((made[0], OURS), (made[1], OURS), (made[2], OURS), (others, OTHERS), (removed, OURS)):
        steps.add(tx, step, owner)
        steps.set_feedback(tx, step.id, step.feedback, step.tags)
    return made


STEPS: Sequence[Filter] = [
    ({"agent_id": STEP[2].agent_id}, [2]),
    ({"run_id": STEP[2].run_id}, [2]),
    ({"model": STEP[2].model}, [2]),
    ({"feedback": "feedback 2"}, [2]),
    ({"has_feedback": True}, [1, 2]),
    ({"has_feedback": False}, [3]),
    ({"tags": (STEP[1].tags[1], STEP[2].tags[0])}, [1, 2]),
    ({"project_id": STEP[2].project_id}, [2]),
    ({"created_from": STEP[2].created_at}, [2, 3]),
    ({"created_to": STEP[2].created_at}, [1, 2]),
]


def _jobs(tx: Tx) -> list[Job]:
    made = [
        filled(Job, number, status=status)
        for number, status in ((1, JobStatus.pending), (2, JobStatus.running), (3, JobStatus.expired))
    ]
    for job, owner in (*((job, OURS) for job in made), (twin(made[1]), OTHERS)):
        jobs.add(tx, job, owner)
    return made


def _calls(tx: Tx) -> list[CallRecord]:
    outcomes = (CallOutcome.success, CallOutcome.error, CallOutcome.refused)
    made = [
        filled(CallRecord, number, organization_id=OURS, number=number, outcome=outcome)
        for number, outcome in enumerate(outcomes, 1)
    ]
    tool_calls.add(tx, [*made, replace(made[1], organization_id=OTHERS), replace(made[1], agent_id=REMOVED)])
    return made


CALL = filled(CallRecord, 2, number=2)


# --- agents and what belongs to them ----------------------------------------------------------------------------------


def _agents(tx: Tx) -> list[Agent]:
    made = [filled(Agent, number, organization_id=OURS, hidden=(None, False, True)[number - 1]) for number in (1, 2, 3)]
    made = [replace(each, tags=(*each.tags, "all")) for each in made]
    others = twin(made[1], organization_id=OTHERS)
    for each in (*made, others):
        agents.create(tx, each)
    for number, owner in ((1, made[0]), (2, made[1]), (3, others)):
        identity = filled(Identity, number, organization_id=owner.organization_id)
        identities.insert(tx, identity)
        identities.of_agents.add(tx, [owner.id], [identity.id])
    project = filled(Project, 2)
    projects.insert(tx, project)
    projects.add(tx, project.id, made[0].id)
    projects.add(tx, project.id, others.id)
    return [replace(each, tags=tuple(sorted(each.tags))) for each in made]


AGENT, IDENTITY = four(Agent), four(Identity)
ALL = {"show_hidden": True}
AGENTS: Sequence[Filter] = [
    (ALL, [1, 2, 3]),
    ({**ALL, "name": AGENT[2].name}, [2]),
    ({**ALL, "query_text": AGENT[2].name[2:].upper()}, [2]),
    ({**ALL, "query_text": AGENT[2].name[-2:]}, [1, 2, 3]),
    ({**ALL, "tags": (AGENT[1].tags[0], AGENT[2].tags[1])}, [1, 2]),
    ({**ALL, "tags": (AGENT[2].tags[0], "all", "all"), "match_all_tags": True}, [2]),
    ({**ALL, "tags": (AGENT[2].tags[0], AGENT[1].tags[0]), "match_all_tags": True}, []),
    ({**ALL, "project_id": AGENT[2].project_id}, [2]),
    ({**ALL, "project_id": filled(Project, 2).id}, [1]),
    ({**ALL, "template_id": AGENT[2].template_id}, [2]),
    ({**ALL, "base_template_id": AGENT[2].base_template_id}, [2]),
    ({**ALL, "created_by_id": AGENT[2].created_by_id}, [2]),
    ({**ALL, "last_stop_reason": AGENT[2].last_stop_reason}, [2]),
    ({**ALL, "identity_id": IDENTITY[2].id}, [2]),
    ({**ALL, "identity_id": IDENTITY[3].id}, []),
    ({**ALL, "identifier_keys": (IDENTITY[1].identifier_key, IDENTITY[2].identifier_key)}, [1, 2]),
    ({**ALL, "only": (AGENT[1].id, AGENT[3].id)}, [1, 3]),
    ({**ALL, "only": ()}, []),
]


def _groups(tx: Tx) -> list[Group]:
    kinds = (ManagerType.dynamic, ManagerType.supervisor, ManagerType.dynamic)
    made = [filled(Group, number, hidden=(None, False, True)[number - 1]) for number in (1, 2, 3)]
    made = [replace(each, manager=replace(each.manager, type=kind)) for each, kind in zip(made, kinds, strict=True)]
    for each, owner in (*((each, OURS) for each in made), (twin(made[1]), OTHERS)):
        groups.add(tx, each, owner)
    return made


GROUP = filled(Group, 2)


def _identities(tx: Tx) -> list[Identity]:
    made = three(Identity, organization_id=OURS)
    for each in (*made, twin(made[1], organization_id=OTHERS)):
        identities.insert(tx, each)
    return made


def _projects(tx: Tx) -> list[Project]:
    made = three(Project, organization_id=OURS)
    for each in (*made, twin(made[1], organization_id=OTHERS)):
        projects.insert(tx, each)
    return made


PROJECT = filled(Project, 2)


def _conversations(tx: Tx) -> list[Conversation]:
    made = [
        filled(
            Conversation, number, isolated_block_ids=(), hidden=number == 3, archived_at=None if number == 1 else number
        )
        for number in (1, 2, 3)
    ]
    removed, deleted = twin(made[1], 7, agent_id=REMOVED), twin(made[1], 8)
    for each, owner in (*((each, OURS) for each in (*made, removed, deleted)), (twin(made[1]), OTHERS)):
        conversations.add(tx, each, owner, {})
    conversations.change(tx, deleted.id, {"deleted_at": 5})
    return made


CONVERSATION = filled(Conversation, 2)


# --- memory -----------------------------------------------------------------------------------------------------------


def _blocks(tx: Tx) -> list[Block]:
    made = [
        filled(Block, number, organization_id=OURS, is_template=number == 2, hidden=(None, False, True)[number - 1])
        for number in (1, 2, 3)
    ]
    made = [replace(each, tags=tuple(sorted((*each.tags, "all")))) for each in made]
    others = twin(made[1], organization_id=OTHERS)
    blocks.insert(tx, [*made, others], BY)
    for number, block in ((1, made[0]), (2, made[1]), (3, others)):
        identity = filled(Identity, number, organization_id=block.organization_id)
        identities.insert(tx, identity)
        identities.of_blocks.add(tx, [block.id], [identity.id])
    for number in (1, 2, 3):
        agents.create(tx, filled(Agent, number, id=agent(number)))
        for block in made[3 - number :]:
            attachments.attach(tx, agent(number), block.id)  # to as many agents as its number says
    return made


BLOCK = four(Block)
BLOCKS: Sequence[Filter] = [
    (ALL, [1, 2, 3]),
    ({**ALL, "label": BLOCK[2].label}, [2]),
    ({**ALL, "name": BLOCK[2].template_name}, [2]),
    ({**ALL, "templates_only": True}, [2]),
    ({**ALL, "label_search": BLOCK[2].label[2:]}, [2]),
    ({**ALL, "description_search": BLOCK[2].description}, [2]),
    ({**ALL, "value_search": BLOCK[2].value[1:].upper()}, [2]),
    ({**ALL, "tags": (BLOCK[1].tags[0], BLOCK[2].tags[1])}, [1, 2]),
    ({**ALL, "tags": (BLOCK[2].tags[0], "all", "all"), "match_all_tags": True}, [2]),
    ({**ALL, "project_id": BLOCK[2].project_id}, [2]),
    ({**ALL, "connected_count_gt": 2}, [3]),
    ({**ALL, "connected_count_lt": 2}, [1]),
    ({**ALL, "connected_count_eq": (1, 3)}, [1, 3]),
    ({**ALL, "identity_id": IDENTITY[2].id}, [2]),
    ({**ALL, "identity_id": IDENTITY[3].id}, []),
    ({**ALL, "identifier_keys": (IDENTITY[1].identifier_key, IDENTITY[2].identifier_key)}, [1, 2]),
]


def _archives(tx: Tx) -> list[Archive]:
    made = three(Archive, organization_id=OURS)
    for each in (*made, twin(made[1], organization_id=OTHERS)):
        archives.insert(tx, each)
        row = {"agent_id": agent(made.index(each) + 1 if each in made else 4), "archive_id": each.id, "is_owner": True}
        tx.execute(insert(agent_archives), row)
    return made


def _facts(tx: Tx) -> list[Fact]:
    made = [replace(each, agent_id=agent(1)) for each in three(Fact)]
    made[0] = replace(made[0], valid_from=10, valid_until=20)
    made[1] = replace(made[1], valid_from=20, valid_until=30)
    made[2] = replace(made[2], valid_from=30, valid_until=None)
    for each in (*made, twin(made[1], agent_id=agent(2))):
        facts.add(tx, each)
    entities.add(tx, agent(1), Entity(made[0].subject, "person", 1, 1, (made[1].subject,)))
    entities.add(tx, agent(2), Entity(made[0].subject, "person", 1, 1, (made[2].subject,)))
    return made


FACT = four(Fact)


def _entries(tx: Tx) -> list[WorkingMemoryEntry]:
    made = [replace(each, key=each.key.replace("key ", "key_")) for each in three(WorkingMemoryEntry)]
    made[2] = replace(made[2], key=made[2].key.upper())
    for owner, entries in ((agent(1), made), (agent(2), made[1:2])):
        working_memory.insert_many(tx, owner, [(each, f'"{each.value}"') for each in entries])
    return made


ENTRY = four(WorkingMemoryEntry)


def _passages(tx: Tx) -> list[Passage]:
    archive = filled(Archive, 1, organization_id=OURS)
    made = [
        filled(Passage, number, organization_id=OURS, archive_id=archive.id, text=f"A pear, and {number} more.")
        for number in (1, 2, 3)
    ]
    made = [replace(each, tags=tuple(sorted((*each.tags, "all")))) for each in made]
    elsewhere, others, gone = (filled(Archive, number, organization_id=OURS) for number in (4, 5, 6))
    for one in (archive, elsewhere, replace(others, organization_id=OTHERS), gone):
        archives.insert(tx, one)
    for each in made:
        passages.insert(tx, each)
    for number, one, owner in ((7, others, OTHERS), (8, gone, OURS)):
        passages.insert(tx, twin(made[1], number, archive_id=one.id, organization_id=owner))
    tx.execute(update(metadata.tables["archives"]).values(removed=True).where(text(f"id = '{gone.id}'")))
    return made


PASSAGE = four(Passage)
PASSAGES: Sequence[Filter] = [
    ({"tags": (PASSAGE[1].tags[0], PASSAGE[2].tags[1])}, [1, 2]),
    ({"tags": (PASSAGE[2].tags[0], "all", "all"), "match_all_tags": True}, [2]),
    ({"tags": (PASSAGE[2].tags[0], PASSAGE[1].tags[0]), "match_all_tags": True}, []),
    ({"since": PASSAGE[2].created_at}, [2, 3]),
    ({"until": PASSAGE[2].created_at}, [1, 2]),
]
OTHER_THAN_FILTERS = ("text", "limit", "mode", "mentions", "oldest_first")


def _messages(tx: Tx) -> list[Message]:
    roles = (Role.user, Role.assistant, Role.user)
    made = [
        filled(
            Message, number, agent_id=agent(number), role=role, seq=1, content=(Text(f"A pear, and {number} more."),)
        )
        for number, role in enumerate(roles, 1)
    ]
    made = [replace(each, tool_calls=(), tool_returns=(), answers=()) for each in made]
    made[0] = replace(made[0], conversation_id=None)
    for number, message in enumerate((*made, twin(made[1], agent_id=agent(4))), 1):
        owner = OTHERS if number == 4 else OURS
        agents.create(tx, filled(Agent, number, id=agent(number), organization_id=owner))
        messages.append(tx, [message])
    return made


MESSAGE = four(Message)
MESSAGES: Sequence[Filter] = [
    ({"agent_id": agent(2)}, [2]),
    ({"conversation_id": MESSAGE[2].conversation_id}, [2]),
    ({"conversation_id": "default"}, [1]),
    ({"roles": (Role.user, Role.summary)}, [1, 3]),
    ({"project_id": filled(Agent, 2).project_id}, [2]),
    ({"template_id": filled(Agent, 2).template_id}, [2]),
    ({"created_from": MESSAGE[2].created_at}, [2, 3]),
    ({"created_to": MESSAGE[2].created_at}, [1, 2]),
    ({"spoken": True}, [1, 2, 3]),
    ({"not_step": MESSAGE[2].step_id}, [1, 3]),
]


# --- tools and providers ----------------------------------------------------------------------------------------------


def _tools(tx: Tx) -> list[Tool]:
    kinds = (ToolType.custom, ToolType.letta_core, ToolType.external_mcp)
    made = [filled(Tool, number, organization_id=OURS, tool_type=kind) for number, kind in enumerate(kinds, 1)]
    made[2] = replace(made[2], project_id=None)
    for each in (*made, twin(made[1], organization_id=OTHERS)):
        tools.insert(tx, each)
    return made


TOOL = four(Tool)


def _providers(tx: Tx) -> list[ModelProvider]:
    made = [
        filled(
            ModelProvider, number, organization_id=OURS, unreadable={},
            access=filled(ProviderAccess, number, provider_type="openai" if number == 2 else "azure"),
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    for each in (*made, twin(made[1], organization_id=OTHERS)):
        providers.insert(tx, each, SEALING)
    return made


PROVIDER = filled(ModelProvider, 2, unreadable={})

PASSAGE_ARCHIVE = filled(Archive, 1).id


def searching_passages(place: Any, words: str) -> Callable[[Tx, Any], Sequence[Any]]:
    return lambda tx, query: [each.passage for each in passage_search.search(tx, place, replace(query, text=words))]


def searching_messages(words: str) -> Callable[[Tx, Any], Sequence[Any]]:
    return lambda tx, query: [each for each, _ in message_search.search(tx, OURS, replace(query, text=words))]


def searching_tools(words: str) -> Callable[[Tx, Any], Sequence[Any]]:
    return lambda tx, query: [each.tool for each in tool_search.search(tx, OURS, replace(query, text=words))]


LISTINGS = [
    Listing(RunQuery, _runs, lambda tx, query: runs.select_runs(tx, OURS, query), RUNS),
    Listing(StepQuery, _steps, lambda tx, query: steps.select_steps(tx, OURS, query), STEPS),
    Listing(JobQuery, _jobs, lambda tx, query: jobs.select_jobs(tx, OURS, query), [
        ({"source_id": filled(Job, 2).source_id}, [2]), ({"active": True}, [1, 2]),
    ]),
    Listing(CallQuery, _calls, lambda tx, query: tool_calls.select_calls(tx, OURS, query), [
        ({"before": 3}, [1, 2]), ({"name": CALL.name}, [2]), ({"outcome": CallOutcome.error}, [2]),
        ({"run_id": CALL.run_id}, [2]),
    ], beside=("limit",)),
    Listing(CallQuery, _calls, lambda tx, query: tool_calls.select_calls(tx, OURS, query, CALL.agent_id), [
        ({"before": 3}, [2]), ({"before": 2}, []), ({"name": "name 1"}, []), ({"outcome": CallOutcome.error}, [2]),
        ({"run_id": filled(CallRecord, 1, number=1).run_id}, []),
    ], beside=("limit",), plain=[2]),
    Listing(AgentQuery, _agents, lambda tx, query: agents.select_agents(tx, OURS, query), AGENTS, plain=(1, 2),
            count=lambda tx, query: agents.count(tx, OURS, query)),
    Listing(GroupQuery, _groups, lambda tx, query: groups.select_groups(tx, OURS, query), [
        (ALL, [1, 2, 3]), ({**ALL, "manager_type": ManagerType.dynamic}, [1, 3]),
        ({**ALL, "project_id": GROUP.project_id}, [2]), ({**ALL, "agent_id": GROUP.agent_ids[1]}, [2]),
        ({**ALL, "agent_id": GROUP.manager.agent_id}, []),
    ], plain=(1, 2)),
    Listing(IdentityQuery, _identities, lambda tx, query: identities.select(tx, OURS, query), [
        ({"name": IDENTITY[2].name[2:]}, [2]), ({"project_id": IDENTITY[2].project_id}, [2]),
        ({"identifier_key": IDENTITY[2].identifier_key}, [2]), ({"identity_type": IDENTITY[2].identity_type}, [2]),
    ]),
    Listing(ProjectQuery, _projects, lambda tx, query: projects.page(tx, OURS, query), [
        ({"name": PROJECT.name}, [2]), ({"owner": PROJECT.owner}, [2]), ({"tag": PROJECT.tags[1]}, [2]),
    ]),
    Listing(ConversationQuery, _conversations, lambda tx, query: conversations.select_conversations(tx, OURS, query), [
        (ALL, [1, 2, 3]), ({**ALL, "agent_id": CONVERSATION.agent_id}, [2]),
        ({**ALL, "summary_search": (CONVERSATION.summary or "")[2:]}, [2]),
        ({**ALL, "archive_status": ArchiveStatus.archived}, [2, 3]),
        ({**ALL, "archive_status": ArchiveStatus.unarchived}, [1]),
    ], plain=(1, 2)),
    Listing(BlockQuery, _blocks, lambda tx, query: blocks.select(tx, OURS, query), BLOCKS, plain=(1, 2),
            count=lambda tx, query: blocks.count(tx, OURS, query)),
    Listing(ArchiveQuery, _archives, lambda tx, query: archives.select(tx, OURS, query), [
        ({"name": filled(Archive, 2).name}, [2]), ({"agent_id": agent(2)}, [2]), ({"agent_id": agent(4)}, []),
    ]),
    Listing(FactQuery, _facts, lambda tx, query: facts.select_facts(tx, agent(1), query), [
        ({"at": 9}, []), ({"at": 10}, [1]), ({"at": 19}, [1]), ({"at": 20}, [2]), ({"at": 30}, [3]),
        ({"entity": FACT[2].subject.upper()}, [1, 2]), ({"entity": FACT[3].subject}, [3]),
        ({"attribute": FACT[2].attribute.upper()}, [2]),
    ], beside=("limit", "offset")),
    Listing(EntryQuery, _entries, lambda tx, query: working_memory.select(tx, agent(1), query), [
        ({"prefix": "key_"}, [1, 2]), ({"prefix": "key%"}, []), ({"prefix": "ey"}, []),
        ({"updated_after": ENTRY[2].updated_at}, [3]), ({"updated_before": ENTRY[2].updated_at}, [1]),
        ({"created_after": ENTRY[2].created_at}, [3]), ({"created_before": ENTRY[2].created_at}, [1]),
    ]),
    Listing(ToolQuery, _tools, lambda tx, query: tools.select(tx, OURS, query), [
        ({"name": TOOL[2].name}, [2]), ({"names": (TOOL[1].name, TOOL[2].name)}, [1, 2]),
        ({"tool_ids": (TOOL[1].id, TOOL[2].id)}, [1, 2]), ({"search": TOOL[2].name[2:].upper()}, [2]),
        ({"tool_types": (ToolType.custom, ToolType.letta_core)}, [1, 2]),
        ({"exclude_tool_types": (ToolType.custom, ToolType.letta_core)}, [3]), ({"only_letta": True}, [2]),
        ({"exclude_letta": True}, [1, 3]), ({"project_id": TOOL[2].project_id}, [2, 3]),
    ], count=lambda tx, query: tools.count(tx, OURS, query)),
    *(
        Listing(PassageQuery, _passages, searching_passages(place, words), PASSAGES, beside=OTHER_THAN_FILTERS)
        for place in (OURS, PASSAGE_ARCHIVE)
        for words in ("", "pear")
    ),
    *(
        Listing(MessageSearch, _messages, searching_messages(words), MESSAGES,
                beside=("text", "limit", "mode", "mentions"))
        for words in ("", "pear")
    ),
    *(
        Listing(ToolSearch, _tools, searching_tools(words), [
            ({"tool_types": (ToolType.custom, ToolType.letta_core)}, [1, 2]),
            ({"tags": (TOOL[1].tags[0], TOOL[2].tags[1])}, [1, 2]),
            ({"tool_types": (ToolType.custom,), "tags": (TOOL[2].tags[1],)}, []),
        ], beside=("text", "limit", "mode"))
        for words in ("", "description", "escripti")
    ),
    Listing(ProviderQuery, _providers, lambda tx, query: providers.page(tx, OURS, query, KEYRING), [
        ({"name": PROVIDER.name}, [2]), ({"provider_type": "azure"}, [1, 3]),
        ({"name": PROVIDER.name, "provider_type": "openai"}, [2]),
        ({"name": PROVIDER.name, "provider_type": "azure"}, []),
    ]),
]  # fmt: skip


def name_of(listing: Listing) -> str:
    return f"{listing.query.__name__}-{LISTINGS.index(listing)}"


@pytest.fixture(scope="module")
def stored() -> Iterator[Tx]:
    with memory_connection() as connection:
        connection.execute(text("PRAGMA foreign_keys = OFF"))
        create_schema(connection)
        for owner in (OURS, OTHERS):
            row = {"id": owner, "name": owner, "privileged_tools": False, "created_at": 1, "updated_at": 1}
            connection.execute(insert(metadata.tables["organizations"]), row)
        connection.execute(insert(removed_agents), {"agent_id": REMOVED, "organization_id": OURS, "removed_at": 1})
        yield connection


@pytest.fixture
def tx(stored: Tx) -> Iterator[Tx]:
    with stored.begin_nested() as point:
        yield stored
        point.rollback()


@pytest.mark.parametrize("listing", LISTINGS, ids=map(name_of, LISTINGS))
def test_every_filter_keeps_what_it_should(tx: Tx, listing: Listing) -> None:
    rows = listing.write(tx)
    needed: dict[str, Any] = {"page": Page(), "text": ""}
    page = {name: value for name, value in needed.items() if name in listing.beside}
    for given, numbers in (({}, listing.plain), *listing.filters):
        query = listing.query(**page, **given)
        found = listing.read(tx, query)
        assert sorted(rows.index(each) + 1 for each in found) == list(numbers), given
        if listing.count is not None:
            assert listing.count(tx, query) == len(numbers), given


@pytest.mark.parametrize("listing", LISTINGS, ids=map(name_of, LISTINGS))
def test_every_filter_is_tried(listing: Listing) -> None:
    tried = {name for given, _ in listing.filters for name in given}
    assert tried | set(listing.beside) >= {each.name for each in fields(listing.query)}
