"""Questions that a tool asks a person before it can finish: what is asked, and what the tool needs to go on.

They stay with the call that waits, so that a crash loses neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

ROUNDS_MAX = 10  # of questions before one call has its result


@dataclass(frozen=True, slots=True)
class Question:
    """A form with a schema for its values, or a page to visit."""

    message: str
    schema: Mapping[str, Any] | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ToolQuestions:
    """`open` are the keys of the questions that have no answer yet; `state` goes back to the tool's server unread."""

    server: str
    questions: Mapping[str, Question]
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    state: str | None = None
    rounds: int = 1

    @property
    def open(self) -> tuple[str, ...]:
        return tuple(key for key in self.questions if key not in self.answers)

    def text(self) -> str:
        """The open questions for a person."""
        asked = [self.questions[key] for key in self.open]
        pages = [f" Open {each.url}" if each.url else "" for each in asked]
        said = "\n".join(f"{each.message}{page}" for each, page in zip(asked, pages, strict=True))
        return f"The MCP server '{self.server}' asks:\n{said}"


def questions_to_json(asked: ToolQuestions) -> dict[str, Any]:
    return {
        "server": asked.server,
        "questions": {
            key: {"message": each.message, "schema": each.schema, "url": each.url}
            for key, each in asked.questions.items()
        },
        "answers": {key: dict(answer) for key, answer in asked.answers.items()},
        "state": asked.state,
        "rounds": asked.rounds,
    }


def questions_from_json(data: Mapping[str, Any]) -> ToolQuestions:
    asked = cast("Mapping[str, Mapping[str, Any]]", data["questions"])
    return ToolQuestions(
        data["server"],
        {key: Question(each["message"], each["schema"], each["url"]) for key, each in asked.items()},
        data["answers"],
        data["state"],
        data["rounds"],
    )
