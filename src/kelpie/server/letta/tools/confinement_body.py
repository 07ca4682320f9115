"""What clients say of how a tool is held while it runs. It is ours: Letta has no such field."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.permissions.tool_permissions import Capability
from kelpie.core.tools.confinement import Isolation

HOSTS_MAX = 64
Host = Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$")]


class ToolSandboxBody(BaseModel):
    """How much a tool may take while it runs; what is left out is as the server has it."""

    model_config = ConfigDict(extra="forbid")

    timeout_s: Annotated[float, Field(gt=0, le=3600)] | None = Field(None, description="Seconds until it is ended.")
    memory_mb: Annotated[int, Field(ge=16, le=65_536)] | None = None
    cpu_share: Annotated[float, Field(gt=0, le=64)] | None = Field(None, description="Of one core; 2 is two cores.")
    processes: Annotated[int, Field(ge=1, le=4096)] | None = Field(None, description="Processes and threads together.")
    output_mb: Annotated[float, Field(gt=0, le=16)] | None = Field(None, description="Of each of its two outputs.")
    scratch_mb: Annotated[int, Field(ge=1, le=16_384)] | None = Field(
        None, description="What it may write, for a while."
    )
    isolation: Isolation | None = Field(None, description="The least kind of wall that it accepts.")
    egress: Annotated[list[Host], Field(max_length=HOSTS_MAX)] | None = Field(
        None, description="Hosts that it may reach over HTTP and HTTPS; with none it has no network."
    )
    capabilities: Annotated[list[Capability], Field(max_length=len(Capability))] | None = Field(
        None, description="What it reaches through others, for the lists of permissions; see docs/permissions.md."
    )
    deterministic: bool | None = Field(
        None, description="The same arguments always give the same result: it may be kept for five minutes."
    )

    def stored(self) -> dict[str, object]:
        return self.model_dump(mode="json", exclude_none=True)
