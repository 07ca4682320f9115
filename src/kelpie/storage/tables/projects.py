"""Projects, their tags, and the agents that belong to them beside their home project."""

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    or_,
    select,
)

from kelpie.storage.tables.agents import agents
from kelpie.storage.tables.metadata import metadata

projects = Table(
    "projects",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("owner", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)

project_tags = Table(
    "project_tags",
    metadata,
    Column("project_id", Text, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index(None, "tag"),
)

project_agents = Table(
    "project_agents",
    metadata,
    Column("project_id", Text, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "agent_id"),
)

_ADDED = select(project_agents.c.agent_id).where(project_agents.c.project_id == bindparam("project_id"))


def in_project() -> ColumnElement[bool]:
    """The condition for agents of the project `project_id`: those whose home project it is, and those added to it."""
    return or_(agents.c.project_id == bindparam("project_id"), agents.c.id.in_(_ADDED))
