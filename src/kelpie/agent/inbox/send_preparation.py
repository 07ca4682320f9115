"""Preparation of a send that has its own model or images, before it is acknowledged.

A plain send never comes here, so it costs no read.
"""

from dataclasses import replace
from typing import Any

from kelpie.agent.definition import creation, loaded_agent
from kelpie.agent.inbox import image_inputs
from kelpie.agent.live.live_agent import LiveConversation, chooser
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.access.passports import Passport
from kelpie.core.agents.agent import Agent, ModelChoice
from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.storage.accounts import row_ownership
from kelpie.world.database import Tx
from kelpie.world.world import World


def is_plain(send: SendRequest) -> bool:
    return send.override_model is None and not image_inputs.has_images(send.messages)


async def prepare(
    world: World,
    models: Models,
    settings: Settings,
    organization: OrganizationId,
    agent_id: AgentId,
    send: SendRequest,
    passport: Passport | None = None,
) -> SendRequest:
    """The send with its model found and its images ready; the passport is of the tool code that sends it.

    Raises NotFound, InvalidInput, Forbidden, ModelError, StorageError.
    """

    def read(tx: Tx) -> loaded_agent.AgentSnapshot:
        row_ownership.agent(tx, organization, agent_id)
        return loaded_agent.load_thread(tx, agent_id, send.conversation)

    loaded = await world.database.read(read)
    await models.open()
    agent = LiveConversation(send.conversation, loaded, chooser(models, settings.context_window)).agent
    handle = agent.model.handle
    if send.override_model is not None:
        choice = await _choice(models, settings, agent, send.override_model)
        send, handle = replace(send, override=replace(send.override or TurnOverrides(), model=choice)), choice.handle
    if image_inputs.has_images(send.messages):
        messages = await image_inputs.settled(world.http, models, handle, send.messages, passport)
        send = replace(send, messages=messages)
    return send


async def _choice(models: Models, settings: Settings, agent: Agent, handle: str) -> ModelChoice:
    """The other model as it offers itself; only the form of answers and calls stays as the agent has it."""
    info = await models.resolve(handle)
    form = agent.model.settings.get("response_format")
    own = agent.model
    given: dict[str, Any] = {"parallel_tool_calls": own.parallel_tool_calls, "inner_thoughts": own.inner_thoughts}
    if form is not None:
        given["model_settings"] = {"response_format": form}
    try:
        return creation.choose_model(info, given, settings.context_window)
    except InvalidInput as error:
        raise InvalidInput("override_model", error.remedy) from error
