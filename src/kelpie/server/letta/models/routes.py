"""The models on offer."""

from typing import Annotated

from fastapi import Query

from kelpie.server.http.headers.answer_headers import FAILED_HEADER
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.models.shape import embedding_shape, model_shape

router = resource("/models", "models")


@router.get("/", summary="List language models", response_model=None)
async def list_models(
    api: CallerApi,
    provider_category: Annotated[list[str] | None, Query()] = None,
    provider_name: str | None = None,
    provider_type: str | None = None,
) -> JsonAnswer:
    """Lists the models. A provider type that the SDKs do not know is shown as `openai` and also found by its name.

    A provider that fails hides only its own models; the header `X-Kelpie-Failed-Providers` names it.
    """
    reports = await api.models.report()
    failed = [report.provider for report in reports if report.error is not None]
    return JsonAnswer(
        [
            shape
            for model in api.models.offered(reports)
            for shape in (model_shape(model),)
            if provider_category is None or shape["provider_category"] in provider_category
            if provider_name is None or shape["provider_name"] == provider_name
            if provider_type is None or provider_type in (shape["provider_type"], model.provider_type)
        ],
        headers={FAILED_HEADER: ", ".join(failed)} if failed else None,
    )


@router.get("/embedding", summary="List embedding models", response_model=None)
async def list_embedding_models(api: CallerApi) -> JsonAnswer:
    return await listed(await api.models.embeddings(), embedding_shape)
