"""Projects as rows, and the agents that belong to them."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.agents.projects import Project, ProjectMember, ProjectQuery
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, OrganizationId, ProjectId
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import agents, project_agents, project_tags, projects
from kelpie.world.database import Tx

_c = projects.c
_ONE = sa.select(projects).where(_c.id == sa.bindparam("of_project"), _c.organization_id == sa.bindparam("within"))
_LOCKED = _ONE.with_for_update()
_BY_NAME = sa.select(_c.id).where(_c.organization_id == sa.bindparam("within"), _c.name == sa.bindparam("of_name"))
_COUNT = sa.select(sa.func.count()).where(_c.organization_id == sa.bindparam("within"))
_ALL = sa.select(projects).where(_c.organization_id == sa.bindparam("within"))
_INSERT = sa.insert(projects)
_UPDATE = (
    sa.update(projects)
    .where(_c.id == sa.bindparam("of_project"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("name", "description", "owner", "updated_at")})
)
_DELETE = sa.delete(projects).where(_c.id == sa.bindparam("of_project"))
_PAGES = Paging(projects, "created_at", "updated_at")

_TAGS = sa.select(project_tags).where(project_tags.c.project_id.in_(sa.bindparam("ids", expanding=True)))
_TAG = sa.insert(project_tags)
_UNTAG = sa.delete(project_tags).where(project_tags.c.project_id == sa.bindparam("of_project"))

_OTHERS = sa.select(project_agents.c.agent_id).where(project_agents.c.project_id == sa.bindparam("of_project"))
_MEMBERS = (
    sa.select(agents.c.id, agents.c.name, (agents.c.project_id == sa.bindparam("of_project")).label("home"))
    .where(
        agents.c.organization_id == sa.bindparam("within"),
        sa.or_(agents.c.project_id == sa.bindparam("of_project"), agents.c.id.in_(_OTHERS)),
    )
    .order_by(agents.c.created_at, agents.c.id)
)
_IS_MEMBER = sa.select(project_agents.c.agent_id).where(
    project_agents.c.project_id == sa.bindparam("of_project"), project_agents.c.agent_id == sa.bindparam("of_agent")
)
_ADD = sa.insert(project_agents)
_REMOVE = sa.delete(project_agents).where(
    project_agents.c.project_id == sa.bindparam("of_project"), project_agents.c.agent_id == sa.bindparam("of_agent")
)


def insert(tx: Tx, project: Project) -> None:
    fields = ("id", "organization_id", "name", "description", "owner", "created_at", "updated_at")
    tx.execute(_INSERT, {name: getattr(project, name) for name in fields})
    _set_tags(tx, project)


def replace(tx: Tx, project: Project) -> None:
    """Writes the fields of a project that change."""
    fields = ("name", "description", "owner", "updated_at")
    tx.execute(_UPDATE, {f"new_{name}": getattr(project, name) for name in fields} | {"of_project": project.id})
    tx.execute(_UNTAG, {"of_project": project.id})
    _set_tags(tx, project)


def delete(tx: Tx, project_id: ProjectId) -> None:
    """Deletes a project with its tags and associations."""
    tx.execute(_DELETE, {"of_project": project_id})


def get(tx: Tx, organization: OrganizationId, project_id: str, *, lock: bool = False) -> Project:
    """Raises NotFound."""
    row = tx.execute(_LOCKED if lock else _ONE, {"of_project": project_id, "within": organization}).first()
    if row is None:
        raise NotFound("Project", project_id[:80])
    return _from_rows(tx, [row])[0]


def find_by_name(tx: Tx, organization: OrganizationId, name: str) -> ProjectId | None:
    found = tx.execute(_BY_NAME, {"within": organization, "of_name": name}).scalar()
    return None if found is None else ProjectId(found)


def count(tx: Tx, organization: OrganizationId) -> int:
    return int(tx.execute(_COUNT, {"within": organization}).scalar_one())


def page(tx: Tx, organization: OrganizationId, query: ProjectQuery) -> list[Project]:
    """Projects of an organization that match."""
    statement, bound = _ALL, {"within": str(organization)}
    if query.name is not None:
        statement, bound["of_name"] = statement.where(_c.name == sa.bindparam("of_name")), query.name
    if query.owner is not None:
        statement, bound["of_owner"] = statement.where(_c.owner == sa.bindparam("of_owner")), query.owner
    if query.tag is not None:
        tagged = sa.select(project_tags.c.project_id).where(project_tags.c.tag == sa.bindparam("of_tag"))
        statement, bound["of_tag"] = statement.where(_c.id.in_(tagged)), query.tag
    return _from_rows(tx, _PAGES.rows(tx, statement, query.page, bound, within={"organization_id": str(organization)}))


def members(tx: Tx, organization: OrganizationId, project_id: str, most: int | None = None) -> list[ProjectMember]:
    """The agents of a project, oldest first."""
    statement = _MEMBERS if most is None else _MEMBERS.limit(most)
    rows = tx.execute(statement, {"of_project": project_id, "within": organization})
    return [ProjectMember(AgentId(row.id), row.name, bool(row.home)) for row in rows]


def add(tx: Tx, project_id: ProjectId, agent_id: AgentId) -> bool:
    """Adds an agent. False if it was there already."""
    bound = {"of_project": project_id, "of_agent": agent_id}
    if tx.execute(_IS_MEMBER, bound).first() is not None:
        return False
    tx.execute(_ADD, {"project_id": project_id, "agent_id": agent_id})
    return True


def remove(tx: Tx, project_id: ProjectId, agent_id: AgentId) -> bool:
    """Removes an agent from the association table. False if it was not in it."""
    return tx.execute(_REMOVE, {"of_project": project_id, "of_agent": agent_id}).rowcount > 0


def _set_tags(tx: Tx, project: Project) -> None:
    if project.tags:
        tx.execute(_TAG, [{"project_id": project.id, "tag": tag} for tag in dict.fromkeys(project.tags)])


def _from_rows(tx: Tx, rows: Sequence[sa.Row[Any]]) -> list[Project]:
    if not rows:
        return []
    tags: dict[str, list[str]] = {}
    for row in tx.execute(_TAGS, {"ids": [row.id for row in rows]}):
        tags.setdefault(row.project_id, []).append(row.tag)
    return [
        Project(
            id=ProjectId(row.id),
            organization_id=OrganizationId(row.organization_id),
            name=row.name,
            description=row.description,
            owner=row.owner,
            tags=tuple(sorted(tags.get(row.id, ()))),
            created_at=row.created_at,
            updated_at=row.updated_at,
        )
        for row in rows
    ]
