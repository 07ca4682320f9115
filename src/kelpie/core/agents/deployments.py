"""Items that were created for one deployment of a template."""

from dataclasses import dataclass

KINDS = ("block", "agent", "group")


@dataclass(frozen=True, slots=True)
class DeployedItem:
    """A block, an agent or a group of a deployment; `kind` names which."""

    id: str
    kind: str
    name: str | None
    description: str | None
    entity_id: str | None
    project_id: str | None
