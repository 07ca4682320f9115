"""The settings of the server itself and of its agents: where it listens and stores, and every default of an agent."""

from dataclasses import dataclass

from kelpie.core.setting import setting

BYTES_MAX = 1024**3
COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = setting(
        "server.host",
        "Address to listen on. Kelpie has no login yet and therefore refuses every address but the loopback ones.",
        "KELPIE_HOST",
        default="127.0.0.1",
    )
    port: int = setting(
        "server.port", "Port to listen on; 0 takes a free one.", "KELPIE_PORT", default=8283, low=0, high=65535
    )
    data_dir: str = setting(
        "server.data_dir",
        "Where the database, the lock, the process id and the logs lie. One server a directory.",
        "KELPIE_DATA_DIR",
        default="~/.kelpie",
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
    default_model: str = setting(
        "agents.default_model",
        "Handle of the model for agents that name none.",
        "KELPIE_DEFAULT_MODEL",
        "LETTA_DEFAULT_LLM_HANDLE",
        default="kelpie/demo",
    )
    default_embedding: str | None = setting(
        "agents.default_embedding",
        "Handle of the embedding model for agents that name none.",
        "KELPIE_DEFAULT_EMBEDDING",
        "LETTA_DEFAULT_EMBEDDING_HANDLE",
    )
    block_limit: int = setting(
        "agents.block_limit",
        "Characters a memory block may hold when the request that makes it names no limit.",
        "KELPIE_BLOCK_LIMIT",
        default=100_000,
        low=1,
        high=2**31 - 1,
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
