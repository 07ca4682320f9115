"""How errors are told."""

import inspect
import json
from typing import Any

import pytest

from kelpie.core import errors as tree
from kelpie.core.errors import KelpieError, ModelError, ModelFault
from kelpie.server.http import errors

CASES: list[tuple[KelpieError, int]] = [
    (errors.Unprocessable("a: contradicts b"), 422),
    (tree.InvalidInput("name", "use letters"), 400),
    (tree.InvalidId("run", "nonsense"), 400),
    (tree.Unauthorized(), 401),
    (tree.Forbidden("not yours"), 403),
    (tree.NotFound("Agent", "agent-x"), 404),
    (tree.Gone("no longer kept"), 410),
    (tree.TurnBroken("given up"), 503),
    (tree.Conflict("taken"), 409),
    (tree.ConversationBusy("run-x"), 409),
    (tree.AgentStopped("Start it first."), 409),
    (tree.RunOver("over"), 500),
    (tree.Overloaded("search_queue_full", "busy", 2.2), 429),
    (tree.MailboxFull("64 messages wait", 1.0), 429),
    (tree.StorageError("broken"), 503),
    (tree.RateExceeded("Too many requests.", 3.0, quota="calls", limit=1, used=1, setting="x"), 429),
    (tree.UnsupportedType("No."), 415),
    (tree.QuotaExceeded("Too much is stored.", quota="agents", limit=1, used=1, setting="x"), 507),
    (tree.StorageUnavailable("Nothing can be stored."), 503),
    (tree.DiskFull("The disk is full."), 503),
    (tree.DatabaseLost("The file was deleted."), 503),
    (tree.DatabaseDamaged("The file is damaged."), 503),
    (tree.StorageBusy("busy"), 503),
    (tree.CommitUnknown("unknown"), 503),
    (tree.Fenced("gone"), 503),
    (tree.ActivationFailed("cannot be loaded", 7.0), 503),
    (tree.ConfigurationError("OPENAI_API_KEY", "set it"), 400),
    (tree.InvariantBroken("secret details"), 500),
    (tree.ToolError("for the model"), 500),
    (tree.SandboxUnavailable("bubblewrap is not installed"), 500),
    (tree.NoSuchVersion("block-1", 7, 2, 5), 404),
]

MODEL_CASES = {
    ModelFault.authentication: (401, "llm_authentication"),
    ModelFault.insufficient_credits: (402, "llm_insufficient_credits"),
    ModelFault.rate_limit: (429, "llm_rate_limit"),
    ModelFault.bad_request: (400, "llm_bad_request"),
    ModelFault.context_overflow: (400, "llm_context_overflow"),
    ModelFault.instructions_overflow: (400, "context_window_overflow_in_system_prompt"),
    ModelFault.timeout: (504, "llm_timeout"),
    ModelFault.connection: (503, "llm_error"),
    ModelFault.server: (500, "llm_error"),
    ModelFault.malformed: (500, "llm_error"),
}


def body_of(error: KelpieError) -> Any:
    return json.loads(bytes(errors.answer(error).body))


@pytest.mark.parametrize(("error", "status"), CASES, ids=lambda value: type(value).__name__)
def test_status_and_detail(error: KelpieError, status: int) -> None:
    assert errors.answer(error).status_code == status
    facts: dict[str, Any] = {"run_id": "run-x"} if isinstance(error, tree.ConversationBusy) else {}
    if isinstance(error, tree.RateExceeded | tree.QuotaExceeded):
        facts = {"quota": error.quota}
    detail = str(error) if status < 500 or status in (503, 507) else errors.UNKNOWN
    assert body_of(error) == {"detail": detail, "code": error.error_code, **facts}


def test_every_error_of_the_tree_is_among_the_cases() -> None:
    elsewhere = {ModelError, KelpieError, tree.CallerError, tree.PendingApproval, tree.Damaged, tree.SecretUnreadable}
    elsewhere.add(tree.McpError)
    known = {type(error) for error, _ in CASES} | elsewhere
    defined = {kind for _, kind in inspect.getmembers(tree, inspect.isclass) if issubclass(kind, KelpieError)}
    assert defined <= known


@pytest.mark.parametrize(
    "error", [tree.Damaged("Message", "message-1"), tree.SecretUnreadable("TOKEN", "its key is missing")]
)
def test_what_cannot_be_read_is_named(error: KelpieError) -> None:
    assert errors.answer(error).status_code == 500
    assert body_of(error) == {"detail": str(error), "code": error.error_code}


def test_calls_that_wait_are_told_as_letta_tells_them() -> None:
    error = tree.PendingApproval("message-x")
    assert errors.answer(error).status_code == 409
    told = {"code": "PENDING_APPROVAL", "message": str(error), "pending_request_id": "message-x"}
    assert body_of(error) == {"detail": told, "code": "pending_approval"}


@pytest.mark.parametrize("kind", list(tree.McpFault))
def test_a_failure_of_an_mcp_server_has_its_own_body(kind: tree.McpFault) -> None:
    error = tree.McpError(kind, "It failed.")
    assert errors.answer(error).status_code == (408 if kind is tree.McpFault.timed_out else 502)
    told = body_of(error)["error"]
    assert body_of(error)["code"] == f"mcp_{kind.value}"
    assert (told["type"], told["message"], told["detail"]) == ("mcp_connection_error", "It failed.", kind.value)


@pytest.mark.parametrize("kind", list(ModelFault))
def test_a_providers_failure_has_its_own_body(kind: ModelFault) -> None:
    status, name = MODEL_CASES[kind]
    error = ModelError(kind, "It failed.", detail="their words", hint="Do this.")
    assert errors.answer(error).status_code == status
    told = {"type": name, "message": "It failed.", "detail": "their words", "hint": "Do this."}
    assert body_of(error) == {"error": told, "code": kind.value}


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (tree.Overloaded("search_queue_full", "busy", 2.2), "3"),
        (tree.ActivationFailed("x", 0.0), "1"),
        (tree.StorageBusy("x"), "1"),
        (ModelError(ModelFault.rate_limit, "x", retry_after_s=9.5), "10"),
    ],
)
def test_who_may_try_again_is_told_when(error: KelpieError, seconds: str) -> None:
    assert errors.answer(error).headers["Retry-After"] == seconds


def test_others_are_not_told_to_retry() -> None:
    assert "Retry-After" not in errors.answer(tree.NotFound("Agent", "x")).headers
    assert "Retry-After" not in errors.answer(ModelError(ModelFault.server, "x")).headers


def test_a_validation_error_is_one_string_and_does_not_echo_megabytes() -> None:
    answer = errors.invalid_request([{"type": "list_type", "loc": ("body", "x"), "input": "y" * 1_000_000, "url": "u"}])
    body = json.loads(bytes(answer.body))
    assert answer.status_code == 422
    assert set(body) == {"trace_id", "detail", "message", "code"}
    assert body["detail"].startswith("[{'type': 'list_type', 'loc': ('body', 'x')")
    assert len(body["detail"]) < 1000 and "url" not in body["detail"]


def test_an_answer_tells_some_errors_and_counts_the_rest() -> None:
    many = [{"type": "missing", "loc": ("body", "x", number), "msg": "m", "input": {}} for number in range(100_000)]
    detail = json.loads(bytes(errors.invalid_request(many).body))["detail"]
    assert detail.count("'missing'") == errors.ERRORS_MAX
    assert detail.endswith(f"and {100_000 - errors.ERRORS_MAX} more")
