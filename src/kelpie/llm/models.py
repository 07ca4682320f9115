"""The models on offer: which providers there are, what each lists, and who answers to a handle.

A handle is `provider/model`; only the first slash counts. Listings are kept for some minutes, so that finding a model
needs no network; a provider that cannot be listed hides only its own models.
"""

import asyncio
from collections.abc import Sequence

from kelpie.core.errors import InvalidInput, ModelError, NotFound
from kelpie.core.settings import Settings
from kelpie.llm.demo import DemoProvider
from kelpie.llm.faults import Endpoint
from kelpie.llm.openai_chat import OpenAIChat
from kelpie.llm.port import EmbeddingInfo, ModelInfo, Provider
from kelpie.llm.retry import Limits
from kelpie.observe import logs
from kelpie.world.world import World

LISTING_FRESH_S = 300.0
LISTING_RETRY_S = 15.0  # how soon a failed listing, or one that lacks a model, is asked for again
HANDLES_TOLD_MAX = 50

_log = logs.get("llm")


class Models:
    """All providers of this server. Raises ConfigurationError when a provider's settings are wrong."""

    def __init__(self, world: World, settings: Settings, providers: Sequence[Provider] | None = None) -> None:
        made = _providers(world, settings) if providers is None else providers
        self._listings = {provider.name: _Listing(provider) for provider in made}

    async def embeddings(self) -> list[EmbeddingInfo]:
        """Every embedding model that can be had."""
        return [info for listing in self._listings.values() for info in await listing.provider.embeddings()]

    async def resolve(self, handle: str) -> ModelInfo:
        """The model with this handle. Raises InvalidInput, NotFound, or ModelError when its provider fails."""
        provider_name, _ = _split("model", handle)
        listing = self._listings.get(provider_name)
        found = await listing.find(handle) if listing else None
        if found is None:
            raise _unknown(handle, [model.handle for model in await self.list()])
        return found

    def known(self, handle: str) -> ModelInfo | None:
        """What can be said of a model without asking anyone; None when there is no such provider."""
        provider, _, name = handle.partition("/")
        listing = self._listings.get(provider)
        return (listing.known(handle) or listing.provider.describe(name)) if listing else None

    async def resolve_embedding(self, handle: str) -> EmbeddingInfo:
        """The embedding model with this handle. Raises InvalidInput or NotFound."""
        _split("embedding", handle)
        known = await self.embeddings()
        for info in known:
            if info.handle == handle:
                return info
        raise _unknown(handle, [info.handle for info in known])

    def provider(self, handle: str) -> tuple[Provider, str]:
        """Who answers to this handle, and the provider's own name for the model. Raises InvalidInput or NotFound."""
        provider_name, model_name = _split("model", handle)
        listing = self._listings.get(provider_name)
        if listing is None:
            raise _unknown(handle, [f"{name}/..." for name in self._listings])
        return listing.provider, model_name

    async def list(self) -> list[ModelInfo]:
        """Every chat model that can be had now; a provider that fails is logged and left out."""
        found: list[ModelInfo] = []
        for listing in self._listings.values():
            try:
                found += await listing.models()
            except ModelError as error:
                _log.warning(
                    "the models of a provider cannot be listed",
                    provider=listing.provider.name,
                    kind=error.kind.value,
                    error=error.message,
                    detail=error.detail,
                    hint=error.hint,
                )
        return found

    async def close(self) -> None:
        for listing in self._listings.values():
            await listing.provider.close()


class _Listing:
    """What one provider lists, remembered for a while; so is a failure, for a shorter one."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._lock = asyncio.Lock()
        self._models: Sequence[ModelInfo] | None = None
        self._error: ModelError | None = None
        self._asked_at = 0.0

    async def models(self, fresh_s: float = LISTING_FRESH_S) -> Sequence[ModelInfo]:
        """The models, asked for again when the last answer is older than `fresh_s`. Raises ModelError."""
        async with self._lock:
            if self._age() > (LISTING_RETRY_S if self._error else fresh_s):
                await self._ask()
            if self._models is None:
                assert self._error is not None
                raise _again(self._error)
            return self._models

    async def find(self, handle: str) -> ModelInfo | None:
        """The model with this handle; a listing that lacks it is renewed first. Raises ModelError."""
        for fresh_s in (LISTING_FRESH_S, LISTING_RETRY_S):
            for model in await self.models(fresh_s):
                if model.handle == handle:
                    return model
        return None

    def known(self, handle: str) -> ModelInfo | None:
        """The model with this handle in the last listing, however old."""
        return next((model for model in self._models or () if model.handle == handle), None)

    def _age(self) -> float:
        never = self._models is None and self._error is None
        return float("inf") if never else asyncio.get_running_loop().time() - self._asked_at

    async def _ask(self) -> None:
        try:
            self._models, self._error = await self.provider.models(), None
        except ModelError as error:
            self._error = error
            if self._models is not None:
                _log.warning("a listing could not be renewed, the old one is used", provider=self.provider.name)
        finally:
            self._asked_at = asyncio.get_running_loop().time()


def _providers(world: World, settings: Settings) -> list[Provider]:
    providers: list[Provider] = [DemoProvider()]
    if settings.openai_api_key or settings.openai_base_url.rstrip("/") != Settings().openai_base_url:
        endpoint = Endpoint("openai", settings.openai_base_url, settings.openai_api_key)
        limits = Limits(attempts=settings.model_attempts, total_s=settings.model_timeout_s)
        providers.append(OpenAIChat(world, endpoint, limits))
    return providers


def _split(field: str, handle: str) -> tuple[str, str]:
    provider, slash, model = handle.partition("/")
    if not (provider and slash and model):
        raise InvalidInput(field, f"'{handle[:80]}' is not a handle of the form provider/model, such as kelpie/demo")
    return provider, model


def _unknown(handle: str, known: Sequence[str]) -> NotFound:
    more = ", ..." if len(known) > HANDLES_TOLD_MAX else ""
    text = f"Handle {handle[:200]} not found, must be one of [{', '.join(known[:HANDLES_TOLD_MAX])}{more}]"
    if handle.startswith("openai/") and not any(one.startswith("openai/") for one in known):
        text += ". Set OPENAI_API_KEY (or OPENAI_BASE_URL for a compatible server) to have the models of openai"
    error = NotFound("Handle", handle)
    error.args = (text,)
    return error


def _again(error: ModelError) -> ModelError:
    """The remembered failure as an exception of its own: one object must not be raised in several tasks."""
    return ModelError(
        error.kind, error.message, detail=error.detail, hint=error.hint, retry_after_s=error.retry_after_s
    )
