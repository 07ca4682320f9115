"""Groups of agents, and their managers: an agent or a rule that selects the next speaker. Records only."""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.ids import AgentId, BlockId, GroupId
from kelpie.core.paging import Page
from kelpie.core.time import Micros


class ManagerType(StrEnum):
    round_robin = "round_robin"
    supervisor = "supervisor"
    dynamic = "dynamic"
    sleeptime = "sleeptime"
    voice_sleeptime = "voice_sleeptime"


@dataclass(frozen=True, slots=True)
class Manager:
    """The rule that selects the speakers of a group; the type decides which of the fields are used."""

    type: ManagerType = ManagerType.round_robin
    agent_id: AgentId | None = None
    termination_token: str | None = None
    max_turns: int | None = None
    sleeptime_agent_frequency: int | None = None
    max_message_buffer_length: int | None = None
    min_message_buffer_length: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    id: GroupId
    description: str
    manager: Manager
    agent_ids: tuple[AgentId, ...]
    created_at: Micros
    updated_at: Micros
    shared_block_ids: tuple[BlockId, ...] = ()
    turns_counter: int | None = None
    last_processed_message_id: str | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    hidden: bool | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewGroup:
    agent_ids: tuple[AgentId, ...]
    description: str
    manager: Manager = Manager()
    shared_block_ids: tuple[BlockId, ...] = ()
    project_id: str | None = None
    hidden: bool | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """Filter for a list of groups. `agent_id` asks for groups with this member; a manager is not a member."""

    page: Page = Page(descending=False)
    manager_type: ManagerType | None = None
    project_id: str | None = None
    agent_id: AgentId | None = None
    show_hidden: bool = False
