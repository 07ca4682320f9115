"""Request bodies for groups. The manager is one object whose `manager_type` decides which fields it has."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.agents.groups import Manager, ManagerType, NewGroup
from kelpie.core.ids import AgentId, BlockId
from kelpie.server.http.limits.request_limits import Links

_Count = Annotated[int, Field(ge=0, le=2**53)]
_FIELDS = {"manager_agent_id": "agent_id"}  # the others have the same name inside


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class RoundRobin(_Part):
    manager_type: Literal["round_robin"] = "round_robin"
    max_turns: _Count | None = None


class Supervisor(_Part):
    manager_type: Literal["supervisor"] = "supervisor"
    manager_agent_id: str


class Dynamic(_Part):
    manager_type: Literal["dynamic"] = "dynamic"
    manager_agent_id: str
    termination_token: str | None = "DONE!"
    max_turns: _Count | None = None


class DynamicUpdate(_Part):
    manager_type: Literal["dynamic"] = "dynamic"
    manager_agent_id: str | None = None
    termination_token: str | None = None
    max_turns: _Count | None = None


class Sleeptime(_Part):
    manager_type: Literal["sleeptime"] = "sleeptime"
    manager_agent_id: str
    sleeptime_agent_frequency: _Count | None = None


class SleeptimeUpdate(_Part):
    manager_type: Literal["sleeptime"] = "sleeptime"
    manager_agent_id: str | None = None
    sleeptime_agent_frequency: _Count | None = None


class VoiceSleeptime(_Part):
    manager_type: Literal["voice_sleeptime"] = "voice_sleeptime"
    manager_agent_id: str
    max_message_buffer_length: _Count | None = None
    min_message_buffer_length: _Count | None = None


class VoiceSleeptimeUpdate(_Part):
    manager_type: Literal["voice_sleeptime"] = "voice_sleeptime"
    manager_agent_id: str | None = None
    max_message_buffer_length: _Count | None = None
    min_message_buffer_length: _Count | None = None


_New = Annotated[RoundRobin | Supervisor | Dynamic | Sleeptime | VoiceSleeptime, Field(discriminator="manager_type")]
_Changed = Annotated[
    RoundRobin | Supervisor | DynamicUpdate | SleeptimeUpdate | VoiceSleeptimeUpdate,
    Field(discriminator="manager_type"),
]


class CreateGroup(_Part):
    agent_ids: Links
    description: str
    manager_config: _New = RoundRobin()
    project_id: str | None = None
    shared_block_ids: Links = []
    hidden: bool | None = None


class UpdateGroup(_Part):
    agent_ids: Links | None = None
    description: str | None = None
    manager_config: _Changed | None = None
    project_id: str | None = None
    shared_block_ids: Links | None = None


def new_group(body: CreateGroup) -> NewGroup:
    """Raises InvalidInput for a malformed id and for an unsupported field."""
    return NewGroup(
        agent_ids=tuple(map(AgentId.parse, body.agent_ids)),
        description=body.description,
        manager=Manager(**_manager(body.manager_config, type(body.manager_config).model_fields)),
        shared_block_ids=tuple(map(BlockId.parse, body.shared_block_ids)),
        project_id=body.project_id,
        hidden=body.hidden,
    )


def group_changes(body: UpdateGroup) -> dict[str, Any]:
    """The fields that were sent; null means nothing, as in Letta. Raises InvalidInput."""
    sent = {name: value for name in body.model_fields_set if (value := getattr(body, name)) is not None}
    changes: dict[str, Any] = {name: sent[name] for name in ("description", "project_id") if name in sent}
    if "agent_ids" in sent:
        changes["agent_ids"] = tuple(map(AgentId.parse, sent["agent_ids"]))
    if "shared_block_ids" in sent:
        changes["shared_block_ids"] = tuple(map(BlockId.parse, sent["shared_block_ids"]))
    if body.manager_config is not None:
        changes["manager"] = _manager(body.manager_config, body.manager_config.model_fields_set)
    return changes


def _manager(config: _Part, names: Iterable[str]) -> dict[str, Any]:
    """The fields of a `Manager` in the configuration."""
    given = {name: getattr(config, name) for name in names if name != "manager_type"}
    kind = ManagerType(getattr(config, "manager_type"))  # noqa: B009 - every one has it, the family does not know
    if (leader := given.get("manager_agent_id")) is not None:
        given["manager_agent_id"] = AgentId.parse(leader)
    return {"type": kind, **{_FIELDS.get(name, name): value for name, value in given.items()}}
