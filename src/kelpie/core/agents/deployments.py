"""Deployments of templates: what one is made with, and the items that were created for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kelpie.core.conversations.messages import NewMessage
from kelpie.core.ids import DeploymentId, IdentityId

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


@dataclass(frozen=True, slots=True)
class Deployment:
    """A use of a template. `template_id` is the version and `base_template_id` the template. Name and first messages
    are those of the first agent; tags, identities and variables are for all."""

    id: DeploymentId
    template_id: str
    base_template_id: str
    memory_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: tuple[str, ...] = ()
    identity_ids: tuple[IdentityId, ...] = ()
    initial_messages: tuple[NewMessage, ...] | None = None  # None: those of its type

    @property
    def marks(self) -> dict[str, str]:
        """The ids that everything of the deployment carries."""
        return {
            "deployment_id": self.id,
            "template_id": self.template_id,
            "base_template_id": self.base_template_id,
        }
