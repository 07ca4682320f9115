"""The models on offer."""

from typing import Annotated

from fastapi import Query

from kelpie.server.answer import Answer
from kelpie.server.house import House
from kelpie.server.letta.model_shape import embedding_shape, model_shape
from kelpie.server.letta.resource import resource

router = resource("/models", "models")


@router.get("/", summary="List language models", response_model=None)
async def list_models(
    kelpie: House,
    provider_category: Annotated[list[str] | None, Query()] = None,
    provider_name: str | None = None,
    provider_type: str | None = None,
) -> Answer:
    shapes = [model_shape(model) for model in await kelpie.models.list()]
    return Answer(
        [
            model
            for model in shapes
            if provider_category is None or model["provider_category"] in provider_category
            if provider_name is None or model["provider_name"] == provider_name
            if provider_type is None or model["provider_type"] == provider_type
        ]
    )


@router.get("/embedding", summary="List embedding models", response_model=None)
async def list_embedding_models(kelpie: House) -> Answer:
    return Answer([embedding_shape(model) for model in await kelpie.models.embeddings()])
