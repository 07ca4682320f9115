"""Companions: agents that maintain another agent's memory in the background.

A companion shares all blocks of the agent it works for, has one of its own that says how it works, and is bound to it
by a group. It is created in the transaction that creates or changes the other, and deleted with it.
"""

from dataclasses import dataclass, replace

from kelpie.agent.definition import changes as agent_changes
from kelpie.agent.definition import creation, first_messages
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.prompt.agent_types import COMPANIONS, spec_of
from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import Agent, AgentType, NewAgent
from kelpie.core.agents.groups import Group, Manager, ManagerType
from kelpie.core.conversations.messages import Message
from kelpie.core.ids import AgentId, GroupId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.time import Micros
from kelpie.storage.agents import agents, groups
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.tools import tools
from kelpie.world.database import Tx
from kelpie.world.ids import Ids

FREQUENCY_DEFAULT = 5  # turns of the main agent between two looks of its companion
BUFFER_MAX, BUFFER_MIN = 30, 15  # messages that one who speaks by voice keeps in sight
LABEL = "memory_persona"
PERSONA = """\
I maintain memory. After a conversation I read the new messages and update the memory blocks. I keep what is still \
true, group related facts, replace what has changed, and add conclusions that follow from the facts. The blocks \
contain everything that will matter later, without repetition."""


@dataclass(frozen=True, slots=True)
class PreparedCompanion:
    """A companion that is about to be created, with ids and times drawn beforehand."""

    agent_id: AgentId
    group_id: GroupId
    persona: tuple[Block, ...]
    first: tuple[Message, ...]
    now: Micros
    caller: Caller


def prepare(ids: Ids, now: Micros, block_limit: int, caller: Caller) -> PreparedCompanion:
    """Draws the ids and times for a new companion."""
    agent_id = ids.new(AgentId)
    now += 1_000  # it comes after its agent, and its own block after those it shares, wherever they are listed
    persona = creation.make_blocks((NewBlock(LABEL, PERSONA),), ids, now, block_limit, caller)
    first = creation.first_messages(agent_id, spec_of(AgentType.sleeptime_agent), None, ids, now)
    return PreparedCompanion(agent_id, ids.new(GroupId), persona, first, now, caller)


def create(tx: Tx, main: Agent, shared: tuple[Block, ...], prepared: PreparedCompanion) -> Group:
    """Gives the agent a companion, unless it has one; a group that has lost its own gets the new one."""
    there = groups.background_of(tx, main.id)
    if there is not None and there.agent_ids:
        return there
    voice = spec_of(main.agent_type).needs_companion
    new = NewAgent(
        name=f"{main.name[: creation.NAME_CHARS_MAX - 10]}-sleeptime",
        agent_type=AgentType.voice_sleeptime_agent if voice else AgentType.sleeptime_agent,
        embedding=main.embedding,
        timezone=main.timezone,
        project_id=main.project_id,
    )
    names = creation.own_tools(new, spec_of(new.agent_type))
    attached = agent_changes.find_tools(tx, main.organization_id, names, ())
    model = replace(main.model, inner_thoughts=False)
    agent = creation.make_agent(new, prepared.agent_id, model, attached, prepared.now, prepared.caller)
    agents.create(tx, agent)
    own = () if any(block.label == LABEL for block in shared) else prepared.persona
    blocks.give_to_new(tx, agent.id, own, Author(AuthorKind.system))
    for block in shared:
        block_attachments.attach(tx, agent.id, block.id)
    tools.give_to_new(tx, agent.id, [tool.id for tool in attached])
    first_messages.write(tx, AgentSnapshot(agent, (*shared, *own), attached), prepared.first)
    if there is not None:
        groups.set_agents(tx, there.id, (agent.id,))
        return groups.get(tx, main.organization_id, there.id)
    group = _group(main, agent, prepared)
    groups.add(tx, group, main.organization_id)
    return group


def _group(main: Agent, companion: Agent, prepared: PreparedCompanion) -> Group:
    if companion.agent_type is AgentType.voice_sleeptime_agent:
        manager = Manager(
            ManagerType.voice_sleeptime,
            main.id,
            max_message_buffer_length=BUFFER_MAX,
            min_message_buffer_length=BUFFER_MIN,
        )
        about, counter = "Voice: memory is updated in the background.", None
    else:
        manager = Manager(ManagerType.sleeptime, main.id, sleeptime_agent_frequency=FREQUENCY_DEFAULT)
        about, counter = "", -1
    return Group(
        id=prepared.group_id,
        description=about,
        manager=manager,
        agent_ids=(companion.id,),
        created_at=prepared.now,
        updated_at=prepared.now,
        turns_counter=counter,
        project_id=main.project_id,
        created_by_id=prepared.caller.user_id,
        last_updated_by_id=prepared.caller.user_id,
    )


def of(tx: Tx, agent_id: AgentId) -> list[AgentId]:
    """The companions that have nothing to do without this agent: of the right type, and in no other group."""
    group = groups.background_of(tx, agent_id)
    if group is None:
        return []
    found = [agents.get(tx, member) for member in group.agent_ids if member != agent_id]
    return [one.id for one in found if one.agent_type in COMPANIONS and groups.count_with(tx, one.id) == 1]
