"""The available models: the listing of each provider, the provider of a handle, and the management of local models.

A handle is `provider/model`; only the first slash counts. Listings are cached for some minutes, so that finding a model
needs no network; a provider that cannot be listed hides only its own models.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace

from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.errors import InvalidInput, ModelError, ModelFault, NotFound
from kelpie.core.ids import AgentId, MessageId
from kelpie.core.models.prices import parse_prices
from kelpie.core.settings.settings import Settings
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.llm.catalog import known_models
from kelpie.llm.catalog.price_list import Prices
from kelpie.llm.limits.limited_provider import PRICES_VARIABLE
from kelpie.llm.limits.limiter import Limiter
from kelpie.llm.local import discovery
from kelpie.llm.local.discovery import FoundServer
from kelpie.llm.local.probing import Progress
from kelpie.llm.local.server import LocalServer
from kelpie.llm.provider.completion import complete
from kelpie.llm.provider.interface import (
    ChatModel,
    ChatProvider,
    EmbeddingInfo,
    EmbeddingProvider,
    ModelInfo,
    PayloadProvider,
    PreparedMessage,
    Provider,
    Request,
)
from kelpie.llm.routing import response_forms
from kelpie.llm.routing.default_model import DEMO, NOTHING_SET_UP, DefaultModel, preferred
from kelpie.llm.routing.discovered_servers import DiscoveredServers
from kelpie.llm.routing.fallback import FallbackChain
from kelpie.llm.routing.model_listing import Listing, spellings
from kelpie.llm.routing.provider_report import ProviderReport, hidden_models, report_on
from kelpie.llm.routing.providers import (
    ALL_OFFERS,
    ConfiguredProvider,
    address_to_set,
    fallbacks,
    how_to_have,
    listed_prices,
    make_found,
    make_providers,
)
from kelpie.llm.wire.image_visibility import in_sight
from kelpie.observe import logs
from kelpie.world.world import World

HANDLES_TOLD_MAX = 50
OWN = "kelpie"  # the provider that is built in
LETTA_FREE = "letta/letta-free"  # in old examples and agent files: a model and an embedding model of every Letta server
CHECK = "Reply with one word: ready"
CHECK_TOKENS_MAX = 256

_log = logs.get("llm")


class Models:
    """All providers of this server. Raises ConfigurationError when a provider's settings are wrong."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        providers: Sequence[Provider] | None = None,
        share: OrganizationShare | None = None,
    ) -> None:
        self._world = world
        self._settings = settings
        own_prices = parse_prices(PRICES_VARIABLE, settings.model_prices)
        self.prices = Prices(own_prices, listed_prices(settings))
        made = (
            make_providers(world, settings, self.prices, share)
            if providers is None
            else [ConfiguredProvider(provider) for provider in providers]
        )
        self._listings: dict[str, Listing] = {}
        self._chat: dict[str, ChatProvider] = {}
        self._limiters: dict[str, Limiter] = {}
        for each in made:
            self._add(each)
        self._fallbacks = fallbacks(settings, tuple(self._listings))
        self._discovered: DiscoveredServers | None = None
        self._found: set[str] = set()  # providers that no setting names
        if providers is None and settings.discover_models and len(made) == 1:

            def make(found: FoundServer) -> ConfiguredProvider:
                return make_found(world, settings, self.prices, share, found.kind, found.url)

            self._discovered = DiscoveredServers(world, make, settings.model_listing_retry_s)

    def _add(self, made: ConfiguredProvider) -> None:
        name, settings = made.provider.name, self._settings
        self._listings[name] = Listing(made.provider, settings.model_listing_fresh_s, settings.model_listing_retry_s)
        self._chat[name] = made.chat
        if made.limited is not None:
            self._limiters[name] = made.limited.limiter

    async def discover(self, handle: str = "") -> None:
        """Looks for model servers on this machine, if no provider is set up and the handle is of none that is known.

        Raises ModelError when the handle is of such a server and none answers.
        """
        provider = handle.partition("/")[0]
        if self._discovered is None or provider in self._listings:
            return
        for each in await self._discovered.new():
            self._found.add(each.provider.name)
            self._add(each)
        if provider not in self._listings and provider in discovery.KINDS:
            raise ModelError(
                ModelFault.connection,
                f"No {provider} server answers on its default port of this machine.",
                hint=f"Start it. {how_to_have(provider)}, if it listens elsewhere.",
            )

    async def nearby(self) -> list[tuple[FoundServer, str]]:
        """Model servers that answer on this machine but are not in use, because other providers are set up; each with
        the setting that enables it."""
        if self._discovered is not None or not self._settings.discover_models:
            return []
        used = {each.endpoint for each in await self.report()}
        return [
            (each, address_to_set(each.kind, each.url))
            for each in await discovery.look(self._world)
            if each.url not in used and each.kind not in self._listings
        ]

    async def default(self) -> DefaultModel:
        """The default model for new agents. Raises ModelError when the provider that would give it fails."""
        if self._settings.default_model is not None:
            return DefaultModel(self._settings.default_model)
        await self.discover()
        without: list[str] = []
        for offer in ALL_OFFERS:
            listing = self._listings.get(offer.name)
            if listing is None:
                continue
            try:
                models = await listing.models()
            except ModelError as error:
                raise _no_default(error) from error
            if chosen := preferred(offer.name, models):
                return DefaultModel(chosen.handle)
            without.append(offer.name)
        if not without:
            return DefaultModel(DEMO, NOTHING_SET_UP)
        return DefaultModel(DEMO, f"no model of {' or '.join(without)} can chat; `kelpie doctor` shows more")

    async def report(self) -> list[ProviderReport]:
        """Every provider with its models, offered and hidden, or its error."""
        await self.discover()
        return list(
            await asyncio.gather(*(report_on(each, found=name in self._found) for name, each in self._listings.items()))
        )

    @property
    def configured(self) -> bool:
        """True if there is a provider besides the one that is built in."""
        return any(name != OWN for name in self._listings)

    def absent(self) -> dict[str, str]:
        """Providers that are not set up, each with the setting to set."""
        return {offer.name: how_to_have(offer.name) for offer in ALL_OFFERS if offer.name not in self._listings}

    async def embeddings(self) -> list[EmbeddingInfo]:
        """Every available embedding model; a provider that fails is logged and left out."""
        await self.discover()
        found: list[EmbeddingInfo] = []
        for name, listing in self._listings.items():
            try:
                found += await _embeddings(listing)
            except ModelError as error:
                _log.warning(
                    "embedding_model_list_failed",
                    "Embedding models of a provider could not be listed",
                    provider=name,
                    error=error.message,
                )
        return found

    async def resolve(self, handle: str) -> ModelInfo:
        """The model with this handle, pulled first if it is local, missing and allowed.

        Raises InvalidInput, NotFound, or ModelError when its provider fails.
        """
        if handle == LETTA_FREE:
            handle = (await self.default()).handle
        provider_name, name = _split("model", handle)
        await self.discover(handle)
        listing = self._listings.get(provider_name)
        found = await listing.find(name) if listing else None
        if found is None and listing is not None:
            await _check_it_chats(listing, handle, name)
        local = _local(listing.provider) if listing else None
        if found is None and listing is not None and local is not None and local.pull_missing and local.command(name):
            _log.info("model_pull_started", "Pulling a missing model", handle=handle)
            await local.fetch(name)
            found = await listing.find(name, renew=True)
        if found is None:
            raise _unknown(handle, [model.handle for model in await self.all()], local)
        return found

    def known(self, handle: str) -> ModelInfo | None:
        """Known facts about a model without a request; None when there is no such provider."""
        provider, _, name = handle.partition("/")
        listing = self._listings.get(provider)
        return (listing.known(name) or listing.provider.describe(name)) if listing else None

    async def resolve_embedding(self, handle: str) -> EmbeddingInfo:
        """The embedding model with this handle.

        Raises InvalidInput, NotFound, or ModelError when its provider fails.
        """
        if handle == LETTA_FREE:
            handle = self._settings.default_embedding or await self.own_embedding() or handle
        provider_name, name = _split("embedding", handle)
        await self.discover(handle)
        listing = self._listings.get(provider_name)
        if listing is not None:
            names = spellings(listing.provider, name)
            by_name = {info.name: info for info in await _embeddings(listing, names)}
            if found := next((by_name[one] for one in names if one in by_name), None):
                return found
        raise _unknown(handle, [info.handle for info in await self.embeddings()], None)

    async def own_embedding(self) -> str | None:
        """The handle of the embedding model on this machine, if it is installed."""
        own = self._listings.get(OWN)
        found = await own.provider.embeddings() if own else ()
        return found[0].handle if found else None

    def why_no_own_embedding(self) -> str | None:
        """The missing part of this machine's embedding model, and how to get it; None when nothing is missing."""
        embedder = self._world.embedder
        return None if embedder is None else embedder.why_not()

    async def embed(self, handle: str, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """One vector per text, as little-endian 32-bit floats; `patient` when no caller waits for them.

        Raises InvalidInput, NotFound or ModelError.
        """
        info = await self.resolve_embedding(handle)
        provider = self._find(handle)[0]
        if not isinstance(provider, EmbeddingProvider):
            raise InvalidInput("embedding", f"the provider of '{handle[:80]}' does not offer embeddings")
        return await provider.embed(info, texts, patient=patient)

    def provider(self, handle: str) -> tuple[ChatModel, str]:
        """The model with this handle, its fallback chain included, and the provider's own name for it.

        Raises InvalidInput or NotFound.
        """
        chain = FallbackChain(self._find_chat, handle, self._fallbacks, self._fit, self.prices.charged)
        return chain, self._find(handle)[1]

    async def payload(self, handle: str, request: Request) -> bytes:
        """The request that the model's provider would get. Raises InvalidInput, NotFound or ModelError."""
        provider, _ = self._find(handle)
        if not isinstance(provider, PayloadProvider):
            raise InvalidInput("model", f"'{handle[:80]}' runs inside this server, so there is no request to show")
        return await provider.payload(self._fit(handle, request))

    async def check(self, handle: str) -> str:
        """A short reply from the model itself, without fallbacks. Raises InvalidInput, NotFound or ModelError."""
        info = await self.resolve(handle)
        model, name = self._find_chat(info.handle)
        ids = self._world.ids
        asked = Message(ids.new(MessageId), ids.new(AgentId), Role.user, self._world.clock.now(), (Text(CHECK),))
        request = Request(model=name, system="", messages=(PreparedMessage(asked),), max_tokens=CHECK_TOKENS_MAX)
        reply = await complete(model, request, handle=info.handle)
        return "".join(part.text for part in reply.content if isinstance(part, Text))

    async def pull(self, handle: str) -> AsyncGenerator[Progress, None]:
        """Pulls a local model and yields the progress. Raises InvalidInput, NotFound or ModelError."""
        await self.discover(handle)
        local, name = self._cared_for(handle)
        async with aclosing(local.pull(name)) as steps:
            async for step in steps:
                yield step
        await self._listings[local.name].find(name, renew=True)

    async def remove(self, handle: str) -> None:
        """Deletes a local model. Raises InvalidInput, NotFound or ModelError."""
        await self.discover(handle)
        local, name = self._cared_for(handle)
        listing = self._listings[local.name]
        found = await listing.find(name)
        await local.remove(found.name if found else name)
        await listing.find(name, renew=True)

    @property
    def counts_money(self) -> bool:
        """True if any provider has a limit on money, so that `remember` is needed."""
        return any(limiter.bounds.dollars for limiter in self._limiters.values())

    def remember(self, spent: Iterable[tuple[str, Micros, int]]) -> None:
        """Counts the cost of models before this server started (handle, time, millionths of a dollar), oldest first: a
        restart must not reset the limits on money."""
        now = self._world.clock.now()
        for handle, at, micros in spent:
            limiter = self._limiters.get(handle.partition("/")[0])
            if limiter is not None:
                limiter.remember(micros, max(0, now - at) / MICROS_PER_SECOND)

    async def all(self) -> list[ModelInfo]:
        """Every available chat model; a provider that fails is logged and left out."""
        return self.offered(await self.report())

    def offered(self, reports: Sequence[ProviderReport]) -> list[ModelInfo]:
        """The chat models of a report; a provider that failed is logged."""
        for report in reports:
            if report.error is not None:
                _log.warning(
                    "model_list_failed",
                    "Models of a provider could not be listed",
                    provider=report.provider,
                    kind=report.error.kind.value,
                    error=report.error.message,
                    detail=report.error.detail,
                    hint=report.error.hint,
                )
        return [model for report in reports for model in report.models]

    async def close(self) -> None:
        for listing in self._listings.values():
            await listing.provider.close()

    def _fit(self, handle: str, request: Request) -> Request:
        """The request in the form that this model accepts: its images, and the response format."""
        pictures = any(row.pictures for row in request.messages)
        if not pictures and not request.options.get(response_forms.OPTION):
            return request
        info = self.known(handle)
        if pictures:
            request = replace(request, messages=in_sight(request.messages, sees=info is None or info.vision))
        able = info is None or info.structured_output or not known_models.knows(info.name)
        return response_forms.formed(request, able=able)

    def _find(self, handle: str) -> tuple[Provider, str]:
        provider_name, model_name = _split("model", handle)
        listing = self._listings.get(provider_name)
        if listing is None:
            raise _unknown(handle, [f"{name}/..." for name in self._listings], None)
        return listing.provider, model_name

    def _find_chat(self, handle: str) -> tuple[ChatProvider, str]:
        """Like `_find`, for asking the model: within the operator's limits."""
        provider, model_name = self._find(handle)
        return self._chat[provider.name], model_name

    def _cared_for(self, handle: str) -> tuple[LocalServer, str]:
        provider, name = self._find(handle)
        local = _local(provider)
        if local is None:
            raise InvalidInput(
                "model", f"'{handle[:80]}' is not on a local model server; only local models can be pulled or removed"
            )
        return local, name


async def _embeddings(listing: Listing, only: Sequence[str] | None = None) -> Sequence[EmbeddingInfo]:
    """The embedding models of a provider, or those of these names. Raises ModelError."""
    local = _local(listing.provider)
    if local is None:
        return [each for each in await listing.provider.embeddings() if only is None or each.name in only]
    await listing.models()  # it caches for a while that a server does not answer
    return await local.embeddings(only)


async def _check_it_chats(listing: Listing, handle: str, name: str) -> None:
    """Raises InvalidInput for a model that exists and cannot chat."""
    names = spellings(listing.provider, name)
    found = next((each for each in hidden_models(listing.provider) if each.name in names), None)
    if (found is not None and found.embeds) or (found is None and await _embeddings(listing, names)):
        use = "use it as the embedding of an agent or archive"
        raise InvalidInput("model", f"{handle[:200]} is an embedding model and cannot chat; {use}")
    if found is not None:
        raise InvalidInput("model", f"{handle[:200]} cannot chat: {found.reason}")


def _no_default(error: ModelError) -> ModelError:
    """The failure of the provider that would give the default model, with the other way to make an agent."""
    other = "Or name a model: kelpie/demo works without a provider."
    hint = f"{error.hint} {other}" if error.hint else other
    return ModelError(error.kind, error.message, detail=error.detail, hint=hint, retry_after_s=error.retry_after_s)


def _local(provider: Provider) -> LocalServer | None:
    return provider if isinstance(provider, LocalServer) else None


def _split(field: str, handle: str) -> tuple[str, str]:
    provider, slash, model = handle.partition("/")
    if not (provider and slash and model):
        raise InvalidInput(field, f"'{handle[:80]}' is not a handle of the form provider/model, such as kelpie/demo")
    return provider, model


def _unknown(handle: str, known: Sequence[str], local: LocalServer | None) -> NotFound:
    more = ", ..." if len(known) > HANDLES_TOLD_MAX else ""
    text = f"Handle {handle[:200]} not found, must be one of [{', '.join(known[:HANDLES_TOLD_MAX])}{more}]"
    provider, _, name = handle.partition("/")
    set_up = any(one.startswith(f"{provider}/") for one in known)
    if local is not None and (command := local.command(name)):
        text += f". Type `{command[:200]}`, or set KELPIE_PULL_MISSING_MODELS=true"
    elif not set_up and any(offer.name == provider for offer in ALL_OFFERS):
        text += f". {how_to_have(provider)}"
    error = NotFound("Handle", handle)
    error.args = (text,)
    return error
