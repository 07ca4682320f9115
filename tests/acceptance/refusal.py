"""What a bad request is, and how a good refusal of it looks."""

from dataclasses import dataclass, field
from typing import Any

import httpx

GHOST = "00000000-0000-4000-8000-0000000000ff"


@dataclass(frozen=True)
class Case:
    """One bad request."""

    name: str
    method: str
    path: str
    status: int
    json: Any = ...
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def refused_well(answer: httpx.Response, case: Case) -> None:
    """The status is right, and the body has one of the shapes that clients know. Raises AssertionError."""
    assert answer.status_code == case.status, f"{answer.status_code}: {answer.text[:500]}"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert isinstance(body["detail"], str) and body["detail"]
    assert body.keys() <= {"detail", "message", "trace_id", "examples", "code"}, body
    assert "Traceback" not in answer.text and "sqlalchemy" not in answer.text.lower()
    assert len(answer.content) < 5000, "an answer that echoes what it refuses"
    for word in case.says:
        assert word in answer.text, f"does not say {word!r}: {answer.text[:500]}"
