"""Previews: the stream of the model, turned into events for the client as it comes.

For agent types whose thoughts and answers travel inside tool arguments, the strings are taken out of the half-written
JSON. A preview is never final; the committed message is.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import orjson

from kelpie.agent.events.partial_json import StringField
from kelpie.agent.events.turn_events import AnswerDelta, CallDelta, ThoughtDelta, TurnEvent
from kelpie.agent.prompt.agent_types import Thoughts
from kelpie.agent.prompt.rendering import THINKING, read_object
from kelpie.core.ids import MessageId, StepId
from kelpie.core.time import Micros
from kelpie.llm.provider.interface import ReasoningDelta, TextDelta, ToolCallDelta

ANSWER_TOOL = "send_message"
ANSWER_ARGUMENT = "message"


class _Call:
    """A tool call as far as it has come."""

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments = ""
        self.thought = StringField(THINKING)
        self.answer = StringField(ANSWER_ARGUMENT) if name == ANSWER_TOOL else None


class Preview:
    """Translates the deltas of one reply. `emit` receives the events."""

    def __init__(
        self,
        message_id: MessageId,
        step_id: StepId,
        at: Micros,
        thoughts: Thoughts,
        emit: Callable[[TurnEvent], None],
        waiting: AbstractSet[str] = frozenset(),  # the tools whose calls wait for an approval or the client
    ) -> None:
        self._message_id = message_id
        self._step_id = step_id
        self._at = at
        self._thoughts = thoughts
        self._speaks_in_calls = thoughts is not Thoughts.plain
        self._emit = emit
        self._waiting = waiting
        self._kinds: list[str] = []  # the parts of the message so far, in order
        self._calls: dict[int, _Call] = {}
        self._thinks = False  # whether a thought has come
        self._hidden = 0  # how many thoughts that the provider keeps to itself
        self.started = False

    def take(self, delta: TextDelta | ReasoningDelta | ToolCallDelta) -> None:
        self.started = True
        match delta:
            case TextDelta():
                # In a reply without calls no thought stands before the text.
                alone = self._thoughts is Thoughts.in_calls and not self._thinks
                self._answer(delta.text, 0 if alone else self._part("text"))
            case ReasoningDelta(hidden=True):
                self._hide(delta.text)
            case ReasoningDelta():
                self._thought(delta.text, native=True)
            case ToolCallDelta():
                self._call_piece(delta)

    def finish(self) -> None:
        """Emits what was held back until the call was complete."""
        if not self._speaks_in_calls:
            return
        for call in self._calls.values():
            if call.answer is None:
                self._emit_call(call, name=call.name)
                arguments = read_object(call.arguments)
                if arguments is not None and THINKING in arguments:
                    del arguments[THINKING]
                self._emit_call(
                    call, arguments=call.arguments if arguments is None else orjson.dumps(arguments).decode()
                )

    def _call_piece(self, delta: ToolCallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._calls[delta.index] = _Call(delta.id or f"call_{delta.index}", delta.name or "")
            if not self._speaks_in_calls:
                self._emit_call(call, name=call.name)
        call.arguments += delta.arguments
        if not delta.arguments:
            return
        if not self._speaks_in_calls:
            self._emit_call(call, arguments=delta.arguments)
            return
        if self._thoughts is not Thoughts.off and (thought := call.thought.feed(delta.arguments)):
            self._thought(thought, native=False)
        if call.answer is not None and (text := call.answer.feed(delta.arguments)):
            self._answer(text, self._part("answer"))

    def _part(self, kind: str) -> int:
        if self._thoughts in (Thoughts.in_calls, Thoughts.native):  # thoughts are stored first, however they came
            before = int(self._thinks or self._thoughts is Thoughts.in_calls)
            return 0 if kind == "thought" else before + self._hidden
        if kind == "call" and kind in self._kinds:  # all calls are one part
            return self._kinds.index(kind)
        if not self._kinds or self._kinds[-1] != kind or kind == "hidden":
            self._kinds.append(kind)
        return len(self._kinds) - 1

    def _answer(self, text: str, part: int) -> None:
        self._emit(AnswerDelta(self._message_id, self._step_id, self._at, part, text))

    def _thought(self, text: str, *, native: bool) -> None:
        self._thinks = True
        self._emit(ThoughtDelta(self._message_id, self._step_id, self._at, self._part("thought"), text, native))

    def _hide(self, data: str) -> None:
        own = self._thoughts in (Thoughts.in_calls, Thoughts.native)
        part = int(self._thinks) + self._hidden if own else self._part("hidden")
        self._hidden += 1
        self._emit(ThoughtDelta(self._message_id, self._step_id, self._at, part, data, native=True, hidden=True))

    def _emit_call(self, call: _Call, *, name: str | None = None, arguments: str | None = None) -> None:
        part, awaits = self._part("call"), call.name in self._waiting
        self._emit(CallDelta(self._message_id, self._step_id, self._at, part, call.id, name, arguments, awaits))
