"""Settings for the tools of every agent; agents and organisations cannot override them."""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.core.errors import ConfigurationError, InvalidInput
from kelpie.core.permissions.policies import Policy
from kelpie.core.permissions.quotas import Quota
from kelpie.core.permissions.tool_permissions import ToolPatterns, check_patterns
from kelpie.core.settings.declaration import setting
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.tools.confinement import MEGABYTE

_MOST = 10**12


def _check(origin: str, patterns: Sequence[str]) -> None:
    try:
        check_patterns(origin, patterns)
    except InvalidInput as error:
        raise ConfigurationError(origin, error.remedy) from None


@dataclass(frozen=True)
class ToolSettings:
    """Settings that hold for the tools of every agent."""

    tools_allow: tuple[str, ...] = setting(
        "tools.allow",
        "Tools that agents may use: patterns such as `memory_*`, `kind:custom` or `capability:memory`. Empty allows "
        "all tools. Agents and organizations can only restrict it further; see [permissions](permissions.md).",
        "KELPIE_TOOLS_ALLOW",
        default=(),
        check=_check,
    )
    tools_deny: tuple[str, ...] = setting(
        "tools.deny",
        "Tools that no agent may use: patterns such as `shell` or `capability:network`. It overrides `tools.allow`.",
        "KELPIE_TOOLS_DENY",
        default=(),
        check=_check,
    )
    tool_calls_per_hour: int = setting(
        "limits.tool_calls_per_hour",
        "Maximum number of tool calls per agent and hour; 0 for no limit.",
        "KELPIE_TOOL_CALLS_PER_HOUR",
        default=0,
        low=0,
        high=_MOST,
    )
    tokens_per_hour: int = setting(
        "limits.tokens_per_hour",
        "Maximum number of tokens per agent and hour; 0 for no limit.",
        "KELPIE_TOKENS_PER_HOUR",
        default=0,
        low=0,
        high=_MOST,
    )
    cpu_seconds_per_hour: float = setting(
        "limits.cpu_seconds_per_hour",
        "Maximum seconds of processor time in sandboxes per agent and hour; 0 for no limit.",
        "KELPIE_CPU_SECONDS_PER_HOUR",
        default=0.0,
        low=0,
        high=1_000_000_000,
    )
    tool_memory_mb: int = setting(
        "limits.memory_mb",
        "Maximum memory of one tool call in megabytes, whatever the tool asks for; 0 leaves it to the tool.",
        "KELPIE_TOOL_MEMORY_MB",
        default=0,
        low=0,
        high=1024 * 1024,
    )

    @property
    def policy(self) -> Policy:
        """The policy for every agent of this server."""
        quota = Quota(
            self.tool_calls_per_hour or None,
            self.tokens_per_hour or None,
            round(self.cpu_seconds_per_hour * MICROS_PER_SECOND) or None,
            self.tool_memory_mb * MEGABYTE or None,
        )
        return Policy(ToolPatterns(self.tools_allow or None, self.tools_deny), quota)
