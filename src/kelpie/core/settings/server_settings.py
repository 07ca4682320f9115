"""The settings of the server itself and of its agents: where it listens and stores, and every default of an agent."""

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
        "Address to listen on. On any but a loopback address the server asks for a password.",
        "KELPIE_HOST",
        default="127.0.0.1",
    )
    port: int = setting(
        "server.port", "Port to listen on; 0 takes a free one.", "KELPIE_PORT", default=8283, low=0, high=65535
    )
    password: str | None = setting(
        "server.password",
        "What clients must send as `Authorization: Bearer ...`. Where one is needed and none is set, it is made and "
        "shown once.",
        "KELPIE_SERVER_PASSWORD",
        "LETTA_SERVER_PASSWORD",
        secret=True,
    )
    secure: bool = setting(
        "server.secure",
        "Whether a password is asked for on a loopback address too.",
        "KELPIE_SERVER_SECURE",
        "LETTA_SERVER_SECURE",
        default=False,
    )
    client_api_key: str | None = setting(
        "client.api_key",
        "What commands send to a server that asks for a credential: an API key, or its password. Without it, "
        "`server.password` is sent.",
        "KELPIE_API_KEY",
        "LETTA_API_KEY",
        secret=True,
    )
    data_dir: str = setting(
        "server.data_dir",
        "Where the database, the lock, the process id and the logs lie. One server a directory.",
        "KELPIE_DATA_DIR",
        default="~/.kelpie",
    )
    packages: bool = setting(
        "sandbox.packages",
        "Whether the pip and npm requirements of tools are installed; without it such tools are stored and not run.",
        "KELPIE_SANDBOX_PACKAGES",
        default=True,
    )
    database_url: str | None = setting(
        "server.database_url",
        "To keep the database elsewhere: `sqlite:///path/to/file`. Without it, a SQLite file in the data directory.",
        "KELPIE_DATABASE_URL",
    )
    log_level: str = setting(
        "server.log_level",
        "How much is logged: `debug`, `info`, `warning` or `error`.",
        "KELPIE_LOG_LEVEL",
        default="info",
        choices=("debug", "info", "warning", "error"),
    )
    body_bytes_max: int = setting(
        "server.body_bytes_max",
        "Largest request body; more is answered with 413.",
        "KELPIE_BODY_BYTES_MAX",
        default=16 * 1024 * 1024,
        low=1,
        high=BYTES_MAX,
    )
    drain_s: float = setting(
        "server.drain_seconds",
        "How long a stopping server lets turns in flight finish.",
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
        "How long a connection without requests is kept; more than a proxy in front keeps its own.",
        "KELPIE_KEEP_ALIVE_SECONDS",
        default=30.0,
        seconds=True,
    )
    ping_s: float = setting(
        "server.ping_seconds",
        "After this long without news a stream says that it is alive; less than proxies on the way allow.",
        "KELPIE_PING_SECONDS",
        default=20.0,
        seconds=True,
    )
    stall_s: float = setting(
        "server.stall_seconds",
        "How long a client may leave a stream unread, or pause within a request, before it is given up.",
        "KELPIE_STALL_SECONDS",
        default=60.0,
        seconds=True,
    )
    stream_kept_s: float = setting(
        "server.stream_kept_seconds",
        "How long the stream of a background run can be read again after the run has ended.",
        "KELPIE_STREAM_KEPT_SECONDS",
        default=3 * 3600.0,
        seconds=True,
    )
    callback_private: bool = setting(
        "server.callback_private",
        "Whether `callback_url` may lead to this machine or to a private network.",
        "KELPIE_CALLBACK_PRIVATE",
        default=False,
    )
    egress_private: bool = setting(
        "sandbox.egress_private",
        "Whether the hosts that a tool may reach, and those that a package names, may lie on this machine or in a "
        "private network.",
        "KELPIE_EGRESS_PRIVATE",
        default=False,
    )
    log_bytes_max: int = setting(
        "server.log_bytes_max",
        "Size of the log file at which a new one is begun.",
        "KELPIE_LOG_BYTES_MAX",
        default=10 * 1024 * 1024,
        low=1024,
        high=BYTES_MAX,
    )
    log_files_max: int = setting(
        "server.log_files_max",
        "Log files that are kept, the current one included.",
        "KELPIE_LOG_FILES_MAX",
        default=5,
        low=1,
        high=1000,
    )
    trace_steps: int = setting(
        "server.trace_steps",
        "Of how many steps, the newest, the exchange with the provider is kept (`/v1/steps/{id}/trace`); 0 keeps none.",
        "KELPIE_TRACE_STEPS",
        default=0,
        low=0,
        high=COUNT_MAX,
    )
    trace_bytes_max: int = setting(
        "server.trace_bytes_max",
        "How many bytes of a request to a provider, and of its answer, are kept at most.",
        "KELPIE_TRACE_BYTES_MAX",
        default=128 * 1024,
        low=0,
        high=BYTES_MAX,
    )
    default_model: str = setting(
        "agents.default_model",
        "Handle of the model for agents that name none.",
        "KELPIE_DEFAULT_MODEL",
        "LETTA_DEFAULT_LLM_HANDLE",
        default="kelpie/demo",
        check=check_handle,
    )
    default_embedding: str | None = setting(
        "agents.default_embedding",
        "Handle of the embedding model for agents that name none.",
        "KELPIE_DEFAULT_EMBEDDING",
        "LETTA_DEFAULT_EMBEDDING_HANDLE",
        check=check_handle,
    )
    embedding_dir: str | None = setting(
        "agents.embedding_dir",
        "Directory with the files of the embedding model all-MiniLM-L6-v2, where they are not found by themselves.",
        "KELPIE_EMBEDDING_DIR",
    )
    default_timezone: str = setting(
        "agents.default_timezone",
        "Time zone of agents that name none, such as `Europe/Berlin`.",
        "KELPIE_DEFAULT_TIMEZONE",
        default="UTC",
    )
    block_limit: int = setting(
        "agents.block_limit",
        "Characters a memory block may hold when the request that makes it names no limit.",
        "KELPIE_BLOCK_LIMIT",
        default=DEFAULT_LIMIT,
        low=1,
        high=2**31 - 1,
    )
    block_versions: int = setting(
        "agents.block_versions",
        "How many versions of each memory block are kept, the current one included; the oldest go first.",
        "KELPIE_BLOCK_VERSIONS",
        default=VERSIONS_KEPT,
        low=1,
        high=COUNT_MAX,
    )
    core_memory_bytes: int = setting(
        "agents.core_memory_bytes",
        "Bytes to which an agent may fill its memory blocks, all together; a context window over 128,000 tokens "
        "raises it in proportion, and it is never more than a quarter of the window.",
        "KELPIE_CORE_MEMORY_BYTES",
        default=CONTEXT_BYTES,
        low=1,
        high=BYTES_MAX,
    )
    working_memory_value_bytes_max: int = setting(
        "agents.working_memory_value_bytes_max",
        "Bytes that one value of an agent's working memory may have as JSON.",
        "KELPIE_WORKING_MEMORY_VALUE_BYTES_MAX",
        default=64 * 1024,
        low=1,
        high=16 * 1024 * 1024,
    )
    working_memory_entries_max: int = setting(
        "agents.working_memory_entries_max",
        "Entries that an agent's working memory may have.",
        "KELPIE_WORKING_MEMORY_ENTRIES_MAX",
        default=1000,
        low=1,
        high=100_000,
    )
    working_memory_bytes_max: int = setting(
        "agents.working_memory_bytes_max",
        "Bytes that all keys and values of an agent's working memory may have together.",
        "KELPIE_WORKING_MEMORY_BYTES_MAX",
        default=1024 * 1024,
        low=1,
        high=BYTES_MAX,
    )
    context_window: int = setting(
        "agents.context_window",
        "Tokens of a model's context window that an agent uses at most when it names no limit of its own.",
        "KELPIE_CONTEXT_WINDOW",
        "GLOBAL_MAX_CONTEXT_WINDOW_LIMIT",
        default=128_000,
        low=1000,
        high=100_000_000,
    )
    max_steps: int = setting(
        "agents.max_steps",
        "Model calls that one turn may make when the request names no number.",
        "KELPIE_MAX_STEPS",
        default=50,
        low=1,
        high=10_000,
    )
    mailbox_size: int = setting(
        "agents.mailbox_size",
        "Messages that may wait for one agent; more are answered with 429 and `Retry-After`.",
        "KELPIE_MAILBOX_SIZE",
        default=64,
        low=1,
        high=COUNT_MAX,
    )
    hot_agents_max: int = setting(
        "agents.hot_max",
        "Agents kept in memory at once.",
        "KELPIE_HOT_AGENTS_MAX",
        default=2000,
        low=1,
        high=COUNT_MAX,
    )
    hot_wait_s: float = setting(
        "agents.hot_wait_seconds",
        "How long a message waits for a place in memory when all are taken by agents at work.",
        "KELPIE_HOT_WAIT_SECONDS",
        default=30.0,
        seconds=True,
    )
    load_s: float = setting(
        "agents.load_seconds",
        "How long loading an agent into memory may take.",
        "KELPIE_LOAD_SECONDS",
        default=30.0,
        seconds=True,
    )
    idle_s: float = setting(
        "agents.idle_seconds",
        "After this long without work an agent is put away; it comes back with its next message.",
        "KELPIE_IDLE_SECONDS",
        default=600.0,
        seconds=True,
    )
    reply_s: float = setting(
        "agents.reply_seconds",
        "How long an agent that asks another one waits for its answer.",
        "KELPIE_REPLY_SECONDS",
        default=300.0,
        seconds=True,
    )
    approval_s: int = setting(
        "agents.approval_seconds",
        "After this long without an answer, tool calls that wait for approval or for a client are denied; 0 waits "
        "for ever.",
        "KELPIE_APPROVAL_SECONDS",
        default=0,
        low=0,
        high=10 * 365 * 24 * 3600,
    )

    @property
    def block_rules(self) -> BlockRules:
        """What holds for the memory blocks of all agents."""
        return BlockRules(self.block_limit, self.block_versions, self.core_memory_bytes)

    @property
    def protected(self) -> bool:
        """Whether whoever asks must show a credential: always, unless only this machine can ask and nobody wants it."""
        return self.secure or self.password is not None or not is_loopback(self.host)

    @property
    def working_memory(self) -> WorkingMemoryLimits:
        return WorkingMemoryLimits(
            self.working_memory_value_bytes_max, self.working_memory_entries_max, self.working_memory_bytes_max
        )
