"""Sandbox limits of a tool in requests. They are Kelpie's own: Letta has no such field."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.permissions.tool_permissions import Capability
from kelpie.core.tools.confinement import Isolation

HOSTS_MAX = 64
Host = Annotated[str, Field(pattern=r"^(\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?$")]


class ToolSandboxBody(BaseModel):
    """Resource limits of a tool while it runs; omitted ones are the server's defaults."""

    model_config = ConfigDict(extra="forbid")

    timeout_s: Annotated[float, Field(gt=0, le=3600)] | None = Field(
        None, description="Time limit of a call, in seconds."
    )
    memory_mb: Annotated[int, Field(ge=16, le=65_536)] | None = None
    cpu_share: Annotated[float, Field(gt=0, le=64)] | None = Field(None, description="CPU cores; 0.5 is half a core.")
    processes: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        None, description="Maximum number of processes and threads together."
    )
    output_mb: Annotated[float, Field(gt=0, le=16)] | None = Field(
        None, description="Limit for each of stdout and stderr."
    )
    scratch_mb: Annotated[int, Field(ge=1, le=16_384)] | None = Field(
        None, description="Temporary disk space for the tool."
    )
    isolation: Isolation | None = Field(None, description="Minimum isolation that the tool requires.")
    egress: Annotated[list[Host], Field(max_length=HOSTS_MAX)] | None = Field(
        None, description="Hosts that the tool may reach over HTTP and HTTPS. Without any it has no network."
    )
    capabilities: Annotated[list[Capability], Field(max_length=len(Capability))] | None = Field(
        None, description="Additional capabilities of the tool, for permissions; see docs/permissions.md."
    )
    deterministic: bool | None = Field(
        None,
        description="The same arguments always give the same result, so the result may be cached for five minutes.",
    )

    def stored(self) -> dict[str, object]:
        return self.model_dump(mode="json", exclude_none=True)
