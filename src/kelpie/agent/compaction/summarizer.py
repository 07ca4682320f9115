"""Asking a model to sum up what leaves a context: another model over a transcript, or the agent's own over itself.

A transcript that does not fit the model's window goes in pieces, each with the summary of those before it. A call may
write no more than the summary may be long, with room for the thoughts of a model that thinks. Whatever goes wrong is a
ModelError, also an empty answer; the planner has a fallback.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kelpie.agent.compaction.summary_limit import ENDS_HERE, SummaryLimit
from kelpie.agent.definition import creation
from kelpie.agent.live.live_agent import PromptFrame
from kelpie.agent.prompt import default_instructions
from kelpie.agent.prompt.transcript import pieces, transcript
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.agents.agent import Agent, ModelChoice
from kelpie.core.agents.compaction_settings import CompactionSettings, Mode
from kelpie.core.conversations.messages import Message, Role, Text, Usage
from kelpie.core.errors import CallerError, ModelError, ModelFault
from kelpie.core.ids import MessageId
from kelpie.core.token_estimates import byte_length, estimate
from kelpie.llm.provider.completion import complete
from kelpie.llm.provider.interface import PreparedMessage, Reply, Request
from kelpie.llm.routing.models import Models
from kelpie.observe import logs
from kelpie.world.world import World

HALVINGS_MAX = 2  # of the pieces, when the model says that they are too long
_PIECE_SHARE = 0.7  # of the window: the rest is for the answer and for miscounting
_PIECE_BYTES_PER_TOKEN = 3
_OUTPUT_TOKENS_MIN = 64  # of a call, however little its prompt leaves
_THINKING_TOKENS = 16_384  # of a call of a model that thinks before it writes
_PIECE_BYTES_MIN = 2_000
_FORMS = frozenset({"response_format"})  # what an agent's answers must look like has no say in a summary

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """A summary, and the model that wrote it."""

    text: str
    handle: str


class Summarizer:
    """`spent` is what all replies of models have used, also those that came to nothing, and `handle` the last model
    that replied."""

    def __init__(
        self, world: World, models: Models, agent: Agent, settings: CompactionSettings, limit: SummaryLimit
    ) -> None:
        self._world = world
        self._models = models
        self._agent = agent
        self._settings = settings
        self._limit = limit
        self.spent = Usage()
        self.handle = ""

    async def of_transcript(self, evicted: Sequence[Message], mode: Mode) -> SummaryResult:
        """The chosen model's summary, or that of the agent's own model when the chosen one fails. Raises ModelError."""
        own = self._agent.model
        chosen = self._settings.model or own.handle
        try:
            return await self._piece_by_piece(await self._choice(chosen), evicted, mode)
        except ModelError as error:
            if chosen == own.handle:
                raise
            _log.warning(
                "summary_model_failed", "Summary model failed; using the agent's own model",
                agent_id=self._agent.id, handle=chosen, kind=error.kind.value, error=error.message,
            )  # fmt: skip
        return await self._piece_by_piece(own, evicted, mode)

    async def by_itself(self, entries: Sequence[PreparedMessage], mode: Mode, frame: PromptFrame) -> SummaryResult:
        """The agent's own summary of what it sees, asked with its own instructions and tools. Raises ModelError."""
        choice, tools = self._agent.model, frame.tools
        asked = self._prepared(Role.user, self._within_limit(self._prompt(mode)))
        prompt = Request(
            model="",
            system=frame.system,
            messages=(*entries, asked),
            tools=tools,
            tool_choice="none" if tools else "auto",
            user=self._agent.id,
        )
        return await self._ask(choice, prompt, frame.weight)

    async def _piece_by_piece(self, choice: ModelChoice, evicted: Sequence[Message], mode: Mode) -> SummaryResult:
        lines, prompt = list(transcript(evicted)), self._prompt(mode)
        size = int(choice.context_window * _PIECE_SHARE - estimate(prompt)) * _PIECE_BYTES_PER_TOKEN
        size = min(size, sum(byte_length(line) + 1 for line in lines))
        for attempt in range(HALVINGS_MAX + 1):
            try:
                return await self._roll(choice, prompt, pieces(lines, max(size >> attempt, _PIECE_BYTES_MIN)))
            except ModelError as error:
                if error.kind is not ModelFault.context_overflow or attempt == HALVINGS_MAX:
                    raise
        raise AssertionError("unreachable: the loop returns or raises")

    async def _roll(self, choice: ModelChoice, prompt: str, parts: Sequence[str]) -> SummaryResult:
        told = SummaryResult("", choice.handle)
        for part in parts:
            before = default_instructions.SUMMARY_SO_FAR.format(summary=told.text) if told.text else ""
            asked = self._within_limit(default_instructions.SUMMARY_TRANSCRIPT.format(before=before, transcript=part))
            if self._settings.acknowledged:
                system, first = "", (prompt, default_instructions.SUMMARY_ACKNOWLEDGED)
            else:
                system, first = prompt, ()
            opening = tuple(
                self._prepared(role, text) for role, text in zip((Role.user, Role.assistant), first, strict=False)
            )
            request = Request(model="", system=system, messages=(*opening, self._prepared(Role.user, asked)))
            told = await self._ask(choice, request, byte_length(system))
        return told

    async def _ask(self, choice: ModelChoice, prompt: Request, frame_weight: int) -> SummaryResult:
        """Asks with a prompt, whose instructions and tools have this weight. A model that has only thought so far is
        asked once more, with room for its thoughts."""
        await self._models.load(choice.handle)
        info = self._models.known(choice.handle)
        reply = await self._call(choice, prompt, frame_weight, thinks=info is not None and info.reasoning)
        text = _text(reply)
        if not text and reply.finish_reason == "length":
            reply = await self._call(choice, prompt, frame_weight, thinks=True)
            text = _text(reply)
        if not text:
            raise ModelError(ModelFault.malformed, f"{choice.handle} returned no summary.")
        if reply.finish_reason == "length":
            text = f"{text}\n{ENDS_HERE}"
        return SummaryResult(text, reply.answered_by or choice.handle)

    async def _call(self, choice: ModelChoice, prompt: Request, frame_weight: int, *, thinks: bool) -> Reply:
        try:
            provider, model = self._models.provider(choice.handle)
        except CallerError as error:
            raise ModelError(ModelFault.bad_request, str(error)) from error
        request = replace(
            prompt,
            model=model,
            max_tokens=self._output_tokens(choice, prompt, frame_weight, thinks=thinks),
            temperature=choice.temperature,
            options=_without_forms(choice.settings),
            consumer=self._agent.consumer,
        )
        reply = await complete(provider, request, handle=choice.handle)
        self.spent, self.handle = self.spent + reply.usage, reply.answered_by or choice.handle
        return reply

    def _output_tokens(self, choice: ModelChoice, prompt: Request, frame_weight: int, *, thinks: bool) -> int:
        """What a call may write: the summary and thoughts, within the model's own limit and what its window leaves."""
        info = self._models.known(choice.handle)
        window = max(choice.context_window, info.context_window if info else 0)  # an agent's own may be set lower
        asked = frame_weight + sum(weight(prepared.message) for prepared in prompt.messages)
        wanted = self._limit.tokens + (_THINKING_TOKENS if thinks else 0)
        left = window - asked // _PIECE_BYTES_PER_TOKEN
        return min(wanted, max(left, _OUTPUT_TOKENS_MIN), choice.max_tokens or wanted)

    def _within_limit(self, asked: str) -> str:
        return f"{asked}\n{self._limit.request}".rstrip()

    async def _choice(self, handle: str) -> ModelChoice:
        """The chosen model with the settings for summaries over its defaults. Raises ModelError."""
        await self._models.load(handle)
        info = self._models.known(handle)
        if info is None:
            raise ModelError(ModelFault.bad_request, f"No provider is configured for {handle}.")
        given: Mapping[str, Any] = self._settings.model_settings or {}
        choice = creation.choose_model(info, {"model_settings": given}, info.context_window)
        return replace(choice, handle=handle)

    def _prompt(self, mode: Mode) -> str:
        """The summary prompt: the client's own, or else the default of the mode."""
        own = self._settings.prompt
        return (
            own
            if own and own != default_instructions.SUMMARY_PROMPTS[self._settings.mode]
            else default_instructions.SUMMARY_PROMPTS[mode]
        )

    def _prepared(self, role: Role, text: str) -> PreparedMessage:
        world = self._world
        row = Message(world.ids.new(MessageId), self._agent.id, role, world.clock.now(), (Text(text),))
        return PreparedMessage(row)


def _text(reply: Reply) -> str:
    return "\n".join(part.text for part in reply.content if isinstance(part, Text)).strip()


def _without_forms(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in settings.items() if name not in _FORMS}
