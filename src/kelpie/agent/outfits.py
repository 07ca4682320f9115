"""What a send brings along for its own turn, settled before the send is acknowledged: a model, and images.

A plain send never comes here, so it costs no read.
"""

from dataclasses import replace
from typing import Any

from kelpie.agent import making, pictures, state
from kelpie.agent.commands import Send
from kelpie.agent.lanes import Lane, chooser
from kelpie.core.agents import Agent, ModelChoice
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.overrides import Override
from kelpie.core.settings import Settings
from kelpie.llm.models import Models
from kelpie.storage import scope
from kelpie.world.database import Tx
from kelpie.world.world import World


def is_plain(send: Send) -> bool:
    return send.override_model is None and not pictures.has_images(send.messages)


async def outfitted(
    world: World, models: Models, settings: Settings, organization: OrganizationId, agent_id: AgentId, send: Send
) -> Send:
    """The send with its model found and its images ready. Raises NotFound, InvalidInput, ModelError, StorageError."""

    def read(tx: Tx) -> state.Loaded:
        scope.agent(tx, organization, agent_id)
        return state.load_thread(tx, agent_id, send.conversation)

    loaded = await world.database.read(read)
    agent = Lane(send.conversation, loaded, chooser(models, settings.context_window)).agent
    handle = agent.model.handle
    if send.override_model is not None:
        choice = await _choice(models, settings, agent, send.override_model)
        send, handle = replace(send, override=replace(send.override or Override(), model=choice)), choice.handle
    if pictures.has_images(send.messages):
        send = replace(send, messages=await pictures.settled(world.http, models, handle, send.messages))
    return send


async def _choice(models: Models, settings: Settings, agent: Agent, handle: str) -> ModelChoice:
    """The other model as it offers itself; only the form of the answers stays as the agent has it."""
    info = await models.resolve(handle)
    form = agent.model.settings.get("response_format")
    given: dict[str, Any] = {"parallel_tool_calls": agent.model.parallel_tool_calls}
    if form is not None:
        given["model_settings"] = {"response_format": form}
    try:
        return making.choose_model(info, given, settings.context_window)
    except InvalidInput as error:
        raise InvalidInput("override_model", error.remedy) from error
