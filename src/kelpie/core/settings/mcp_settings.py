"""Settings of MCP: the servers whose tools agents may use, and the limits on talking to them."""

from dataclasses import dataclass

from kelpie.core.settings.declaration import setting


@dataclass(frozen=True)
class McpSettings:
    """Settings that hold for every MCP server; a server may have its own time limits."""

    mcp_file: str | None = setting(
        "mcp.file",
        'File with MCP servers in the common `{"mcpServers": {...}}` format, read when the server starts and by '
        "`kelpie mcp add --file`. `${NAME}` in it stands for an environment variable.",
        "KELPIE_MCP_FILE",
        kind=str,
    )
    mcp_private: bool = setting(
        "mcp.private",
        "Whether MCP servers on this machine or in a private network may be registered and reached over HTTP.",
        "KELPIE_MCP_PRIVATE",
        default=False,
    )
    mcp_public_url: str | None = setting(
        "mcp.public_url",
        "Address at which people's browsers reach this server, such as `https://kelpie.example.com`; MCP servers with "
        "OAuth send them back there after a login. Defaults to the address of the request that begins the login.",
        "KELPIE_MCP_PUBLIC_URL",
        kind=str,
    )
    mcp_directories: tuple[str, ...] = setting(
        "mcp.directories",
        "Directories of this machine that the configuration of a stdio server may grant to it, with all below them. "
        "Empty grants none.",
        "KELPIE_MCP_DIRECTORIES",
        default=(),
    )
    mcp_connect_s: float = setting(
        "mcp.connect_seconds",
        "Maximum time to connect to an MCP server: to start it or to reach it, and to agree on a protocol version.",
        "KELPIE_MCP_CONNECT_SECONDS",
        default=30.0,
        seconds=True,
    )
    mcp_read_s: float = setting(
        "mcp.read_seconds",
        "Maximum time that an MCP server may stay silent while it answers a request. Progress notifications count.",
        "KELPIE_MCP_READ_SECONDS",
        default=30.0,
        seconds=True,
    )
    mcp_call_s: float = setting(
        "mcp.call_seconds",
        "Maximum duration of one call of an MCP tool, with progress notifications or without.",
        "KELPIE_MCP_CALL_SECONDS",
        default=300.0,
        seconds=True,
    )
    mcp_answer_mb: float = setting(
        "mcp.answer_mb",
        "Maximum size in megabytes of one answer of an MCP server; a larger one is an error.",
        "KELPIE_MCP_ANSWER_MB",
        default=4.0,
        low=0.01,
        high=64,
    )
    mcp_failures_max: int = setting(
        "mcp.failures_max",
        "Number of failures in a row after which an MCP server is left alone for a while.",
        "KELPIE_MCP_FAILURES_MAX",
        default=5,
        low=1,
        high=1000,
    )
    mcp_retry_s: float = setting(
        "mcp.retry_seconds",
        "How long an MCP server that kept failing is left alone before one call may try it again. The time doubles "
        "with each failed try, up to ten times this.",
        "KELPIE_MCP_RETRY_SECONDS",
        default=30.0,
        seconds=True,
    )
    mcp_idle_s: float = setting(
        "mcp.idle_seconds",
        "How long an unused connection to an MCP server is kept. The process of a stdio server ends with it.",
        "KELPIE_MCP_IDLE_SECONDS",
        default=600.0,
        seconds=True,
    )
    mcp_processes_max: int = setting(
        "mcp.processes_max",
        "Maximum number of stdio servers that run at once. The one that is unused for longest makes room for another.",
        "KELPIE_MCP_PROCESSES_MAX",
        default=16,
        low=1,
        high=4096,
    )
