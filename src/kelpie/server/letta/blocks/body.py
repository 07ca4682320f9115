"""Request bodies for memory blocks."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.memory.blocks import NewBlock
from kelpie.server.http.limits.free_json import Metadata
from kelpie.server.http.limits.request_limits import Tags

Limit = Annotated[int, Field(ge=0, le=2**53)]


class CreateBlock(BaseModel):
    model_config = ConfigDict(extra="ignore")

    label: str = Field(description="The block's name in the agent's prompt.")
    value: str | None = Field("", description="The text shown in the agent's prompt.")
    limit: Limit | None = Field(
        None, description="Maximum number of characters, as shown to the agent. Defaults to the server's default."
    )
    description: str | None = Field(None, description="Tells the agent what the block is for.")
    read_only: bool = Field(False, description="Whether the agent itself is prevented from editing the block.")
    metadata: Metadata | None = None
    tags: Tags | None = None
    hidden: bool | None = None
    project_id: str | None = None
    template_name: str | None = None
    is_template: bool = False
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool | None = False


class UpdateBlock(BaseModel):
    """Changes to a block; omitted or null fields stay as they are."""

    model_config = ConfigDict(extra="ignore")

    label: str | None = None
    value: str | None = None
    limit: Limit | None = None
    description: str | None = None
    read_only: bool | None = None
    metadata: Metadata | None = None
    tags: Tags | None = None
    hidden: bool | None = None
    project_id: str | None = None
    template_name: str | None = None
    is_template: bool | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool | None = None


def new_block(body: CreateBlock) -> NewBlock:
    given: dict[str, Any] = body.model_dump(exclude_none=True)
    given["tags"] = tuple(body.tags or ())
    return NewBlock(**given)


def block_changes(body: UpdateBlock) -> dict[str, Any]:
    """The fields to change, by the names of `Block`."""
    changes = body.model_dump(exclude_none=True)
    if body.tags is not None:
        changes["tags"] = tuple(body.tags)
    return changes
