"""What a server answers: its tools, the result of a call, a question to a person, or a task. Read from its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from kelpie.core.conversations.questions import Question
from kelpie.mcp.protocol.messages import INPUT_REQUIRED, TASK
from kelpie.mcp.protocol.tasks import Task, read_task
from kelpie.mcp.transports.port import malformed

QUESTIONS_MAX = 20  # of one answer
QUESTION_CHARS_MAX = 20_000  # of its message, and of its schema
URL_CHARS_MAX = 4096
STATE_CHARS_MAX = 256 * 1024
ELICITATION = "elicitation/create"


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool as its server lists it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None
    needs_task: bool = False  # 2025-11-25: it can only be called as a task


@dataclass(frozen=True, slots=True)
class CallResult:
    content: tuple[Mapping[str, Any], ...]
    structured: Any = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class InputNeeded:
    """The server needs answers before it can finish the call. `state` goes back to it unread."""

    questions: Mapping[str, Question]
    state: str | None = None


@dataclass(frozen=True, slots=True)
class InputGiven:
    """Answers to the questions of an earlier call, by their keys; None for one that the person declined."""

    questions: Mapping[str, Question] = field(default_factory=dict[str, Question])
    answers: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict[str, Any])
    state: str | None = None

    def responses(self) -> dict[str, Any]:
        """The answers in the form of the protocol."""
        return {key: elicited(self.questions.get(key), answer) for key, answer in self.answers.items()}

    def to(self, question: Question) -> dict[str, Any] | None:
        """The answer to a question that the server asks again; None if it was not asked before."""
        for key, asked in self.questions.items():
            if asked == question and key in self.answers:
                return elicited(asked, self.answers[key])
        return None


CallAnswer = CallResult | InputNeeded | Task


def elicited(question: Question | None, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    if answer is None:
        return {"action": "decline"}
    form = question is None or question.url is None
    return {"action": "accept", **({"content": dict(answer)} if form else {})}


def read_tool(data: Any) -> RemoteTool:
    """Raises ValueError for one without a name; a schema that is wrong is looked at elsewhere."""
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str) or not data["name"].strip():
        raise ValueError("a tool without a name")
    execution = data.get("execution")
    return RemoteTool(
        data["name"],
        data["description"] if isinstance(data.get("description"), str) else "",
        data["inputSchema"] if isinstance(data.get("inputSchema"), Mapping) else {},
        data["outputSchema"] if isinstance(data.get("outputSchema"), Mapping) else None,
        data["title"] if isinstance(data.get("title"), str) else None,
        data["annotations"] if isinstance(data.get("annotations"), Mapping) else None,
        data["_meta"] if isinstance(data.get("_meta"), Mapping) else None,
        isinstance(execution, Mapping) and execution.get("taskSupport") == "required",
    )


def read_call(result: Mapping[str, Any]) -> CallAnswer:
    """The answer to a call. Raises McpError."""
    kind = result.get("resultType")
    if kind == INPUT_REQUIRED:
        return InputNeeded(read_questions(result.get("inputRequests")), _state(result))
    if kind == TASK or (kind is None and isinstance(result.get("task"), Mapping)):
        try:
            return read_task(result if kind == TASK else result["task"])
        except ValueError as error:
            raise malformed(str(error)) from None
    content = result.get("content", [])
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise malformed("the content of the result is not a list of objects")
    return CallResult(tuple(content), result.get("structuredContent"), result.get("isError") is True)


def _state(result: Mapping[str, Any]) -> str | None:
    state = result.get("requestState")
    if state is not None and (not isinstance(state, str) or len(state) > STATE_CHARS_MAX):
        raise malformed(f"its requestState is not a text of up to {STATE_CHARS_MAX} characters")
    return state


def read_questions(requests: Any) -> dict[str, Question]:
    """The questions to a person among the requests of a server. Raises McpError for requests of other kinds: Kelpie
    declares that it takes none."""
    if not isinstance(requests, Mapping):
        return {}
    if len(requests) > QUESTIONS_MAX:
        raise malformed(f"it asks more than {QUESTIONS_MAX} questions at once")
    found: dict[str, Question] = {}
    for key, request in requests.items():
        if not isinstance(request, Mapping) or request.get("method") != ELICITATION:
            raise malformed("it asks for sampling or roots, which Kelpie does not offer")
        found[str(key)] = read_question(request.get("params"))
    return found


def read_question(params: Any) -> Question:
    """Raises McpError."""
    if not isinstance(params, Mapping) or not isinstance(params.get("message"), str):
        raise malformed("it asks a question without a message")
    message = params["message"][:QUESTION_CHARS_MAX]
    if params.get("mode") == "url":
        return Question(message, url=_page(params.get("url")))
    schema = params.get("requestedSchema")
    if len(orjson.dumps(schema)) > QUESTION_CHARS_MAX:
        raise malformed(f"the schema of its question has more than {QUESTION_CHARS_MAX} characters")
    return Question(message, schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}})


def _page(url: Any) -> str:
    """The address of a page that a person is asked to open. Raises McpError for one that is none of a web page."""
    if not isinstance(url, str) or len(url) > URL_CHARS_MAX or not url.lower().startswith(("https://", "http://")):
        raise malformed(f"it asks a person to open {str(url)[:80]}, which is not the address of a web page")
    return url
