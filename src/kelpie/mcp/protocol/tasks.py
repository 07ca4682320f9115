"""Tasks of MCP: a call that the server answers with a handle, to be asked about until it ends.

The extension for 2026-07-28 has `tasks/get`, `tasks/update` and `tasks/cancel`, and the server decides. In 2025-11-25
tasks belong to the protocol, the client asks for one in the call, and `tasks/result` fetches the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED_KEY = "io.modelcontextprotocol/related-task"  # in `_meta`, 2025-11-25
POLL_MS_DEFAULT = 1000


class TaskStatus(StrEnum):
    working = "working"
    input_required = "input_required"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (TaskStatus.completed, TaskStatus.failed, TaskStatus.cancelled)


@dataclass(frozen=True, slots=True)
class Task:
    """The state of a task as its server tells it. Times are ISO 8601."""

    id: str
    status: TaskStatus
    created_at: str = ""
    updated_at: str = ""
    message: str | None = None
    ttl_ms: int | None = None  # None: it is kept without limit
    poll_ms: int | None = None
    input_requests: Mapping[str, Any] | None = None  # of one that needs input
    result: Mapping[str, Any] | None = None  # of a completed one
    error: Mapping[str, Any] | None = None  # of a failed one

    def wire(self) -> dict[str, Any]:
        """The task in the form of the extension for 2026-07-28."""
        given = {
            "statusMessage": self.message,
            "pollIntervalMs": self.poll_ms,
            "inputRequests": self.input_requests,
            "result": self.result,
            "error": self.error,
        }
        return {
            "taskId": self.id,
            "status": self.status.value,
            "createdAt": self.created_at,
            "lastUpdatedAt": self.updated_at,
            "ttlMs": self.ttl_ms,
            **{name: value for name, value in given.items() if value is not None},
        }

    def session_wire(self) -> dict[str, Any]:
        """The task in the form of 2025-11-25."""
        given = {"statusMessage": self.message, "pollInterval": self.poll_ms}
        return {
            "taskId": self.id,
            "status": self.status.value,
            "createdAt": self.created_at,
            "lastUpdatedAt": self.updated_at,
            "ttl": self.ttl_ms,
            **{name: value for name, value in given.items() if value is not None},
        }


def read_task(data: Any) -> Task:
    """The task in a result, in either form. Raises ValueError."""
    if not isinstance(data, Mapping) or not isinstance(data.get("taskId"), str):
        raise ValueError("a task without a taskId")
    try:
        status = TaskStatus(data.get("status", ""))
    except ValueError:
        raise ValueError(f"a task of the unknown status {data.get('status')!r}") from None
    return Task(
        data["taskId"],
        status,
        created_at=str(data.get("createdAt", "")),
        updated_at=str(data.get("lastUpdatedAt", "")),
        message=_text(data.get("statusMessage")),
        ttl_ms=_number(data.get("ttlMs", data.get("ttl"))),
        poll_ms=_number(data.get("pollIntervalMs", data.get("pollInterval"))),
        input_requests=_object(data.get("inputRequests")),
        result=_object(data.get("result")),
        error=_object(data.get("error")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _object(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None
