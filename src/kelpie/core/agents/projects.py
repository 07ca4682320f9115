"""Projects: named collections of agents. An agent may be in several; its `project_id` names the home project."""

from dataclasses import dataclass

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, OrganizationId, ProjectId
from kelpie.core.paging import Page
from kelpie.core.time import Micros

NAME_CHARS_MAX = 200
DESCRIPTION_CHARS_MAX = 10_000
OWNER_CHARS_MAX = 200
TAGS_MAX = 50
TAG_CHARS_MAX = 200
PROJECTS_MAX = 10_000  # of one organization
ADDED_MAX = 1_000  # agents in one request


@dataclass(frozen=True, slots=True)
class Project:
    """A project. `owner` is whoever is responsible: the id of a user, or any other name."""

    id: ProjectId
    organization_id: OrganizationId
    name: str
    description: str | None
    owner: str
    tags: tuple[str, ...]
    created_at: Micros
    updated_at: Micros


@dataclass(frozen=True, slots=True)
class ProjectQuery:
    """Filter for a list of projects."""

    page: Page = Page()
    name: str | None = None
    owner: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class ProjectMember:
    """An agent of a project. `home` is true if the project is its home project."""

    agent_id: AgentId
    name: str
    home: bool


def check_project(name: str, tags: tuple[str, ...]) -> None:
    """Raises InvalidInput."""
    if not name.strip():
        raise InvalidInput("name", "must not be empty")
    if not all(char.isprintable() for char in name):
        raise InvalidInput("name", "contains a line break or another control character; remove it")
    if len(tags) > TAGS_MAX:
        raise InvalidInput("tags", f"has {len(tags)} tags; use at most {TAGS_MAX}")
    if any(not tag.strip() or len(tag) > TAG_CHARS_MAX for tag in tags):
        raise InvalidInput("tags", f"each tag needs 1 to {TAG_CHARS_MAX} characters")
