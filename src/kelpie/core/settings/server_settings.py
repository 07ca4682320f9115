"""Settings of the server itself and of its agents: its address and data directory, and every default of an agent."""

from dataclasses import dataclass

from kelpie.core.access.hosts import is_loopback
from kelpie.core.memory.blocks import CONTEXT_BYTES, DEFAULT_LIMIT, VERSIONS_KEPT, BlockRules
from kelpie.core.memory.working_memory import WorkingMemoryLimits
from kelpie.core.models.provider_limits import check_handle
from kelpie.core.settings.declaration import setting

BYTES_MAX = 1024**3
COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = setting(
        "server.host",
        "Address to listen on. On any address except loopback the server requires a password.",
        "KELPIE_HOST",
        default="127.0.0.1",
    )
    port: int = setting(
        "server.port", "Port to listen on; 0 chooses a free port.", "KELPIE_PORT", default=8283, low=0, high=65535
    )
    password: str | None = setting(
        "server.password",
        "Password that clients must send as `Authorization: Bearer ...`. If one is required and none is set, the "
        "server generates one and shows it once.",
        "KELPIE_SERVER_PASSWORD",
        "LETTA_SERVER_PASSWORD",
        secret=True,
    )
    secure: bool = setting(
        "server.secure",
        "Whether the server also requires a password on a loopback address.",
        "KELPIE_SERVER_SECURE",
        "LETTA_SERVER_SECURE",
        default=False,
    )
    client_api_key: str | None = setting(
        "client.api_key",
        "Credential that commands send to a server that requires one: an API key or its password. Defaults to "
        "`server.password`.",
        "KELPIE_API_KEY",
        "LETTA_API_KEY",
        secret=True,
    )
    data_dir: str = setting(
        "server.data_dir",
        "Directory of the database, the lock, the process id and the logs. Only one server can use a directory.",
        "KELPIE_DATA_DIR",
        default="~/.kelpie",
    )
    packages: bool = setting(
        "sandbox.packages",
        "Whether the server installs the pip and npm requirements of tools. If not, such tools are stored but cannot "
        "run.",
        "KELPIE_SANDBOX_PACKAGES",
        default=True,
    )
    database_url: str | None = setting(
        "server.database_url",
        "Database location: `sqlite:///path/to/file`. Defaults to a SQLite file in the data directory.",
        "KELPIE_DATABASE_URL",
    )
    log_level: str = setting(
        "server.log_level",
        "Log level: `debug`, `info`, `warning` or `error`.",
        "KELPIE_LOG_LEVEL",
        default="info",
        choices=("debug", "info", "warning", "error"),
    )
    body_bytes_max: int = setting(
        "server.body_bytes_max",
        "Maximum size of a request body; larger requests get a 413.",
        "KELPIE_BODY_BYTES_MAX",
        default=16 * 1024 * 1024,
        low=1,
        high=BYTES_MAX,
    )
    drain_s: float = setting(
        "server.drain_seconds",
        "How long a stopping server waits for running turns to finish.",
        "KELPIE_DRAIN_SECONDS",
        default=20.0,
        seconds=True,
    )
    start_s: float = setting(
        "server.start_seconds",
        "How long `kelpie server start` waits for the server to answer.",
        "KELPIE_START_SECONDS",
        default=60.0,
        seconds=True,
    )
    keep_alive_s: float = setting(
        "server.keep_alive_seconds",
        "How long an idle connection is kept open; use more than the proxy in front of the server uses.",
        "KELPIE_KEEP_ALIVE_SECONDS",
        default=30.0,
        seconds=True,
    )
    ping_s: float = setting(
        "server.ping_seconds",
        "Interval of keep-alive messages in an idle stream; use less than the idle limit of any proxy.",
        "KELPIE_PING_SECONDS",
        default=20.0,
        seconds=True,
    )
    stall_s: float = setting(
        "server.stall_seconds",
        "How long a client may stop reading a stream, or pause within a request, before the server closes the "
        "connection.",
        "KELPIE_STALL_SECONDS",
        default=60.0,
        seconds=True,
    )
    stream_kept_s: float = setting(
        "server.stream_kept_seconds",
        "How long clients can read the stream of a background run again after the run has ended.",
        "KELPIE_STREAM_KEPT_SECONDS",
        default=3 * 3600.0,
        seconds=True,
    )
    callback_private: bool = setting(
        "server.callback_private",
        "Whether `callback_url` may point to this machine or to a private network.",
        "KELPIE_CALLBACK_PRIVATE",
        default=False,
    )
    egress_private: bool = setting(
        "sandbox.egress_private",
        "Whether tools and package installations may reach hosts on this machine or in a private network.",
        "KELPIE_EGRESS_PRIVATE",
        default=False,
    )
    log_bytes_max: int = setting(
        "server.log_bytes_max",
        "Maximum size of a log file before a new one is started.",
        "KELPIE_LOG_BYTES_MAX",
        default=10 * 1024 * 1024,
        low=1024,
        high=BYTES_MAX,
    )
    log_files_max: int = setting(
        "server.log_files_max",
        "Number of log files to keep, including the current one.",
        "KELPIE_LOG_FILES_MAX",
        default=5,
        low=1,
        high=1000,
    )
    trace_steps: int = setting(
        "server.trace_steps",
        "Number of newest steps whose exchange with the provider is stored (`/v1/steps/{id}/trace`); 0 stores none.",
        "KELPIE_TRACE_STEPS",
        default=0,
        low=0,
        high=COUNT_MAX,
    )
    trace_bytes_max: int = setting(
        "server.trace_bytes_max",
        "Maximum number of bytes stored of a request to a provider and of its answer.",
        "KELPIE_TRACE_BYTES_MAX",
        default=128 * 1024,
        low=0,
        high=BYTES_MAX,
    )
    default_model: str = setting(
        "agents.default_model",
        "Handle of the default model for new agents.",
        "KELPIE_DEFAULT_MODEL",
        "LETTA_DEFAULT_LLM_HANDLE",
        default="kelpie/demo",
        check=check_handle,
    )
    default_embedding: str | None = setting(
        "agents.default_embedding",
        "Handle of the default embedding model for new agents.",
        "KELPIE_DEFAULT_EMBEDDING",
        "LETTA_DEFAULT_EMBEDDING_HANDLE",
        check=check_handle,
    )
    embedding_dir: str | None = setting(
        "agents.embedding_dir",
        "Directory of the embedding model all-MiniLM-L6-v2, if the server does not find its files by itself.",
        "KELPIE_EMBEDDING_DIR",
    )
    default_timezone: str = setting(
        "agents.default_timezone",
        "Default time zone of new agents, such as `Europe/Berlin`.",
        "KELPIE_DEFAULT_TIMEZONE",
        default="UTC",
    )
    block_limit: int = setting(
        "agents.block_limit",
        "Default maximum number of characters in a memory block.",
        "KELPIE_BLOCK_LIMIT",
        default=DEFAULT_LIMIT,
        low=1,
        high=2**31 - 1,
    )
    block_versions: int = setting(
        "agents.block_versions",
        "Number of versions to keep of each memory block, including the current one; the oldest are deleted first.",
        "KELPIE_BLOCK_VERSIONS",
        default=VERSIONS_KEPT,
        low=1,
        high=COUNT_MAX,
    )
    core_memory_bytes: int = setting(
        "agents.core_memory_bytes",
        "Maximum number of bytes that an agent may write into all of its memory blocks together. A context window over "
        "128,000 tokens raises it in proportion; it is never more than a quarter of the window.",
        "KELPIE_CORE_MEMORY_BYTES",
        default=CONTEXT_BYTES,
        low=1,
        high=BYTES_MAX,
    )
    working_memory_value_bytes_max: int = setting(
        "agents.working_memory_value_bytes_max",
        "Maximum size in bytes of one value in an agent's working memory, as JSON.",
        "KELPIE_WORKING_MEMORY_VALUE_BYTES_MAX",
        default=64 * 1024,
        low=1,
        high=16 * 1024 * 1024,
    )
    working_memory_entries_max: int = setting(
        "agents.working_memory_entries_max",
        "Maximum number of entries in an agent's working memory.",
        "KELPIE_WORKING_MEMORY_ENTRIES_MAX",
        default=1000,
        low=1,
        high=100_000,
    )
    working_memory_bytes_max: int = setting(
        "agents.working_memory_bytes_max",
        "Maximum total size in bytes of all keys and values in an agent's working memory.",
        "KELPIE_WORKING_MEMORY_BYTES_MAX",
        default=1024 * 1024,
        low=1,
        high=BYTES_MAX,
    )
    context_window: int = setting(
        "agents.context_window",
        "Default maximum number of tokens of a model's context window that an agent uses.",
        "KELPIE_CONTEXT_WINDOW",
        "GLOBAL_MAX_CONTEXT_WINDOW_LIMIT",
        default=128_000,
        low=1000,
        high=100_000_000,
    )
    max_steps: int = setting(
        "agents.max_steps",
        "Default maximum number of model calls in one turn.",
        "KELPIE_MAX_STEPS",
        default=50,
        low=1,
        high=10_000,
    )
    mailbox_size: int = setting(
        "agents.mailbox_size",
        "Maximum number of messages that wait for one agent; further messages get a 429 with `Retry-After`.",
        "KELPIE_MAILBOX_SIZE",
        default=64,
        low=1,
        high=COUNT_MAX,
    )
    hot_agents_max: int = setting(
        "agents.hot_max",
        "Maximum number of agents kept in memory at once.",
        "KELPIE_HOT_AGENTS_MAX",
        default=2000,
        low=1,
        high=COUNT_MAX,
    )
    hot_wait_s: float = setting(
        "agents.hot_wait_seconds",
        "How long a message waits when memory is full of busy agents.",
        "KELPIE_HOT_WAIT_SECONDS",
        default=30.0,
        seconds=True,
    )
    load_s: float = setting(
        "agents.load_seconds",
        "Maximum time to load an agent into memory.",
        "KELPIE_LOAD_SECONDS",
        default=30.0,
        seconds=True,
    )
    idle_s: float = setting(
        "agents.idle_seconds",
        "Idle time after which an agent is unloaded from memory; its next message loads it again.",
        "KELPIE_IDLE_SECONDS",
        default=600.0,
        seconds=True,
    )
    reply_s: float = setting(
        "agents.reply_seconds",
        "How long an agent waits for the answer of another agent.",
        "KELPIE_REPLY_SECONDS",
        default=300.0,
        seconds=True,
    )
    approval_s: int = setting(
        "agents.approval_seconds",
        "Time after which unanswered tool calls (waiting for approval or for a client) are denied; 0 waits forever.",
        "KELPIE_APPROVAL_SECONDS",
        default=0,
        low=0,
        high=10 * 365 * 24 * 3600,
    )

    @property
    def block_rules(self) -> BlockRules:
        """Rules for the memory blocks of all agents."""
        return BlockRules(self.block_limit, self.block_versions, self.core_memory_bytes)

    @property
    def protected(self) -> bool:
        """True if clients must send a credential: always, unless only this machine can connect and the operator does
        not ask for one."""
        return self.secure or self.password is not None or not is_loopback(self.host)

    @property
    def working_memory(self) -> WorkingMemoryLimits:
        return WorkingMemoryLimits(
            self.working_memory_value_bytes_max, self.working_memory_entries_max, self.working_memory_bytes_max
        )
