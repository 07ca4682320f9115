"""Embeddings of texts by the embedding models of the server, or by that of an agent."""

import base64
import sys
from array import array
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import Forbidden, InvalidInput, NotFound
from kelpie.core.token_estimates import estimate
from kelpie.server.http.json_answer import JsonAnswer, joined_json
from kelpie.server.openai.chat_body import MODEL_CHARS_MAX
from kelpie.server.openai.client import OpenAiClient
from kelpie.server.openai.router import openai_resource
from kelpie.server.openai.unsupported import UnsupportedParameter

TEXTS_MAX = 2048
TEXT_CHARS_MAX = 100_000

router: APIRouter = openai_resource("openai")


class EmbeddingBody(BaseModel):
    """Texts to embed. Fields of OpenAI's API that are not listed here are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(
        min_length=1,
        max_length=MODEL_CHARS_MAX,
        description="The handle or the name of an embedding model, or the id or the name of an agent.",
    )
    input: str | Annotated[list[Any], Field(min_length=1, max_length=TEXTS_MAX)]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = Field(None, description="Only the dimensions that the model has.")


@router.post("/embeddings", summary="Embed texts", response_model=None)
async def create_embeddings(client: OpenAiClient, body: EmbeddingBody) -> Response:
    texts = _texts(body.input)
    handle, agent = await _handle(client, body.model)
    info = await client.api.models.resolve_embedding(handle)
    if body.dimensions is not None and body.dimensions != info.dimensions:
        raise UnsupportedParameter("dimensions", f"{info.handle} has {info.dimensions} dimensions; omit it")
    consumer = Consumer(client.api.caller.organization_id, agent)
    vectors = await client.api.embeddings.of_texts(info.handle, texts, consumer)
    shown = _base64 if body.encoding_format == "base64" else _floats
    data = await joined_json(
        list(enumerate(vectors)),
        lambda one: ({"object": "embedding", "index": one[0], "embedding": shown(one[1])},),
    )
    tokens = sum(estimate(text) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JsonAnswer({"object": "list", "data": data, "model": body.model, "usage": usage})


def _texts(given: str | list[Any]) -> list[str]:
    """Raises InvalidInput."""
    texts = [given] if isinstance(given, str) else given
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInput("input", "must be text or a list of texts; tokens cannot be embedded")
        if not text.strip():
            raise InvalidInput("input", f"text {at} is empty")
        if len(text) > TEXT_CHARS_MAX:
            raise InvalidInput("input", f"text {at} has more than {TEXT_CHARS_MAX} characters")
    return texts


async def _handle(client: OpenAiClient, model: str) -> tuple[str, str]:
    """The handle of an embedding model, and the agent whose it is if the client named one.

    Raises NotFound, InvalidInput, Forbidden.
    """
    offered = await client.api.models.embeddings()
    for info in offered:
        if model in (info.handle, info.name):
            if client.given.grants is not None:
                raise Forbidden("This key is limited to specific agents; give one of them as the model.")
            return info.handle, ""
    try:
        agent_id = await client.agent(model, "GET", "")
        agent = (await client.api.agents.get(agent_id)).agent
    except NotFound:
        known = ", ".join(info.handle for info in offered[:20])
        raise NotFound("Model", model[:200], f"These embedding models are available: {known or 'none'}.") from None
    if agent.embedding is None:
        raise InvalidInput("model", f"{agent_id} has no embedding model; give the handle of one")
    return agent.embedding, agent_id


def _floats(vector: bytes) -> list[float]:
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def _base64(vector: bytes) -> str:
    return base64.b64encode(vector).decode()
