"""One question to a model: which facts are in this piece of a conversation? An answer that cannot be read is asked for
once more; then the piece is given up, because a model that fails at it twice would fail at it for ever."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.agent.definition import creation
from kelpie.agent.facts import model_answer, model_prompt
from kelpie.agent.facts.model_answer import ExtractedFacts, UnreadableAnswer
from kelpie.core.agents.agent import Agent, ModelChoice
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.dates import dates
from kelpie.core.errors import CallerError, ModelError, ModelFault
from kelpie.core.ids import MessageId
from kelpie.core.memory.facts import Fact
from kelpie.core.time import Micros
from kelpie.llm.provider.completion import complete
from kelpie.llm.provider.interface import PreparedMessage, Reply, Request
from kelpie.llm.routing.models import Models
from kelpie.world.world import World

ASK_S = 180.0
TRIES = 2


@dataclass(frozen=True, slots=True)
class Material:
    """Input of the model: messages, and the facts that are known already."""

    said: tuple[Message, ...]
    known: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A model call that was answered, and the model that answered."""

    handle: str
    reply: Reply
    at: Micros
    took_ns: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Facts that a model found, with its input and the calls it took."""

    heard: ExtractedFacts
    said: tuple[Message, ...]
    known: tuple[Fact, ...]
    calls: tuple[Call, ...]


class Unusable(ValueError):
    """The model has answered, but not with what was asked for. `calls` were made all the same."""

    def __init__(self, message: str, calls: tuple[Call, ...]) -> None:
        super().__init__(message)
        self.calls = calls


class Question:
    def __init__(self, world: World, models: Models, agent: Agent) -> None:
        self._world = world
        self._models = models
        self._agent = agent

    async def ask(self, material: Material) -> Reading:
        """Raises ModelError when there is no answer, Unusable when there is one that cannot be read."""
        choice = await self._choice()
        zone = dates.zone_of(self._agent.timezone)
        talk = [self._prepared(Role.user, model_prompt.asked(material.said, material.known, zone))]
        calls: list[Call] = []
        for left in reversed(range(TRIES)):
            try:
                calls.append(call := await self._call(choice, talk))
            except ModelError as error:
                if not calls:
                    raise
                raise Unusable(str(error), tuple(calls)) from error  # else their cost would be lost
            text = "\n".join(part.text for part in call.reply.content if isinstance(part, Text))
            try:
                return Reading(model_answer.read(text), material.said, material.known, tuple(calls))
            except UnreadableAnswer as error:
                if not left:
                    raise Unusable(f"The answer of {choice.handle} could not be used: {error}", tuple(calls)) from error
                again = model_prompt.REPAIR.format(error=error)
                talk += [self._prepared(Role.assistant, text or "(nothing)"), self._prepared(Role.user, again)]
        raise AssertionError("unreachable: the loop returns or raises")

    async def _choice(self) -> ModelChoice:
        """The agent's own model with its settings, or the one that was named for this. Raises ModelError."""
        own, settings = self._agent.model, self._agent.facts
        handle = settings.model if settings is not None and settings.model is not None else own.handle
        await self._models.load(handle)
        info = self._models.known(handle)
        if info is None:
            raise ModelError(ModelFault.bad_request, f"No provider is configured for {handle}.")
        if handle != own.handle:
            return replace(creation.choose_model(info, {}), handle=handle)
        return replace(own, max_tokens=info.max_tokens or own.max_tokens)  # the bound is for what the agent says

    async def _call(self, choice: ModelChoice, talk: Sequence[PreparedMessage]) -> Call:
        try:
            provider, model = self._models.provider(choice.handle)
        except CallerError as error:
            raise ModelError(ModelFault.bad_request, str(error)) from error
        request = Request(
            model=model,
            system=model_prompt.SYSTEM,
            messages=talk,
            max_tokens=choice.max_tokens,
            temperature=choice.temperature,
            options={**choice.settings, "response_format": model_prompt.FORM},
            consumer=self._agent.consumer,
        )
        at, began = self._world.clock.now(), self._world.clock.monotonic_ns()
        reply = await complete(provider, request, handle=choice.handle, within_s=ASK_S)
        return Call(choice.handle, reply, at, self._world.clock.monotonic_ns() - began)

    def _prepared(self, role: Role, text: str) -> PreparedMessage:
        world = self._world
        return PreparedMessage(
            Message(world.ids.new(MessageId), self._agent.id, role, world.clock.now(), (Text(text),))
        )
