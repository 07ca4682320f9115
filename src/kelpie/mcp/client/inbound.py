"""What a server sends on its own while a session is open: changes, progress, questions, and requests to decline."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.conversations.questions import Question
from kelpie.core.errors import McpError
from kelpie.mcp.client.answers import ELICITATION, InputGiven, read_question
from kelpie.mcp.protocol.envelope import PROGRESS_TOKEN
from kelpie.mcp.protocol.messages import (
    METHOD_NOT_FOUND,
    SUBSCRIBED,
    TOOLS_CHANGED,
    Failure,
    Notification,
    Request,
    RequestId,
    Result,
)

Progress = Callable[[float, float | None, str | None], None]  # done so far, of how much, and a message
Reply = Callable[[Result | Failure], None]


@dataclass(slots=True)
class RunningCall:
    """A call that waits for its answer."""

    progress: Progress | None = None
    given: InputGiven = field(default_factory=InputGiven)
    asked: dict[str, Question] = field(default_factory=dict[str, Question])  # that nobody has answered yet


class InboundMessages:
    """Takes what arrives. Questions are noted for the call and cancelled: the call is made again with the answers."""

    def __init__(self, reply: Reply, tools_changed: Callable[[], None]) -> None:
        self.calls: dict[RequestId, RunningCall] = {}
        self.subscribed: Callable[[], None] | None = None  # called when a subscription has begun
        self._reply = reply
        self._tools_changed = tools_changed

    def take(self, message: Request | Notification, during: RequestId | None) -> None:
        if isinstance(message, Request):
            self._reply(self._answer(message, during))
        elif message.method == TOOLS_CHANGED:
            self._tools_changed()
        elif message.method == SUBSCRIBED and self.subscribed is not None:
            self.subscribed()
        elif message.method == "notifications/progress":
            self._progress(message)

    def _progress(self, message: Notification) -> None:
        token = message.params.get(PROGRESS_TOKEN)
        call = self.calls.get(token) if isinstance(token, str | int) else None
        done, total, said = (message.params.get(name) for name in ("progress", "total", "message"))
        if call is not None and call.progress is not None and isinstance(done, int | float):
            call.progress(
                float(done),
                float(total) if isinstance(total, int | float) else None,
                said[:1000] if isinstance(said, str) else None,
            )

    def _answer(self, request: Request, during: RequestId | None) -> Result | Failure:
        if request.method == "ping":
            return Result(request.id, {})
        if request.method == ELICITATION:
            return Result(request.id, self._elicit(request, during))
        return Failure(request.id, METHOD_NOT_FOUND, f"Kelpie does not offer {request.method}")

    def _elicit(self, request: Request, during: RequestId | None) -> dict[str, Any]:
        call = self.calls.get(during) if during is not None else None
        if call is None and len(self.calls) == 1:  # it came on a stream of its own
            call = next(iter(self.calls.values()))
        if call is None:  # nobody knows for which call it asks
            return {"action": "cancel"}
        try:
            question = read_question(request.params)
        except McpError:
            return {"action": "cancel"}
        if (answer := call.given.to(question)) is not None:
            return answer
        call.asked[f"question-{len(call.given.questions) + len(call.asked) + 1}"] = question
        return {"action": "cancel"}
