"""Plan of an import: every row that it writes, with ids and times drawn, before anything is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kelpie.agent.agent_files.planned_folders import PlannedFolder
from kelpie.agent.agent_files.planned_tools import PlannedTools
from kelpie.agent.definition import creation
from kelpie.agent.prompt.rendering import system_text
from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import Agent, NewAgent, Secret
from kelpie.core.agents.agent_file import (
    NOTHING_KEPT,
    AgentFile,
    Document,
    FileAgent,
    FileGroup,
    ImportOptions,
    KeptParts,
    MessageIds,
    OpenFile,
    member,
)
from kelpie.core.agents.deployments import Deployment
from kelpie.core.agents.groups import Group
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Message, NewMessage, Role, Text
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, BlockId, GroupId, MessageId, RunId, StepId
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.time import Micros
from kelpie.memory import blocks as block_values
from kelpie.world.ids import Ids

COPY_SUFFIX = "_copy"


@dataclass(frozen=True, slots=True)
class PlannedAgent:
    """An agent that is about to be made. `number` is its place in the file."""

    number: int
    agent: Agent
    new: NewAgent
    blocks: tuple[Block, ...]
    tools: tuple[str, ...]  # references
    secrets: tuple[Secret, ...]
    ids: MessageIds
    context: tuple[MessageId, ...]
    first: tuple[Message, ...]  # for an agent without a history of its own: the instructions come first
    waiting: tuple[RunId, StepId]  # of a request for approval at the end of the context
    kept: KeptParts
    folders: tuple[str, ...] = ()  # references
    open_files: tuple[OpenFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportPlan:
    file: AgentFile
    agents: tuple[PlannedAgent, ...]
    blocks: Mapping[str, Block]  # by reference
    groups: tuple[Group, ...]
    tools: PlannedTools
    now: Micros
    folders: tuple[PlannedFolder, ...] = ()
    deployment: Deployment | None = None

    @property
    def agent_ids(self) -> tuple[AgentId, ...]:
        return tuple(planned.agent.id for planned in self.agents)


@dataclass(frozen=True, slots=True)
class References:
    """The new ids of everything in a file."""

    agents: Mapping[str, AgentId]
    groups: Mapping[str, GroupId]
    blocks: Mapping[str, Block]


def draw(
    file: AgentFile, ids: Ids, now: Micros, caller: Caller, block_limit: int, deployment: Deployment | None = None
) -> References:
    """Draws ids for a file. Raises InvalidInput for a block that cannot be."""
    made: dict[str, Block] = {}
    # A microsecond apart, in the order of the agents: blocks are shown oldest first.
    used = dict.fromkeys(reference for agent in file.agents for reference in agent.blocks)
    place = {reference: number for number, reference in enumerate(used)}
    for number, block in enumerate(file.blocks):
        at = now + place.get(block.reference, len(place) + number)
        try:
            new = deployed_block(block.new, block.reference, deployment)
            made[block.reference] = block_values.make(
                new, ids.new(BlockId), at, caller.user_id, caller.organization_id, limit=block_limit
            )
        except InvalidInput as error:
            raise InvalidInput(f"file.blocks[{number}].{error.field}", error.remedy) from None
    return References(
        {agent.reference: ids.new(AgentId) for agent in file.agents},
        {group.reference: ids.new(GroupId) for group in file.groups},
        made,
    )


def deployed_block(new: NewBlock, entity: str, deployment: Deployment | None) -> NewBlock:
    """The block with the ids of the deployment that it is made for, if any."""
    return new if deployment is None else replace(new, entity_id=entity, **deployment.marks)


def deployed_agent(new: NewAgent, agent: FileAgent, deployment: Deployment | None) -> NewAgent:
    """The agent with what the deployment gives to each of its agents."""
    if deployment is None:
        return new
    own = tuple(deployed_block(block, f"{agent.reference}.{block.label}", deployment) for block in new.memory_blocks)
    return replace(
        new,
        memory_blocks=own,
        entity_id=agent.reference,
        tags=(*new.tags, *deployment.tags),
        identity_ids=(*new.identity_ids, *deployment.identity_ids),
        **deployment.marks,
    )


def given_messages(number: int, deployment: Deployment | None) -> tuple[NewMessage, ...] | None:
    """The first messages of an agent that has no history; None: those of its type."""
    if deployment is None:
        return ()
    return deployment.initial_messages if number == 0 else None


def new_name(agent: FileAgent, number: int, options: ImportOptions) -> str | None:
    """The name of an imported agent: the client's for the first, otherwise its own, marked as a copy."""
    if number == 0 and (options.name is not None or options.deployment is not None):
        return options.name  # None: one is made up
    name = agent.new.name
    if name is None or not options.append_copy_suffix or options.name is not None or options.deployment is not None:
        return name
    return name[: creation.NAME_CHARS_MAX - len(COPY_SUFFIX)] + COPY_SUFFIX


def message_ids(
    agent: FileAgent, agent_id: AgentId, groups: Mapping[str, str], ids: Ids, now: Micros, strip: bool
) -> MessageIds:
    """Draws ids for the messages of an agent."""
    by_reference = {} if strip else {reference: ids.new(MessageId) for reference in agent.messages}
    return MessageIds(agent_id, by_reference, groups, now)


def planned_groups(
    file: AgentFile, references: References, now: Micros, caller: Caller, deployment: Deployment | None = None
) -> tuple[Group, ...]:
    marks = {} if deployment is None else deployment.marks
    made = (_group(group, references, now + number, caller) for number, group in enumerate(file.groups))
    return tuple(replace(group, **marks) for group in made)


def _group(group: FileGroup, references: References, now: Micros, caller: Caller) -> Group:
    leader = None if group.leader is None else references.agents[group.leader]
    return Group(
        id=references.groups[group.reference],
        description=group.description,
        manager=replace(group.manager, agent_id=leader),
        agent_ids=tuple(references.agents[member] for member in group.members),
        created_at=now,
        updated_at=now,
        shared_block_ids=tuple(references.blocks[block].id for block in group.blocks),
        turns_counter=-1 if group.manager.sleeptime_agent_frequency is not None else None,
        project_id=group.project_id,
        hidden=group.hidden,
        created_by_id=caller.user_id,
        last_updated_by_id=caller.user_id,
    )


# --- messages ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class History:
    """The messages of one agent on their way into the database; notes what the end of the context waits for."""

    plan: PlannedAgent
    request: Message | None = None

    def batches(self, file: AgentFile, rows: int) -> Iterator[list[Message]]:
        """The messages in pieces of at most so many. Raises InvalidInput."""
        seen = self.plan.context[-1] if self.plan.context else None
        for start in range(0, len(self.plan.first), rows):
            yield list(self.plan.first[start : start + rows])
        if not self.plan.ids.by_reference:
            return
        for piece in file.messages.of_agent(self.plan.number, self.plan.ids):
            found = [self._compiled(message, message.id == seen) for message in piece]
            for start in range(0, len(found), rows):
                yield found[start : start + rows]

    def _compiled(self, message: Message, last: bool) -> Message:
        """The instructions at the beginning of the context are those of the new agent; a request at its end belongs to
        a run, as everything does that can be answered."""
        if last and message.role is Role.approval and any(call.awaits for call in message.tool_calls):
            run_id, step_id = self.plan.waiting
            self.request = replace(message, run_id=run_id, step_id=step_id)
            return self.request
        if not self.plan.first and message.id == self.plan.context[0]:
            if message.role is not Role.system:
                raise InvalidInput(
                    f"file.agents[{self.plan.number}].in_context_message_ids",
                    "must begin with a message of the role system, or be empty",
                )
            return replace(message, content=self.instructions(), tool_calls=(), tool_returns=(), answers=())
        return message

    def instructions(self) -> tuple[Text, ...]:
        return (Text(system_text(self.plan.agent, self.plan.blocks, self.plan.ids.now)),)

    @property
    def pending(self) -> PendingCalls | None:
        """The calls that wait for an answer at the end of the context."""
        if self.request is None:
            return None
        return PendingCalls(self.plan.agent.id, "", self.request.id, self.plan.waiting[:1], self.request.created_at)


# --- what is kept -----------------------------------------------------------------------------------------------------


def kept_parts(file: AgentFile, agent: FileAgent, number: int, tools: PlannedTools) -> KeptParts:
    """What this server cannot use of the parts of a file that belong to an agent."""
    lacking = [tools.lacking[each] for each in agent.tools if each in tools.lacking]
    servers = {_server_name(tool): tool for tool in lacking}
    found = KeptParts(
        tools=tuple(lacking),
        servers=tuple(document for name, document in tools.lacking_servers.items() if name in servers),
        skills=file.skills if number == 0 else (),
    )
    return NOTHING_KEPT if found.empty else found


def _server_name(tool: Document) -> Any:
    return member(member(tool, "metadata_"), "mcp").get("server_name")


def joined(names: Sequence[str]) -> str:
    """Names for a sentence; of many only the first."""
    few = 5
    return ", ".join(names[:few]) + (f" and {len(names) - few} more" if len(names) > few else "")
