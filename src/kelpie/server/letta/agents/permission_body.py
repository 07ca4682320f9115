"""Permissions and limits of an agent in requests and responses. They are Kelpie's own: Letta has neither."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.permissions.quotas import Quota, cpu_seconds, megabytes
from kelpie.core.permissions.tool_permissions import PATTERNS_MAX, ToolPatterns, check_patterns
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.tools.confinement import MEGABYTE

Patterns = Annotated[list[str], Field(max_length=PATTERNS_MAX)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class PermitsBody(BaseModel):
    """The tools that may be used: patterns of names, `kind:...` or `capability:...`."""

    model_config = ConfigDict(extra="forbid")

    allow: Patterns | None = Field(None, description="Allow only these; null allows all.")
    deny: Patterns = Field(default_factory=list[str], description="Deny these, even if they are allowed.")

    def permits(self, field: str = "kelpie_permissions") -> ToolPatterns:
        """Raises InvalidInput."""
        allow = None if self.allow is None else check_patterns(f"{field}.allow", self.allow)
        return ToolPatterns(allow, check_patterns(f"{field}.deny", self.deny))


class LimitsBody(BaseModel):
    """Limits for each hour (UTC), and for one call in a sandbox; null is no limit."""

    model_config = ConfigDict(extra="forbid")

    tool_calls_per_hour: Count | None = None
    tokens_per_hour: Count | None = None
    cpu_seconds_per_hour: Annotated[float, Field(ge=0, le=1_000_000_000)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=1024 * 1024)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    cpu_share: Annotated[float, Field(gt=0, le=1024)] | None = None
    processes: Annotated[int, Field(ge=1, le=65_536)] | None = None
    output_mb: Annotated[float, Field(gt=0, le=1024)] | None = None
    scratch_mb: Annotated[int, Field(ge=1, le=1024 * 1024)] | None = None

    def quota(self) -> Quota:
        return Quota(
            tool_calls=self.tool_calls_per_hour,
            tokens=self.tokens_per_hour,
            cpu_us=_times(self.cpu_seconds_per_hour, MICROS_PER_SECOND),
            memory_bytes=_times(self.memory_mb, MEGABYTE),
            wall_s=self.timeout_s,
            cpu_share=self.cpu_share,
            processes=self.processes,
            output_bytes=_times(self.output_mb, MEGABYTE),
            scratch_bytes=_times(self.scratch_mb, MEGABYTE),
        )


def _times(given: float | None, unit: int) -> int | None:
    return None if given is None else round(given * unit)


def permits_shape(permits: ToolPatterns | None) -> dict[str, Any] | None:
    return None if permits is None else {"allow": _listed(permits.allow), "deny": list(permits.deny)}


def limits_shape(quota: Quota | None) -> dict[str, Any] | None:
    if quota is None:
        return None
    return {
        "tool_calls_per_hour": quota.tool_calls,
        "tokens_per_hour": quota.tokens,
        "cpu_seconds_per_hour": cpu_seconds(quota.cpu_us),
        "memory_mb": megabytes(quota.memory_bytes),
        "timeout_s": quota.wall_s,
        "cpu_share": quota.cpu_share,
        "processes": quota.processes,
        "output_mb": None if quota.output_bytes is None else quota.output_bytes / MEGABYTE,
        "scratch_mb": megabytes(quota.scratch_bytes),
    }


def _listed(patterns: Sequence[str] | None) -> list[str] | None:
    return None if patterns is None else list(patterns)
