"""What clients say of an agent's permissions and limits, and how these are shown. They are ours: Letta has neither."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.confinement import MEGABYTE
from kelpie.core.permissions import PATTERNS_MAX, Permits, check_patterns
from kelpie.core.quotas import Quota, cpu_seconds, megabytes
from kelpie.core.time import MICROS_PER_SECOND

Patterns = Annotated[list[str], Field(max_length=PATTERNS_MAX)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class PermitsBody(BaseModel):
    """The tools that may be used: patterns of names, `kind:...` or `capability:...`."""

    model_config = ConfigDict(extra="forbid")

    allow: Patterns | None = Field(None, description="Only these; null: all of them.")
    deny: Patterns = Field(default_factory=list[str], description="None of these, whatever is allowed.")

    def permits(self, field: str = "kelpie_permissions") -> Permits:
        """Raises InvalidInput."""
        allow = None if self.allow is None else check_patterns(f"{field}.allow", self.allow)
        return Permits(allow, check_patterns(f"{field}.deny", self.deny))


class LimitsBody(BaseModel):
    """What may be used in each hour (of UTC), and the memory of one call; null is no limit."""

    model_config = ConfigDict(extra="forbid")

    tool_calls_per_hour: Count | None = None
    tokens_per_hour: Count | None = None
    cpu_seconds_per_hour: Annotated[float, Field(ge=0, le=1_000_000_000)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=1024 * 1024)] | None = None

    def quota(self) -> Quota:
        cpu = None if self.cpu_seconds_per_hour is None else round(self.cpu_seconds_per_hour * MICROS_PER_SECOND)
        memory = None if self.memory_mb is None else self.memory_mb * MEGABYTE
        return Quota(self.tool_calls_per_hour, self.tokens_per_hour, cpu, memory)


def permits_shape(permits: Permits | None) -> dict[str, Any] | None:
    return None if permits is None else {"allow": _listed(permits.allow), "deny": list(permits.deny)}


def limits_shape(quota: Quota | None) -> dict[str, Any] | None:
    if quota is None:
        return None
    return {
        "tool_calls_per_hour": quota.tool_calls,
        "tokens_per_hour": quota.tokens,
        "cpu_seconds_per_hour": cpu_seconds(quota.cpu_us),
        "memory_mb": megabytes(quota.memory_bytes),
    }


def _listed(patterns: Sequence[str] | None) -> list[str] | None:
    return None if patterns is None else list(patterns)
