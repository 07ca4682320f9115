"""Templates and their versions as clients see them."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.agent.templates.templates import Deployed
from kelpie.core.agents.templates import DEFAULT_PROJECT, UNSAVED, Template, TemplateVersion
from kelpie.server.http.times import timestamp

DEFAULT_PROJECT_ID = "project-00000000-0000-4000-8000-000000000000"


def template_shape(template: Template, project_id: str | None = None) -> dict[str, Any]:
    return {
        "id": template.id,
        "name": template.name,
        "description": template.description,
        "latest_version": str(template.latest),
        "project_id": project_id or DEFAULT_PROJECT_ID,
        "project_slug": DEFAULT_PROJECT,
        "template_deployment_slug": f"{DEFAULT_PROJECT}/{template.name}:{template.latest}",
        "updated_at": timestamp(template.updated_at),
        "created_at": timestamp(template.created_at),
        "kelpie_current_version": str(template.base),
        "kelpie_unsaved_changes": template.changed,
    }


def version_shape(template: Template, version: TemplateVersion) -> dict[str, Any]:
    number = "current" if version.number == UNSAVED else str(version.number)
    return {
        "id": version.id,
        "version": number,
        "template_deployment_slug": f"{DEFAULT_PROJECT}/{template.name}:{number}",
        "message": version.message,
        "memory_variables": list(version.variables),
        "size": version.size,
        "created_at": timestamp(version.created_at),
        "created_by_id": version.created_by_id,
    }


def deployed_shape(deployed: Deployed) -> dict[str, Any]:
    return {
        "agent_ids": list(deployed.agent_ids),
        "deployment_id": deployed.deployment_id,
        "group_id": deployed.group_id,
        **noted(deployed.notes),
    }


def noted(notes: Sequence[str]) -> Mapping[str, Any]:
    """The notes, where there are any."""
    return {"kelpie_notes": list(notes)} if notes else {}
