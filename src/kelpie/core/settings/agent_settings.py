"""Settings of agents: the defaults of agents that name none, and the limits that hold for all of them."""

from dataclasses import dataclass

from kelpie.core.memory.blocks import CONTEXT_BYTES, DEFAULT_LIMIT, VERSIONS_KEPT, BlockRules
from kelpie.core.memory.working_memory import WorkingMemoryLimits
from kelpie.core.models.provider_limits import check_handle
from kelpie.core.settings.declaration import BYTES_MAX, COUNT_MAX, setting


@dataclass(frozen=True)
class AgentSettings:
    """Defaults and limits of agents."""

    default_model: str | None = setting(
        "agents.default_model",
        "Handle of the default model for new agents. Without it, Kelpie takes a model of the first provider that is "
        "set up, or `kelpie/demo` if none is.",
        "KELPIE_DEFAULT_MODEL",
        "LETTA_DEFAULT_LLM_HANDLE",
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
    embedding_precision: str = setting(
        "agents.embedding_precision",
        "Precision of the local embedding model. `int8` needs about 2.5 times less processor time; `float32` gives the "
        "published vectors. `auto` is `int8` on a processor with fast and exact 8-bit products (x86 with VNNI, ARM64), "
        "otherwise `float32`.",
        "KELPIE_EMBEDDING_PRECISION",
        default="auto",
        choices=("auto", "int8", "float32"),
    )
    embedding_idle_s: float = setting(
        "agents.embedding_idle_seconds",
        "Seconds without a text after which the process of the local embedding model ends and frees its memory. The "
        "next text starts it again.",
        "KELPIE_EMBEDDING_IDLE_SECONDS",
        default=300.0,
        seconds=True,
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
    hot_bytes_max: int = setting(
        "agents.hot_bytes_max",
        "Maximum size in bytes of the agents kept in memory, estimated from their messages. Above it, idle agents are "
        "unloaded, the least recently used first.",
        "KELPIE_HOT_AGENTS_BYTES_MAX",
        default=512 * 1024 * 1024,
        low=1,
        high=2**50,
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
    def working_memory(self) -> WorkingMemoryLimits:
        return WorkingMemoryLimits(
            self.working_memory_value_bytes_max, self.working_memory_entries_max, self.working_memory_bytes_max
        )
