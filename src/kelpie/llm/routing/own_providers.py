"""Providers that one organization has added with its own keys, ready to be called.

What is stored decides: it is read again before each use, so that a new key, another address or a deletion counts for
the next call, whichever request changed it. A call that is under way ends with what it began with.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kelpie.core.errors import ConfigurationError, InvalidInput, ModelError, ModelFault
from kelpie.core.ids import OrganizationId
from kelpie.core.models.model_providers import ModelProvider
from kelpie.core.settings.settings import Settings
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.llm.catalog.price_list import Prices
from kelpie.llm.limits.limiter import Limiter
from kelpie.llm.provider.interface import ChatProvider
from kelpie.llm.routing.model_listing import Listing
from kelpie.llm.routing.providers import ConfiguredProvider, make_own, own_limiter, own_price_list
from kelpie.llm.routing.unusable_provider import UnusableProvider
from kelpie.world.world import World

ReadProviders = Callable[[OrganizationId], Awaitable[Sequence[ModelProvider]]]
"""The stored providers of an organization, oldest first. Raises StorageError."""

Spending = Callable[[OrganizationId, str], Sequence[tuple[Micros, int]]]
"""The cost of a provider, by its name, before this server started: times and millionths of a dollar, oldest first."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A stored provider and what was made of it."""

    stored: ModelProvider
    made: ConfiguredProvider
    limiter: Limiter | None


class OwnProviders:
    """The providers of one organization. `listings`, `chat` and `price_lists` have them by name, as last read."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        prices: Prices,
        organization: OrganizationId,
        read: ReadProviders,
        spent: Spending,
    ) -> None:
        self._world = world
        self._settings = settings
        self._organization = organization
        self._read = read
        self._spent = spent
        self._loaded: dict[str, _Loaded] = {}  # by name
        self._reading = asyncio.Lock()
        self._begun = self._done = 0  # numbers of reads
        self.opened = False  # true once they were read
        self.listings: dict[str, Listing] = {}
        self.chat: dict[str, ChatProvider] = {}
        self.price_lists: dict[str, str] = {}
        self.prices = prices.with_lists(self.price_lists)

    async def load(self) -> None:
        """Reads what is stored, and makes what changed. One read serves all who asked before it began.

        Raises StorageError.
        """
        wanted = self._begun + 1
        async with self._reading:  # so that no older answer replaces a newer one
            if self._done >= wanted:
                return
            number = self._begun = self._begun + 1
            stored = {each.name: each for each in await self._read(self._organization)}
            for name in [name for name in self._loaded if name not in stored]:
                await self._drop(name)
            for name, provider in stored.items():
                before = self._loaded.get(name)
                if before is None or _changed(before.stored, provider):
                    self._put(provider, before.limiter if before and before.stored.id == provider.id else None)
                    if before is not None:
                        await before.made.provider.close()
            self.opened, self._done = True, number

    @property
    def types(self) -> dict[str, str]:
        """The types of the providers by name, oldest first."""
        loaded = sorted(self._loaded.values(), key=lambda each: (each.stored.created_at, each.stored.id))
        return {each.stored.name: each.stored.access.provider_type for each in loaded}

    async def close(self) -> None:
        for name in list(self._loaded):
            await self._drop(name)

    def made(self, provider: ModelProvider) -> ConfiguredProvider:
        """A provider that is not stored, to be checked. Raises InvalidInput."""
        try:
            return make_own(self._world, self._settings, self.prices, provider, None)
        except ConfigurationError as error:
            raise InvalidInput("base_url", str(error)) from error

    def _put(self, provider: ModelProvider, limiter: Limiter | None) -> None:
        name, settings = provider.name, self._settings
        self.price_lists[name] = own_price_list(provider.access)
        limiter = limiter or self._limiter(provider)
        made = self._usable(provider, limiter)
        self._loaded[name] = _Loaded(provider, made, limiter)
        self.listings[name] = Listing(made.provider, settings.model_listing_fresh_s, settings.model_listing_retry_s)
        self.chat[name] = made.chat

    async def _drop(self, name: str) -> None:
        loaded = self._loaded.pop(name)
        del self.listings[name], self.chat[name], self.price_lists[name]
        await loaded.made.provider.close()

    def _usable(self, provider: ModelProvider, limiter: Limiter | None) -> ConfiguredProvider:
        """The provider, or one that says why it cannot be called: it must hide no other."""
        try:
            if provider.unreadable:
                raise InvalidInput("api_key", " ".join(provider.unreadable.values()))
            return make_own(self._world, self._settings, self.prices, provider, limiter)
        except (InvalidInput, ConfigurationError) as error:
            hint = f"Change the provider with PATCH /v1/providers/{provider.id}, or give the agent another model."
            why = ModelError(ModelFault.bad_request, f"The provider {provider.name} cannot be used: {error}", hint=hint)
            return ConfiguredProvider(UnusableProvider(provider.name, provider.access.provider_type, why))

    def _limiter(self, provider: ModelProvider) -> Limiter | None:
        limiter = own_limiter(provider, self._settings)
        if limiter is not None and limiter.bounds.dollars:
            now = self._world.clock.now()
            for at, micros in self._spent(self._organization, provider.name):
                limiter.remember(micros, max(0, now - at) / MICROS_PER_SECOND)
        return limiter


def _changed(before: ModelProvider, after: ModelProvider) -> bool:
    """True if a provider must be made anew. A key that could not be read may be readable now."""
    return (before.id, before.revision, before.unreadable) != (after.id, after.revision, after.unreadable)
