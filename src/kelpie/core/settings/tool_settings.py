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
from kelpie.core.tools.egress_rules import entries
from kelpie.core.tools.sandbox_caps import Cap, SandboxCaps

_MOST = 10**12


def _check(origin: str, patterns: Sequence[str]) -> None:
    try:
        check_patterns(origin, patterns)
    except InvalidInput as error:
        raise ConfigurationError(origin, error.remedy) from None


def _check_hosts(origin: str, hosts: Sequence[str]) -> None:
    try:
        entries(hosts)
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
        "Maximum memory of one tool call in megabytes; 0 leaves it to the tool. A tool that asks for more is refused; "
        "one that was stored before gets this much.",
        "KELPIE_TOOL_MEMORY_MB",
        default=1024,
        low=0,
        high=1024 * 1024,
    )
    tool_scratch_mb: int = setting(
        "limits.scratch_mb",
        "Maximum temporary disk space of one tool call in megabytes; 0 leaves it to the tool.",
        "KELPIE_TOOL_SCRATCH_MB",
        default=1024,
        low=0,
        high=1024 * 1024,
    )
    tool_processes: int = setting(
        "limits.processes",
        "Maximum number of processes and threads of one tool call; 0 leaves it to the tool.",
        "KELPIE_TOOL_PROCESSES",
        default=256,
        low=0,
        high=65_536,
    )
    tool_timeout_s: float = setting(
        "limits.timeout_seconds",
        "Maximum duration of one tool call in seconds; 0 leaves it to the tool.",
        "KELPIE_TOOL_TIMEOUT_SECONDS",
        default=600.0,
        low=0,
        high=86_400,
    )
    tool_cpu_share: float = setting(
        "limits.cpu_share",
        "Maximum number of cores of one tool call; 0 leaves it to the tool.",
        "KELPIE_TOOL_CPU_SHARE",
        default=2.0,
        low=0,
        high=1024,
    )
    tool_output_mb: float = setting(
        "limits.output_mb",
        "Maximum size in megabytes of each of the standard output and the standard error of one tool call; 0 leaves it "
        "to the tool.",
        "KELPIE_TOOL_OUTPUT_MB",
        default=4.0,
        low=0,
        high=1024,
    )
    tool_return_chars: int = setting(
        "limits.return_chars",
        "Maximum `return_char_limit` of a tool: the number of characters of its result that a model sees.",
        "KELPIE_TOOL_RETURN_CHARS",
        default=1_000_000,
        low=50_000,
        high=1_000_000,
    )
    tool_egress: tuple[str, ...] = setting(
        "limits.egress",
        "Hosts that tools may name in `egress`, such as `api.example.com, *.example.org`; empty allows every host.",
        "KELPIE_TOOL_EGRESS",
        default=(),
        check=_check_hosts,
    )

    @property
    def policy(self) -> Policy:
        """The policy for every agent of this server."""
        quota = Quota(
            tool_calls=self.tool_calls_per_hour or None,
            tokens=self.tokens_per_hour or None,
            cpu_us=round(self.cpu_seconds_per_hour * MICROS_PER_SECOND) or None,
            memory_bytes=self.tool_memory_mb * MEGABYTE or None,
            wall_s=self.tool_timeout_s or None,
            cpu_share=self.tool_cpu_share or None,
            processes=self.tool_processes or None,
            output_bytes=round(self.tool_output_mb * MEGABYTE) or None,
            scratch_bytes=self.tool_scratch_mb * MEGABYTE or None,
            return_chars=self.tool_return_chars,
        )
        return Policy(ToolPatterns(self.tools_allow or None, self.tools_deny), quota)

    @property
    def sandbox_caps(self) -> SandboxCaps:
        """The most that a tool may ask for."""
        caps = (
            Cap("memory_mb", self.tool_memory_mb or None, "KELPIE_TOOL_MEMORY_MB"),
            Cap("scratch_mb", self.tool_scratch_mb or None, "KELPIE_TOOL_SCRATCH_MB"),
            Cap("processes", self.tool_processes or None, "KELPIE_TOOL_PROCESSES"),
            Cap("timeout_s", self.tool_timeout_s or None, "KELPIE_TOOL_TIMEOUT_SECONDS"),
            Cap("cpu_share", self.tool_cpu_share or None, "KELPIE_TOOL_CPU_SHARE"),
            Cap("output_mb", self.tool_output_mb or None, "KELPIE_TOOL_OUTPUT_MB"),
        )
        return SandboxCaps(
            caps,
            Cap("return_char_limit", self.tool_return_chars, "KELPIE_TOOL_RETURN_CHARS"),
            self.tool_egress,
            "KELPIE_TOOL_EGRESS",
        )
