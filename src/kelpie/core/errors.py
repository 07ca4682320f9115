"""The error tree, ordered by who is at fault: every error that passes between packages. HTTP statuses for it are in
`server/http/errors.py` only. Every error has a code of `core/codes`.

A package may define further subclasses for a case of its own, next to the code that raises them.

KelpieError
├── CallerError              the client can fix it
│   ├── InvalidInput         a value is wrong; names the field and the remedy
│   │   └── InvalidId        an id has the wrong shape
│   ├── UnsupportedType      a file is of a type that has no text
│   ├── Unauthorized         the client is not authenticated
│   ├── Forbidden            the credential does not allow this
│   ├── NotFound
│   │   └── NoSuchVersion    the object exists, but not in this version
│   ├── Gone                 it existed and is no longer stored
│   ├── Conflict
│   │   ├── ConversationBusy the conversation has a running turn; carries its run
│   │   ├── AgentStopped     the agent was stopped by its operator
│   │   └── PendingApproval  tool calls wait for an answer; names the message that asks
│   ├── Overloaded           a limit was reached; carries how long to wait
│   │   ├── MailboxFull
│   │   └── RateExceeded     the organization makes more requests than it may; carries the quota
│   └── QuotaExceeded        the organization stores as much as it may; carries the quota
├── ModelError               the model provider failed or refused; see its `kind`
├── McpError                 an MCP server failed or cannot be reached; see its `kind`
├── RunOver                  a run was ended from outside its turn, which can no longer commit
├── ToolError                a tool call failed; the text is for the model, the client's request succeeds
│   └── SandboxUnavailable   the required isolation is not available; names what is missing and the remedy
├── StorageError             the database failed
│   ├── StorageUnavailable   nothing can be stored until an operator acts
│   │   ├── DiskFull
│   │   ├── DatabaseLost     a file of the database was deleted or replaced
│   │   └── DatabaseDamaged
│   ├── StorageBusy          a transient refusal; safe to try again
│   ├── CommitUnknown        the commit may or may not have happened
│   ├── Damaged              a stored row is damaged
│   ├── SecretUnreadable     a stored secret cannot be decrypted; names it and the reason
│   └── Fenced               another process took over the agent; this activation must end
├── TurnBroken               a turn could not be completed
├── ActivationFailed         an agent could not be loaded; carries when the next try is due
├── ConfigurationError       the operator's settings are wrong; names the setting and the remedy
└── InvariantBroken          a bug of ours
"""

from enum import StrEnum


class KelpieError(Exception):
    """Something went wrong in Kelpie."""

    error_code: str = "internal_error"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else (self.__doc__ or type(self).__name__)


class CallerError(KelpieError):
    """The request cannot be carried out."""

    error_code = "invalid_request"


class InvalidInput(CallerError):
    """A value in the request is wrong."""

    error_code = "invalid_input"

    def __init__(self, field: str, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}")
        self.field = field
        self.remedy = remedy


class InvalidId(InvalidInput):
    """An id has the wrong shape."""

    error_code = "invalid_id"

    def __init__(self, prefix: str, text: str) -> None:
        super().__init__(f"{prefix}_id", f"'{text[:80]}' is not an id of the form {prefix}-<uuid4>")
        self.prefix = prefix
        self.text = text


class UnsupportedType(CallerError):
    """The type of the file is not supported."""

    error_code = "file_type_unsupported"


class Unauthorized(CallerError):
    """Unauthorized"""

    error_code = "unauthorized"


class Forbidden(CallerError):
    """The credential does not allow this."""

    error_code = "access_forbidden"


class NotFound(CallerError):
    """The requested object does not exist."""

    error_code = "not_found"

    def __init__(self, what: str, key: str, remedy: str = "") -> None:
        super().__init__(f"{what} not found with id='{key}'" + (f". {remedy}" if remedy else ""))
        self.what = what
        self.key = key


class NoSuchVersion(NotFound):
    """The requested object exists, but this version of it does not, or is no longer stored."""

    error_code = "version_not_found"

    def __init__(self, key: str, version: int, oldest: int, newest: int) -> None:
        super().__init__("Version", f"{version} of {key}")
        self.args = (f"{key} has no version {version}; versions {oldest} to {newest} are available",)


class Gone(CallerError):
    """The requested object is no longer stored."""

    error_code = "object_gone"


class Conflict(CallerError):
    """The request conflicts with the stored data."""

    error_code = "request_conflict"


class ConversationBusy(Conflict):
    """The conversation has a running turn. Clients match words of this text to retry or to follow the run."""

    error_code = "conversation_busy"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"CONFLICT: another request (run_id={run_id}) is currently being processed for this conversation. "
            "Wait until that run ends or cancel it, then send the message again."
        )
        self.run_id = run_id


class AgentStopped(Conflict):
    """The agent is stopped. Start it before sending messages."""

    error_code = "agent_stopped"


class PendingApproval(Conflict):
    """Tool calls of this conversation wait for an answer. Clients match words of this text."""

    error_code = "pending_approval"

    def __init__(self, request_id: str) -> None:
        super().__init__(
            "CONFLICT: the agent is waiting for approval on a tool call, or for its result from the client. Please "
            f"approve or deny the pending request before continuing. It is {request_id}; you can also cancel it."
        )
        self.request_id = request_id


class Overloaded(CallerError):
    """A limit was reached. Try again later. The code names the limit."""

    def __init__(self, code: str, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.error_code = code
        self.retry_after_s = retry_after_s


class MailboxFull(Overloaded):
    """Too many messages are waiting for the agent."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__("mailbox_full", message, retry_after_s)


class RateExceeded(Overloaded):
    """The organization makes more requests than its quota allows."""

    def __init__(self, message: str, retry_after_s: float, *, quota: str, limit: int, used: int, setting: str) -> None:
        super().__init__("rate_exceeded", message, retry_after_s)
        self.quota = {"name": quota, "limit": limit, "used": used, "setting": setting}


class QuotaExceeded(CallerError):
    """The organization stores as much as its quota allows."""

    error_code = "quota_exceeded"

    def __init__(self, message: str, *, quota: str, limit: int, used: float, setting: str) -> None:
        super().__init__(message)
        self.quota = {"name": quota, "limit": limit, "used": used, "setting": setting}


class ModelFault(StrEnum):
    """Kind of failure that a provider reported; it decides retry, status code and stop reason."""

    authentication = "llm_authentication"
    insufficient_credits = "llm_insufficient_credits"
    rate_limit = "llm_rate_limit"
    bad_request = "llm_bad_request"
    context_overflow = "llm_context_overflow"
    instructions_overflow = "context_window_overflow_in_system_prompt"
    timeout = "llm_timeout"
    connection = "llm_connection"
    server = "llm_error"
    malformed = "llm_malformed"


class ModelError(KelpieError):
    """The model provider failed or refused."""

    def __init__(
        self,
        kind: ModelFault,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.error_code = kind.value
        self.kind = kind
        self.message = message
        self.detail = detail  # the provider's own words, verbatim
        self.hint = hint  # what the user can do about it
        self.retry_after_s = retry_after_s


class McpFault(StrEnum):
    """Kind of failure of an MCP server."""

    unreachable = "unreachable"  # it cannot be started or connected to
    timed_out = "timed_out"
    closed = "closed"  # the connection or the process ended in the middle
    malformed = "malformed"
    too_large = "too_large"
    refused = "refused"  # it answered with an error
    unauthorized = "unauthorized"  # it wants a token, or another one
    left_alone = "left_alone"  # it failed too often just now and is not asked


class McpError(KelpieError):
    """An MCP server failed or cannot be reached. The text names the server and what to do."""

    def __init__(self, kind: McpFault, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.error_code = f"mcp_{kind.value}"
        self.kind = kind
        self.message = message
        self.code = code  # an HTTP status, or the code of a JSON-RPC error


class RunOver(KelpieError):
    """This run has ended."""


class ToolError(KelpieError):
    """A tool call failed; the text is for the model. Carries what the sandbox used, because that counts too."""

    def __init__(self, *args: object, cpu_us: int = 0, memory_peak_bytes: int = 0) -> None:
        super().__init__(*args)
        self.cpu_us = cpu_us
        self.memory_peak_bytes = memory_peak_bytes


class SandboxUnavailable(ToolError):
    """The required isolation is not available. The text names what is missing and the remedy."""


class StorageError(KelpieError):
    """The database failed."""

    error_code = "storage_failed"


class StorageUnavailable(StorageError):
    """Nothing can be stored until an operator acts. To wait or to try again does not help."""

    error_code = "storage_unavailable"


class DiskFull(StorageUnavailable):
    """The disk that holds the database is full."""

    error_code = "disk_full"


class DatabaseLost(StorageUnavailable):
    """A file of the database was deleted or replaced."""

    error_code = "database_lost"


class DatabaseDamaged(StorageUnavailable):
    """A file of the database is damaged."""

    error_code = "database_damaged"


class StorageBusy(StorageError):
    """The database is busy. The same transaction may succeed when tried again."""

    error_code = "storage_busy"


class CommitUnknown(StorageError):
    """The commit may or may not have happened."""

    error_code = "commit_unknown"


class Damaged(StorageError):
    """A stored row is damaged."""

    error_code = "stored_row_damaged"

    def __init__(self, what: str, key: str, remedy: str = "Restore it from a backup, or delete it.") -> None:
        super().__init__(f"{what} {key} is damaged on the disk and cannot be shown. {remedy}")


class SecretUnreadable(StorageError):
    """A stored secret cannot be decrypted."""

    error_code = "secret_unreadable"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"The secret {what} cannot be decrypted: {reason}. Restore its key, or set the secret again.")
        self.reason = reason


class Fenced(StorageError):
    """Another server process took over this agent."""

    error_code = "agent_taken_over"


class TurnBroken(KelpieError):
    """The turn could not be completed."""

    error_code = "turn_broken"


class ActivationFailed(KelpieError):
    """The agent could not be loaded."""

    error_code = "agent_not_loaded"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ConfigurationError(KelpieError):
    """A setting is wrong."""

    error_code = "setting_wrong"

    def __init__(self, setting: str, remedy: str) -> None:
        super().__init__(f"{setting}: {remedy}")
        self.setting = setting
        self.remedy = remedy


class InvariantBroken(KelpieError):
    """A rule that must always hold did not; this is a bug in Kelpie."""
