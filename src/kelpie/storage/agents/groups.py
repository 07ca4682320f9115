"""Groups as rows, with their members and shared blocks in the order the client gave."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Update, bindparam, delete, func, insert, or_, select, update

from kelpie.core.agents.agent import AgentType
from kelpie.core.agents.groups import Group, GroupQuery, Manager, ManagerType
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, BlockId, GroupId, OrganizationId
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import agents, group_agents, group_blocks, groups
from kelpie.world.database import Tx

_C = groups.c
_INSERT = insert(groups)
_INSERT_AGENT = insert(group_agents)
_INSERT_BLOCK = insert(group_blocks)
_ALL_OF = select(groups).where(_C.organization_id == bindparam("organization"))
_ONE = _ALL_OF.where(_C.id == bindparam("of_group"))
_AGENTS_OF = (
    select(group_agents.c.group_id, group_agents.c.agent_id)
    .where(group_agents.c.group_id.in_(bindparam("ids", expanding=True)))
    .order_by(group_agents.c.group_id, group_agents.c.position)
)
_BLOCKS_OF = (
    select(group_blocks.c.group_id, group_blocks.c.block_id)
    .where(group_blocks.c.group_id.in_(bindparam("ids", expanding=True)))
    .order_by(group_blocks.c.group_id, group_blocks.c.position)
)


def manager_columns(manager: Manager) -> dict[str, Any]:
    """The manager of a group, as columns."""
    return {
        "manager_type": manager.type.value,
        "manager_agent_id": manager.agent_id,
        "termination_token": manager.termination_token,
        "max_turns": manager.max_turns,
        "sleeptime_agent_frequency": manager.sleeptime_agent_frequency,
        "max_message_buffer_length": manager.max_message_buffer_length,
        "min_message_buffer_length": manager.min_message_buffer_length,
    }


def add(tx: Tx, group: Group, organization: OrganizationId) -> None:
    """Writes a new group with its members and blocks, which must exist."""
    tx.execute(
        _INSERT,
        {
            "id": group.id,
            "organization_id": organization,
            "description": group.description,
            **manager_columns(group.manager),
            "turns_counter": group.turns_counter,
            "last_processed_message_id": group.last_processed_message_id,
            "project_id": group.project_id,
            "template_id": group.template_id,
            "base_template_id": group.base_template_id,
            "deployment_id": group.deployment_id,
            "hidden": group.hidden,
            "created_by_id": group.created_by_id,
            "last_updated_by_id": group.last_updated_by_id,
            "created_at": group.created_at,
            "updated_at": group.updated_at,
        },
    )
    set_agents(tx, group.id, group.agent_ids)
    set_blocks(tx, group.id, group.shared_block_ids)


def _from_row(row: Row[Any], members: Sequence[str], shared: Sequence[str]) -> Group:
    return Group(
        id=GroupId(row.id),
        description=row.description,
        manager=Manager(
            type=ManagerType(row.manager_type),
            agent_id=AgentId(row.manager_agent_id) if row.manager_agent_id else None,
            termination_token=row.termination_token,
            max_turns=row.max_turns,
            sleeptime_agent_frequency=row.sleeptime_agent_frequency,
            max_message_buffer_length=row.max_message_buffer_length,
            min_message_buffer_length=row.min_message_buffer_length,
        ),
        agent_ids=tuple(map(AgentId, members)),
        created_at=row.created_at,
        updated_at=row.updated_at,
        shared_block_ids=tuple(map(BlockId, shared)),
        turns_counter=row.turns_counter,
        last_processed_message_id=row.last_processed_message_id,
        project_id=row.project_id,
        template_id=row.template_id,
        base_template_id=row.base_template_id,
        deployment_id=row.deployment_id,
        hidden=row.hidden,
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def _whole(tx: Tx, rows: Sequence[Row[Any]]) -> list[Group]:
    """Groups with their relations, however many, in two more statements."""
    members: dict[str, list[str]] = {}
    shared: dict[str, list[str]] = {}
    if rows:
        wanted = {"ids": [row.id for row in rows]}
        for group_id, agent_id in tx.execute(_AGENTS_OF, wanted):
            members.setdefault(group_id, []).append(agent_id)
        for group_id, block_id in tx.execute(_BLOCKS_OF, wanted):
            shared.setdefault(group_id, []).append(block_id)
    return [_from_row(row, members.get(row.id, ()), shared.get(row.id, ())) for row in rows]


def get(tx: Tx, organization: OrganizationId, group_id: GroupId) -> Group:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"organization": organization, "of_group": group_id}).first()
    if row is None:
        raise NotFound("Group", group_id)
    return _whole(tx, [row])[0]


_LED_BY = (
    select(groups).where(_C.manager_agent_id.in_(bindparam("leaders", expanding=True))).order_by(_C.created_at, _C.id)
)


def led_by(tx: Tx, leaders: Sequence[AgentId]) -> dict[AgentId, Group]:
    """The group that each of these agents manages, the newest if there are several; agents without one are left out."""
    found = _whole(tx, tx.execute(_LED_BY, {"leaders": list(leaders)}).all())
    return {group.manager.agent_id: group for group in found if group.manager.agent_id is not None}


_BACKGROUND = (
    select(groups)
    .where(
        _C.manager_agent_id == bindparam("leader"),
        _C.manager_type.in_([ManagerType.sleeptime.value, ManagerType.voice_sleeptime.value]),
    )
    .order_by(_C.created_at.desc(), _C.id.desc())
    .limit(1)
)


def background_of(tx: Tx, agent_id: AgentId) -> Group | None:
    """The group that works for this agent in the background; the newest if there are several."""
    row = tx.execute(_BACKGROUND, {"leader": agent_id}).first()
    return None if row is None else _whole(tx, [row])[0]


_COMPANIONS = (
    select(group_agents.c.agent_id)
    .join(groups, _C.id == group_agents.c.group_id)
    .join(agents, agents.c.id == group_agents.c.agent_id)
    .where(
        _C.manager_agent_id == bindparam("leader"),
        _C.manager_type.in_([ManagerType.sleeptime.value, ManagerType.voice_sleeptime.value]),
        agents.c.agent_type.in_([AgentType.sleeptime_agent.value, AgentType.voice_sleeptime_agent.value]),
        agents.c.id != bindparam("leader"),
    )
    .distinct()
    .order_by(group_agents.c.agent_id)
)


def companions_of(tx: Tx, agent_id: AgentId) -> list[AgentId]:
    """The agents that maintain the memory of this one in the background."""
    return [AgentId(row.agent_id) for row in tx.execute(_COMPANIONS, {"leader": agent_id})]


_COUNT_WITH = select(func.count()).select_from(group_agents).where(group_agents.c.agent_id == bindparam("of_agent"))


def count_with(tx: Tx, agent_id: AgentId) -> int:
    """Number of groups that an agent is in."""
    return int(tx.execute(_COUNT_WITH, {"of_agent": agent_id}).scalar_one())


_COUNT = select(func.count()).select_from(groups).where(_C.organization_id == bindparam("organization"))


def count(tx: Tx, organization: OrganizationId) -> int:
    return int(tx.execute(_COUNT, {"organization": organization}).scalar_one())


_PAGES = Paging(groups, "created_at")
_FILTERS: dict[str, ColumnElement[bool]] = {
    "manager_type": _C.manager_type == bindparam("manager_type"),
    "project_id": _C.project_id == bindparam("project_id"),
    "agent_id": _C.id.in_(select(group_agents.c.group_id).where(group_agents.c.agent_id == bindparam("agent_id"))),
    "shown": or_(_C.hidden.is_(None), _C.hidden.is_(False)),
}


@lru_cache(maxsize=32)
def _matching(names: tuple[str, ...]) -> Select[Any]:
    return _ALL_OF.where(*(_FILTERS[name] for name in names))


def select_groups(tx: Tx, organization: OrganizationId, query: GroupQuery) -> list[Group]:
    given: dict[str, Any] = {
        "manager_type": query.manager_type.value if query.manager_type else None,
        "project_id": query.project_id,
        "agent_id": query.agent_id,
        "shown": None if query.show_hidden else True,
    }
    used = {name: value for name, value in given.items() if value is not None}
    bound = {"organization": organization, **used}
    return _whole(
        tx, _PAGES.rows(tx, _matching(tuple(used)), query.page, bound, within={"organization_id": organization})
    )


# --- changing -------------------------------------------------------------------------------------------------------

_CLEAR_AGENTS = delete(group_agents).where(group_agents.c.group_id == bindparam("of_group"))
_CLEAR_BLOCKS = delete(group_blocks).where(group_blocks.c.group_id == bindparam("of_group"))
_DELETE = delete(groups).where(_C.id == bindparam("of_group"))


def set_agents(tx: Tx, group_id: GroupId, agent_ids: Sequence[AgentId]) -> None:
    """Makes these the only members."""
    tx.execute(_CLEAR_AGENTS, {"of_group": group_id})
    if agent_ids:
        rows = [{"group_id": group_id, "agent_id": a, "position": i} for i, a in enumerate(dict.fromkeys(agent_ids))]
        tx.execute(_INSERT_AGENT, rows)


def set_blocks(tx: Tx, group_id: GroupId, block_ids: Sequence[BlockId]) -> None:
    """Makes these the only shared blocks."""
    tx.execute(_CLEAR_BLOCKS, {"of_group": group_id})
    if block_ids:
        rows = [{"group_id": group_id, "block_id": b, "position": i} for i, b in enumerate(dict.fromkeys(block_ids))]
        tx.execute(_INSERT_BLOCK, rows)


@lru_cache(maxsize=64)
def _update(names: tuple[str, ...]) -> Update:
    new = {name: bindparam(f"new_{name}", type_=_C[name].type) for name in names}
    return update(groups).where(_C.id == bindparam("of_group")).values(new)


def change(tx: Tx, group_id: GroupId, changes: Mapping[str, Any]) -> None:
    """Sets columns by name."""
    new = {f"new_{name}": value for name, value in changes.items()}
    tx.execute(_update(tuple(changes)), {"of_group": group_id, **new})


def remove(tx: Tx, group_id: GroupId) -> None:
    """Deletes the group; agents and blocks stay."""
    tx.execute(_DELETE, {"of_group": group_id})
