"""Settings of the server process: where it listens and stores, what it logs and traces."""

from dataclasses import dataclass

from kelpie.core.access.hosts import is_loopback
from kelpie.core.settings.declaration import BYTES_MAX, COUNT_MAX, setting


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the server process: its address, storage, logs and streams."""

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
    dashboard: bool = setting(
        "server.dashboard",
        "Whether the server shows the dashboard at `/` and lets people sign in to it.",
        "KELPIE_DASHBOARD",
        default=True,
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
    encryption_key: str | None = setting(
        "encryption.key",
        "Key that encrypts stored secrets: 32 bytes in base64. Several keys are separated by commas, the current one "
        "first. Defaults to a generated key in `encryption.key_file`.",
        "KELPIE_ENCRYPTION_KEY",
        secret=True,
    )
    encryption_key_file: str | None = setting(
        "encryption.key_file",
        "File with the keys that encrypt stored secrets; the server creates it. Defaults to `keys/encryption.key` in "
        "the data directory. Two servers must not share it.",
        "KELPIE_ENCRYPTION_KEY_FILE",
    )
    encryption_key_lost: str | None = setting(
        "encryption.key_lost",
        "Id of an encryption key that you cannot restore. The server then starts without it; set the secrets that used "
        "it again.",
        "KELPIE_ENCRYPTION_KEY_LOST",
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
        "Maximum size of a request body that may hold images: messages and new agents. Larger requests get a 413.",
        "KELPIE_BODY_BYTES_MAX",
        default=16 * 1024 * 1024,
        low=1,
        high=BYTES_MAX,
    )
    json_bytes_max: int = setting(
        "server.json_bytes_max",
        "Maximum size of any other request body; larger requests get a 413.",
        "KELPIE_JSON_BYTES_MAX",
        default=2 * 1024 * 1024,
        low=1,
        high=BYTES_MAX,
    )
    hook_bytes_max: int = setting(
        "server.hook_bytes_max",
        "Maximum size of the body of a delivery to a webhook; larger ones get a 413.",
        "KELPIE_HOOK_BYTES_MAX",
        default=256 * 1024,
        low=1,
        high=BYTES_MAX,
    )
    upload_bytes_max: int = setting(
        "server.upload_bytes_max",
        "Maximum size of an upload, such as a checkpoint to restore. Uploads are streamed to disk.",
        "KELPIE_UPLOAD_BYTES_MAX",
        default=128 * 1024 * 1024,
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
    organization_share: float = setting(
        "limits.organization_share",
        "Largest share of the sandboxes, package installations, callbacks in flight and calls to a provider that one "
        "organization may hold at once, of those that other organizations do not hold; the rest is kept for the "
        "others. Not in force while the server has one organization; 1 lets an organization hold all, 0 one at a time.",
        "KELPIE_ORGANIZATION_SHARE",
        default=0.75,
        low=0,
        high=1,
    )
    processor_share: float = setting(
        "limits.processor_share",
        "Processor time that all organizations together may use while several of them are active, in processors. It is "
        "divided among those that need it: the requests of an organization that used more wait. The server is one "
        "process, so it rarely uses more than one processor; the less it may use, the shorter the others wait.",
        "KELPIE_PROCESSOR_SHARE",
        default=0.5,
        low=0.05,
        high=1000,
    )
    trace_steps: int = setting(
        "server.trace_steps",
        "Number of newest steps whose exchange with the provider is stored (`/v1/steps/{id}/trace`); 0 stores none.",
        "KELPIE_TRACE_STEPS",
        default=100,
        low=0,
        high=COUNT_MAX,
    )
    trace_bytes_max: int = setting(
        "server.trace_bytes_max",
        "Maximum number of bytes stored of a request to a provider and of its answer.",
        "KELPIE_TRACE_BYTES_MAX",
        default=512 * 1024,
        low=0,
        high=BYTES_MAX,
    )

    @property
    def protected(self) -> bool:
        """True if clients must send a credential: always, unless only this machine can connect and the operator does
        not ask for one."""
        return self.secure or self.password is not None or not is_loopback(self.host)
