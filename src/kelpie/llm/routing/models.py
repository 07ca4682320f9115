"""The available models: the listing of each provider, the provider of a handle, and the management of local models.

The providers of the settings serve every organization; `of` adds those that one organization has added itself.
Listings are cached for some minutes, so that finding a model needs no network; a provider that cannot be listed hides
only its own models.
"""

import asyncio
import copy
from collections import ChainMap, OrderedDict
from collections.abc import AsyncGenerator, Iterable, MutableMapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.errors import InvalidInput, ModelError, NotFound, StorageError
from kelpie.core.ids import AgentId, MessageId, OrganizationId
from kelpie.core.models.model_providers import ModelProvider
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
    PreparedHistory,
    PreparedMessage,
    Provider,
    Request,
)
from kelpie.llm.routing import response_forms
from kelpie.llm.routing.default_model import DefaultModel, default_model
from kelpie.llm.routing.discovered_servers import DiscoveredServers, no_server, unused_servers
from kelpie.llm.routing.embedding_listing import check_it_chats, embeddings_of
from kelpie.llm.routing.fallback import FallbackChain
from kelpie.llm.routing.handles import LETTA_FREE, LETTA_NAMES, split, unknown
from kelpie.llm.routing.model_listing import Listing, spellings
from kelpie.llm.routing.own_providers import OwnProviders, ReadProviders
from kelpie.llm.routing.provider_report import ProviderReport, report_on
from kelpie.llm.routing.providers import (
    ALL_OFFERS,
    RESERVED_NAMES,
    ConfiguredProvider,
    fallbacks,
    how_to_have,
    limits_own_money,
    listed_prices,
    make_found,
    make_providers,
)
from kelpie.llm.wire.image_visibility import in_sight
from kelpie.observe import logs
from kelpie.world.world import World

OWN = "kelpie"  # the provider that is built in
CHECK = "Reply with one word: ready"
CHECK_TOKENS_MAX = 256
ORGANIZATIONS_MAX = 10_000  # whose own providers are held ready

_log = logs.get("llm")


class Models:
    """The models of this server's providers and, where `of` made it, of one organization's own.

    `read_own` finds the stored providers of an organization; without it there are none. Raises ConfigurationError when
    a provider's settings are wrong.
    """

    def __init__(
        self,
        world: World,
        settings: Settings,
        providers: Sequence[Provider] | None = None,
        share: OrganizationShare | None = None,
        read_own: ReadProviders | None = None,
    ) -> None:
        self._server = self  # the one without an organization, which finds local servers for all
        self._read_own = read_own
        self._own: OwnProviders | None = None
        self._organizations: OrderedDict[str, Models] = OrderedDict()
        self._spent: dict[tuple[str, str], list[tuple[Micros, int]]] = {}  # by organization and provider
        self._world = world
        self._settings = settings
        own_prices = parse_prices(PRICES_VARIABLE, settings.model_prices)
        self.prices = Prices(own_prices, listed_prices(settings))
        made = (
            make_providers(world, settings, self.prices, share)
            if providers is None
            else [ConfiguredProvider(provider) for provider in providers]
        )
        self._listings: MutableMapping[str, Listing] = {}
        self._chat: MutableMapping[str, ChatProvider] = {}
        self._limiters: dict[str, Limiter] = {}
        for each in made:
            self._add(each)
        self._fallbacks = fallbacks(settings, tuple(self._listings))
        self._discovered: DiscoveredServers | None = None
        self._found: set[str] = set()  # providers that no setting names
        self._limits_own_money = limits_own_money(settings)
        if providers is None and settings.discover_models and len(made) == 1:

            def make(found: FoundServer) -> ConfiguredProvider:
                return make_found(world, settings, self.prices, share, found.kind, found.url)

            self._discovered = DiscoveredServers(world, make, settings.model_listing_retry_s)

    def of(self, organization: OrganizationId | str) -> "Models":
        """The models that one organization can use: those of this server, and those of its own providers."""
        server = self._server
        if server._read_own is None or not organization:
            return server
        found = server._organizations.get(organization)
        if found is None:
            found = server._organizations[organization] = server._with_own(OrganizationId(organization))
            if len(server._organizations) > ORGANIZATIONS_MAX:
                server._organizations.popitem(last=False)  # its connections close when they are idle
        else:
            server._organizations.move_to_end(organization)
        return found

    def _with_own(self, organization: OrganizationId) -> "Models":
        assert self._read_own is not None
        own = OwnProviders(self._world, self._settings, self.prices, organization, self._read_own, self._spent_before)
        made = copy.copy(self)
        made._own = own
        made.prices = own.prices
        made._listings = ChainMap(own.listings, self._listings)
        made._chat = ChainMap(own.chat, self._chat)
        return made

    def _spent_before(self, organization: OrganizationId, provider: str) -> Sequence[tuple[Micros, int]]:
        return self._spent.get((organization, provider), ())

    async def load(self, *handles: str) -> None:
        """Reads the organization's own providers, if one of these handles may be of them; without a handle, always.

        What is known of them is as new as this call. Raises StorageError.
        """
        if self._own is not None and (not handles or any(not self.is_shared(each) for each in handles)):
            await self._own.load()

    async def open(self) -> None:
        """Reads the organization's own providers, unless they were read before, so that `known` knows their models.

        Raises StorageError.
        """
        if self._own is not None and not self._own.opened:
            await self._own.load()

    def is_shared(self, handle: str) -> bool:
        """True if a model can only be of a provider that all organizations share."""
        provider = handle.partition("/")[0]
        return provider in RESERVED_NAMES or provider in self._server._listings

    def is_own(self, provider: str) -> bool:
        """True for a provider that the organization has added itself."""
        return self._own is not None and provider in self._own.listings

    async def try_own(self, provider: ModelProvider) -> None:
        """Asks a provider for its models, stored or not, and caches nothing. Raises InvalidInput, ModelError."""
        assert self._own is not None
        made = self._own.made(provider).provider
        try:
            await made.models()
        finally:
            await made.close()

    async def renew(self, provider: str) -> None:
        """Asks one of the organization's own providers for its models again. Raises NotFound, ModelError."""
        await self.load()
        listing = self._listings.get(provider)
        if listing is None:
            raise NotFound("Provider", provider[:80])
        await listing.renew()

    def _add(self, made: ConfiguredProvider) -> None:
        name, settings = made.provider.name, self._settings
        self._listings[name] = Listing(made.provider, settings.model_listing_fresh_s, settings.model_listing_retry_s)
        self._chat[name] = made.chat
        if made.limited is not None:
            self._limiters[name] = made.limited.limiter

    async def discover(self, handle: str = "") -> None:
        """Reads the organization's own providers, and looks for model servers on this machine, if no provider is set up
        and the handle is of none that is known.

        Raises StorageError, and ModelError when the handle is of such a server and none answers.
        """
        await self.load(*((handle,) if handle else ()))
        await self.search_servers(handle)

    async def search_servers(self, handle: str = "") -> None:
        """Looks for model servers on this machine, as `discover` does. Raises ModelError as it does."""
        provider = handle.partition("/")[0]
        if self._discovered is None or provider in self._listings:
            return
        for each in await self._discovered.new():
            self._found.add(each.provider.name)
            self._server._add(each)
        if provider not in self._listings and provider in discovery.KINDS:
            raise no_server(provider)

    async def nearby(self) -> list[tuple[FoundServer, str]]:
        """Model servers that answer on this machine but are not in use, because other providers are set up; each with
        the setting that enables it."""
        if self._discovered is not None or not self._settings.discover_models:
            return []
        used = {each.endpoint for each in await self.report()}
        return await unused_servers(self._world, used, self._listings)

    async def default(self) -> DefaultModel:
        """The default model for new agents. Raises ModelError when the provider that would give it fails."""
        if self._settings.default_model is not None:
            return DefaultModel(self._settings.default_model)
        await self.discover()
        return await default_model(self._listings, self._own_types())

    def _own_types(self) -> dict[str, str]:
        """The organization's own providers, oldest first, with their types."""
        return {} if self._own is None else self._own.types

    async def report(self) -> list[ProviderReport]:
        """Every provider with its models, offered and hidden, or its error."""
        await self.discover()
        return list(
            await asyncio.gather(
                *(
                    report_on(each, found=name in self._found, own=self.is_own(name))
                    for name, each in self._listings.items()
                )
            )
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
        await self.load()
        return await self.known_embeddings()

    async def known_embeddings(self) -> list[EmbeddingInfo]:
        """The same, for showing what others use: the organization's own providers are as they were last read.

        What is shown may just have been stored, so it is shown without them if they cannot be read.
        """
        try:
            await self.open()
        except StorageError as error:
            _log.warning(
                "embedding_model_list_failed",
                "Embedding models of a provider could not be listed",
                provider="of the organization's own",
                error=str(error),
            )
        await self.search_servers()
        found: list[EmbeddingInfo] = []
        for name, listing in self._listings.items():
            try:
                found += await embeddings_of(listing)
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
        handle = await self._renamed("model", handle)
        provider_name, name = split("model", handle)
        listing = self._listings.get(provider_name)
        found = await listing.find(name) if listing else None
        if found is None and listing is not None:
            await check_it_chats(listing, handle, name)
        local = _local(listing.provider) if listing else None
        if found is None and listing is not None and local is not None and local.pull_missing and local.command(name):
            _log.info("model_pull_started", "Pulling a missing model", handle=handle)
            await local.fetch(name)
            found = await listing.find(name, renew=True)
        if found is None:
            raise unknown(handle, [model.handle for model in await self.all()], local)
        return found

    async def _renamed(self, field: str, handle: str) -> str:
        """The handle with this server's name of its provider. Raises as `split` and `discover` do."""
        provider, model = split(field, handle)
        await self.discover(handle)
        if provider in self._listings or provider not in LETTA_NAMES:
            return handle
        here = f"{LETTA_NAMES[provider]}/{model}"
        await self.discover(here)
        return here

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
        handle = await self._renamed("embedding", handle)
        provider_name, name = split("embedding", handle)
        listing = self._listings.get(provider_name)
        if listing is not None:
            names = spellings(listing.provider, name)
            by_name = {info.name: info for info in await embeddings_of(listing, names)}
            if found := next((by_name[one] for one in names if one in by_name), None):
                return found
        raise unknown(handle, [info.handle for info in await self.embeddings()], None)

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
        chain = FallbackChain(self._find_chat, handle, self._fallbacks, self._fit, self.prices.of)
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
        return self._limits_own_money or any(limiter.bounds.dollars for limiter in self._limiters.values())

    def remember(self, spent: Iterable[tuple[str, str, Micros, int]]) -> None:
        """Counts the cost of models before this server started (organization, handle, time, millionths of a dollar),
        oldest first: a restart must not reset the limits on money."""
        now = self._world.clock.now()
        for organization, handle, at, micros in spent:
            provider = handle.partition("/")[0]
            limiter = self._limiters.get(provider)
            if limiter is not None:
                limiter.remember(micros, max(0, now - at) / MICROS_PER_SECOND)
            elif self._limits_own_money and not self.is_shared(handle):
                self._spent.setdefault((organization, provider), []).append((at, micros))

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
        for each in self._organizations.values():
            if each._own is not None:
                await each._own.close()
        for listing in self._server._listings.values():
            await listing.provider.close()

    def _fit(self, handle: str, request: Request) -> Request:
        """The request in the form that this model accepts: its images, and the response format."""
        rows = request.messages
        pictures = any(row.pictures for row in (rows.unsettled if isinstance(rows, PreparedHistory) else rows))
        if not pictures and not request.options.get(response_forms.OPTION):
            return request
        info = self.known(handle)
        if pictures:
            request = replace(request, messages=in_sight(request.messages, sees=info is None or info.vision))
        able = info is None or info.structured_output or not known_models.knows(info.name)
        return response_forms.formed(request, able=able)

    def _find(self, handle: str) -> tuple[Provider, str]:
        provider_name, model_name = split("model", handle)
        listing = self._listings.get(provider_name)
        if listing is None:
            raise unknown(handle, [f"{name}/..." for name in self._listings], None)
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


def _local(provider: Provider) -> LocalServer | None:
    return provider if isinstance(provider, LocalServer) else None
